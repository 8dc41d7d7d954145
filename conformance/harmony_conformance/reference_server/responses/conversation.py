"""Convert the items of a Responses request to a Harmony conversation.

Items are rendered in the order of the request, in which the model wrote them. An assistant message with the phase
`commentary` is a preamble. Without a phase it is a preamble if a call follows in the same turn.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import takewhile

from harmony_conformance.reference_server.requests.conversation import (
    ASSISTANT,
    assistant_message,
    call_message,
    developer_message,
    response_formats,
    result_message,
    system_content,
)
from harmony_conformance.reference_server.responses.builtin_tools import NAMESPACES, namespace_of
from harmony_conformance.reference_server.responses.input_items import (
    BuiltInItem,
    CallItem,
    Item,
    MessageItem,
    ReasoningItem,
    ResultItem,
    ToolsItem,
)
from harmony_conformance.reference_server.responses.request import ResponsesRequest
from harmony_ref import Author, Message, Role, SystemContent

_CALLS = (CallItem, BuiltInItem)


def conversation(request: ResponsesRequest, *, date: str) -> tuple[Message, ...]:
    """Return all messages of a request; `date` is the current date in the system message."""
    leading = [item.text for item in takewhile(is_instruction, request.items) if isinstance(item, MessageItem)]
    texts = [text for text in (request.instructions or "", *leading) if text]
    built_in = [NAMESPACES[tool] for tool in request.built_in] if request.can_call_tools else []
    system = reduce(SystemContent.with_tools, built_in, system_content(request.effort, date))
    return (
        Message(author=Role.SYSTEM, content=system),
        *developer_message("\n\n".join(texts) if texts else None, request.declared_tools, response_formats(request)),
        *_messages(request.items[len(leading) :]),
    )


def is_instruction(item: Item) -> bool:
    """Return True for a system or developer message. At the beginning of the input, they are part of the instructions."""
    return isinstance(item, MessageItem) and item.role in ("system", "developer")


def _messages(entries: Sequence[Item]) -> Iterator[Message]:
    for index, item in enumerate(entries):
        match item:
            case ReasoningItem():
                if item.text:
                    yield assistant_message("analysis", item.text)
            case CallItem():
                yield call_message(item.name, item.arguments, item.namespace)
            case ResultItem():
                yield result_message(item.call.name, item.text, item.call.namespace)
            case ToolsItem():
                pass
            case BuiltInItem():
                yield from _built_in(item)
            case MessageItem(role="user"):
                yield Message(author=Role.USER, content=item.text)
            case MessageItem(role="assistant"):
                yield assistant_message(_channel(item, entries[index + 1 :]), item.text)
            case MessageItem():
                yield from developer_message(item.text or None, ())


def _channel(item: MessageItem, following: Sequence[Item]) -> str:
    if item.phase is not None:
        return "commentary" if item.phase == "commentary" else "final"
    rest = (other for other in following if not isinstance(other, ReasoningItem))
    return "commentary" if isinstance(next(rest, None), _CALLS) else "final"


def _built_in(item: BuiltInItem) -> Iterator[Message]:
    yield Message(
        author=Role.ASSISTANT, recipient=item.recipient, channel="analysis", content_type="code", content=item.content
    )
    if item.logs is not None:
        tool = Author(role=Role.TOOL, name=namespace_of(item.recipient))
        yield Message(author=tool, recipient=ASSISTANT, channel="analysis", content=item.logs)
