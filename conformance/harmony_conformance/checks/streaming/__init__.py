"""Family `streaming`: a stream is a sequence of well-formed events with the same content as the whole answer."""

from __future__ import annotations

from harmony_conformance.checks.streaming import calls, chunks, disconnect, events, order, pace, stream_equals_whole

MODULES = (calls, chunks, disconnect, events, order, pace, stream_equals_whole)
