"""Hypotheses of token accounting: mistakes that a server may make when it renders a request to a prompt.

Each `Mistake` has a description and the catalogued defects that cause it. A `Growth` adds an unknown number of tokens per message or
function of a kind.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from harmony_conformance.json_value import Json, items, members, value_at
from harmony_conformance.prompts.conversation import ConversationOptions, conversation_of
from harmony_conformance.prompts.expected_parts import Retention
from harmony_ref import (
    ChannelConfig,
    DeveloperContent,
    Message,
    Role,
    SystemContent,
    TextContent,
    decode,
    encode_with_special_tokens,
    text_of,
)

Messages = tuple[Message, ...]
ConversationBuilder = Callable[[Json, ConversationOptions], Messages]
"""A function from a request and its reading to the messages of the prompt."""


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One mistake of a renderer, with its ids in the defect catalogue, which may lack it.

    `build_conversation` builds the wrong conversation, `change_tokens` changes the token ids of the rendered conversation.
    """

    description: str
    defects: tuple[str, ...] = ()
    build_conversation: ConversationBuilder
    change_tokens: Callable[[Sequence[int]], Sequence[int]] = tuple


@dataclass(frozen=True, kw_only=True)
class Growth:
    """An unknown number of tokens, more or fewer, for each occurrence of `occurrence`. `count_occurrences` counts these in a conversation."""

    occurrence: str
    count_occurrences: Callable[[Messages], int]


def reference_conversation(request: Json, reading: ConversationOptions) -> Messages:
    """Return the correct conversation. Its date is fixed, since dates do not change the token count."""
    return conversation_of(request, reading, date="2025-06-28")


def _of_request(change: Callable[[Json], Json]) -> ConversationBuilder:
    return lambda request, reading: reference_conversation(change(request), reading)


def _of_each(change: Callable[[Message], Message]) -> ConversationBuilder:
    return lambda request, reading: tuple(map(change, reference_conversation(request, reading)))


def _of_messages(change: Callable[[list[Json]], list[Json]]) -> ConversationBuilder:
    return _of_request(lambda request: {**members(request), "messages": change(items(value_at(request, "messages")))})


def _only_first_instruction(messages: list[Json]) -> list[Json]:
    return messages[:1] + [one for one in messages[1:] if value_at(one, "role") not in ("system", "developer")]


def _without_preamble_of_reasoned_calls(messages: list[Json]) -> list[Json]:
    return [
        {**members(message), "content": None}
        if items(value_at(message, "tool_calls"))
        and (value_at(message, "reasoning") or value_at(message, "reasoning_content"))
        else message
        for message in messages
    ]


def _without_preambles(request: Json, reading: ConversationOptions) -> Messages:
    return tuple(
        message
        for message in reference_conversation(request, reading)
        if message.author.role is not Role.ASSISTANT or message.channel != "commentary" or message.recipient is not None
    )


def _without_tools(request: Json) -> Json:
    return {name: value for name, value in members(request).items() if name != "tools"}


def _without_reasoning(request: Json, reading: ConversationOptions) -> Messages:
    return tuple(message for message in reference_conversation(request, reading) if message.channel != "analysis")


def without_unused_commentary(messages: Messages) -> Messages:
    """Remove `commentary` from the valid channels of a conversation that declares no functions."""
    if any(map(_declares_functions, messages)):
        return messages
    return tuple(replace(message, content=tuple(map(_without_commentary, message.content))) for message in messages)


def _without_commentary(
    part: TextContent | SystemContent | DeveloperContent,
) -> TextContent | SystemContent | DeveloperContent:
    if not isinstance(part, SystemContent) or part.channel_config is None:
        return part
    channels = [channel for channel in part.channel_config.valid_channels if channel != "commentary"]
    return replace(part, channel_config=ChannelConfig.require_channels(channels))


def is_call(message: Message) -> bool:
    """Return True for a call by the assistant."""
    return message.author.role is Role.ASSISTANT and message.recipient is not None


def is_result(message: Message) -> bool:
    """Return True for the result of a tool."""
    return message.author.role is Role.TOOL


def is_final(message: Message) -> bool:
    """Return True for a final answer."""
    return message.channel == "final"


def _quoted(message: Message) -> Message:
    return replace_content(message, json.dumps(text_of(message), ensure_ascii=False))


def replace_content(message: Message, content: str) -> Message:
    """Return the message with another text as its content."""
    return replace(message, content=(TextContent(text=content),))


MISTAKES = (
    Mistake(
        description="messages of the role developer do not reach the prompt",
        defects=("V31",),
        build_conversation=_of_messages(
            lambda messages: [one for one in messages if value_at(one, "role") != "developer"]
        ),
    ),
    Mistake(
        description="system and developer messages that are not the first message are dropped",
        defects=("J05",),
        build_conversation=_of_messages(_only_first_instruction),
    ),
    Mistake(
        description="reasoning that is sent back is never read",
        defects=("V41", "J10", "O14", "O19", "L15", "P10"),
        build_conversation=_without_reasoning,
    ),
    Mistake(
        description="reasoning of finished turns is kept",
        build_conversation=lambda request, reading: reference_conversation(
            request, replace(reading, retentions=frozenset(Retention))
        ),
    ),
    Mistake(
        description="the text before a call is erased where there is reasoning too",
        defects=("L04",),
        build_conversation=_of_messages(_without_preamble_of_reasoned_calls),
    ),
    Mistake(description="the text before a call is erased", defects=("V17",), build_conversation=_without_preambles),
    Mistake(description="functions are not declared", defects=("M14",), build_conversation=_of_request(_without_tools)),
    Mistake(
        description="the arguments of earlier calls are encoded once more",
        defects=("J01", "M11"),
        build_conversation=_of_each(lambda message: _quoted(message) if is_call(message) else message),
    ),
    Mistake(
        description="results of functions are quoted as JSON",
        defects=("J02",),
        build_conversation=_of_each(lambda message: _quoted(message) if is_result(message) else message),
    ),
    Mistake(
        description="results of functions lack ` to=assistant`",
        defects=("V17",),
        build_conversation=_of_each(
            lambda message: replace(message, recipient=None) if is_result(message) else message
        ),
    ),
    Mistake(
        description="earlier answers lack `<|channel|>final`",
        defects=("V17",),
        build_conversation=_of_each(lambda message: replace(message, channel=None) if is_final(message) else message),
    ),
    Mistake(
        description="markers in texts become special tokens",
        defects=("J11", "L08"),
        build_conversation=reference_conversation,
        change_tokens=lambda ids: encode_with_special_tokens(decode(ids)),
    ),
)
"""All mistakes. Those that change the counts equally are indistinguishable."""


def _has_instructions(message: Message) -> bool:
    return any(isinstance(part, DeveloperContent) and part.instructions is not None for part in message.content)


def _declares_functions(message: Message) -> bool:
    return any(isinstance(part, DeveloperContent) and part.tools for part in message.content)


def _messages_of(kind: Callable[[Message], bool]) -> Callable[[Messages], int]:
    return lambda messages: sum(map(kind, messages))


GROWTHS = (
    Growth(occurrence="developer message with instructions", count_occurrences=_messages_of(_has_instructions)),
    Growth(
        occurrence="user message after the first",
        count_occurrences=lambda messages: max(0, sum(message.author.role is Role.USER for message in messages) - 1),
    ),
    Growth(occurrence="earlier answer", count_occurrences=_messages_of(is_final)),
    Growth(occurrence="earlier call", count_occurrences=_messages_of(is_call)),
    Growth(occurrence="result of a function", count_occurrences=_messages_of(is_result)),
    Growth(
        occurrence="request that offers functions",
        count_occurrences=lambda messages: int(any(map(_declares_functions, messages))),
    ),
)
"""The places where a server may add or omit tokens that no form explains."""
