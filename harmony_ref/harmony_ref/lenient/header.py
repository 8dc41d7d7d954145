"""Lenient reading of one decoded message header: it interprets any words and raises no error.

The rules and their sources are listed in `lenient.parse`. For a valid header the fields are those that
`messages.header.read_header` reads.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harmony_ref.lenient.errors import RecoveryRule
from harmony_ref.lenient.header_words import (
    CHANNELS,
    CONTENT_TYPES,
    LEXEME,
    MISSPELT_ROLE,
    NAMED_AUTHOR,
    ROLES,
    Lexeme,
    LexemeKind,
    is_author,
    lexemes_of,
    marker_value,
)
from harmony_ref.messages.header import CONSTRAIN_MARKER, RECIPIENT_PREFIX, Header
from harmony_ref.messages.message_types import Author, Role

_SEPARATOR: Final = re.compile(r"[ \t\n\x0c\r]+")  # white space that separates words for strict parsers too


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A broken rule, and the span of the part that breaks it: in characters, or in tokens when traced."""

    rule: RecoveryRule
    start: int
    end: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderReading:
    """The result of reading a header.

    Attributes:
        header: The fields. The content type has its `<|constrain|>`, without a blank after it.
        is_understood: True if any word was understood.
        length: The length of the header, in characters, or in tokens when traced.
        faults: The broken rules, in no order; when traced, by token.
    """

    header: Header
    is_understood: bool
    length: int
    faults: Sequence[Fault]


class HeaderReader:
    """Reads one header: assigns its words to fields, the most certain first.

    `role` is the role that the prompt had after the last `<|start|>`. `fallback` is the author if neither `role` nor
    the words name one. `is_guessed` is True if the end of the header was inferred, not marked by `<|message|>`.
    """

    def __init__(self, text: str, *, role: Role | None, fallback: Author, is_guessed: bool) -> None:
        self.text = text
        self.role = role
        self.fallback = fallback
        self.is_guessed = is_guessed
        self.author: Author | None = None
        self.recipient: str | None = None
        self.recipient_start = 0
        self.channel: Lexeme | None = None
        self.content_type: str | None = None
        self.type_start = 0
        self.type_end = 0
        self.faults: list[Fault] = []

    def read(self) -> HeaderReading:
        """Return the fields and the faults; call it once."""
        lexemes = list(lexemes_of(self.text))
        self._check_separators()
        words = self._take_marked(lexemes)
        rest = self._take_author(words, lexemes)
        tool = self.author if self.role is None and self.author and self.author.role is Role.TOOL else None
        has_author = self.author is not None
        for step in (self._take_recipient, self._take_known_words, self._take_bare_words):
            rest = step(rest)
        for word in rest:
            self._add_fault(RecoveryRule.EXTRA_WORDS, word.start, word.end)
        if self.content_type is not None:
            if self.recipient is None:
                self._add_fault(RecoveryRule.LONE_CONTENT_TYPE, self.type_start, self.type_end)
            if words and words[-1].start > self.type_start:
                self._add_fault(RecoveryRule.CONTENT_TYPE_NOT_LAST, self.type_start, self.type_end)
        if tool is not None and self.recipient is None and not tool.name == words[0].text == Role.TOOL.value:
            self._add_fault(RecoveryRule.TOOL_ALONE, words[0].start, words[0].end)
        author = self.author or (None if self.role is None else Author(role=self.role)) or self.fallback
        channel = None if self.channel is None else self.channel.text
        fields = (self.recipient, channel, self.content_type)
        return HeaderReading(
            header=Header(author=author, recipient=self.recipient, channel=channel, content_type=self.content_type),
            is_understood=has_author or any(field is not None for field in fields),
            length=len(self.text),
            faults=tuple(self.faults),
        )

    def _add_fault(self, rule: RecoveryRule, start: int, end: int) -> None:
        self.faults.append(Fault(rule=rule, start=start, end=end))

    def _check_separators(self) -> None:
        matches = list(LEXEME.finditer(self.text))
        for index, match in enumerate(matches):
            inner = 0 < index < len(matches) - 1
            if match.lastgroup == "stray":
                self._add_fault(RecoveryRule.STRAY_IN_HEADER, match.start(), match.end())
            elif match.lastgroup == "space" and inner and not _SEPARATOR.fullmatch(match.group()):
                self._add_fault(RecoveryRule.ODD_WHITE_SPACE, match.start(), match.end())

    def _take_marked(self, lexemes: Sequence[Lexeme]) -> list[Lexeme]:
        """Consume the channel and the constrained content type, which have markers."""
        words: list[Lexeme] = []
        index = 0
        while index < len(lexemes):
            lexeme = lexemes[index]
            index += 1
            if lexeme.kind is LexemeKind.WORD:
                words.append(lexeme)
                continue
            take = self._take_channel if lexeme.kind is LexemeKind.CHANNEL else self._take_constrained
            following = lexemes[index] if index < len(lexemes) else None
            value = marker_value(lexeme, following, is_guessed=self.is_guessed)
            take(lexeme, value)
            if value is not None and following is not None:
                index += 1
                if value.end < following.end:
                    after = following.text[len(value.text) :]
                    words.append(Lexeme(LexemeKind.WORD, after, value.end, following.end))
        return words

    def _take_channel(self, marker: Lexeme, value: Lexeme | None) -> None:
        if value is None:
            self._add_fault(RecoveryRule.NO_CHANNEL, marker.start, marker.end)
            return
        if value.start > marker.end:
            self._add_fault(RecoveryRule.SPACED_CHANNEL, marker.start, value.end)
        channel = Lexeme(LexemeKind.CHANNEL, value.text, marker.start, value.end)
        rejected = self.channel
        if rejected is not None and (rejected.text in CHANNELS or channel.text not in CHANNELS):
            rejected, channel = channel, rejected
        if rejected is not None:
            self._add_fault(RecoveryRule.DOUBLED_CHANNEL, rejected.start, rejected.end)
        self.channel = channel

    def _take_constrained(self, marker: Lexeme, value: Lexeme | None) -> None:
        end = marker.end if value is None else value.end
        if value is not None and value.start > marker.end:
            self._add_fault(RecoveryRule.SPACED_CONSTRAIN, marker.start, end)
        if self.content_type is not None:
            self._add_fault(RecoveryRule.DOUBLED_CONTENT_TYPE, marker.start, end)
            return
        self.content_type = CONSTRAIN_MARKER if value is None else CONSTRAIN_MARKER + value.text
        self.type_start, self.type_end = marker.start, end

    def _take_author(self, words: list[Lexeme], lexemes: Sequence[Lexeme]) -> list[Lexeme]:
        used = self._author_words(words, lexemes)
        if self.author is None and self.role is None:
            self._add_fault(RecoveryRule.MISSING_ROLE, 0, 0)
        role = self.role if self.author is None else self.author.role
        repeated = words[used] if used and used < len(words) else None
        if repeated is not None and role is not None and repeated.text == role.value and role is not Role.TOOL:
            self._add_fault(RecoveryRule.ROLE_SPELLING, words[0].start, repeated.end)
            used += 1
        return words[used:]

    def _author_words(self, words: list[Lexeme], lexemes: Sequence[Lexeme]) -> int:
        """Set the author, and return the number of words that name it."""
        if not words:
            return 0
        first = words[0]
        expected = ROLES if self.role is None else {self.role.value: self.role}
        named = NAMED_AUTHOR.fullmatch(first.text)
        if named is not None and named["role"] in expected:
            self._add_fault(RecoveryRule.NAMED_AUTHOR, first.start, first.end)
            self.author = Author(role=expected[named["role"]], name=named["name"])
            return 1
        spelling = MISSPELT_ROLE.fullmatch(first.text)
        if spelling is not None and spelling["role"].lower() in expected:
            if first.text not in expected:
                self._add_fault(RecoveryRule.ROLE_SPELLING, first.start, first.end)
            role = expected[spelling["role"].lower()]
            self.author = Author(role=role, name=role.value if role is Role.TOOL and self.role is None else None)
            if spelling["channel"] and self.channel is None:
                self.channel = Lexeme(LexemeKind.CHANNEL, spelling["channel"].lower(), first.start, first.end)
            return 1
        is_recipient = first.text.startswith(RECIPIENT_PREFIX) or _is_split(words)
        is_addressed = len(words) > 1 and words[1].text.startswith(RECIPIENT_PREFIX)
        is_type = first.text in CONTENT_TYPES and not is_addressed
        if self.role is not None or is_recipient or is_type or first.text in CHANNELS:
            return 0
        if self.is_guessed and not is_author(lexemes, None):
            return 0
        self.author = Author(role=Role.TOOL, name=first.text)
        return 1

    def _take_recipient(self, words: list[Lexeme]) -> list[Lexeme]:
        rest: list[Lexeme] = []
        index = 0
        while index < len(words):
            used = self._recipient_words(words[index : index + 3])
            if not used:
                rest.append(words[index])
            index += used or 1
        return rest

    def _recipient_words(self, words: Sequence[Lexeme]) -> int:
        """Set the recipient if the words begin with one, and return the number of words used."""
        first = words[0]
        following = words[1] if len(words) > 1 else None
        used = 1
        value = first.text.removeprefix(RECIPIENT_PREFIX)
        if _is_split(words):
            assert following is not None, "a split prefix has two words"
            value = following.text.removeprefix("=")
            used = 2
            if not value and len(words) > used:
                value = words[2].text
                used = 3
        elif not first.text.startswith(RECIPIENT_PREFIX):
            return 0
        elif not value and following is not None and _can_be_recipient(following.text):
            value = following.text
            used = 2
        end = words[used - 1].end
        if self.recipient is not None:
            self._add_fault(RecoveryRule.DOUBLED_RECIPIENT, first.start, end)
            return used
        if used > 1:
            self._add_fault(RecoveryRule.SPLIT_RECIPIENT, first.start, end)
        self.recipient = value
        self.recipient_start = first.start
        return used

    def _take_known_words(self, words: list[Lexeme]) -> list[Lexeme]:
        """Consume words that have only one meaning even without their markers."""
        rest: list[Lexeme] = []
        for word in words:
            if word.text in CHANNELS and self.channel is None:
                self._add_fault(RecoveryRule.UNMARKED_CHANNEL, word.start, word.end)
                self.channel = word
            elif word.text in CHANNELS:
                self._add_fault(RecoveryRule.DOUBLED_CHANNEL, word.start, word.end)
            elif word.text in CONTENT_TYPES and self.content_type is None:
                self._take_bare_type(word)
            elif word.text in CONTENT_TYPES:
                self._add_fault(RecoveryRule.DOUBLED_CONTENT_TYPE, word.start, word.end)
            else:
                rest.append(word)
        return rest

    def _take_bare_words(self, words: list[Lexeme]) -> list[Lexeme]:
        """Consume a recipient and a content type by their positions, as strict parsers do."""
        if self.is_guessed or not words:
            return words
        names = words[:]
        most = 2 if self.content_type is None else 1
        is_before_type = self.content_type is None or words[0].start < self.type_start
        if self.recipient is None and len(words) <= most and is_before_type:
            bare = names.pop(0)
            self._add_fault(RecoveryRule.BARE_RECIPIENT, bare.start, bare.end)
            self.recipient, self.recipient_start = bare.text, bare.start
        if self.content_type is None and len(names) == 1 and names[0].start > self.recipient_start:
            self._take_bare_type(names.pop())
        return names

    def _take_bare_type(self, word: Lexeme) -> None:
        self.content_type, self.type_start, self.type_end = word.text, word.start, word.end


def _is_split(words: Sequence[Lexeme]) -> bool:
    return len(words) > 1 and words[0].text == "to" and words[1].text.startswith("=")


def _can_be_recipient(text: str) -> bool:
    return not text.startswith(RECIPIENT_PREFIX) and text not in CHANNELS | CONTENT_TYPES
