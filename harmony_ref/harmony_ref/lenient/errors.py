"""Errors that lenient parsing reports for malformed completions and for those that strict parsing misreads.

- ParseError
  - RecoveredError: has `rule` and `span`; reported in `LenientParse.errors`, never raised
    - JunkError: tokens that belong to no message
    - MissingMarkerError: `<|start|>`, `<|message|>` or `<|end|>` was left out
    - HeaderWordsError: a header whose words break a rule
    - ContentTokensError: content with tokens that are not text
    - CutHeaderError: the input ended inside a header (also an UnexpectedEndError)

The rules are listed in `lenient.parse`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import MappingProxyType

from harmony_ref.errors import ParseError, UnexpectedEndError
from harmony_ref.stream_state import StreamState


class RecoveryRule(StrEnum):
    """A kind of malformed output, with one way to recover from each."""

    JUNK = "junk between messages"
    ABANDONED_HEADER = "abandoned header"
    DOUBLED_START = "doubled start"
    MISSING_START = "missing start"
    MISSING_MESSAGE = "missing message marker"
    MISSING_END = "missing end"
    MISSING_ROLE = "missing role"
    ROLE_SPELLING = "misspelt role"
    NAMED_AUTHOR = "named author"
    TOOL_ALONE = "tool without a recipient"
    NO_CHANNEL = "empty channel"
    SPACED_CHANNEL = "space before the channel"
    DOUBLED_CHANNEL = "doubled channel"
    UNMARKED_CHANNEL = "channel without its marker"
    BARE_RECIPIENT = "recipient without to="
    SPLIT_RECIPIENT = "space in to="
    DOUBLED_RECIPIENT = "doubled recipient"
    LONE_CONTENT_TYPE = "content type without a recipient"
    SPACED_CONSTRAIN = "space after constrain"
    DOUBLED_CONTENT_TYPE = "doubled content type"
    CONTENT_TYPE_NOT_LAST = "content type is not last"
    EXTRA_WORDS = "extra words"
    ODD_WHITE_SPACE = "white space that does not separate words"
    STRAY_IN_HEADER = "stray special token in a header"
    HEADER_BYTES = "header that is not text"
    STRAY_IN_CONTENT = "stray special token in content"
    UNKNOWN_ID = "unknown token id"
    INVALID_UTF8 = "content that is not UTF-8"
    CUT_HEADER = "cut header"


JUNK_WORD_RULES = frozenset(
    (
        RecoveryRule.DOUBLED_CHANNEL,
        RecoveryRule.DOUBLED_RECIPIENT,
        RecoveryRule.DOUBLED_CONTENT_TYPE,
        RecoveryRule.EXTRA_WORDS,
    )
)
"""Rules that leave words of a header in no field of the message. Those words are junk inside the header."""


class RecoveredError(ParseError):
    """A fault that lenient parsing recovered from.

    `rule` is the kind of fault. `span` has the first token concerned and the one after the last; it is empty where
    something is missing.
    """

    def __init__(
        self, *, rule: RecoveryRule, span: tuple[int, int], position: int | None = None, quotation: str = ""
    ) -> None:
        entry = RULES[rule]
        quoted = f": {quotation}" if quotation else ""
        ParseError.__init__(
            self,
            f"{rule.value}{quoted}; expected {entry.expected}",
            position=span[0] if position is None else position,
            state=entry.state,
            expected=entry.expected,
        )
        self.rule = rule
        self.span = span


class JunkError(RecoveredError):
    """Tokens that belong to no message."""


class MissingMarkerError(RecoveredError):
    """A special token that frames messages was left out; `expected` names it."""


class HeaderWordsError(RecoveredError):
    """A header whose words break a rule."""


class ContentTokensError(RecoveredError):
    """Content with tokens that are not text: stray special tokens, unknown ids, incomplete characters."""


class CutHeaderError(RecoveredError, UnexpectedEndError):
    """The input ended inside a header; `position` is the number of tokens."""


@dataclass(frozen=True, slots=True)
class _Entry:
    kind: type[RecoveredError]
    state: StreamState
    expected: str


_junk = partial(_Entry, JunkError)
_missing = partial(_Entry, MissingMarkerError)
_words = partial(_Entry, HeaderWordsError, StreamState.HEADER)
_content = partial(_Entry, ContentTokensError, StreamState.CONTENT)


RULES: Mapping[RecoveryRule, _Entry] = MappingProxyType(
    {
        RecoveryRule.JUNK: _junk(StreamState.EXPECT_START, "<|start|>"),
        RecoveryRule.ABANDONED_HEADER: _junk(StreamState.HEADER, "a complete header and <|message|>"),
        RecoveryRule.DOUBLED_START: _junk(StreamState.HEADER, "a header after <|start|>"),
        RecoveryRule.MISSING_START: _missing(StreamState.EXPECT_START, "<|start|> and a role"),
        RecoveryRule.MISSING_MESSAGE: _missing(StreamState.HEADER, "<|message|>"),
        RecoveryRule.MISSING_END: _missing(StreamState.CONTENT, "<|end|>, <|call|> or <|return|>"),
        RecoveryRule.MISSING_ROLE: _words("a role as the first word"),
        RecoveryRule.ROLE_SPELLING: _words("one role, spelt as the format does"),
        RecoveryRule.NAMED_AUTHOR: _words("a role without a name: no strict parser reads named authors"),
        RecoveryRule.TOOL_ALONE: _words("a recipient after the name of a tool"),
        RecoveryRule.NO_CHANNEL: _words("a channel directly after <|channel|>"),
        RecoveryRule.SPACED_CHANNEL: _words("a channel directly after <|channel|>"),
        RecoveryRule.DOUBLED_CHANNEL: _words("one channel"),
        RecoveryRule.UNMARKED_CHANNEL: _words("<|channel|> before the channel"),
        RecoveryRule.BARE_RECIPIENT: _words("to= before the recipient"),
        RecoveryRule.SPLIT_RECIPIENT: _words("a recipient directly after to="),
        RecoveryRule.DOUBLED_RECIPIENT: _words("one recipient"),
        RecoveryRule.LONE_CONTENT_TYPE: _words(
            "a recipient before a content type: strict parsers read a lone word as one"
        ),
        RecoveryRule.SPACED_CONSTRAIN: _words("a content type directly after <|constrain|>"),
        RecoveryRule.DOUBLED_CONTENT_TYPE: _words("one content type"),
        RecoveryRule.CONTENT_TYPE_NOT_LAST: _words("the content type as the last word"),
        RecoveryRule.EXTRA_WORDS: _words("at most a recipient and a content type after the role"),
        RecoveryRule.ODD_WHITE_SPACE: _words("blanks between words"),
        RecoveryRule.STRAY_IN_HEADER: _words("only <|channel|> and <|constrain|> in a header"),
        RecoveryRule.HEADER_BYTES: _words("known tokens that are UTF-8"),
        RecoveryRule.STRAY_IN_CONTENT: _content("text"),
        RecoveryRule.UNKNOWN_ID: _content("an id of the vocabulary"),
        RecoveryRule.INVALID_UTF8: _content("tokens that are UTF-8 together"),
        RecoveryRule.CUT_HEADER: _Entry(CutHeaderError, StreamState.HEADER, "<|message|>"),
    }
)
"""The class of each rule's error, the parser's state, and the input that would be valid."""
