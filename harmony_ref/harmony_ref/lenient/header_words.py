"""Words of a header, and the boundary between header and content where `<|message|>` is missing."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from harmony_ref.messages.header import CHANNEL_MARKER, CONSTRAIN_MARKER, RECIPIENT_PREFIX
from harmony_ref.messages.message_types import Role

CHANNELS: Final = frozenset({"analysis", "commentary", "final"})
"""The channels of the format. Other names are accepted too, because a system message may declare its own."""

CONTENT_TYPES: Final = frozenset({"json", "code"})
"""Content types that models write without `<|constrain|>`; any other single word may be a recipient."""

ROLES: Final = {role.value: role for role in Role}

MISSPELT_ROLE: Final = re.compile(
    f"(?P<role>{'|'.join(ROLES)})(?P=role)*(?P<channel>{'|'.join(sorted(CHANNELS))})?", re.IGNORECASE
)
"""A role as models misspell it."""

NAMED_AUTHOR: Final = re.compile("(?P<role>user|assistant|system|developer):(?P<name>.*)", re.DOTALL)
"""A role with a name, which may be empty. A tool's name has no role before it."""

TOOL_NAME: Final = re.compile(r"[\w-]+(?:[.:][\w-]+)+")
"""The name of a tool, which differs from any other word by its namespace."""

_JSON_OPENING: Final = re.compile(r"[{\[\"<]")
"""Ends a recipient or a content type, because JSON may follow without a blank."""

_IN_NAMES: Final = frozenset("_-.:")  # characters that continue a name, but not a word that text follows
_STRAY: Final = r"\|(?:startoftext|endoftext|return|start|end|message|call|reserved_\d+)\|>"
_MARKER: Final = r"\|(?:channel|constrain)\|>"
LEXEME: Final = re.compile(
    # The format uses Unicode's White_Space; Python's `\s` also has U+001C to U+001F.
    rf"(?P<marker><{_MARKER})|(?P<stray><{_STRAY})|(?P<space>[^\S\x1c-\x1f]+)"
    rf"|(?P<word>(?:[^\s<]|[\x1c-\x1f]|<(?!{_MARKER}|{_STRAY}))+)"
)


class LexemeKind(Enum):
    """A word, or one of the two markers that a header can have."""

    WORD = auto()
    CHANNEL = auto()
    CONSTRAIN = auto()


@dataclass(frozen=True, slots=True)
class Lexeme:
    """A word or marker, with its character offsets in the header."""

    kind: LexemeKind
    text: str
    start: int
    end: int


def header_length(
    text: str, *, role: Role | None, begins_token: Callable[[int], bool], unfinished: re.Pattern[str] | None = None
) -> int:
    """Return how many characters of a text without `<|message|>` are header; the rest is content.

    Args:
        text: The text after `<|start|>`, or after the role in the prompt.
        role: That role.
        begins_token: Returns True if a token begins at a character. If only `<|message|>` is missing, content follows a
            known word without a blank. Only token boundaries separate the two.
        unfinished: A rest that is still header where the input was cut.
    """
    length = _length_of_words(list(lexemes_of(text)), role, begins_token)
    rest = text[length:]
    return len(text) if not rest.strip() or (unfinished is not None and unfinished.fullmatch(rest)) else length


def _length_of_words(lexemes: Sequence[Lexeme], role: Role | None, begins_token: Callable[[int], bool]) -> int:
    """Return where the words that belong to a header end. All text before the first channel is header."""
    first = next((index for index, lexeme in enumerate(lexemes) if lexeme.kind is LexemeKind.CHANNEL), None)
    index = first or 0
    length = 0
    if first is None and lexemes:
        if is_author(lexemes, role):
            length, index = lexemes[0].end, 1
        elif role is None and (glued := _author_before_text(lexemes[0], begins_token)):
            return glued
    addressed = any(lexeme.text.startswith(RECIPIENT_PREFIX) for lexeme in lexemes[:index])
    while index < len(lexemes) and (index in {0, first} or length >= lexemes[index - 1].end):
        lexeme = lexemes[index]
        index += 1
        if lexeme.kind is not LexemeKind.WORD:
            length = lexeme.end
            value = marker_value(lexeme, lexemes[index] if index < len(lexemes) else None, is_guessed=True)
            if value is not None:
                length = value.start + _length_of_value(lexeme, value, begins_token)
                index += 1
        elif not addressed and lexeme.text.startswith(RECIPIENT_PREFIX):
            length = lexeme.start + len(_before_json(lexeme.text))
            addressed = True
        elif addressed and _before_json(lexeme.text) in CONTENT_TYPES:
            length = lexeme.start + len(_before_json(lexeme.text))
        else:
            break
    return length


def _length_of_value(marker: Lexeme, value: Lexeme, begins_token: Callable[[int], bool]) -> int:
    """Return the length of the value in the word after a marker; content may follow it without a blank."""
    if marker.kind is LexemeKind.CONSTRAIN:
        return len(_before_json(value.text))
    known = (len(name) for name in CHANNELS if value.text.startswith(name))
    return next((length for length in known if begins_token(value.start + length)), len(value.text))


def _before_json(word: str) -> str:
    return _JSON_OPENING.split(word, maxsplit=1)[0]


def _author_before_text(word: Lexeme, begins_token: Callable[[int], bool]) -> int:
    """Return where an assistant role that text follows without a blank ends; 0 without such a role."""
    match = MISSPELT_ROLE.match(word.text) if word.kind is LexemeKind.WORD else None
    if match is None or match["role"] != Role.ASSISTANT or word.text[match.end() : match.end() + 1] in _IN_NAMES:
        return 0
    end = word.start + match.end()
    return end if begins_token(end) else 0


def marker_value(marker: Lexeme, word: Lexeme | None, *, is_guessed: bool) -> Lexeme | None:
    """Return the part of the next word that is a marker's value; after a blank only if nothing else is possible."""
    if word is None or word.kind is not LexemeKind.WORD:
        return None
    text = word.text.partition("<")[0] if marker.kind is LexemeKind.CHANNEL else word.text
    if word.start > marker.end:
        known = CHANNELS if marker.kind is LexemeKind.CHANNEL else CONTENT_TYPES
        if text.startswith(RECIPIENT_PREFIX) or (is_guessed and text not in known):
            return None
    return Lexeme(LexemeKind.WORD, text, word.start, word.start + len(text)) if text else None


def is_author(lexemes: Sequence[Lexeme], role: Role | None) -> bool:
    """Return True if the first word names the author where text may follow it."""
    first = lexemes[0]
    if first.kind is not LexemeKind.WORD:
        return False
    if role is not None:
        return first.text == role.value
    spelling = MISSPELT_ROLE.fullmatch(first.text)
    if (spelling is not None and spelling["role"] in ROLES) or NAMED_AUTHOR.fullmatch(first.text):
        return True
    if TOOL_NAME.fullmatch(first.text) is None:
        return False
    if len(lexemes) == 1 or lexemes[1].kind is LexemeKind.CHANNEL or lexemes[1].text.startswith(RECIPIENT_PREFIX):
        return True
    # The input may have been cut inside ` to=`.
    return [lexeme.text for lexeme in lexemes[1:]] == ["to"]


def lexemes_of(text: str) -> Iterator[Lexeme]:
    """Yield the words and markers, without white space and stray special tokens."""
    kinds = {CHANNEL_MARKER: LexemeKind.CHANNEL, CONSTRAIN_MARKER: LexemeKind.CONSTRAIN}
    for match in LEXEME.finditer(text):
        if match.lastgroup in {"word", "marker"}:
            yield Lexeme(kinds.get(match.group(), LexemeKind.WORD), match.group(), match.start(), match.end())
