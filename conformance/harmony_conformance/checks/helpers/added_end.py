"""The token that vLLM's logits processor emits behind a script without a stop token."""

from __future__ import annotations

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import GENERATION_END_TOKENS
from harmony_conformance.json_value import members, value_at
from harmony_conformance.redactable_text import RedactableText, ReportText

ADDED_END = "<|endoftext|>"


def with_added_end(x: Exchange, message: ReportText, shown: str = ADDED_END) -> ReportText:
    """Return the message, which also names that token if it was emitted and is in the text that the finding shows."""
    given = members(value_at(x.request.json, "vllm_xargs"))
    if x.script is None or "harmony_script" not in given or "harmony_script_then" in given:
        return message
    is_ended = not x.ignores_eos and not GENERATION_END_TOKENS.isdisjoint(x.script)
    is_cut = x.max_output_tokens is not None and len(x.script) >= x.max_output_tokens
    template = "{}; behind the script the engine emitted <|endoftext|> (199999)"
    if is_ended or is_cut or ADDED_END not in shown:
        return message
    return RedactableText(template, message if isinstance(message, RedactableText) else RedactableText(message))
