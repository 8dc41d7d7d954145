"""Events of a StreamParser.

    MessageStarted → Delta* → MessageFinished

The deltas of a message joined together are the text of the finished message.
"""

from dataclasses import dataclass
from typing import TypeAlias

from harmony_ref.messages.header import Header
from harmony_ref.messages.message_types import Message
from harmony_ref.stream_state import ParserEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageStarted(ParserEvent):
    """A header was read; the content of this message follows."""

    header: Header


@dataclass(frozen=True, kw_only=True, slots=True)
class Delta(ParserEvent):
    """A non-empty piece of the text of the open message, in whole characters, with the message's header."""

    text: str
    header: Header


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageFinished(ParserEvent):
    """A message is complete; `stop` is the id of its stop token, or None when the input ended."""

    message: Message
    stop: int | None


Event: TypeAlias = MessageStarted | Delta | MessageFinished
