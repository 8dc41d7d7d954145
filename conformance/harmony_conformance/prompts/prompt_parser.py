"""The prompt, from both ends: the ids that were fed, read as Harmony messages; and the messages that a request must become.

Reading is structural: message by message, whatever the rendering style. A style fixes form (the order of recipient and channel, the constrain marker,
blank lines), never what is kept, so contents are compared raw and forms are reported apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import repeat, takewhile

from harmony_conformance.json_value import Json, at, items, text
from harmony_conformance.prompts.chat_request import REASONING_FIELDS, content_text
from harmony_ref.explanation.prompt_reader import (
    ParsedPrompt,
    PromptMessage,
    RecipientPosition,
    pieces,
    read_prompt,
    runs,
    show,
)

__all__ = ["ParsedPrompt", "PromptMessage", "RecipientPosition", "pieces", "read_prompt", "runs", "show"]

INSTRUCTIONS = "# Instructions\n\n"


def has_whole_conversation(request: Json) -> bool:
    """Whether a request has the whole conversation in it, and goes on from none that the server keeps (which the Responses API can)."""
    return not any(at(request, name) for name in ("previous_response_id", "conversation"))


class PartKind(StrEnum):
    """What a part of a request has to become in the prompt."""

    INSTRUCTIONS = "instructions"
    USER = "user message"
    REASONING = "reasoning"
    PREAMBLE = "preamble"
    CALL = "function call"
    FINAL = "final answer"
    RESULT = "function result"


class Retention(StrEnum):
    """Whether a reasoning has to be in the prompt."""

    PRESENT = "present"
    ABSENT = "absent"
    EITHER = "either"


@dataclass(frozen=True, kw_only=True)
class PromptPart:
    """One part of a request, where it stands in it (a JSON pointer), and what the prompt has to hold."""

    kind: PartKind
    text: str
    where: str
    function: str | None = None
    retention: Retention = Retention.PRESENT


def expected_parts(request: Json) -> tuple[PromptPart, ...]:
    """What the messages of a chat request become, in order. Messages of other shapes than the API's are left out."""
    messages = items(at(request, "messages"))
    names: dict[str, str] = {}
    kept = enumerate(zip(messages, _history(messages), strict=True))
    return tuple(part for index, (message, keep) in kept for part in _wanted_of(message, index, names, keep))


def _wanted_of(message: Json, index: int, names: dict[str, str], keep: Retention) -> Iterator[PromptPart]:
    content = _said(at(message, "content"))
    where = f"/messages/{index}/content"
    match at(message, "role"):
        case "system" | "developer":
            yield PromptPart(kind=PartKind.INSTRUCTIONS, text=content or "", where=where)
        case "user":
            yield PromptPart(kind=PartKind.USER, text=content or "", where=where)
        case "assistant":
            calls = items(at(message, "tool_calls"))
            field = next((name for name in REASONING_FIELDS if text(at(message, name))), None)
            if field is not None:
                at_field = f"/messages/{index}/{field}"
                yield PromptPart(kind=PartKind.REASONING, text=text(at(message, field)), where=at_field, retention=keep)
            if content:
                is_preamble = bool(calls) or _is_commentary(message)
                yield PromptPart(kind=PartKind.PREAMBLE if is_preamble else PartKind.FINAL, text=content, where=where)
            for number, call in enumerate(calls):
                name = text(at(call, "function", "name"))
                names[text(at(call, "id"))] = name
                at_call = f"/messages/{index}/tool_calls/{number}"
                yield PromptPart(
                    kind=PartKind.CALL, text=text(at(call, "function", "arguments")), where=at_call, function=name
                )
        case "tool":
            caller = names.get(text(at(message, "tool_call_id")))
            yield PromptPart(kind=PartKind.RESULT, text=content or "", where=where, function=caller)
        case _:
            return


def _said(content: Json) -> str | None:
    """The text of a content, where a refusal is as much a text as any other."""
    if isinstance(content, list):
        return "".join(text(at(part, "text")) or text(at(part, "refusal")) for part in content)
    return content_text(content)


def _history(messages: Sequence[Json]) -> Iterator[Retention]:
    """Whether the reasoning of each message has to be kept.

    Inside an open tool loop (no user message after it, and a call or result last) it has to be there; before the first `final`, after which the user
    spoke again, it has to be gone; everything else is settled differently by the official sources.
    """
    roles = [at(message, "role") for message in messages]
    loop_is_open = roles[-1:] == ["tool"]
    finals = [place for place, role in enumerate(roles) if role == "assistant" and _is_final(messages[place])]
    if not finals and not loop_is_open:
        yield from repeat(Retention.EITHER, len(messages))
        return
    users = [position for position, role in enumerate(roles) if role == "user"]
    last_user, last_final = max(users, default=-1), max(finals, default=-1)
    is_asked_anew = roles[-1:] == ["user"] and bool(finals) and not _open_call(messages)
    for index in range(len(messages)):
        user_follows = last_user > index
        if not user_follows and loop_is_open and last_final < index:
            yield Retention.PRESENT
        elif is_asked_anew and user_follows and index <= finals[0]:
            yield Retention.ABSENT
        else:
            yield Retention.EITHER


def _is_final(message: Json) -> bool:
    return (
        at(message, "role") == "assistant"
        and not items(at(message, "tool_calls"))
        and not _is_commentary(message)
        and bool(_said(at(message, "content")))
    )


def _is_commentary(message: Json) -> bool:
    """Whether the client says itself that a text is no final answer; the Responses API has a word for it."""
    return at(message, "phase") == "commentary"


def _open_call(messages: Sequence[Json]) -> bool:
    """Whether a call follows the last final: then a new tool loop was begun and the official sources differ."""
    after_final = takewhile(lambda message: not _is_final(message), reversed(messages))
    return any(items(at(message, "tool_calls")) for message in after_final)
