"""The prompt, from both ends: the ids that were fed, read as Harmony messages; and the messages that a request must become.

Reading is structural: message by message, whatever the rendering style. A style fixes form (the order of recipient and channel, the constrain marker,
blank lines), never what is kept, so contents are compared raw and forms are reported apart. Where a special token stands inside a text it is shown as
`⟦end⟧`, and counted: a text may hold the same letters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import repeat

from harmony_conformance.engines import REASONING_FIELDS
from harmony_conformance.json_value import Json, at, items, text
from harmony_conformance.once import remembered
from harmony_conformance.phrase import Phrase, quote
from harmony_conformance.turn import content_text
from harmony_ref import decode, tokens

INSTRUCTIONS = "# Instructions\n\n"
_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
_ENDS = frozenset({tokens.END, tokens.CALL, tokens.RETURN})
_CHANNEL = re.compile(r"⟦channel⟧([^\s⟦]*)")


class Place(StrEnum):
    """Where a header names the recipient: among the words of the role, or after the channel."""

    NONE = "no recipient"
    ROLE = "recipient before the channel"
    CHANNEL = "recipient after the channel"


@dataclass(frozen=True, kw_only=True)
class PromptMessage:
    """One message as it was fed. `header` is its text with special tokens shown as ⟦name⟧; `end` is the token that closed it.

    `specials` is how many special tokens stand inside the content; `ids` are all its tokens, from `<|start|>` to the one that closed it.
    """

    header: str
    content: str
    role: str
    name: str | None = None
    recipient: str | None = None
    channel: str | None = None
    content_type: str | None = None
    place: Place = Place.NONE
    end: int | None = None
    specials: int = 0
    ids: tuple[int, ...] = ()

    @property
    def function(self) -> str | None:
        """The function a call goes to or a result comes from, without its namespace."""
        named = self.name if self.role == "tool" else self.recipient
        return named.removeprefix("functions.") if named is not None and named.startswith("functions.") else None

    @property
    def end_name(self) -> str:
        """The token that closed it, as ⟦name⟧; empty where nothing did."""
        return show((self.end,)) if self.end is not None else ""

    def __str__(self) -> str:
        """The header, and the beginning of the content."""
        return f"{self.header}⟦message⟧{shorten(self.content)}"


@dataclass(frozen=True, kw_only=True)
class PromptReading:
    """The messages of a prompt, what stands behind the last of them, and what could not be read as a message."""

    messages: tuple[PromptMessage, ...]
    trailer: str
    stray: tuple[str, ...] = ()


def show(ids: Sequence[int]) -> str:
    """Text of ids for people, each special token as ⟦name⟧."""
    return "".join(
        f"⟦{text.removeprefix('<|').removesuffix('|>')}⟧" if is_special else text for text, is_special in pieces(ids)
    )


def pieces(ids: Sequence[int]) -> Iterator[tuple[str, bool]]:
    """The texts of ids in order, and of each whether it is a special token; ordinary tokens that follow each other are one text."""
    for run, is_special in runs(ids):
        yield decode(run), is_special


def runs(ids: Sequence[int]) -> Iterator[tuple[Sequence[int], bool]]:
    """The ids in order, each special token alone, the ordinary ones between two of them together; and whether it is special."""
    begin = 0
    first, last = tokens.FIRST_SPECIAL, tokens.LAST_SPECIAL
    for place in [place for place, token in enumerate(ids) if first <= token <= last]:
        if place > begin:
            yield ids[begin:place], False
        begin = place + 1
        yield ids[place:begin], True
    if begin < len(ids):
        yield ids[begin:], False


def shorten(value: str, most: int = 80) -> Phrase:
    """The text, its middle left out where it is long."""
    half = most // 2
    if len(value) <= most:
        return quote(value)
    return Phrase("{}…({} characters)…{}", value[:half], len(value) - 2 * half, value[-half:])


def read_prompt(ids: Sequence[int]) -> PromptReading:
    """Split ids into messages. Nothing is dropped: what is no message is in `stray` or `trailer`."""
    messages: list[PromptMessage] = []
    stray: list[str] = []
    position = 0
    ends = [place for place, token in enumerate(ids) if token in _ENDS]
    while True:
        start = _find(ids, tokens.START, position)
        if start is None:
            break
        message = _find(ids, tokens.MESSAGE, start)
        if message is None:
            if start > position:
                stray.append(show(ids[position:start]))
            position = start
            break
        if start > position:
            stray.append(show(ids[position:start]))
        later = bisect_right(ends, message)
        stop = ends[later] if later < len(ends) else len(ids)
        messages.append(_message(tuple(ids[start : stop + 1])))
        position = stop + 1
    return PromptReading(messages=tuple(messages), trailer=show(ids[position:]), stray=tuple(stray))


def _find(ids: Sequence[int], token: int, start: int) -> int | None:
    try:
        return ids.index(token, start)
    except ValueError:
        return None


@remembered(most=1024, longest=512)
def _message(ids: tuple[int, ...]) -> PromptMessage:
    """The message of these ids, from its first token to the one that closed it, if one did: the same few begin most prompts."""
    split = ids.index(tokens.MESSAGE)
    end = ids[-1] if ids[-1] in _ENDS else None
    header, content = show(ids[1:split]), ids[split + 1 : len(ids) if end is None else -1]
    found = _CHANNEL.search(header)
    before = header[: found.start()] if found else header
    after = header[found.end() :] if found else ""
    first, *role_words = before.replace("⟦constrain⟧", " ⟦constrain⟧").split() or [""]
    words = [
        *((word, Place.ROLE) for word in role_words),
        *((word, Place.CHANNEL) for word in after.replace("⟦constrain⟧", " ⟦constrain⟧").split()),
    ]
    to = next(((word.removeprefix("to="), place) for word, place in words if word.startswith("to=")), None)
    others = [word for word, _ in words if not word.startswith("to=")]
    role, _, name = first.partition(":")
    known = role in _ROLES
    return PromptMessage(
        header=header,
        content=show(content),
        role=role if known else "tool",
        name=(name or None) if known else first,
        recipient=to[0] if to else None,
        channel=found.group(1) if found else None,
        content_type=" ".join(others) or None,
        place=to[1] if to else Place.NONE,
        end=end,
        specials=sum(map(tokens.is_special, content)) if content and max(content) >= tokens.FIRST_SPECIAL else 0,
        ids=ids,
    )


def has_whole_conversation(request: Json) -> bool:
    """Whether a request has the whole conversation in it, and goes on from none that the server keeps (which the Responses API can)."""
    return not any(at(request, name) for name in ("previous_response_id", "conversation"))


class Kind(StrEnum):
    """What a part of a request has to become in the prompt."""

    INSTRUCTIONS = "instructions"
    USER = "user message"
    REASONING = "reasoning"
    PREAMBLE = "preamble"
    CALL = "function call"
    FINAL = "final answer"
    RESULT = "function result"


class Keep(StrEnum):
    """Whether a reasoning has to be in the prompt."""

    PRESENT = "present"
    ABSENT = "absent"
    EITHER = "either"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """One part of a request, where it stands in it (a JSON pointer), and what the prompt has to hold."""

    kind: Kind
    text: str
    where: str
    function: str | None = None
    keep: Keep = Keep.PRESENT


def wanted(request: Json) -> tuple[Wanted, ...]:
    """What the messages of a chat request become, in order. Messages of other shapes than the API's are left out."""
    messages = items(at(request, "messages"))
    names: dict[str, str] = {}
    found: list[Wanted] = []
    for index, (message, keep) in enumerate(zip(messages, _history(messages), strict=True)):
        found.extend(_wanted_of(message, index, names, keep))
    return tuple(found)


def _wanted_of(message: Json, index: int, names: dict[str, str], keep: Keep) -> Iterator[Wanted]:
    content = _said(at(message, "content"))
    where = f"/messages/{index}/content"
    match at(message, "role"):
        case "system" | "developer":
            yield Wanted(kind=Kind.INSTRUCTIONS, text=content or "", where=where)
        case "user":
            yield Wanted(kind=Kind.USER, text=content or "", where=where)
        case "assistant":
            calls = items(at(message, "tool_calls"))
            field = next((name for name in REASONING_FIELDS if text(at(message, name))), None)
            if field is not None:
                yield Wanted(
                    kind=Kind.REASONING,
                    text=text(at(message, field)),
                    where=f"/messages/{index}/{field}",
                    keep=keep,
                )
            if content:
                is_preamble = bool(calls) or _is_commentary(message)
                yield Wanted(kind=Kind.PREAMBLE if is_preamble else Kind.FINAL, text=content, where=where)
            for number, call in enumerate(calls):
                name = text(at(call, "function", "name"))
                names[text(at(call, "id"))] = name
                at_call = f"/messages/{index}/tool_calls/{number}"
                yield Wanted(kind=Kind.CALL, text=text(at(call, "function", "arguments")), where=at_call, function=name)
        case "tool":
            caller = names.get(text(at(message, "tool_call_id")))
            yield Wanted(kind=Kind.RESULT, text=content or "", where=where, function=caller)
        case _:
            return


def _said(content: Json) -> str | None:
    """The text of a content, where a refusal is as much a text as any other."""
    if isinstance(content, list):
        return "".join(text(at(part, "text")) or text(at(part, "refusal")) for part in content)
    return content_text(content)


def _history(messages: Sequence[Json]) -> Iterator[Keep]:
    """Whether the reasoning of each message has to be kept.

    Inside an open tool loop (no user message after it, and a call or result last) it has to be there; before the first `final`, after which the user
    spoke again, it has to be gone; everything else is settled differently by the official sources.
    """
    roles = [at(message, "role") for message in messages]
    loop_is_open = roles[-1:] == ["tool"]
    finals = [place for place, role in enumerate(roles) if role == "assistant" and _is_final(messages[place])]
    if not finals and not loop_is_open:
        yield from repeat(Keep.EITHER, len(messages))
        return
    users = [position for position, role in enumerate(roles) if role == "user"]
    last_user, last_final = users[-1] if users else -1, finals[-1] if finals else -1
    is_asked_anew = roles[-1:] == ["user"] and bool(finals) and not _open_call(messages)
    for index in range(len(messages)):
        user_follows = last_user > index
        if not user_follows and loop_is_open and last_final < index:
            yield Keep.PRESENT
        elif is_asked_anew and user_follows and index <= finals[0]:
            yield Keep.ABSENT
        else:
            yield Keep.EITHER


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
    after_final = False
    for message in reversed(messages):
        if _is_final(message):
            break
        after_final = after_final or bool(items(at(message, "tool_calls")))
    return after_final
