"""Parse prompt ids as Harmony messages, and derive the parts that the prompt of a request must contain.

Parsing is independent of the rendering style. Styles differ in form only: order of recipient and channel, constrain marker, blank lines.
Contents are therefore compared exactly, and differences of form are reported separately.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import repeat, takewhile

from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_conformance.prompts.request_members import REASONING_FIELDS, SEALED_REASONING, content_text
from harmony_ref.explanation.prompt_reader import (
    ParsedPrompt,
    PromptMessage,
    RecipientPosition,
    format_ids,
    read_prompt,
    text_pieces,
    token_runs,
)

__all__ = [
    "ParsedPrompt",
    "PromptMessage",
    "RecipientPosition",
    "format_ids",
    "read_prompt",
    "text_pieces",
    "token_runs",
]

INSTRUCTIONS_HEADING = "# Instructions\n\n"


def has_whole_conversation(request: Json) -> bool:
    """Return True unless a stored conversation is continued, or items have no message or reasoning that only the server can read."""
    is_sealed = any(value_at(message, SEALED_REASONING) is True for message in items(value_at(request, "messages")))
    names = ("previous_response_id", "conversation", "untranslated_items")
    return not is_sealed and not any(value_at(request, name) for name in names)


class PartKind(StrEnum):
    """The role of a part in the prompt."""

    INSTRUCTIONS = "instructions"
    USER = "user message"
    REASONING = "reasoning"
    PREAMBLE = "preamble"
    CALL = "function call"
    FINAL = "final answer"
    RESULT = "function result"


class Retention(StrEnum):
    """The requirement for a part: present, absent, or not decided by the official sources."""

    PRESENT = "present"
    ABSENT = "absent"
    EITHER = "either"


@dataclass(frozen=True, kw_only=True)
class PromptPart:
    """A part of a request that must become a message of the prompt.

    Attributes:
        kind: The kind of message.
        text: The content that the message must have.
        where: The JSON pointer of the part in the request.
        function: The function's name for calls and results. None for other parts, and for results without a matching call.
        retention: Whether the prompt must contain it; only reasoning may be absent.
    """

    kind: PartKind
    text: str
    where: str
    function: str | None = None
    retention: Retention = Retention.PRESENT


def part_kinds(request: Json) -> frozenset[PartKind]:
    """Return the kinds of the parts of a chat request: those of `expected_parts`, without their texts, at a fifth of the cost."""
    return frozenset([kind for message in items(value_at(request, "messages")) for kind, *_ in _contents_of(message)])


def expected_parts(request: Json) -> tuple[PromptPart, ...]:
    """Return the parts of a chat request's messages, in order. Messages of an unknown role are omitted."""
    messages = items(value_at(request, "messages"))
    names: dict[str, str] = {}
    has_reasoning = any(not _REASONING.isdisjoint(members(message)) for message in messages)
    retention = _reasoning_retention(messages) if has_reasoning else repeat(Retention.EITHER, len(messages))
    numbered = enumerate(zip(messages, retention, strict=True))
    parts = (part for index, (message, keep) in numbered for part in _parts_of(message, index, names, keep))
    return tuple(map(_with_tokens, parts))


_REASONING = frozenset(REASONING_FIELDS)

_HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair. It has no UTF-8 form, hence no tokens: a prompt can only have U+FFFD in its place."""


def _with_tokens(part: PromptPart) -> PromptPart:
    """Return the part with a text that has tokens."""
    if part.text.isascii() or _HALF_OF_A_PAIR.search(part.text) is None:
        return part
    return replace(part, text=_HALF_OF_A_PAIR.sub("\ufffd", part.text))


def _parts_of(message: Json, index: int, names: dict[str, str], keep: Retention) -> Iterator[PromptPart]:
    """Yield the parts of a message. `names` collects the function names by call id, for later results."""
    for kind, content, place, of in _contents_of(message):
        function: str | None = None
        if kind is PartKind.CALL:
            function = names[text(value_at(of, "id"))] = text(value_at(of, "function", "name"))
        elif kind is PartKind.RESULT:
            function = names.get(text(value_at(of, "tool_call_id")))
        retention = keep if kind is PartKind.REASONING else Retention.PRESENT
        where = f"/messages/{index}/{place}"
        yield PromptPart(kind=kind, text=content, where=where, function=function, retention=retention)


_Content = tuple[PartKind, str, str, Json]
"""A part of a message: its kind, its text, its place in the message, and the message or call that has it."""
_KINDS_OF_ROLES = {
    "system": PartKind.INSTRUCTIONS,
    "developer": PartKind.INSTRUCTIONS,
    "user": PartKind.USER,
    "tool": PartKind.RESULT,
}


def _contents_of(message: Json) -> list[_Content]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(role, str):
        return []
    if (kind := _KINDS_OF_ROLES.get(role)) is not None:
        return [(kind, _text_or_refusal(message.get("content")) or "", "content", message)]
    return _contents_of_answer(message) if role == "assistant" else []


def _contents_of_answer(message: JsonObject) -> list[_Content]:
    calls, found = items(message.get("tool_calls")), list[_Content]()
    if field := next((name for name in REASONING_FIELDS if text(message.get(name))), None):
        found.append((PartKind.REASONING, text(message.get(field)), field, message))
    if content := _text_or_refusal(message.get("content")):
        is_preamble = bool(calls) or _is_commentary(message)
        found.append((PartKind.PREAMBLE if is_preamble else PartKind.FINAL, content, "content", message))
    for number, call in enumerate(calls):
        arguments = text(value_at(call, "function", "arguments"))
        found.append((PartKind.CALL, arguments, f"tool_calls/{number}", call))
    return found


def _text_or_refusal(content: Json) -> str | None:
    if isinstance(content, str):  # nearly all
        return content
    if isinstance(content, list):
        return "".join(text(value_at(part, "text")) or text(value_at(part, "refusal")) for part in content)
    return content_text(content)


def _reasoning_retention(messages: Sequence[Json]) -> Iterator[Retention]:
    """Yield the requirement for the reasoning of each message.

    - PRESENT inside an open tool loop: a result is last, and no user message follows the reasoning.
    - ABSENT up to the first final answer, if a user message is last.
    - EITHER in all other cases, on which the official sources differ.
    """
    roles = [value_at(message, "role") for message in messages]
    loop_is_open = roles[-1:] == ["tool"]
    finals = [place for place, role in enumerate(roles) if role == "assistant" and _is_final(messages[place])]
    if not finals and not loop_is_open:
        yield from repeat(Retention.EITHER, len(messages))
        return
    users = [position for position, role in enumerate(roles) if role == "user"]
    last_user, last_final = max(users, default=-1), max(finals, default=-1)
    is_new_question = roles[-1:] == ["user"] and bool(finals) and not _has_open_call(messages)
    for index in range(len(messages)):
        user_follows = last_user > index
        if not user_follows and loop_is_open and last_final < index:
            yield Retention.PRESENT
        elif is_new_question and user_follows and index <= finals[0]:
            yield Retention.ABSENT
        else:
            yield Retention.EITHER


def _is_final(message: Json) -> bool:
    if value_at(message, "role") != "assistant" or items(value_at(message, "tool_calls")) or _is_commentary(message):
        return False
    return bool(_text_or_refusal(value_at(message, "content")))


def _is_commentary(message: Json) -> bool:
    """Return True if the client marks a text as no final answer, by `phase` of the Responses API."""
    return value_at(message, "phase") == "commentary"


def _has_open_call(messages: Sequence[Json]) -> bool:
    """Return True if a call follows the last final answer. The official sources differ on such a new tool loop."""
    after_final = takewhile(lambda message: not _is_final(message), reversed(messages))
    return any(items(value_at(message, "tool_calls")) for message in after_final)
