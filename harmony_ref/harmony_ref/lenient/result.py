"""Results of lenient parsing: messages, the unfinished one, errors, and a segment for every token."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from harmony_ref.lenient.errors import RecoveredError
from harmony_ref.messages.header import Header
from harmony_ref.messages.message_types import Message
from harmony_ref.messages.unchecked_construction import message_of
from harmony_ref.stream_state import StreamState


class SegmentKind(StrEnum):
    """The purpose of a run of tokens."""

    START = "start"
    HEADER = "header"
    MESSAGE = "message"
    CONTENT = "content"
    STOP = "stop"
    JUNK = "junk"


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """A run of tokens of one kind.

    A token that holds the end of a header without `<|message|>` and the beginning of its content counts as header.

    Attributes:
        kind: `start`, `message` and `stop` are the markers. Junk is in no message, but may be inside a header.
        start: Index of the first token.
        tokens: The ids; never empty.
        text: Their text, with U+FFFD for unknown ids and invalid bytes.
        message: Index of the finished message, or their count for the remainder; None for junk.
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
        state: HEADER or CONTENT, the state at the end of input.
        header: The known fields of its header; None if no field is known.
        text: Its content so far. Text inside a header that cannot be a header word counts as content.
        tokens: All its ids, from `<|start|>` on.
        start: Index of the first of these ids.
    """

    state: StreamState
    header: Header | None
    text: str
    tokens: Sequence[int]
    start: int

    @property
    def message(self) -> Message | None:
        """The message so far, once its content has begun."""
        if self.header is None or (self.state is StreamState.HEADER and not self.text):
            return None
        return message_of(self.header, self.text)


@dataclass(frozen=True, kw_only=True, slots=True)
class LenientParse:
    """The result of lenient parsing.

    Attributes:
        messages: The messages that a stop token or the next `<|start|>` ended.
        remainder: The unfinished message at the end of the input, if any.
        errors: The faults, by position.
        segments: Every token, once, in order.
    """

    messages: Sequence[Message]
    remainder: Remainder | None
    errors: Sequence[RecoveredError]
    segments: Sequence[Segment]

    @property
    def closed_messages(self) -> Sequence[Message]:
        """The messages if the end of the input finishes the last one, as it does for strict parsers."""
        open_message = None if self.remainder is None else self.remainder.message
        return self.messages if open_message is None else (*self.messages, open_message)

    @property
    def tokens(self) -> list[int]:
        """The input: the tokens of all segments."""
        return [token for segment in self.segments for token in segment.tokens]
