"""The words of a header, told apart from the text that follows where no `<|message|>` does."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from harmony_ref.header import CHANNEL_MARKER, CONSTRAIN_MARKER, RECIPIENT_PREFIX
from harmony_ref.messages import Role

CHANNELS: Final = frozenset({"analysis", "commentary", "final"})
"""The channels of the format. Others are kept as they are, for a system message may declare its own."""

CONTENT_TYPES: Final = frozenset({"json", "code"})
"""Content types that models write without `<|constrain|>`; any other single word may be a recipient."""

ROLES: Final = {role.value: role for role in Role}
"""The roles by their words."""

SPELLING: Final = re.compile(
    f"(?P<role>{'|'.join(ROLES)})(?P=role)*(?P<channel>{'|'.join(sorted(CHANNELS))})?", re.IGNORECASE
)
"""A role as models misspell it."""

NAMED: Final = re.compile("(?P<role>user|assistant|system|developer):(?P<name>.+)", re.DOTALL)
"""A role with a name; that of a tool stands alone."""

_TOOL_NAME: Final = re.compile(r"[\w-]+(?:[.:][\w-]+)+")
_RECIPIENT_BEFORE_TEXT: Final = re.compile(r"to=[^{\[\"<]*")
"""A recipient, where JSON may follow without a blank."""

_STRAY: Final = r"\|(?:startoftext|endoftext|return|start|end|message|call|reserved_\d+)\|>"
_MARKER: Final = r"\|(?:channel|constrain)\|>"
LEXEME: Final = re.compile(
    # Python's white space has U+001C to U+001F besides Unicode's White_Space, which is what the format goes by.
    rf"(?P<marker><{_MARKER})|(?P<stray><{_STRAY})|(?P<space>[^\S\x1c-\x1f]+)"
    rf"|(?P<word>(?:[^\s<]|[\x1c-\x1f]|<(?!{_MARKER}|{_STRAY}))+)"
)


class Extent(Enum):
    """What is known of where a header ends."""

    ALL = auto()
    """`<|message|>` ended it: words without a marker can be recipient and content type."""
    GUESSED = auto()
    """It was told from the content that follows it without a marker."""


class Kind(Enum):
    """A word, or one of the two markers that a header can have."""

    WORD = auto()
    CHANNEL = auto()
    CONSTRAIN = auto()


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A word or marker, and which characters of the header it is."""

    kind: Kind
    text: str
    start: int
    end: int


def header_length(text: str, *, role: Role | None, unfinished: re.Pattern[str] | None = None) -> int:
    """How many characters of a text without `<|message|>` are header; the rest is content.

    Args:
        text: what followed `<|start|>`, or the role in the prompt.
        role: that role.
        unfinished: a rest that is still header, where the input was cut.
    """
    length = _length_of_words(list(lexemes_of(text)), role)
    rest = text[length:]
    is_header = not rest.strip() or (unfinished is not None and unfinished.fullmatch(rest) is not None)
    return len(text) if is_header else length


def _length_of_words(lexemes: Sequence[Lexeme], role: Role | None) -> int:
    """Where the words that belong to a header end. All that stands before the first channel is header."""
    first = next((index for index, lexeme in enumerate(lexemes) if lexeme.kind is Kind.CHANNEL), None)
    index = first or 0
    length = 0
    if first is None and lexemes and is_author(lexemes, role):
        length, index = lexemes[0].end, 1
    addressed = any(lexeme.text.startswith(RECIPIENT_PREFIX) for lexeme in lexemes[:index])
    while index < len(lexemes) and (index in {0, first} or length >= lexemes[index - 1].end):
        lexeme = lexemes[index]
        index += 1
        if lexeme.kind is not Kind.WORD:
            length = lexeme.end
            value = value_of(lexeme, lexemes[index] if index < len(lexemes) else None, extent=Extent.GUESSED)
            if value is not None:
                length = value.end
                index += 1
        elif not addressed and lexeme.text.startswith(RECIPIENT_PREFIX):
            matched = _RECIPIENT_BEFORE_TEXT.match(lexeme.text)
            length = lexeme.start + (matched.end() if matched else 0)
            addressed = True
        elif addressed and lexeme.text in CONTENT_TYPES:
            length = lexeme.end
        else:
            break
    return length


def value_of(marker: Lexeme, word: Lexeme | None, *, extent: Extent) -> Lexeme | None:
    """The part of the next word that is the value of a marker; after a blank only if it can be nothing else."""
    if word is None or word.kind is not Kind.WORD:
        return None
    text = word.text.partition("<")[0] if marker.kind is Kind.CHANNEL else word.text
    if word.start > marker.end:
        known = CHANNELS if marker.kind is Kind.CHANNEL else CONTENT_TYPES
        if text.startswith(RECIPIENT_PREFIX) or (extent is Extent.GUESSED and text not in known):
            return None
    return Lexeme(Kind.WORD, text, word.start, word.start + len(text)) if text else None


def is_author(lexemes: Sequence[Lexeme], role: Role | None) -> bool:
    """Whether the first word says who speaks, where text may follow it."""
    first = lexemes[0]
    if first.kind is not Kind.WORD:
        return False
    if role is not None:
        return first.text == role.value
    spelling = SPELLING.fullmatch(first.text)
    if (spelling is not None and spelling["role"] in ROLES) or NAMED.fullmatch(first.text):
        return True
    followed = len(lexemes) == 1 or lexemes[1].kind is Kind.CHANNEL or lexemes[1].text.startswith(RECIPIENT_PREFIX)
    return followed and _TOOL_NAME.fullmatch(first.text) is not None


def lexemes_of(text: str) -> Iterator[Lexeme]:
    """The words and markers, without white space and stray special tokens."""
    kinds = {CHANNEL_MARKER: Kind.CHANNEL, CONSTRAIN_MARKER: Kind.CONSTRAIN}
    for found in LEXEME.finditer(text):
        if found.lastgroup in {"word", "marker"}:
            kind = kinds.get(found.group(), Kind.WORD)
            yield Lexeme(kind, found.group(), found.start(), found.end())
