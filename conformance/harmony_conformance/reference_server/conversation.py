"""A request as a Harmony conversation, and the prompt that it makes.

The order of an assistant's turn is reasoning, preamble, calls; text without calls is its final answer. Reasoning is the
only thing that is ever left out: what preceded the last final answer that a user message follows is history, and the
model is not shown it again.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from harmony_conformance.reference_server.chat_messages import INSTRUCTING, ChatMessage
from harmony_conformance.reference_server.chat_request import AnswerForm, ChatRequest, Effort, Tool
from harmony_ref import (
    Author,
    DeveloperContent,
    Message,
    ReasoningEffort,
    ResponseFormat,
    Role,
    SystemContent,
    ToolDescription,
)

ASSISTANT = "assistant"

_EFFORTS = {Effort.LOW: ReasoningEffort.LOW, Effort.MEDIUM: ReasoningEffort.MEDIUM, Effort.HIGH: ReasoningEffort.HIGH}


def conversation(request: ChatRequest, *, date: str) -> tuple[Message, ...]:
    """All messages of a request, in Harmony's order, nothing left out. `date` is shown to the model as today's."""
    leading = tuple(takewhile(_instructs, request.messages))
    system = SystemContent(reasoning_effort=_EFFORTS[request.effort], conversation_start_date=date)
    return (
        Message(author=Role.SYSTEM, content=system),
        *_developer(_instructions(leading), request.offered, _formats(request)),
        *(part for message in request.messages[len(leading) :] for part in _parts(message)),
    )


def drop_finished_reasoning(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages without the reasoning of finished turns; that of an open tool loop stays."""
    asked = max((place for place, message in enumerate(messages) if message.author.role is Role.USER), default=0)
    finals = [place for place, message in enumerate(messages[:asked]) if message.channel == "final"]
    done = finals[-1] if finals else 0
    return tuple(message for place, message in enumerate(messages) if place > done or message.channel != "analysis")


def _instructs(message: ChatMessage) -> bool:
    return message.role in INSTRUCTING


def _instructions(messages: Iterable[ChatMessage]) -> str | None:
    texts = [message.text for message in messages if message.text]
    return "\n\n".join(texts) if texts else None


def _formats(request: ChatRequest) -> tuple[ResponseFormat, ...]:
    if request.form is not AnswerForm.JSON_SCHEMA:
        return ()
    return (ResponseFormat(name=request.schema_name, schema=request.schema),)


def _developer(
    instructions: str | None, tools: Sequence[Tool], formats: Sequence[ResponseFormat] = ()
) -> Iterator[Message]:
    content = DeveloperContent(instructions=instructions, response_formats=formats)
    if tools:
        content = content.with_function_tools(
            ToolDescription(name=tool.name, description=tool.description, parameters=tool.parameters) for tool in tools
        )
    if tools or formats or instructions is not None:
        yield Message(author=Role.DEVELOPER, content=content)


def _parts(message: ChatMessage) -> Iterator[Message]:
    match message.role:
        case "user":
            yield Message(author=Role.USER, content=message.text or "")
        case "tool":
            yield Message(
                author=Author(role=Role.TOOL, name=f"functions.{message.tool}"),
                recipient=ASSISTANT,
                channel="commentary",
                content=message.text or "",
            )
        case "assistant":
            yield from _assistant_turn(message)
        case _:
            yield from _developer(_instructions([message]), ())


def _assistant_turn(message: ChatMessage) -> Iterator[Message]:
    if message.reasoning:
        yield Message(author=Role.ASSISTANT, channel="analysis", content=message.reasoning)
    if message.text and message.calls:
        yield Message(author=Role.ASSISTANT, channel="commentary", content=message.text)
    for call in message.calls:
        yield Message(
            author=Role.ASSISTANT,
            recipient=f"functions.{call.name}",
            channel="commentary",
            content_type="<|constrain|>json",
            content=call.arguments,
        )
    if not message.calls and (message.text or (message.text == "" and not message.reasoning)):
        yield Message(author=Role.ASSISTANT, channel="final", content=message.text)
