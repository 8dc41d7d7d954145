"""Family `streaming`: a stream is a sequence of well-formed events with the same content as the whole answer."""

from __future__ import annotations

from harmony_conformance.checks.streaming.calls import call_deltas_can_be_joined
from harmony_conformance.checks.streaming.chunks import (
    choices_are_numbered,
    one_finish_reason,
    one_identity,
    role_comes_first,
    usage_comes_last,
)
from harmony_conformance.checks.streaming.disconnect import (
    generation_stops_when_the_client_leaves,
    server_survives_a_client_that_leaves,
)
from harmony_conformance.checks.streaming.events import ends_with_done, events_are_chunks, is_a_stream
from harmony_conformance.checks.streaming.order import order_is_kept
from harmony_conformance.checks.streaming.pace import deltas_come_as_generated
from harmony_conformance.checks.streaming.stream_equals_whole import (
    calls_equal_whole,
    content_equals_whole,
    finish_equals_whole,
    reasoning_equals_whole,
    usage_equals_whole,
)

__all__ = [
    "call_deltas_can_be_joined",
    "calls_equal_whole",
    "choices_are_numbered",
    "content_equals_whole",
    "deltas_come_as_generated",
    "ends_with_done",
    "events_are_chunks",
    "finish_equals_whole",
    "generation_stops_when_the_client_leaves",
    "is_a_stream",
    "one_finish_reason",
    "one_identity",
    "order_is_kept",
    "reasoning_equals_whole",
    "role_comes_first",
    "server_survives_a_client_that_leaves",
    "usage_comes_last",
    "usage_equals_whole",
]
