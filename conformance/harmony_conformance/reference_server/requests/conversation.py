"""A request as a Harmony conversation, and the prompt that it makes.

The order of an assistant's turn is reasoning, preamble, calls; text without calls is its final answer. Reasoning is the
only thing that is ever left out: what preceded the last final answer that a user message follows is history, and the
model is not shown it again.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import takewhile

from harmony_conformance.reference_server.requests.chat_messages import INSTRUCTING, ChatMessage
from harmony_conformance.reference_server.requests.chat_request import ChatRequest
from harmony_conformance.reference_server.requests.fields import AnswerForm, Effort, RequestOptions, Tool
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
    system = reduce(SystemContent.with_tools, request.built_in, system_content(request.effort, date))
    return (
        Message(author=Role.SYSTEM, content=system),
        *developer(_instructions(leading), request.offered, formats(request)),
        *(part for message in request.messages[len(leading) :] for part in _parts(message)),
    )


def system_content(effort: Effort, date: str) -> SystemContent:
    """What the system message says; `date` is shown to the model as today's."""
    return SystemContent(reasoning_effort=_EFFORTS[effort], conversation_start_date=date)


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


def formats(request: RequestOptions) -> tuple[ResponseFormat, ...]:
    """The response formats that a request declares."""
    if request.form is not AnswerForm.JSON_SCHEMA:
        return ()
    return (ResponseFormat(name=request.schema_name, schema=request.schema),)


def developer(
    instructions: str | None, tools: Sequence[Tool], declared: Sequence[ResponseFormat] = ()
) -> Iterator[Message]:
    """The developer message, where there is anything for it to say."""
    content = DeveloperContent(instructions=instructions, response_formats=declared)
    if tools:
        content = content.with_function_tools(
            ToolDescription(name=tool.name, description=tool.description, parameters=tool.parameters) for tool in tools
        )
    if tools or declared or instructions is not None:
        yield Message(author=Role.DEVELOPER, content=content)


def _parts(message: ChatMessage) -> Iterator[Message]:
    match message.role:
        case "user":
            yield Message(author=Role.USER, content=message.text or "")
        case "tool":
            yield result(message.tool or "", message.text or "")
        case "assistant":
            yield from _assistant_turn(message)
        case _:
            yield from developer(_instructions([message]), ())


def _assistant_turn(message: ChatMessage) -> Iterator[Message]:
    if message.reasoning:
        yield said("analysis", message.reasoning)
    if message.text and message.calls:
        yield said("commentary", message.text)
    for call in message.calls:
        yield called(call.name, call.arguments)
    if not message.calls and (message.text or (message.text == "" and not message.reasoning)):
        yield said("final", message.text)


def said(channel: str, text: str) -> Message:
    """What the assistant wrote on a channel."""
    return Message(author=Role.ASSISTANT, channel=channel, content=text)


def called(name: str, arguments: str) -> Message:
    """A call of a function."""
    return Message(
        author=Role.ASSISTANT,
        recipient=f"functions.{name}",
        channel="commentary",
        content_type="<|constrain|>json",
        content=arguments,
    )


def result(name: str, text: str) -> Message:
    """What a function answered."""
    return Message(
        author=Author(role=Role.TOOL, name=f"functions.{name}"),
        recipient=ASSISTANT,
        channel="commentary",
        content=text,
    )
