"""Creation of frozen values without their `__init__`, in a third of the time.

A frozen class writes each field through `object.__setattr__`, and `Message` checks its arguments. These functions fill
the slots directly, for values created per message or call from valid parts. The results equal those of the classes.
"""

from collections.abc import Callable
from typing import Final

from harmony_ref.messages.events import Delta, MessageFinished, MessageStarted
from harmony_ref.messages.header import Header
from harmony_ref.messages.message_types import Author, Message, TextContent

_new: Final = object.__new__

_set_author: Final[Callable[[Message, Author], None]] = vars(Message)["author"].__set__
_set_content: Final[Callable[[Message, tuple[TextContent]], None]] = vars(Message)["content"].__set__
_set_channel: Final[Callable[[Message, str | None], None]] = vars(Message)["channel"].__set__
_set_recipient: Final[Callable[[Message, str | None], None]] = vars(Message)["recipient"].__set__
_set_content_type: Final[Callable[[Message, str | None], None]] = vars(Message)["content_type"].__set__
_set_part_text: Final[Callable[[TextContent, str], None]] = vars(TextContent)["text"].__set__
_set_delta_text: Final[Callable[[Delta, str], None]] = vars(Delta)["text"].__set__
_set_delta_header: Final[Callable[[Delta, Header], None]] = vars(Delta)["header"].__set__
_set_started_header: Final[Callable[[MessageStarted, Header], None]] = vars(MessageStarted)["header"].__set__
_set_finished_message: Final[Callable[[MessageFinished, Message], None]] = vars(MessageFinished)["message"].__set__
_set_finished_stop: Final[Callable[[MessageFinished, int | None], None]] = vars(MessageFinished)["stop"].__set__


def message_of(header: Header, text: str) -> Message:
    """Return the message with this header and this text."""
    part = _new(TextContent)
    _set_part_text(part, text)
    message = _new(Message)
    _set_author(message, header.author)
    _set_content(message, (part,))
    _set_channel(message, header.channel)
    _set_recipient(message, header.recipient)
    _set_content_type(message, header.content_type)
    return message


def started_event(header: Header) -> MessageStarted:
    """Return `MessageStarted(header=header)`."""
    event = _new(MessageStarted)
    _set_started_header(event, header)
    return event


def delta_event(text: str, header: Header) -> Delta:
    """Return `Delta(text=text, header=header)`."""
    event = _new(Delta)
    _set_delta_text(event, text)
    _set_delta_header(event, header)
    return event


def finished_event(message: Message, stop: int | None) -> MessageFinished:
    """Return `MessageFinished(message=message, stop=stop)`."""
    event = _new(MessageFinished)
    _set_finished_message(event, message)
    _set_finished_stop(event, stop)
    return event
