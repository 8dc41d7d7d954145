"""The token that an engine emits behind a script without a stop token."""

from __future__ import annotations

from harmony_conformance.evidence.emitted_ids import GENERATION_END_TOKENS, added_end
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import members
from harmony_conformance.redactable_text import RedactableText, ReportText
from harmony_ref import decode

ADDED_END = "<|endoftext|>"


def with_added_end(x: Exchange, message: ReportText, shown: str = ADDED_END) -> ReportText:
    """Return the message, which also names that token if it was emitted and is in the text that the finding shows."""
    given = members(x.request.json)
    if x.script is None or "harmony_script_then" in members(given.get("vllm_xargs")):
        return message
    token = added_end(given)
    is_ended = not x.ignores_eos and not GENERATION_END_TOKENS.isdisjoint(x.script)
    is_cut = x.max_output_tokens is not None and len(x.script) >= x.max_output_tokens
    if is_ended or is_cut or (shown != ADDED_END and not _shows(shown, decode([token]))):
        return message
    told = message if isinstance(message, RedactableText) else RedactableText(message)
    return RedactableText("{}; behind the script the engine emitted {} ({})", told, decode([token]), token)


def _shows(shown: str, end: str) -> bool:
    """Return True if a text contains a token, or is cut within it. `<|end` alone begins two tokens."""
    return end in shown or any(shown.endswith(f"{end[:size]}…") for size in range(len("<|end") + 1, len(end)))
