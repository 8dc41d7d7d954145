"""Read any prompt, valid or not: its messages, the fields of their headers, and any ids as text.

Special tokens are shown as ⟦name⟧, unknown ones as ⟦unknown N⟧. A text may contain the same characters, so special
tokens are also counted.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Final

from harmony_ref.messages.message_types import Role
from harmony_ref.tokenizer import tokens

_LONGEST_QUOTED: Final = 80
_LONGEST_CACHED: Final = 512
_ROLES: Final = frozenset(role.value for role in Role)
_CLOSING: Final = frozenset({*tokens.STOP_TOKENS, tokens.START})
_CHANNEL: Final = re.compile(r"⟦channel⟧([^\s⟦]*)")
_CONSTRAIN: Final = "⟦constrain⟧"
_RECIPIENT: Final = "to="


class RecipientPosition(StrEnum):
    """Position of the recipient in a header: among the words of the role, or after the channel."""

    NONE = "no recipient"
    ROLE = "recipient before the channel"
    CHANNEL = "recipient after the channel"


@dataclass(frozen=True, kw_only=True)
class PromptMessage:
    """One message of a prompt.

    Attributes:
        ids: all tokens, from `<|start|>` to the end marker.
        header_ids: tokens between `<|start|>` and `<|message|>`; all tokens after `<|start|>` without that marker.
        content_ids: tokens after `<|message|>`; None without that marker.
        end: the end marker; None if the message ends with the next one or with the prompt.
        header: text of the header.
        content: text of the content, empty without one.
        specials: number of special tokens inside the content.
        author: first word of the header.
        role: the role of the author; `tool` if the author is not a role.
        name: the name after a role and a colon, or the author if it is not a role.
        recipient: the word after `to=`, if any.
        recipient_position: position of the recipient.
        channel: the word after the channel marker; None without the marker.
        content_type: all other words; None without any.
    """

    ids: tuple[int, ...]
    header_ids: tuple[int, ...]
    content_ids: tuple[int, ...] | None
    end: int | None
    header: str
    content: str
    special_count: int
    author: str
    role: str
    name: str | None
    recipient: str | None
    recipient_position: RecipientPosition
    channel: str | None
    content_type: str | None

    @property
    def function(self) -> str | None:
        """The function of a call or a result, without its namespace."""
        name = self.name if self.role == "tool" else self.recipient
        return name.removeprefix("functions.") if name is not None and name.startswith("functions.") else None

    @property
    def end_name(self) -> str:
        """The end marker as ⟦name⟧; empty without one."""
        return format_ids((self.end,)) if self.end is not None else ""

    def __str__(self) -> str:
        """Return the header and the content, shortened in its middle."""
        return f"{self.header}⟦message⟧{shorten(self.content)}"


@dataclass(frozen=True, kw_only=True)
class ParsedPrompt:
    """The messages of a prompt, the text after the last one, and the texts between them."""

    messages: tuple[PromptMessage, ...]
    generation_prompt: str
    unparsed_tokens: tuple[str, ...] = ()


def read_prompt(ids: Sequence[int]) -> ParsedPrompt:
    """Split ids into messages as long as possible: `<|start|>` inside a content does not end the message.

    Nothing is dropped: tokens outside of messages are in `unparsed_tokens` or `generation_prompt`.
    """
    messages: list[PromptMessage] = []
    unparsed: list[str] = []
    position = 0
    ends = [place for place, token in enumerate(ids) if token in tokens.STOP_TOKENS]
    while (start := _find(ids, tokens.START, position)) is not None:
        if start > position:
            unparsed.append(format_ids(ids[position:start]))
        position = start
        marker = _find(ids, tokens.MESSAGE, start)
        if marker is None:
            break
        later = bisect_right(ends, marker)
        position = ends[later] + 1 if later < len(ends) else len(ids)
        messages.append(_message(ids[start:position]))
    generation_prompt = format_ids(ids[position:])
    return ParsedPrompt(messages=tuple(messages), generation_prompt=generation_prompt, unparsed_tokens=tuple(unparsed))


def prompt_messages(prompt: Sequence[int], start: int) -> Iterator[PromptMessage]:
    """Yield the messages from a `<|start|>` on, each up to the next. Stop at tokens that belong to no message."""
    while start < len(prompt) and prompt[start] == tokens.START:
        message = read_message(prompt, start)
        yield message
        start += len(message.ids)


def read_message(prompt: Sequence[int], start: int = 0) -> PromptMessage:
    """Read the message that begins at a `<|start|>`, up to its end marker or the next message."""
    stop = next((at for at in range(start + 1, len(prompt)) if prompt[at] in _CLOSING), len(prompt))
    closed = stop < len(prompt) and prompt[stop] != tokens.START
    return _message(prompt[start : stop + closed])


def format_ids(ids: Sequence[int]) -> str:
    """Return any ids as text, each special token as ⟦name⟧."""
    return "".join(f"⟦{text[2:-2]}⟧" if is_special else text for text, is_special in text_pieces(ids))


def text_pieces(ids: Sequence[int]) -> Iterator[tuple[str, bool]]:
    """Yield the texts of ids, each with True for a special token; consecutive ordinary tokens are one text."""
    for run, is_special in token_runs(ids):
        yield tokens.decode(run) if tokens.is_known(run[0]) else f"<|unknown {run[0]}|>", is_special


def token_runs(ids: Sequence[int]) -> Iterator[tuple[Sequence[int], bool]]:
    """Yield runs of ids in order: each special or unknown token alone with True, consecutive ordinary ones with False."""
    begin = 0
    first = tokens.FIRST_SPECIAL
    for place in [place for place, token in enumerate(ids) if not 0 <= token < first]:
        if place > begin:
            yield ids[begin:place], False
        begin = place + 1
        yield ids[place:begin], True
    if begin < len(ids):
        yield ids[begin:], False


def shorten(value: str, most: int = 80) -> str:
    """Return the text; cut the middle out of a long one."""
    half = most // 2
    return value if len(value) <= most else f"{value[:half]}…({len(value) - 2 * half} characters)…{value[-half:]}"


def quote_shortened(text: str) -> str:
    """Return the text in quotes; cut the end off a long one."""
    return repr(text if len(text) <= _LONGEST_QUOTED else f"{text[:_LONGEST_QUOTED]}…")


def raw_bytes(ids: Sequence[int]) -> bytes:
    """Return the bytes of ids: a special token counts as its text, an unknown one is skipped."""
    return tokens.decode_bytes([token for token in ids if tokens.is_known(token)])


def _find(ids: Sequence[int], token: int, start: int) -> int | None:
    try:
        return ids.index(token, start)
    except ValueError:
        return None


def _message(ids: Sequence[int]) -> PromptMessage:
    return (_read_cached if len(ids) <= _LONGEST_CACHED else _read)(tuple(ids))


def _read(ids: tuple[int, ...]) -> PromptMessage:
    end = ids[-1] if ids[-1] in tokens.STOP_TOKENS else None
    stop = len(ids) if end is None else len(ids) - 1
    marker = _find(ids, tokens.MESSAGE, 0)
    header_ids = ids[1 : stop if marker is None else marker]
    content_ids = None if marker is None else ids[marker + 1 : stop]
    has_specials = bool(content_ids) and max(content_ids or ()) >= tokens.FIRST_SPECIAL
    header = format_ids(header_ids)
    channel = _CHANNEL.search(header)
    author, *role_words = _words(header[: channel.start()] if channel else header) or [""]
    words = [(word, RecipientPosition.ROLE) for word in role_words]
    words += [(word, RecipientPosition.CHANNEL) for word in _words(header[channel.end() :] if channel else "")]
    recipients = ((word.removeprefix(_RECIPIENT), place) for word, place in words if word.startswith(_RECIPIENT))
    recipient, position = next(recipients, (None, RecipientPosition.NONE))
    role, _, name = author.partition(":")
    return PromptMessage(
        ids=ids,
        header_ids=header_ids,
        content_ids=content_ids,
        end=end,
        header=header,
        content=format_ids(content_ids or ()),
        special_count=sum(map(tokens.is_special, content_ids or ())) if has_specials else 0,
        author=author,
        role=role if role in _ROLES else "tool",
        name=(name or None) if role in _ROLES else author,
        recipient=recipient,
        recipient_position=position,
        channel=channel[1] if channel else None,
        content_type=" ".join(word for word, _ in words if not word.startswith(_RECIPIENT)) or None,
    )


_read_cached: Final = lru_cache(maxsize=1024)(_read)
"""The same few messages begin most prompts."""


def _words(text: str) -> list[str]:
    return text.replace(_CONSTRAIN, f" {_CONSTRAIN}").split()
