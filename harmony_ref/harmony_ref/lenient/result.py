"""What lenient parsing returns: messages, what was left open, what was wrong, and where every token went."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from harmony_ref.lenient.errors import RecoveredError
from harmony_ref.messages.header import Header
from harmony_ref.messages.message_types import Message
from harmony_ref.stream_state import StreamState


class SegmentKind(StrEnum):
    """What a run of tokens is for."""

    START = "start"
    HEADER = "header"
    MESSAGE = "message"
    CONTENT = "content"
    STOP = "stop"
    JUNK = "junk"


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A run of tokens of one kind.

    Attributes:
        kind: `start`, `message` and `stop` are the markers themselves. Junk is in no message, though it may stand
            inside a header. A token that holds both the end of a header without `<|message|>` and the beginning of
            its content is header.
        start: index of the first token.
        tokens: the ids; never empty.
        text: their text, with U+FFFD for unknown ids and invalid bytes.
        message: index of the message among the finished ones, or their number for the remainder; None for junk.
    """

    kind: SegmentKind
    start: int
    tokens: Sequence[int]
    text: str
    message: int | None

    @property
    def stop(self) -> int:
        """Index after the last token."""
        return self.start + len(self.tokens)


@dataclass(frozen=True, kw_only=True, slots=True)
class Remainder:
    """A message that the input did not finish.

    Attributes:
        state: HEADER or CONTENT: what the input ended in.
        header: what is known of its header; None when that is nothing.
        text: its content so far. Text in a header that can be no header word counts as content.
        tokens: all its ids, from `<|start|>` on.
        start: index of the first of them.
    """

    state: StreamState
    header: Header | None
    text: str
    tokens: Sequence[int]
    start: int

    @property
    def message(self) -> Message | None:
        """The message as far as it goes, once its content has begun."""
        if self.header is None or (self.state is StreamState.HEADER and not self.text):
            return None
        return message_of(self.header, self.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class LenientParse:
    """A completion, whatever it was.

    Attributes:
        messages: the finished messages: a stop token, or the next `<|start|>`, ended them.
        remainder: the message that the input ended in, if any.
        errors: what was wrong, by position.
        segments: every token, once, in order.
    """

    messages: Sequence[Message]
    remainder: Remainder | None
    errors: Sequence[RecoveredError]
    segments: Sequence[Segment]

    @property
    def closed(self) -> Sequence[Message]:
        """The messages when the end of the input ends the last one, as it does for strict parsers."""
        open_message = None if self.remainder is None else self.remainder.message
        return self.messages if open_message is None else (*self.messages, open_message)

    @property
    def tokens(self) -> list[int]:
        """The input again: the tokens of all segments."""
        return [token for segment in self.segments for token in segment.tokens]


def message_of(header: Header, text: str) -> Message:
    """The message with this header and this text."""
    return Message(
        author=header.author,
        content=text,
        channel=header.channel,
        recipient=header.recipient,
        content_type=header.content_type,
    )
