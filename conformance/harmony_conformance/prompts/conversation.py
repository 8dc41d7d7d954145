"""Translate a chat request to a Harmony conversation (`harmony_ref.Message`), the input of every accepted rendering.

The parts are those of `expected_parts`. The official sources allow several conversations, for example with or without
some reasoning; `ConversationOptions` selects one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import groupby, takewhile

from harmony_conformance.json_value import Json, dumps, items, loads, members, text, value_at
from harmony_conformance.prompts.expected_parts import PartKind, PromptPart, Retention, expected_parts
from harmony_ref import (
    Author,
    DeveloperContent,
    Message,
    ReasoningEffort,
    ResponseFormat,
    Role,
    SystemContent,
    ToolDescription,
    ToolNamespaceConfig,
)

EFFORTS = {effort.value.lower(): effort for effort in ReasoningEffort}
"""Harmony's reasoning efforts by their names in the API."""

REQUIRED_RETENTIONS = frozenset({Retention.PRESENT})
"""Retain only the reasoning that every source retains."""

ALLOWED_RETENTIONS = frozenset({Retention.PRESENT, Retention.EITHER})
"""Retain all reasoning but that which every source drops."""

_BETWEEN_INSTRUCTIONS = "\n\n"
_NAMESPACE = "functions."
_JSON = "<|constrain|>json"


@dataclass(frozen=True, kw_only=True)
class ConversationOptions:
    """The options by which accepted conversations for the same request differ.

    Attributes:
        retentions: The retentions of the reasoning that is included.
        joins_instructions: True if consecutive system and developer messages become one developer message.
        instructions_role: The role of the first instructions. `system` appends them to the identity
            (vLLM's VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS).
        declares_formats: True if a response schema is declared to the model (`# Response Formats`).
    """

    retentions: frozenset[Retention] = REQUIRED_RETENTIONS
    joins_instructions: bool = True
    instructions_role: Role = Role.DEVELOPER
    declares_formats: bool = True


def conversation_of(request: Json, reading: ConversationOptions, *, date: str | None) -> tuple[Message, ...]:
    """Return the messages of the prompt. An unknown effort is read as medium, the default.

    Args:
        request: The body of a Chat Completions request.
        reading: One of the readings that the sources allow.
        date: The current date in the system message (`2025-06-28`), or None to omit the line.
    """
    key = cache_key(request)
    return _conversation(request, reading, date) if key is None else _cached_conversation(key, reading, date)


_RELEVANT = ("messages", "tools", "tool_choice", "response_format", "reasoning_effort", "chat_template_kwargs")
_LONGEST = 2048


def cache_key(request: Json) -> str | None:
    """Return the members of a request that determine its conversation, as JSON text. None for a text too long to cache, or no JSON."""
    body = members(request)
    try:
        document = dumps({name: body[name] for name in _RELEVANT if name in body})
    except RecursionError:
        return None
    # too large a number becomes `Infinity`, which is not JSON
    return document if len(document) <= _LONGEST and "Infinity" not in document else None


@lru_cache(maxsize=1024)
def _cached_conversation(key: str, reading: ConversationOptions, date: str | None) -> tuple[Message, ...]:
    return _conversation(loads(key), reading, date)


def _conversation(request: Json, reading: ConversationOptions, date: str | None) -> tuple[Message, ...]:
    effort = EFFORTS.get(text(value_at(request, "reasoning_effort")), ReasoningEffort.MEDIUM)
    system = SystemContent(reasoning_effort=effort, conversation_start_date=date)
    system = reduce(SystemContent.with_tools, built_in_tools(request), system)
    messages = list(_messages(request, reading))
    if reading.instructions_role is Role.SYSTEM:
        leading = list(takewhile(lambda message: message.author.role is Role.DEVELOPER, messages))
        parts = (part for message in leading for part in message.content if isinstance(part, DeveloperContent))
        texts = [system.model_identity or "", *(part.instructions or "" for part in parts)]
        system = replace(system, model_identity="\n".join(texts))
        messages = messages[len(leading) :]
    return (Message(author=Role.SYSTEM, content=system), *_with_declarations(messages, _declarations(request, reading)))


_BUILT_IN = {"browser": ToolNamespaceConfig.browser(), "python": ToolNamespaceConfig.python()}


def built_in_tools(request: Json) -> tuple[ToolNamespaceConfig, ...]:
    """Return the built-in tools that a request enables by `builtin_tools`, a variable of the published chat template."""
    names = map(text, items(value_at(request, "chat_template_kwargs", "builtin_tools")))
    return tuple(_BUILT_IN[name] for name in dict.fromkeys(names) if name in _BUILT_IN)


def _messages(request: Json, reading: ConversationOptions) -> Iterator[Message]:
    parts = (part for part in expected_parts(request) if part.retention in reading.retentions)
    for kind, run in groupby(parts, key=lambda part: part.kind):
        if kind is not PartKind.INSTRUCTIONS:
            yield from map(_message, run)
            continue
        texts = [part.text for part in run if part.text]
        for instructions in [_BETWEEN_INSTRUCTIONS.join(texts)] if reading.joins_instructions and texts else texts:
            yield Message(author=Role.DEVELOPER, content=DeveloperContent(instructions=instructions))


def _message(part: PromptPart) -> Message:
    function = f"{_NAMESPACE}{part.function}"
    match part.kind:
        case PartKind.USER:
            return Message(author=Role.USER, content=part.text)
        case PartKind.REASONING:
            return Message(author=Role.ASSISTANT, channel="analysis", content=part.text)
        case PartKind.PREAMBLE:
            return Message(author=Role.ASSISTANT, channel="commentary", content=part.text)
        case PartKind.CALL:
            return Message(
                author=Role.ASSISTANT, channel="commentary", recipient=function, content_type=_JSON, content=part.text
            )
        case PartKind.RESULT:
            tool = Author(role=Role.TOOL, name=function)
            return Message(author=tool, channel="commentary", recipient="assistant", content=part.text)
        case PartKind.FINAL | PartKind.INSTRUCTIONS:
            return Message(author=Role.ASSISTANT, channel="final", content=part.text)


def _declarations(request: Json, reading: ConversationOptions) -> DeveloperContent:
    declared = DeveloperContent()
    tools = [] if value_at(request, "tool_choice") == "none" else items(value_at(request, "tools"))
    functions = [
        ToolDescription(
            name=text(value_at(function, "name")),
            description=text(value_at(function, "description")),
            parameters=value_at(function, "parameters"),
        )
        for tool in tools
        if (function := value_at(tool, "function")) is not None
    ]
    if functions:
        declared = declared.with_function_tools(functions)
    if reading.declares_formats and value_at(request, "response_format", "type") == "json_schema":
        answer = members(value_at(request, "response_format", "json_schema"))
        name, description = text(answer.get("name")), text(answer.get("description")) or None
        answer_format = ResponseFormat(name=name, schema=answer.get("schema"), description=description)
        declared = declared.with_response_format(answer_format)
    return declared


def _with_declarations(messages: Sequence[Message], declared: DeveloperContent) -> Sequence[Message]:
    """Add tools and formats to leading instructions, or in a new developer message before the others."""
    if declared == DeveloperContent():
        return messages
    match messages:
        case [Message(content=(DeveloperContent(instructions=instructions),)), *rest]:
            return [Message(author=Role.DEVELOPER, content=replace(declared, instructions=instructions)), *rest]
        case _:
            return [Message(author=Role.DEVELOPER, content=declared), *messages]
