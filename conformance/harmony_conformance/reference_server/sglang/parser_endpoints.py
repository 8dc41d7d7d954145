"""What /separate_reasoning and /parse_function_call say of a text that a model wrote, its markers spelled.

The first leaves the calls as they were written, for the second to read.
"""

import re
from collections.abc import Collection

from harmony_conformance.json_value import Json, JsonObject
from harmony_ref import HarmonyError, Message, Role, encode_with_special_tokens, parse, text_of

_FUNCTIONS = "functions."
_BEGINNING = re.compile(r"(?=<\|start\|>)")


def separated(text: str) -> JsonObject:
    """The thoughts of a completion, and the rest of it."""
    thoughts, rest = "", ""
    for message, written in _messages(text):
        if message is None or message.recipient is not None:
            rest += written
        elif message.channel == "analysis":
            thoughts += text_of(message)
        else:
            rest += text_of(message)
    return {"reasoning_text": thoughts, "text": rest}


def called(text: str, names: Collection[str]) -> JsonObject:
    """The calls of functions with these names, and what else is for the user; a text without calls as it is."""
    calls: list[Json] = []
    shown: list[str] = []
    for message, written in _messages(text):
        name = (message.recipient or "").removeprefix(_FUNCTIONS) if message is not None else ""
        if message is not None and name in names:
            calls.append({"tool_index": len(calls), "name": name, "parameters": text_of(message)})
        elif message is None or message.recipient is not None:
            shown.append(written)
        elif message.channel != "analysis":
            shown.append(text_of(message))
    return {"normal_text": " ".join(shown).strip() if calls else text, "calls": calls}


def _messages(text: str) -> list[tuple[Message | None, str]]:
    """The messages of a completion, each with how it was written; what is no Harmony is none."""
    pieces = _BEGINNING.split(text)
    try:
        messages = parse(encode_with_special_tokens(text), role=Role.ASSISTANT)
    except HarmonyError:
        return [(None, text)]
    return [*zip(messages, pieces, strict=True)] if len(messages) == len(pieces) else [(None, text)]
