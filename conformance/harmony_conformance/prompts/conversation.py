"""A chat request as the Harmony conversation that it means: what every accepted rendering is a rendering of.

The reading is the one of `prompt.wanted`, put into the messages of `harmony_ref`. Where the sources allow several conversations, `Reading` says which:
whether reasoning that they settle differently is kept, and whether instructions that follow each other are one message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import groupby, takewhile

from harmony_conformance.json_value import Json, at, dumps, items, loads, members, text
from harmony_conformance.prompts.prompt_parser import PartKind, PromptPart, Retention, expected_parts
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
"""The levels of Harmony by the API's words."""

MUST_BE_KEPT = frozenset({Retention.PRESENT})
"""Only the reasoning that every source keeps."""

MAY_BE_KEPT = frozenset({Retention.PRESENT, Retention.EITHER})
"""All reasoning but that which every source drops."""

_BETWEEN_INSTRUCTIONS = "\n\n"
_NAMESPACE = "functions."


@dataclass(frozen=True, kw_only=True)
class RequestReading:
    """One of the conversations that a request may mean.

    Attributes:
        keeps: which reasoning is kept.
        joins: whether system and developer messages that follow each other become one developer message.
        instructs: the role that the first instructions go to. `system` puts them below the identity (vLLM's VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS).
        declares_formats: whether a JSON schema for the answer is declared to the model (`# Response Formats`).
    """

    keeps: frozenset[Retention] = MUST_BE_KEPT
    joins: bool = True
    instructs: Role = Role.DEVELOPER
    declares_formats: bool = True


def conversation_of(request: Json, reading: RequestReading, *, date: str | None) -> tuple[Message, ...]:
    """The messages of the prompt. An effort that Harmony does not have is read as medium, the default.

    Args:
        request: the body of a Chat Completions request.
        reading: which of the readings that the sources allow.
        date: what stands in the system message as the current date; None for no such line.
    """
    told = cache_key(request)
    return _conversation(request, reading, date) if told is None else _remembered(told, reading, date)


_TOLD_IN = ("messages", "tools", "tool_choice", "response_format", "reasoning_effort", "chat_template_kwargs")
_LONGEST = 2048


def cache_key(request: Json) -> str | None:
    """What of a request its conversation depends on, as JSON: the same for requests that mean the same, over whatever API. None of what is long, or no JSON."""
    told = members(request)
    try:
        document = dumps({name: told[name] for name in _TOLD_IN if name in told})
    except RecursionError:
        return None
    # as which a number is written that is beyond all measure
    return document if len(document) <= _LONGEST and "Infinity" not in document else None


@lru_cache(maxsize=1024)
def _remembered(told: str, reading: RequestReading, date: str | None) -> tuple[Message, ...]:
    return _conversation(loads(told), reading, date)


def _conversation(request: Json, reading: RequestReading, date: str | None) -> tuple[Message, ...]:
    effort = EFFORTS.get(text(at(request, "reasoning_effort")), ReasoningEffort.MEDIUM)
    system = reduce(
        SystemContent.with_tools,
        built_in_tools(request),
        SystemContent(reasoning_effort=effort, conversation_start_date=date),
    )
    said = list(_said(request, reading))
    if reading.instructs is Role.SYSTEM:
        leading = list(takewhile(lambda message: message.author.role is Role.DEVELOPER, said))
        system = replace(
            system, model_identity="\n".join([system.model_identity or "", *map(_instructions_of, leading)])
        )
        said = said[len(leading) :]
    return (
        Message(author=Role.SYSTEM, content=system),
        *_with_declarations(said, _declarations(request, reading)),
    )


_BUILT_IN = {"browser": ToolNamespaceConfig.browser(), "python": ToolNamespaceConfig.python()}


def built_in_tools(request: Json) -> tuple[ToolNamespaceConfig, ...]:
    """The built-in tools that a request asks for by the variables of the published chat template."""
    names = map(text, items(at(request, "chat_template_kwargs", "builtin_tools")))
    return tuple(_BUILT_IN[name] for name in dict.fromkeys(names) if name in _BUILT_IN)


def _said(request: Json, reading: RequestReading) -> Iterator[Message]:
    kept = (part for part in expected_parts(request) if part.retention in reading.keeps)
    for kind, run in groupby(kept, key=lambda part: part.kind):
        if kind is PartKind.INSTRUCTIONS:
            yield from _instructions([part.text for part in run if part.text], joins=reading.joins)
        else:
            yield from map(_message, run)


def _instructions(texts: Sequence[str], *, joins: bool) -> Iterator[Message]:
    for instructions in [_BETWEEN_INSTRUCTIONS.join(texts)] if joins and texts else texts:
        yield Message(author=Role.DEVELOPER, content=DeveloperContent(instructions=instructions))


def _instructions_of(message: Message) -> str:
    return "".join(part.instructions or "" for part in message.content if isinstance(part, DeveloperContent))


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
                author=Role.ASSISTANT,
                channel="commentary",
                recipient=function,
                content_type="<|constrain|>json",
                content=part.text,
            )
        case PartKind.RESULT:
            return Message(
                author=Author(role=Role.TOOL, name=function),
                channel="commentary",
                recipient="assistant",
                content=part.text,
            )
        case PartKind.FINAL | PartKind.INSTRUCTIONS:
            return Message(author=Role.ASSISTANT, channel="final", content=part.text)


def _declarations(request: Json, reading: RequestReading) -> DeveloperContent:
    declared = DeveloperContent()
    tools = [] if at(request, "tool_choice") == "none" else items(at(request, "tools"))
    functions = [function for tool in tools if (function := at(tool, "function")) is not None]
    if functions:
        declared = declared.with_function_tools(map(_tool, functions))
    answer = at(request, "response_format")
    if reading.declares_formats and at(answer, "type") == "json_schema":
        declared = declared.with_response_format(
            ResponseFormat(
                name=text(at(answer, "json_schema", "name")),
                schema=at(answer, "json_schema", "schema"),
                description=text(at(answer, "json_schema", "description")) or None,
            )
        )
    return declared


def _tool(function: Json) -> ToolDescription:
    return ToolDescription(
        name=text(at(function, "name")),
        description=text(at(function, "description")),
        parameters=members(function).get("parameters"),
    )


def _with_declarations(messages: Sequence[Message], declared: DeveloperContent) -> Sequence[Message]:
    """The messages, the first of which declares tools and formats; a developer message of its own where it has no instructions."""
    if declared == DeveloperContent():
        return messages
    match messages:
        case [Message(content=(DeveloperContent(instructions=instructions),)), *rest]:
            first = DeveloperContent(
                instructions=instructions, tools=declared.tools, response_formats=declared.response_formats
            )
            return [Message(author=Role.DEVELOPER, content=first), *rest]
        case _:
            return [Message(author=Role.DEVELOPER, content=declared), *messages]
