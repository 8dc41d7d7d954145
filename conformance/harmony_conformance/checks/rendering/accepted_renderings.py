"""Every prompt that is accepted for a request, as messages that a prompt can be held against: each part of the conversation in each style and reading.

Form is a matter of style, and several readings are right: where instructions stand, whether they are joined, which reasoning of finished turns is kept,
whether the schema of the answer is told. `renderings` makes them all, the library's first, as long as what the request means is known (`is_readable`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, product, takewhile

from harmony_conformance.checks.rendering.content_placement import blocks
from harmony_conformance.json_value import Json, at, items, loads, members, text
from harmony_conformance.prompts.chat_request import allows_some, may_be_called
from harmony_conformance.prompts.conversation import (
    MAY_BE_KEPT,
    MUST_BE_KEPT,
    RequestReading,
    built_in_tools,
    cache_key,
    conversation_of,
)
from harmony_conformance.prompts.prompt_parser import (
    PartKind,
    PromptMessage,
    PromptPart,
    Retention,
    expected_parts,
    has_whole_conversation,
    read_prompt,
)
from harmony_conformance.prompts.token_accounting import ACCEPTED_STYLES
from harmony_conformance.prompts.tool_declarations import official_spelling
from harmony_ref import HarmonyError, Message, Role
from harmony_ref.styles import HARMONY_0_0_8
from harmony_ref.styles.styled_rendering import next_turn, rendered_messages

_INSTRUCTING = ("system", "developer")
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_OTHER_TEMPLATES = ("chat_template", "documents", "mm_processor_kwargs")
_TEMPLATE_VARIABLES = frozenset({"builtin_tools"})


@dataclass(frozen=True, kw_only=True)
class Expected:
    """One message after the framing ones, as a rendering has it; what of the request it is of, and the number of its block.

    Messages of one block may stand in any order. `part` is None where a developer message stands for several parts.
    """

    kind: PartKind
    message: PromptMessage
    part: PromptPart | None = None
    block: int | None = None

    @property
    def where(self) -> str:
        """JSON pointer of the part of the request; empty for none."""
        return self.part.where if self.part is not None else ""

    @property
    def is_optional(self) -> bool:
        """Whether the official sources settle differently that it is kept, or it says nothing."""
        return (self.part is not None and self.part.retention is Retention.EITHER) or not self.message.content


@dataclass(frozen=True, kw_only=True)
class AcceptedRendering:
    """One accepted prompt.

    Attributes:
        style: the name of its style.
        notes: in which ways its reading is not the usual one.
        system: the system message.
        framing: the developer messages that follow it.
        talk: what was said, in order.
    """

    style: str
    notes: tuple[str, ...]
    system: PromptMessage
    developer_messages: tuple[PromptMessage, ...]
    conversation: tuple[Expected, ...]


def is_readable(request: Json) -> bool:
    """Whether every part of a request is of a kind whose place in a prompt is known: texts, function calls, functions that the library can write."""
    messages = items(at(request, "messages"))
    tools = items(at(request, "tools"))
    names = [text(at(tool, "function", "name")) for tool in tools]
    return (
        bool(messages)
        and has_whole_conversation(request)
        and all(map(_is_readable, messages))
        and all(names)
        and bool(official_spelling(tools)) == bool(tools)
        and not any(at(request, name) for name in _OTHER_TEMPLATES)
        and members(at(request, "chat_template_kwargs")).keys() <= _TEMPLATE_VARIABLES
    )


def _is_readable(message: Json) -> bool:
    content = at(message, "content")
    parts = items(content)
    is_text = content is None or isinstance(content, str | list)
    return (
        at(message, "role") in ("system", "developer", "user", "assistant", "tool")
        and is_text
        and all(text(at(part, "type")) in _TEXT_PARTS for part in parts)
        and all(isinstance(at(call, "function", "arguments"), str) for call in items(at(message, "tool_calls")))
        and at(message, "function_call") is None
    )


def library_prompts(request: Json, date: str | None) -> frozenset[tuple[int, ...]]:
    """The ids of the official library's prompts for a request: those most servers feed. Empty where it can not render the request."""
    told = cache_key(request)
    return _library_prompts(request, date) if told is None else _library_prompts_of(told, date)


@lru_cache(maxsize=256)
def _library_prompts_of(told: str, date: str | None) -> frozenset[tuple[int, ...]]:
    return _library_prompts(loads(told), date)


def _library_prompts(request: Json, date: str | None) -> frozenset[tuple[int, ...]]:
    try:
        least, most = (
            conversation_of(request, RequestReading(keeps=keeps), date=date) for keeps in (MUST_BE_KEPT, MAY_BE_KEPT)
        )
        return frozenset(
            (
                *chain.from_iterable(rendered.ids for rendered in rendered_messages(messages, HARMONY_0_0_8)),
                *next_turn(Role.ASSISTANT),
            )
            for messages in ((least,) if least == most else (least, most))
        )
    except HarmonyError:
        return frozenset()


def renderings(request: Json, date: str | None) -> tuple[AcceptedRendering, ...]:
    """Every accepted rendering of a request that differs in more than the forms of headers, the library's first.

    Args:
        request: a Chat Completions request.
        date: what the system message names as the current date; None for no such line.
    """
    told = cache_key(request)
    return tuple(_renderings(request, date)) if told is None else _renderings_of(told, date)


@lru_cache(maxsize=16)
def _renderings_of(told: str, date: str | None) -> tuple[AcceptedRendering, ...]:
    return tuple(_renderings(loads(told), date))


def _renderings(request: Json, date: str | None) -> Iterator[AcceptedRendering]:
    seen: list[tuple[PromptMessage, ...]] = []
    conversations = [
        (read, [(_conversation(read, reading, date), (*notes, *more)) for reading, more in _READINGS])
        for read, notes in _requests(request)
    ]
    for (read, readings), style in product(conversations, ACCEPTED_STYLES):
        written: list[tuple[Message, ...]] = []
        for messages, notes in readings:
            if messages is None or messages in written:  # most readings of most requests are the same
                continue
            written.append(messages)
            try:
                ids = chain.from_iterable(rendered.ids for rendered in rendered_messages(messages, style))
            except HarmonyError:
                continue
            shown = read_prompt(tuple(ids)).messages
            if shown not in seen:
                seen.append(shown)
                yield _rendering(style.name, notes, shown, read)


def _conversation(request: Json, reading: RequestReading, date: str | None) -> tuple[Message, ...] | None:
    """What a reading makes of a request; None where Harmony can not carry it."""
    try:
        return tuple(conversation_of(request, reading, date=date))
    except HarmonyError:
        return None


_READINGS = tuple(
    (
        RequestReading(keeps=MAY_BE_KEPT, joins=joins, instructs=role, declares_formats=declares),
        (
            *(("instructions stand in the system message",) if role is Role.SYSTEM else ()),
            *(() if declares else ("the schema of the answer is not told to the model",)),
        ),
    )
    for role, declares, joins in product((Role.DEVELOPER, Role.SYSTEM), (True, False), (True, False))
)


def _requests(request: Json) -> Iterator[tuple[Json, tuple[str, ...]]]:
    """The request, and others that a server may take it for, with what is different about them."""
    yield request, ()
    if built_in_tools(request):
        plain = {name: value for name, value in members(request).items() if name != "chat_template_kwargs"}
        yield plain, ("the built-in tools that were asked for are not declared",)
    if at(request, "tool_choice") == "none" and at(request, "tools"):
        yield {**members(request), "tool_choice": "auto"}, ("functions that may not be called are declared",)
    if allows_some(request):
        few = [
            tool for tool in items(at(request, "tools")) if may_be_called(request, text(at(tool, "function", "name")))
        ]
        yield {**members(request), "tools": few}, ("functions that may not be called are not declared",)
    messages = items(at(request, "messages"))
    first = [message for message in messages if at(message, "role") in _INSTRUCTING]
    rest = [message for message in messages if at(message, "role") not in _INSTRUCTING]
    if first and messages[: len(first)] != first:
        early: list[Json] = [*first, *rest]
        yield {**members(request), "messages": early}, ("instructions stand before what was sent before them",)


def _rendering(style: str, notes: tuple[str, ...], shown: Sequence[PromptMessage], request: Json) -> AcceptedRendering:
    system, *others = shown
    framing = tuple(takewhile(lambda message: message.role == "developer", others))
    numbered = (
        (block, part) for block, part in blocks(expected_parts(request)) if part.kind is not PartKind.INSTRUCTIONS
    )
    kept = ((block, part) for block, part in numbered if part.retention in MAY_BE_KEPT)
    return AcceptedRendering(
        style=style,
        notes=notes,
        system=system,
        developer_messages=framing,
        conversation=tuple(
            Expected(
                kind=part.kind if part is not None else PartKind.INSTRUCTIONS, message=message, part=part, block=block
            )
            for message in others[len(framing) :]
            for block, part in [(None, None) if message.role == "developer" else next(kept)]
        ),
    )
