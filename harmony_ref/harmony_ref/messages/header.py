"""Message headers, the part between `<|start|>` and `<|message|>`.

    AUTHOR [" to=" RECIPIENT] [<|channel|> CHANNEL] [" " CONTENT_TYPE]

The library writes the recipient before the channel; the guide's examples and the models write it after. Both are read.
Reading works on decoded text, so a marker typed in ordinary tokens counts as well (encoding.rs:1332-1471).
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
RECIPIENT_ALL: Final = "all"
"""The recipient that is not written."""

_WHITE_SPACE: Final = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode White_Space. `str.strip()` would also strip U+001C to U+001F."""

_CHANNEL_VALUE: Final = re.compile(f"[^<{_WHITE_SPACE}]+")
_WORD: Final = re.compile(r"[^ \t\n\x0c\r]+")
_ROLES: Final = {role.value: role for role in Role}
_CACHED_LENGTH: Final = 64  # longer headers and header strings are not cached, to keep the caches small
_CACHED_CHARACTERS: Final = 4 * _CACHED_LENGTH  # the same limit for headers as text
# Headers by their fields; conversations have few different ones.
_WRITTEN: Final = Memo[tuple[Role, str | None, str | None, str | None, str | None], tuple[int, ...]]()


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """The fields of a header. A content type includes its `<|constrain|>`."""

    author: Author
    recipient: str | None = None
    channel: str | None = None
    content_type: str | None = None


def read_header(header: Sequence[int], *, role: Role | None = None, position: int = 0) -> Header:
    """Read the tokens of one header.

    Args:
        header: The ids between `<|start|>` and `<|message|>`.
        role: The role, if the prompt ends in `<|start|>` and a role.
        position: Index of the header's end in its stream, for the error.

    Raises:
        HeaderError: The header breaks a rule.
    """
    result = (_read_cached if len(header) <= _CACHED_LENGTH else _read)(tuple(header), role)
    if isinstance(result, Header):
        return result
    raise HeaderError(result, header=header, position=position)


def read_header_text(text: str, role: Role | None) -> Header | HeaderFault:
    """Read a decoded header as `read_header` does; return the header, or the reason why it cannot be read."""
    return (_read_text_cached if len(text) <= _CACHED_CHARACTERS else _read_text)(text, role)


def write_header(header: Header) -> list[int]:
    """Return the ids of a header, with `<|start|>` and `<|message|>` (encoding.rs:813-903).

    Every field is ordinary text, except that a content type may begin with a special `<|constrain|>`.

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
    if header.recipient is not None and header.recipient != RECIPIENT_ALL:
        written += encode_field(f" {RECIPIENT_PREFIX}{header.recipient}")
    if header.channel is not None:
        written.append(tokens.CHANNEL)
        written += encode_field(header.channel)
    if header.content_type is not None:
        if header.content_type.startswith(CONSTRAIN_MARKER):
            content_type = encode_field(header.content_type.removeprefix(CONSTRAIN_MARKER))
            written += [*encode_field(" "), tokens.CONSTRAIN, *content_type]
        else:
            written += encode_field(f" {header.content_type}")
    written.append(tokens.MESSAGE)
    return written


def header_ids(message: Message) -> Sequence[int]:
    """Return the ids of a message's header as `write_header` does, cached."""
    author = message.author
    fields = (author.role, author.name, message.recipient, message.channel, message.content_type)
    cached = _WRITTEN.get(fields)
    if cached is not None:
        return cached
    header = Header(
        author=author, recipient=message.recipient, channel=message.channel, content_type=message.content_type
    )
    ids = tuple(write_header(header))
    return _WRITTEN.remember(fields, ids) if len(ids) <= _CACHED_LENGTH else ids


def encode_field(text: str) -> Sequence[int]:
    """Return the ids of a string in a header, cached because the same few strings recur."""
    return _encode_cached(text) if len(text) <= _CACHED_LENGTH else tokens.encode_text(text)


def split_channel(text: str) -> tuple[str | None, str] | HeaderFault:
    """Return the channel, if any, and the text without it; the text before and after is joined without a space."""
    before, marker, rest = text.partition(CHANNEL_MARKER)
    if not marker:
        return None, text
    match = _CHANNEL_VALUE.match(rest)
    if match is None:
        text = "channel marker present but no channel value found in header"
        return HeaderFault(HeaderProblem.NO_CHANNEL_VALUE, text, "a channel directly after <|channel|>")
    return match[0], before + rest[match.end() :]


def words_of(text: str) -> list[str]:
    """Return the words of a header without its channel; `<|constrain|>` always begins a word."""
    return _WORD.findall(text.strip(_WHITE_SPACE).replace(CONSTRAIN_MARKER, f" {CONSTRAIN_MARKER}").strip(_WHITE_SPACE))


@lru_cache(maxsize=4096)
def _encode_cached(text: str) -> tuple[int, ...]:
    return tuple(tokens.encode_text(text))


def _read(header: tuple[int, ...], role: Role | None) -> Header | HeaderFault:
    try:
        text = tokens.decode_utf8(header)
    except HarmonyError:
        return HeaderFault(HeaderProblem.NOT_TEXT, "could not decode header", "known tokens that are UTF-8")
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
        from harmony_ref.rust_debug import debug_quote  # noqa: PLC0415 - a fifth of the time of first use

        text = f"unexpected tokens remaining in message header: Some({debug_quote(' '.join(words))})"
        return HeaderFault(HeaderProblem.WORDS_LEFT, text, "at most a recipient and a content type after the role")
    return Header(author=author, recipient=recipient, channel=channel, content_type=content_type)


_read_cached = lru_cache(maxsize=4096)(_read)
_read_text_cached = lru_cache(maxsize=4096)(_read_text)


def _author(words: list[str], role: Role | None) -> Author | HeaderFault:
    """Return the author, and remove its words."""
    name = None
    if role is None:
        if not words:
            return HeaderFault(HeaderProblem.NO_ROLE, "message header did not contain a role", "a role")
        word = words[0]
        role = _ROLES.get(word)
        if role is None:
            if len(words) == 1 and not word.startswith(RECIPIENT_PREFIX):
                expected = "a role, or the name of a tool and a recipient"
                return HeaderFault(HeaderProblem.UNKNOWN_ROLE, f"Unknown role: {word}", expected)
            role = Role.TOOL
            del words[0]
        if role is Role.TOOL:
            name = word
    # The role may be repeated: after the caller's role, and after the name of a tool.
    if words and words[0] == role.value:
        del words[0]
    return Author(role=role, name=name)


def _addressee(words: list[str]) -> tuple[str | None, str | None]:
    """Return the recipient and the content type, and remove their words."""
    if not words:
        return None, None
    last = words.pop()
    if last.startswith(RECIPIENT_PREFIX):
        return last.removeprefix(RECIPIENT_PREFIX), None
    if not words:
        return last, None
    return words.pop().removeprefix(RECIPIENT_PREFIX), last
