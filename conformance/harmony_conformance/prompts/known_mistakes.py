"""What a server may do wrong on the way from a request to the prompt, as changes of the conversation: the hypotheses of token accounting.

Each says in words what happens and which catalogued defects do it. `change` makes the wrong conversation of the right one, or of the request where the
right one no longer shows what was lost; `feed` is the wrong way to make tokens of a rendering. A `Growth` has a size that only the server knows: as many
tokens for each message, or function, of a kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harmony_conformance.json_value import Json, at, items, members
from harmony_conformance.prompts.conversation import RequestReading, conversation_of
from harmony_conformance.prompts.prompt_parser import Retention
from harmony_ref import (
    Content,
    DeveloperContent,
    Message,
    Role,
    TextContent,
    decode,
    encode_with_special_tokens,
    text_of,
)

Messages = tuple[Message, ...]
Conversation = Callable[[Json, RequestReading], Messages]
"""Request and reading → the messages of the prompt."""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One thing that goes wrong. `defects` are ids of the catalogue; empty where it has none."""

    description: str
    defects: tuple[str, ...] = ()
    change: Conversation
    feed: Callable[[Sequence[int]], Sequence[int]] = tuple


@dataclass(frozen=True, kw_only=True)
class Growth:
    """More tokens, or fewer, for each thing of a kind; how many is not known."""

    each: str
    number: Callable[[Messages], int]


def reference_conversation(request: Json, reading: RequestReading) -> Messages:
    """The conversation as it should be. The date's line has the same length on every day."""
    return conversation_of(request, reading, date="2025-06-28")


def _of_request(change: Callable[[Json], Json]) -> Conversation:
    return lambda request, reading: reference_conversation(change(request), reading)


def _of_each(change: Callable[[Message], Message]) -> Conversation:
    return lambda request, reading: tuple(map(change, reference_conversation(request, reading)))


def _with_messages(request: Json, messages: Sequence[Json]) -> Json:
    return {**members(request), "messages": list(messages)}


def _without_developer(request: Json) -> Json:
    return _with_messages(
        request, [message for message in items(at(request, "messages")) if at(message, "role") != "developer"]
    )


def _only_first_instruction(request: Json) -> Json:
    first, *rest = items(at(request, "messages"))
    return _with_messages(request, [first, *(message for message in rest if not _instructs(message))])


def _instructs(message: Json) -> bool:
    return at(message, "role") in ("system", "developer")


def _without_preamble_of_reasoned_calls(request: Json) -> Json:
    return _with_messages(
        request,
        [
            {**members(message), "content": None}
            if items(at(message, "tool_calls")) and (at(message, "reasoning") or at(message, "reasoning_content"))
            else message
            for message in items(at(request, "messages"))
        ],
    )


def _without_preambles(request: Json, reading: RequestReading) -> Messages:
    return tuple(message for message in reference_conversation(request, reading) if not _is_preamble(message))


def _is_preamble(message: Message) -> bool:
    return message.author.role is Role.ASSISTANT and message.channel == "commentary" and message.recipient is None


def _without_tools(request: Json) -> Json:
    return {name: value for name, value in members(request).items() if name != "tools"}


def _without_reasoning(request: Json, reading: RequestReading) -> Messages:
    return tuple(message for message in reference_conversation(request, reading) if message.channel != "analysis")


def _with_all_reasoning(request: Json, reading: RequestReading) -> Messages:
    return reference_conversation(request, replace(reading, keeps=frozenset(Retention)))


def is_call(message: Message) -> bool:
    """Whether the assistant speaks to a tool."""
    return message.author.role is Role.ASSISTANT and message.recipient is not None


def is_result(message: Message) -> bool:
    """Whether a tool speaks."""
    return message.author.role is Role.TOOL


def is_final(message: Message) -> bool:
    """Whether it is an earlier answer."""
    return message.channel == "final"


def _quoted(message: Message) -> Message:
    return replace_content(message, json.dumps(text_of(message), ensure_ascii=False))


def replace_content(message: Message, content: str) -> Message:
    """The message with another text."""
    return replace(message, content=(TextContent(text=content),))


def _as_if_special(ids: Sequence[int]) -> Sequence[int]:
    return encode_with_special_tokens(decode(ids))


MISTAKES = (
    Mistake(
        description="messages of the role developer do not reach the prompt",
        defects=("V31",),
        change=_of_request(_without_developer),
    ),
    Mistake(
        description="system and developer messages that are not the first message are dropped",
        defects=("J05",),
        change=_of_request(_only_first_instruction),
    ),
    Mistake(
        description="reasoning that is sent back is never read",
        defects=("V41", "J10", "O14", "O19", "L15", "P10"),
        change=_without_reasoning,
    ),
    Mistake(description="reasoning of finished turns is kept", change=_with_all_reasoning),
    Mistake(
        description="the text before a call is erased where there is reasoning too",
        defects=("L04",),
        change=_of_request(_without_preamble_of_reasoned_calls),
    ),
    Mistake(description="the text before a call is erased", defects=("V17",), change=_without_preambles),
    Mistake(description="functions are not declared", defects=("M14",), change=_of_request(_without_tools)),
    Mistake(
        description="the arguments of earlier calls are encoded once more",
        defects=("J01", "M11"),
        change=_of_each(lambda message: _quoted(message) if is_call(message) else message),
    ),
    Mistake(
        description="results of functions are quoted as JSON",
        defects=("J02",),
        change=_of_each(lambda message: _quoted(message) if is_result(message) else message),
    ),
    Mistake(
        description="results of functions lack ` to=assistant`",
        defects=("V17",),
        change=_of_each(lambda message: replace(message, recipient=None) if is_result(message) else message),
    ),
    Mistake(
        description="earlier answers lack `<|channel|>final`",
        defects=("V17",),
        change=_of_each(lambda message: replace(message, channel=None) if is_final(message) else message),
    ),
    Mistake(
        description="markers in texts become special tokens",
        defects=("J11", "L08"),
        change=reference_conversation,
        feed=_as_if_special,
    ),
)
"""Every hypothesis; those with the same counts can not be told apart."""


def _instructions(part: Content) -> bool:
    return isinstance(part, DeveloperContent) and part.instructions is not None


def _declares_functions(message: Message) -> bool:
    return any(isinstance(part, DeveloperContent) and part.tools for part in message.content)


def _messages_of(kind: Callable[[Message], bool]) -> Callable[[Messages], int]:
    return lambda messages: sum(map(kind, messages))


GROWTHS = (
    Growth(
        each="developer message with instructions",
        number=_messages_of(lambda message: any(map(_instructions, message.content))),
    ),
    Growth(each="user message after the first", number=lambda messages: max(0, _users(messages) - 1)),
    Growth(each="earlier answer", number=_messages_of(is_final)),
    Growth(each="earlier call", number=_messages_of(is_call)),
    Growth(each="result of a function", number=_messages_of(is_result)),
    Growth(each="request that offers functions", number=lambda messages: int(any(map(_declares_functions, messages)))),
)
"""What a server may write more or less of than any form explains."""


def _users(messages: Messages) -> int:
    return sum(message.author.role is Role.USER for message in messages)
