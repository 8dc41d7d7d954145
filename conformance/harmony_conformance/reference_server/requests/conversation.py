"""Convert a request to a Harmony conversation.

The order of an assistant's turn is reasoning, preamble, calls; text without calls is its final answer. Only reasoning
is dropped: the reasoning before the last final answer that a user message follows.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import takewhile

from harmony_conformance.reference_server.requests.chat_messages import INSTRUCTING, ChatMessage
from harmony_conformance.reference_server.requests.chat_request import ChatRequest
from harmony_conformance.reference_server.requests.fields import FUNCTIONS, AnswerForm, Effort, RequestOptions, Tool
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

ASSISTANT = "assistant"

_EFFORTS = {Effort.LOW: ReasoningEffort.LOW, Effort.MEDIUM: ReasoningEffort.MEDIUM, Effort.HIGH: ReasoningEffort.HIGH}


def conversation(request: ChatRequest, *, date: str) -> tuple[Message, ...]:
    """Return all messages of a request in Harmony's order; `date` is the current date in the system message."""
    leading = tuple(takewhile(lambda message: message.role in INSTRUCTING, request.messages))
    system = reduce(SystemContent.with_tools, request.built_in, system_content(request.effort, date))
    return (
        Message(author=Role.SYSTEM, content=system),
        *developer_message(_instructions(leading), request.declared_tools, response_formats(request)),
        *(part for message in request.messages[len(leading) :] for part in _parts(message)),
    )


def system_content(effort: Effort, date: str) -> SystemContent:
    """Return the content of the system message; `date` is its current date."""
    return SystemContent(reasoning_effort=_EFFORTS[effort], conversation_start_date=date)


def drop_finished_reasoning(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages without the reasoning of finished turns; an open tool loop retains its reasoning."""
    last_user = max((index for index, message in enumerate(messages) if message.author.role is Role.USER), default=0)
    finals = [index for index, message in enumerate(messages[:last_user]) if message.channel == "final"]
    last_final = finals[-1] if finals else 0
    return tuple(
        message for index, message in enumerate(messages) if index > last_final or message.channel != "analysis"
    )


def _instructions(messages: Iterable[ChatMessage]) -> str | None:
    texts = [message.text for message in messages if message.text]
    return "\n\n".join(texts) if texts else None


def response_formats(request: RequestOptions) -> tuple[ResponseFormat, ...]:
    """Return the response formats that a request declares."""
    if request.form is not AnswerForm.JSON_SCHEMA:
        return ()
    return (ResponseFormat(name=request.schema_name, schema=request.schema),)


def developer_message(
    instructions: str | None, tools: Sequence[Tool], declared: Sequence[ResponseFormat] = ()
) -> Iterator[Message]:
    """Yield the developer message, unless it would be empty."""
    content = DeveloperContent(instructions=instructions, response_formats=declared)
    for name in dict.fromkeys(tool.namespace for tool in tools):
        content = content.with_tools(_namespace(name, [tool for tool in tools if tool.namespace == name]))
    if tools or declared or instructions is not None:
        yield Message(author=Role.DEVELOPER, content=content)


def _namespace(name: str, tools: Sequence[Tool]) -> ToolNamespaceConfig:
    declared = tuple(
        ToolDescription(name=tool.name, description=tool.description, parameters=tool.parameters) for tool in tools
    )
    return ToolNamespaceConfig(name=name, description=tools[0].namespace_description, tools=declared)


def _parts(message: ChatMessage) -> Iterator[Message]:
    match message.role:
        case "user":
            yield Message(author=Role.USER, content=message.text or "")
        case "tool":
            yield result_message(message.tool or "", message.text or "")
        case "assistant":
            yield from _assistant_turn(message)
        case _:
            yield from developer_message(_instructions([message]), ())


def _assistant_turn(message: ChatMessage) -> Iterator[Message]:
    if message.reasoning:
        yield assistant_message("analysis", message.reasoning)
    if message.text and message.calls:
        yield assistant_message("commentary", message.text)
    for call in message.calls:
        yield call_message(call.name, call.arguments)
    if not message.calls and (message.text or (message.text == "" and not message.reasoning)):
        yield assistant_message("final", message.text)


def assistant_message(channel: str, text: str) -> Message:
    """Return a message of the assistant on a channel."""
    return Message(author=Role.ASSISTANT, channel=channel, content=text)


def call_message(name: str, arguments: str, namespace: str = FUNCTIONS) -> Message:
    """Return a call of a function."""
    return Message(
        author=Role.ASSISTANT,
        recipient=f"{namespace}.{name}",
        channel="commentary",
        content_type="<|constrain|>json",
        content=arguments,
    )


def result_message(name: str, text: str, namespace: str = FUNCTIONS) -> Message:
    """Return the result of a function."""
    tool = Author(role=Role.TOOL, name=f"{namespace}.{name}")
    return Message(author=tool, recipient=ASSISTANT, channel="commentary", content=text)
