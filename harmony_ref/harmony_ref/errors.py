"""Exceptions of this package.

- HarmonyError: a RuntimeError, as in openai_harmony
  - EncodingError: text that the tokenizer cannot encode (in `tokenizer.tiktoken_failures`)
  - EvaluationLimitError: a template or schema that needs too much time or memory (in `huggingface.bounded`)
  - UnknownTokenError: a token id outside the vocabulary
  - InvalidUtf8Error: tokens whose bytes are not UTF-8
  - MessageError: a dict that is not a message or conversation (also a ValueError)
  - RenderError: a message that Harmony cannot express
  - ParseError: tokens that are not Harmony
    - UnexpectedTokenError: something other than `<|start|>` between two messages
    - UnexpectedEndError: the input ended inside a header
    - HeaderError: a complete header that cannot be read

`str()` of each error is the text of openai-harmony 0.0.8. The attributes hold its parts; `expected` is the input that
would be valid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from harmony_ref.stream_state import ParserEvent, StreamState


class HarmonyError(RuntimeError):
    """Base of all errors of this package."""


class UnknownTokenError(HarmonyError):
    """A token id, `token`, outside the vocabulary."""

    def __init__(self, token: int, *, text: str | None = None) -> None:
        super().__init__(f"Invalid token for decoding: {token}" if text is None else text)
        self.token = token


class InvalidUtf8Error(HarmonyError):
    """Token bytes that are not UTF-8, from the index `start` on.

    `length` is the number of invalid bytes; None if the bytes end inside a character.
    """

    def __init__(self, *, start: int, length: int | None) -> None:
        reason = "incomplete utf-8 byte sequence" if length is None else f"invalid utf-8 sequence of {length} bytes"
        super().__init__(f"Could not decode tokens: Invalid utf-8 sequence: {reason} from index {start}")
        self.start = start
        self.length = length


class MessageError(HarmonyError, ValueError):
    """A value that is not a message or conversation in the wire form; `subject` names which.

    `problem` has the actual and the expected value. The text is the library's without its ` at line 1 column N`,
    because a dict has no columns.
    """

    def __init__(self, *, subject: str, problem: str) -> None:
        super().__init__(f"invalid {subject} JSON: {problem}")
        self.subject = subject
        self.problem = problem


class RenderError(HarmonyError):
    """A message that Harmony cannot express; `found` is the part that cannot be rendered."""

    def __init__(self, text: str, *, found: str, expected: str) -> None:
        super().__init__(text)
        self.found = found
        self.expected = expected


class ParseError(HarmonyError):
    """Tokens that are not Harmony.

    Attributes:
        position: Index of the refused token among all tokens fed; their count at the end of input.
        state: The parser's state at that token.
        expected: The input that would be valid.
        events: Events of the failing call before the error; they are returned nowhere else.
    """

    def __init__(self, text: str, *, position: int, state: StreamState, expected: str) -> None:
        super().__init__(text)
        self.position = position
        self.state = state
        self.expected = expected
        self.events: Sequence[ParserEvent] = ()


class UnexpectedTokenError(ParseError):
    """An id, `token`, other than `<|start|>` where a message has to begin."""

    def __init__(self, text: str, *, token: int, position: int, expected: str) -> None:
        super().__init__(text, position=position, state=StreamState.EXPECT_START, expected=expected)
        self.token = token


class UnexpectedEndError(ParseError):
    """The input ended inside a header."""


class HeaderProblem(StrEnum):
    """Rules of headers that strict parsing enforces, by their breach."""

    NOT_TEXT = "not text"
    NO_CHANNEL_VALUE = "no channel value"
    NO_ROLE = "no role"
    UNKNOWN_ROLE = "unknown role"
    WORDS_LEFT = "words left"


@dataclass(frozen=True, slots=True)
class HeaderFault:
    """A reason why a header cannot be read: the broken rule, the library's error text, and the valid form."""

    problem: HeaderProblem
    text: str
    expected: str


class HeaderError(ParseError):
    """A complete header that breaks the rule `problem`; `header` has its ids between `<|start|>` and `<|message|>`."""

    def __init__(self, fault: HeaderFault, *, header: Sequence[int], position: int) -> None:
        super().__init__(fault.text, position=position, state=StreamState.HEADER, expected=fault.expected)
        self.problem = fault.problem
        self.header = tuple(header)
