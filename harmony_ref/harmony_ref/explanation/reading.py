"""A prompt as it is, read without any demand: its messages, and the fields of a header."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from harmony_ref import tokens
from harmony_ref.header import CONSTRAIN_MARKER, RECIPIENT_PREFIX

_LONGEST: Final = 80
_CLOSING: Final = frozenset({*tokens.STOP_TOKENS, tokens.START})


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptMessage:
    """What stands from one `<|start|>` to the end of its message.

    Attributes:
        ids: all of it.
        header: what stands before `<|message|>`, without `<|start|>`; all of it when there is no such marker.
        content: what stands behind it; None when there is no such marker.
        end: the token that ended it; None when another message or the end of the prompt did.
    """

    ids: Sequence[int]
    header: Sequence[int]
    content: Sequence[int] | None
    end: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class HeaderFields:
    """The words of a header.

    Attributes:
        author: the first word.
        recipient: behind `to=`; None for none.
        is_after_channel: whether the recipient stands after the channel.
        channel: the word behind `<|channel|>`; None for none.
        content_type: all other words, with `<|constrain|>`; None for none.
    """

    author: str
    recipient: str | None
    is_after_channel: bool
    channel: str | None
    content_type: str | None


def prompt_messages(prompt: Sequence[int], start: int) -> Iterator[PromptMessage]:
    """The messages from a `<|start|>` on; stops where something else stands between two."""
    while start < len(prompt) and prompt[start] == tokens.START:
        message = read_message(prompt, start)
        yield message
        start += len(message.ids)


def read_message(prompt: Sequence[int], start: int) -> PromptMessage:
    """The message that begins at a `<|start|>`."""
    stop = next((at for at in range(start + 1, len(prompt)) if prompt[at] in _CLOSING), len(prompt))
    closed = stop < len(prompt) and prompt[stop] != tokens.START
    body = prompt[start + 1 : stop]
    marker = next((at for at, token in enumerate(body) if token == tokens.MESSAGE), None)
    return PromptMessage(
        ids=prompt[start : stop + closed],
        header=body if marker is None else body[:marker],
        content=None if marker is None else body[marker + 1 :],
        end=prompt[stop] if closed else None,
    )


def header_fields(header: Sequence[int]) -> HeaderFields:
    """The words of a header's tokens, whatever they are."""
    at = next((index for index, token in enumerate(header) if token == tokens.CHANNEL), len(header))
    role_words = _words(header[:at])
    has_channel = at < len(header)
    channel_words = _words(header[at + 1 :])
    channel = channel_words.pop(0) if has_channel and channel_words else None
    others = [(word, False) for word in role_words[1:]] + [(word, True) for word in channel_words]
    named = next(((word, after) for word, after in others if word.startswith(RECIPIENT_PREFIX)), None)
    return HeaderFields(
        author=role_words[0] if role_words else "",
        recipient=None if named is None else named[0].removeprefix(RECIPIENT_PREFIX),
        is_after_channel=named is not None and named[1],
        channel=("" if has_channel else None) if channel is None else channel,
        content_type=" ".join(word for word, after in others if (word, after) != named) or None,
    )


def shown(ids: Sequence[int]) -> str:
    """Any ids as text: special tokens as ⟦name⟧, unknown ones as ⟦unknown N⟧."""
    return "".join(_shown_run(kind, list(run)) for kind, run in groupby(ids, key=_kind))


def quoted(text: str) -> str:
    """The text in quotes, its end left out where it is long."""
    return repr(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")


def raw_bytes(ids: Sequence[int]) -> bytes:
    """The bytes of ids, those of special tokens being their text; nothing for unknown ones."""
    return tokens.decode_bytes([token for token in ids if tokens.is_known(token)])


def _words(ids: Sequence[int]) -> list[str]:
    text = "".join(
        f" {CONSTRAIN_MARKER}" if token == tokens.CONSTRAIN else shown(list(run))
        for token, run in groupby(ids, key=lambda token: token if token == tokens.CONSTRAIN else None)
    )
    return text.split()


def _kind(token: int) -> str:
    if not tokens.is_known(token):
        return "unknown"
    return "special" if tokens.is_special(token) else "text"


def _shown_run(kind: str, run: list[int]) -> str:
    match kind:
        case "unknown":
            return "".join(f"⟦unknown {token}⟧" for token in run)
        case "special":
            return "".join(f"⟦{tokens.decode([token])[2:-2]}⟧" for token in run)
        case _:
            return tokens.decode(run)
