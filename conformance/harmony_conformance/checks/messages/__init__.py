"""Family `messages`: content blocks, stop reasons, signatures, counts, errors and events of Anthropic's Messages.

Other families check the content of an answer after conversion to a chat completion.
"""

from __future__ import annotations

from harmony_conformance.checks.messages import blocks, ending, events, side_endpoints

MODULES = (blocks, ending, events, side_endpoints)
