"""Every error that this package raises on purpose.

    HarmonyError                    (a RuntimeError, as in openai_harmony)
    ├── EncodingError               text that the tokenizer cannot take (in `encoding_guard`)
    ├── UnknownTokenError           a token id that the vocabulary does not have
    ├── InvalidUtf8Error            tokens whose bytes are not UTF-8, where text was asked for
    ├── MessageError                a dict that is no message or conversation (also a ValueError)
    ├── RenderError                 a message that Harmony cannot express
    └── ParseError                  tokens that are not Harmony
        ├── UnexpectedTokenError    something other than `<|start|>` between two messages
        ├── UnexpectedEndError      the input ended inside a header
        └── HeaderError             a complete header that cannot be read

`str()` of each is the text of openai-harmony 0.0.8; what it is made of is in the attributes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from harmony_ref.stream_state import ParserEvent, StreamState


class HarmonyError(RuntimeError):
    """The base of all errors of this package."""


class UnknownTokenError(HarmonyError):
    """A token id outside the vocabulary.

    Attributes:
        token: the id.
    """

    def __init__(self, token: int, *, text: str | None = None) -> None:
        super().__init__(f"Invalid token for decoding: {token}" if text is None else text)
        self.token = token


class InvalidUtf8Error(HarmonyError):
    """Token bytes that are not UTF-8.

    Attributes:
        start: index of the first offending byte.
        length: number of offending bytes; None when the bytes stop inside a character.
    """

    def __init__(self, *, start: int, length: int | None) -> None:
        found = "incomplete utf-8 byte sequence" if length is None else f"invalid utf-8 sequence of {length} bytes"
        super().__init__(f"Could not decode tokens: Invalid utf-8 sequence: {found} from index {start}")
        self.start = start
        self.length = length


class MessageError(HarmonyError, ValueError):
    """A value that is not a message or conversation in the wire form.

    The text is the library's without its ` at line 1 column N`: a dict has no columns.

    Attributes:
        subject: `message` or `conversation`: what was being read.
        problem: what is wrong and what would have been right.
    """

    def __init__(self, *, subject: str, problem: str) -> None:
        super().__init__(f"invalid {subject} JSON: {problem}")
        self.subject = subject
        self.problem = problem


class RenderError(HarmonyError):
    """A message that Harmony has no form for.

    Attributes:
        found: the part that cannot be rendered.
        expected: what would have been right.
    """

    def __init__(self, text: str, *, found: str, expected: str) -> None:
        super().__init__(text)
        self.found = found
        self.expected = expected


class ParseError(HarmonyError):
    """Tokens that are not Harmony.

    Attributes:
        position: index, among all tokens fed so far, of the token that was refused; their number at the end of input.
        state: the parser's state when it met that token.
        expected: what would have been right.
        events: what the failing call had found before the error; those events are returned nowhere else.
    """

    def __init__(self, text: str, *, position: int, state: StreamState, expected: str) -> None:
        super().__init__(text)
        self.position = position
        self.state = state
        self.expected = expected
        self.events: Sequence[ParserEvent] = ()


class UnexpectedTokenError(ParseError):
    """Something other than `<|start|>` where a message has to begin.

    Attributes:
        token: the id that was refused.
    """

    def __init__(self, text: str, *, token: int, position: int, expected: str) -> None:
        super().__init__(text, position=position, state=StreamState.EXPECT_START, expected=expected)
        self.token = token


class UnexpectedEndError(ParseError):
    """The input ended inside a header."""


class HeaderProblem(StrEnum):
    """Why a header cannot be read."""

    NOT_TEXT = "not text"
    NO_CHANNEL_VALUE = "no channel value"
    NO_ROLE = "no role"
    UNKNOWN_ROLE = "unknown role"
    WORDS_LEFT = "words left"


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderFault:
    """Why a header cannot be read.

    Attributes:
        problem: the rule that was broken.
        text: the library's text.
        expected: what would have been right.
    """

    problem: HeaderProblem
    text: str
    expected: str


class HeaderError(ParseError):
    """A complete header that cannot be read.

    Attributes:
        problem: the rule that was broken.
        header: the ids of the header, without `<|start|>` and `<|message|>`.
    """

    def __init__(self, fault: HeaderFault, *, header: Sequence[int], position: int) -> None:
        super().__init__(fault.text, position=position, state=StreamState.HEADER, expected=fault.expected)
        self.problem = fault.problem
        self.header = tuple(header)
