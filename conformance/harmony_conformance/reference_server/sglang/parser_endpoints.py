"""Parsers of /separate_reasoning and /parse_function_call, for a completion with its markers as text.

The first retains calls unchanged, as input of the second.
"""

import re
from collections.abc import Collection

from harmony_conformance.json_value import Json, JsonObject
from harmony_ref import HarmonyError, Message, Role, encode_with_special_tokens, parse, text_of

_FUNCTIONS = "functions."
_BEGINNING = re.compile(r"(?=<\|start\|>)")


def split_reasoning(text: str) -> JsonObject:
    """Separate a completion into reasoning and the rest."""
    thoughts, rest = "", ""
    for message, source in _messages(text):
        if message is None or message.recipient is not None:
            rest += source
        elif message.channel == "analysis":
            thoughts += text_of(message)
        else:
            rest += text_of(message)
    return {"reasoning_text": thoughts, "text": rest}


def parse_calls(text: str, names: Collection[str]) -> JsonObject:
    """Separate calls of functions with these names from the visible text; return a text without calls unchanged."""
    calls: list[Json] = []
    visible: list[str] = []
    for message, source in _messages(text):
        name = (message.recipient or "").removeprefix(_FUNCTIONS) if message is not None else ""
        if message is not None and name in names:
            calls.append({"tool_index": len(calls), "name": name, "parameters": text_of(message)})
        elif message is None or message.recipient is not None:
            visible.append(source)
        elif message.channel != "analysis":
            visible.append(text_of(message))
    return {"normal_text": " ".join(visible).strip() if calls else text, "calls": calls}


def _messages(text: str) -> list[tuple[Message | None, str]]:
    """Return each message of a completion with its source text; None instead of a message if it is not Harmony."""
    pieces = _BEGINNING.split(text)
    try:
        messages = parse(encode_with_special_tokens(text), role=Role.ASSISTANT)
    except HarmonyError:
        return [(None, text)]
    return [*zip(messages, pieces, strict=True)] if len(messages) == len(pieces) else [(None, text)]
