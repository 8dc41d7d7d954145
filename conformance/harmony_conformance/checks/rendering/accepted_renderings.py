"""All accepted prompts of a request, as messages: the conversation in each style and each reading.

Styles differ in form. Readings differ in the place of instructions, in retained reasoning, and in the declaration of the answer's schema.

All of them are rendered, the library's first, for requests with a predictable prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, product, takewhile

from harmony_conformance.checks.rendering.content_placement import blocks
from harmony_conformance.json_value import Json, items, loads, members, text, value_at
from harmony_conformance.prompts.conversation import (
    ALLOWED_RETENTIONS,
    REQUIRED_RETENTIONS,
    ConversationOptions,
    built_in_tools,
    cache_key,
    conversation_of,
)
from harmony_conformance.prompts.declarations_in_prompt import official_tools_text
from harmony_conformance.prompts.expected_parts import (
    PartKind,
    PromptMessage,
    PromptPart,
    Retention,
    expected_parts,
    has_whole_conversation,
    read_prompt,
)
from harmony_conformance.prompts.request_members import chosen_functions, is_offered
from harmony_conformance.prompts.token_accounting import ACCEPTED_STYLES
from harmony_ref import HarmonyError, Message, Role
from harmony_ref.styles import HARMONY_0_0_8
from harmony_ref.styles.styled_rendering import next_turn, rendered_messages

_INSTRUCTION_ROLES = ("system", "developer")
_TEXT_PARTS = ("text", "input_text", "output_text", "refusal")
_OTHER_TEMPLATES = ("chat_template", "documents", "mm_processor_kwargs")
_TEMPLATE_VARIABLES = frozenset({"builtin_tools"})


@dataclass(frozen=True, kw_only=True)
class ExpectedMessage:
    """A message of a rendering after the system and developer messages, with its part of the request and its block.

    Messages of one block may come in any order. A developer message may contain several parts, and has no `part`.
    """

    kind: PartKind
    message: PromptMessage
    part: PromptPart | None = None
    block: int | None = None

    @property
    def where(self) -> str:
        """The JSON pointer of the part of the request; empty without a part."""
        return self.part.where if self.part is not None else ""

    @property
    def is_optional(self) -> bool:
        """True if it is empty, or the official sources disagree on retaining it."""
        return (self.part is not None and self.part.retention is Retention.EITHER) or not self.message.content


@dataclass(frozen=True, kw_only=True)
class AcceptedRendering:
    """One accepted prompt.

    Attributes:
        style: The name of its style.
        notes: The deviations of its reading from the usual one.
        system: The system message.
        developer_messages: The developer messages that follow it.
        conversation: The other messages, in order.
    """

    style: str
    notes: tuple[str, ...]
    system: PromptMessage
    developer_messages: tuple[PromptMessage, ...]
    conversation: tuple[ExpectedMessage, ...]


def has_predictable_prompt(request: Json) -> bool:
    """Return True if the prompt of a request is predictable: texts, function calls, and functions that the library can declare."""
    messages = items(value_at(request, "messages"))
    tools = items(value_at(request, "tools"))
    names = [text(value_at(tool, "function", "name")) for tool in tools]
    return (
        bool(messages)
        and has_whole_conversation(request)
        and all(map(_is_predictable_message, messages))
        and all(names)
        and bool(official_tools_text(tools)) == bool(tools)
        and not any(value_at(request, name) for name in _OTHER_TEMPLATES)
        and members(value_at(request, "chat_template_kwargs")).keys() <= _TEMPLATE_VARIABLES
    )


def _is_predictable_message(message: Json) -> bool:
    content = value_at(message, "content")
    return (
        value_at(message, "role") in ("system", "developer", "user", "assistant", "tool")
        and (content is None or isinstance(content, str | list))
        and all(text(value_at(part, "type")) in _TEXT_PARTS for part in items(content))
        and all(
            isinstance(value_at(call, "function", "arguments"), str) for call in items(value_at(message, "tool_calls"))
        )
        and value_at(message, "function_call") is None
    )


def library_prompts(request: Json, date: str | None) -> frozenset[tuple[int, ...]]:
    """Return the token ids of the official library's prompts for a request, used by most servers. Empty if it cannot render the request."""
    key = cache_key(request)
    return _library_prompts(request, date) if key is None else _cached_library_prompts(key, date)


@lru_cache(maxsize=256)
def _cached_library_prompts(key: str, date: str | None) -> frozenset[tuple[int, ...]]:
    return _library_prompts(loads(key), date)


def _library_prompts(request: Json, date: str | None) -> frozenset[tuple[int, ...]]:
    try:
        options = (ConversationOptions(retentions=keeps) for keeps in (REQUIRED_RETENTIONS, ALLOWED_RETENTIONS))
        least, most = (conversation_of(request, one, date=date) for one in options)
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
    """Return all accepted renderings of a request, the library's first. Renderings that differ only in header forms are merged.

    Args:
        request: a Chat Completions request.
        date: the current date in the system message; None for no such line.
    """
    key = cache_key(request)
    return tuple(_renderings(request, date)) if key is None else _cached_renderings(key, date)


@lru_cache(maxsize=16)
def _cached_renderings(key: str, date: str | None) -> tuple[AcceptedRendering, ...]:
    return tuple(_renderings(loads(key), date))


def _renderings(request: Json, date: str | None) -> Iterator[AcceptedRendering]:
    seen: list[tuple[PromptMessage, ...]] = []
    conversations = [
        (variation, [(_conversation(variation, reading, date), (*notes, *more)) for reading, more in _READINGS])
        for variation, notes in _request_variations(request)
    ]
    for (variation, readings), style in product(conversations, ACCEPTED_STYLES):
        done: list[tuple[Message, ...]] = []
        for messages, notes in readings:
            if messages is None or messages in done:  # most readings of most requests are the same
                continue
            done.append(messages)
            try:
                ids = chain.from_iterable(rendered.ids for rendered in rendered_messages(messages, style))
            except HarmonyError:
                continue
            parsed = read_prompt(tuple(ids)).messages
            if parsed not in seen:
                seen.append(parsed)
                yield _rendering(style.name, notes, parsed, variation)


INSTRUCTIONS_IN_SYSTEM = "instructions are in the system message"
"""The note on a reading that has them there, where the guide allows the identity alone."""


def _conversation(request: Json, reading: ConversationOptions, date: str | None) -> tuple[Message, ...] | None:
    """Return the conversation of a request in one reading, None if Harmony cannot express it."""
    try:
        return tuple(conversation_of(request, reading, date=date))
    except HarmonyError:
        return None


_READINGS = tuple(
    (
        ConversationOptions(
            retentions=ALLOWED_RETENTIONS, joins_instructions=joins, instructions_role=role, declares_formats=declares
        ),
        (
            *((INSTRUCTIONS_IN_SYSTEM,) if role is Role.SYSTEM else ()),
            *(() if declares else ("the schema of the answer is not in the prompt",)),
        ),
    )
    for role, declares, joins in product((Role.DEVELOPER, Role.SYSTEM), (True, False), (True, False))
)


def _request_variations(request: Json) -> Iterator[tuple[Json, tuple[str, ...]]]:
    """Yield the request and the variations that a server may render instead, each with notes on the differences."""
    yield request, ()
    if built_in_tools(request):
        plain = {name: value for name, value in members(request).items() if name != "chat_template_kwargs"}
        yield plain, ("the requested built-in tools are not declared",)
    if value_at(request, "tool_choice") == "none" and value_at(request, "tools"):
        yield {**members(request), "tool_choice": "auto"}, ("functions that may not be called are declared",)
    if chosen_functions(request):
        tools = items(value_at(request, "tools"))
        allowed = [tool for tool in tools if is_offered(request, text(value_at(tool, "function", "name")))]
        yield {**members(request), "tools": allowed}, ("functions that may not be called are not declared",)
    messages = items(value_at(request, "messages"))
    first = [message for message in messages if value_at(message, "role") in _INSTRUCTION_ROLES]
    rest = [message for message in messages if value_at(message, "role") not in _INSTRUCTION_ROLES]
    if first and messages[: len(first)] != first:
        reordered: list[Json] = [*first, *rest]
        yield {**members(request), "messages": reordered}, ("instructions come before earlier messages",)


def _rendering(style: str, notes: tuple[str, ...], parsed: Sequence[PromptMessage], request: Json) -> AcceptedRendering:
    system, *others = parsed
    developer = tuple(takewhile(lambda message: message.role == "developer", others))
    parts = (
        (block, part)
        for block, part in blocks(expected_parts(request))
        if part.kind is not PartKind.INSTRUCTIONS and part.retention in ALLOWED_RETENTIONS
    )
    return AcceptedRendering(
        style=style,
        notes=notes,
        system=system,
        developer_messages=developer,
        conversation=tuple(
            ExpectedMessage(
                kind=part.kind if part is not None else PartKind.INSTRUCTIONS, message=message, part=part, block=block
            )
            for message in others[len(developer) :]
            for block, part in [(None, None) if message.role == "developer" else next(parts)]
        ),
    )
