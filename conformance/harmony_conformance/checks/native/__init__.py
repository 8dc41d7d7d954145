"""Family `native`: guarantees of Ollama's, TGI's and SGLang's own APIs: lines, endings, counts, tokens, parsers."""

from __future__ import annotations

from harmony_conformance.checks.native.ollama import (
    arguments_are_objects,
    context_is_the_conversation,
    last_line_is_done,
    lines_are_objects,
)
from harmony_conformance.checks.native.refusals import refusal_is_in_its_own_form
from harmony_conformance.checks.native.sglang import (
    events_go_on_from_each_other,
    finish_reason_names_what_matched,
    reasoning_is_separated,
    tokenize_shows_what_is_fed,
    written_calls_are_parsed,
)
from harmony_conformance.checks.native.tgi import (
    chat_tokenize_shows_the_prompt,
    finish_reason_tells_why,
    headers_agree_with_the_body,
    tokens_are_all_told,
)

__all__ = [
    "arguments_are_objects",
    "chat_tokenize_shows_the_prompt",
    "context_is_the_conversation",
    "events_go_on_from_each_other",
    "finish_reason_names_what_matched",
    "finish_reason_tells_why",
    "headers_agree_with_the_body",
    "last_line_is_done",
    "lines_are_objects",
    "reasoning_is_separated",
    "refusal_is_in_its_own_form",
    "tokenize_shows_what_is_fed",
    "tokens_are_all_told",
    "written_calls_are_parsed",
]
