"""One message header: what stands between `<|start|>` and `<|message|>`.

    AUTHOR [" to=" RECIPIENT] [<|channel|> CHANNEL] [" " CONTENT_TYPE]

The library writes the recipient before the channel; the guide's examples and the models write it after. Both are read.
Reading works on decoded text, so a marker that was typed in ordinary tokens counts as well (encoding.rs:1332-1471).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from harmony_ref.errors import HarmonyError, HeaderError, HeaderFault, HeaderProblem, RenderError
from harmony_ref.memo import Memo
from harmony_ref.messages.message_types import Author, Message, Role
from harmony_ref.tokenizer import tokens

CHANNEL_MARKER: Final = "<|channel|>"
CONSTRAIN_MARKER: Final = "<|constrain|>"
RECIPIENT_PREFIX: Final = "to="
EVERYONE: Final = "all"
"""The recipient that is not written."""

_WHITE_SPACE: Final = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode White_Space. str.strip() would also take U+001C to U+001F."""

_CHANNEL_VALUE: Final = re.compile(f"[^<{_WHITE_SPACE}]*")
_WORD: Final = re.compile(r"[^ \t\n\x0c\r]+")
_ROLES: Final = {role.value: role for role in Role}
_CACHED_LENGTH: Final = 64
"""Longer headers and header strings are not remembered, so that the caches stay small."""
_CACHED_CHARACTERS: Final = 4 * _CACHED_LENGTH
"""The same for headers as text."""

_WRITTEN: Final = Memo[tuple[Role, str | None, str | None, str | None, str | None], tuple[int, ...]]()
"""Headers by their fields: conversations have few different ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """The fields of a header. A content type keeps its `<|constrain|>`."""

    author: Author
    recipient: str | None = None
    channel: str | None = None
    content_type: str | None = None


def read_header(header: Sequence[int], *, role: Role | None = None, position: int = 0) -> Header:
    """Read the tokens of one header.

    Args:
        header: the ids between `<|start|>` and `<|message|>`.
        role: the role that is known beforehand, when `<|start|>` and role stood in the prompt.
        position: where in its stream the header ended; goes into the error.

    Raises:
        HeaderError: the header breaks a rule.
    """
    read = _read_remembered if len(header) <= _CACHED_LENGTH else _read
    found = read(tuple(header), role)
    if isinstance(found, Header):
        return found
    raise HeaderError(found, header=header, position=position)


def read_header_text(text: str, role: Role | None) -> Header | HeaderFault:
    """Read a header that was decoded; what `read_header` does after that.

    Returns:
        The header, or why it cannot be read.
    """
    return (_read_text_remembered if len(text) <= _CACHED_CHARACTERS else _read_text)(text, role)


def write_header(header: Header) -> list[int]:
    """The ids of a header, `<|start|>` and `<|message|>` included (encoding.rs:813-903).

    Every field is ordinary text, whatever it contains, but for a content type that begins with `<|constrain|>`.

    Raises:
        RenderError: a tool without a name.
    """
    author = header.author
    written = [tokens.START]
    if author.role is Role.TOOL:
        if author.name is None:
            raise RenderError("Tools should have a name!", found="a tool without a name", expected="Author.name")
        written += encode_field(author.name)
    else:
        written += encode_field(author.role.value)
        if author.name is not None:
            written += encode_field(f":{author.name}")
    if header.recipient is not None and header.recipient != EVERYONE:
        written += encode_field(f" {RECIPIENT_PREFIX}{header.recipient}")
    if header.channel is not None:
        written.append(tokens.CHANNEL)
        written += encode_field(header.channel)
    if header.content_type is not None:
        written += _content_type(header.content_type)
    written.append(tokens.MESSAGE)
    return written


def header_ids(message: Message) -> Sequence[int]:
    """The ids of a message's header, as `write_header` writes it, remembered.

    Raises:
        RenderError: a tool without a name.
    """
    author = message.author
    fields = (author.role, author.name, message.recipient, message.channel, message.content_type)
    found = _WRITTEN.get(fields)
    if found is not None:
        return found
    header = Header(
        author=author, recipient=message.recipient, channel=message.channel, content_type=message.content_type
    )
    ids = tuple(write_header(header))
    return _WRITTEN.remember(fields, ids) if len(ids) <= _CACHED_LENGTH else ids


def encode_field(text: str) -> Sequence[int]:
    """The ids of a string in a header, remembered: the same few come again and again."""
    return _encode_remembered(text) if len(text) <= _CACHED_LENGTH else tokens.encode_text(text)


def split_channel(text: str) -> tuple[str | None, str] | HeaderFault:
    """The channel, if there is one, and the text without it: what stood before and after is joined without a space."""
    before, marker, rest = text.partition(CHANNEL_MARKER)
    if not marker:
        return None, text
    matched = _CHANNEL_VALUE.match(rest)
    channel = matched.group() if matched else ""
    if not channel:
        return HeaderFault(
            problem=HeaderProblem.NO_CHANNEL_VALUE,
            text="channel marker present but no channel value found in header",
            expected="a channel directly after <|channel|>",
        )
    return channel, before + rest[len(channel) :]


def words_of(text: str) -> list[str]:
    """The words of a header without its channel; `<|constrain|>` begins a word wherever it stands."""
    spaced = text.strip(_WHITE_SPACE).replace(CONSTRAIN_MARKER, f" {CONSTRAIN_MARKER}")
    return _WORD.findall(spaced.strip(_WHITE_SPACE))


def _content_type(content_type: str) -> list[int]:
    if not content_type.startswith(CONSTRAIN_MARKER):
        return list(encode_field(f" {content_type}"))
    return [*encode_field(" "), tokens.CONSTRAIN, *encode_field(content_type.removeprefix(CONSTRAIN_MARKER))]


@lru_cache(maxsize=4096)
def _encode_remembered(text: str) -> tuple[int, ...]:
    return tuple(tokens.encode_text(text))


def _read(header: tuple[int, ...], role: Role | None) -> Header | HeaderFault:
    try:
        text = tokens.decode_utf8(header)
    except HarmonyError:
        return HeaderFault(
            problem=HeaderProblem.NOT_TEXT, text="could not decode header", expected="known tokens that are UTF-8"
        )
    return _read_text(text, role)


def _read_text(text: str, role: Role | None) -> Header | HeaderFault:
    split = split_channel(text)
    if isinstance(split, HeaderFault):
        return split
    channel, rest = split
    words = words_of(rest)
    author = _author(words, role)
    if isinstance(author, HeaderFault):
        return author
    recipient, content_type = _addressee(words)
    if words:
        from harmony_ref.rust_debug import debug_quoted  # noqa: PLC0415 - its tables would be a fifth of first use

        left = debug_quoted(" ".join(words))
        return HeaderFault(
            problem=HeaderProblem.WORDS_LEFT,
            text=f"unexpected tokens remaining in message header: Some({left})",
            expected="at most a recipient and a content type after the role",
        )
    return Header(author=author, recipient=recipient, channel=channel, content_type=content_type)


_read_remembered = lru_cache(maxsize=4096)(_read)
_read_text_remembered = lru_cache(maxsize=4096)(_read_text)


def _author(words: list[str], role: Role | None) -> Author | HeaderFault:
    """The author; the words that said so are removed."""
    name = None
    if role is None:
        if not words:
            return HeaderFault(
                problem=HeaderProblem.NO_ROLE, text="message header did not contain a role", expected="a role"
            )
        word = words[0]
        role = _ROLES.get(word)
        if role is None:
            if len(words) == 1 and not word.startswith(RECIPIENT_PREFIX):
                return HeaderFault(
                    problem=HeaderProblem.UNKNOWN_ROLE,
                    text=f"Unknown role: {word}",
                    expected="a role, or the name of a tool and a recipient",
                )
            role = Role.TOOL
            del words[0]
        if role is Role.TOOL:
            name = word
    # The word of a role may stand in the text although it was given, and after the name of a tool.
    if words and words[0] == role.value:
        del words[0]
    return Author(role=role, name=name)


def _addressee(words: list[str]) -> tuple[str | None, str | None]:
    """The recipient and the content type; their words are removed."""
    if not words:
        return None, None
    last = words.pop()
    if last.startswith(RECIPIENT_PREFIX):
        return last.removeprefix(RECIPIENT_PREFIX), None
    if not words:
        return last, None
    return words.pop().removeprefix(RECIPIENT_PREFIX), last
