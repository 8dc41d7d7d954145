"""Family `native`: what Ollama's and TGI's own APIs promise in their own words: lines, endings, counts, tokens."""

from __future__ import annotations

from harmony_conformance.checks.native.ollama import (
    arguments_are_objects,
    context_is_the_conversation,
    last_line_is_done,
    lines_are_objects,
)
from harmony_conformance.checks.native.refusals import refusal_is_in_its_own_form
from harmony_conformance.checks.native.tgi import (
    chat_tokenize_shows_the_prompt,
    finish_reason_tells_why,
    tokens_are_all_told,
)

__all__ = [
    "arguments_are_objects",
    "chat_tokenize_shows_the_prompt",
    "context_is_the_conversation",
    "finish_reason_tells_why",
    "last_line_is_done",
    "lines_are_objects",
    "refusal_is_in_its_own_form",
    "tokens_are_all_told",
]
