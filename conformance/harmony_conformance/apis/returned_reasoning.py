"""Reasoning that a server signed or encrypted, kept in a translated answer so that it is sent back as it came.

A client sends such items and blocks back unchanged. A rewritten one has no signature, and a gateway drops it.
"""

from __future__ import annotations

from typing import Final

from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at

RETURNED_REASONING: Final = "returned_reasoning"
"""Member of an assistant message: its reasoning items or thinking blocks, as the server returned them."""
_SEALS = {"reasoning": "encrypted_content", "thinking": "signature", "redacted_thinking": "data"}
"""The opaque member of each item or block of reasoning, by its type."""


def keep_returned_reasoning(answer: Json, response: Json) -> Json:
    """Return a translated answer whose message has the sealed reasoning of the original response, if there is any."""
    entries = [*items(value_at(response, "output")), *items(value_at(response, "content"))]
    returned = [entry for entry in entries if text(value_at(entry, "type")) in _SEALS]
    choices = items(value_at(answer, "choices"))
    if not choices or not any(map(_is_sealed, returned)):
        return answer
    message: JsonObject = {**members(value_at(choices[0], "message")), RETURNED_REASONING: returned}
    return {**members(answer), "choices": [{**members(choices[0]), "message": message}, *choices[1:]]}


def _is_sealed(entry: Json) -> bool:
    return bool(text(value_at(entry, _SEALS[text(value_at(entry, "type"))])))
