"""Parse the token ids of a completion into events, one token at a time; any tokens are accepted.

Well-formed output is parsed as by openai_harmony. Where that library would raise, this parser recovers. A
`<|start|>` or `<|channel|>` inside a text begins the next message. Words after `<|end|>` are the next header, or text
if they form no header. No text is lost, no marker becomes text. A completion begins inside the header whose
`<|start|>assistant` ended the prompt.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from harmony_conformance.reference_server.model.generation import Generation
from harmony_conformance.reference_server.model.output_header import (
    OutputHeader,
    may_become_a_header,
    read_header,
    split_incomplete_header,
)
from harmony_ref import tokens

MESSAGE_END_TOKENS = frozenset({tokens.END, tokens.RETURN, tokens.CALL, tokens.ENDOFTEXT})
"""The tokens that end a message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageStart:
    """Beginning of a message; `ids` are the tokens of its header, including `<|message|>`."""

    header: OutputHeader
    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class TextBytes:
    """Bytes of the open message; empty for a special token inside a text."""

    data: bytes
    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageEnd:
    """End of the open message; `ids` is empty if the next header or the end of the output ended it."""

    ids: tuple[int, ...] = ()
    hit_token_limit: bool = False  # the token limit ended it


@dataclass(frozen=True, kw_only=True, slots=True)
class SkippedHeader:
    """Tokens of a header without a message."""

    ids: tuple[int, ...]


OutputEvent: TypeAlias = MessageStart | TextBytes | MessageEnd | SkippedHeader


def parse_output(generation: Generation, opening: Sequence[int] = ()) -> Iterator[OutputEvent]:
    """Yield the events of a generation; `opening` is the part of the prompt that belongs to the continued message."""
    reader = OutputParser()
    before = [event for token in opening for event in reader.feed(token)]
    yield from [event for event in before if isinstance(event, MessageStart)][-1:]
    for token in generation:
        yield from reader.feed(token)
    yield from reader.finish(cut=generation.hit_token_limit)


class OutputParser:
    """Incremental parser of one completion."""

    def __init__(self) -> None:
        self._header: list[int] = []
        self._in_text = False

    def feed(self, token: int) -> Iterator[OutputEvent]:
        """Yield the events that a token causes."""
        return self._feed_text(token) if self._in_text else self._feed_header(token)

    def finish(self, *, cut: bool) -> Iterator[OutputEvent]:
        """Yield the events that the end of the output causes; `hit_token_limit` is True if the token limit ended it."""
        if self._in_text:
            self._in_text = False
            yield MessageEnd(hit_token_limit=cut)
        elif self._header and may_become_a_header(self._header):
            yield SkippedHeader(ids=tuple(self._header))
        elif self._header:
            yield from self._headless(MessageEnd(hit_token_limit=cut))
        self._header = []

    def _feed_text(self, token: int) -> Iterator[OutputEvent]:
        if token in MESSAGE_END_TOKENS:
            self._in_text = False
            yield MessageEnd(ids=(token,))
        elif token in (tokens.START, tokens.CHANNEL):
            self._in_text = False
            self._header = [token]
            yield MessageEnd()
        else:
            yield TextBytes(data=b"" if tokens.is_special(token) else tokens.TOKEN_BYTES[token], ids=(token,))

    def _feed_header(self, token: int) -> Iterator[OutputEvent]:
        if token == tokens.MESSAGE:
            ids = (*self._header, token)
            self._header = []
            self._in_text = True
            yield MessageStart(header=read_header(ids), ids=ids)
        elif token in MESSAGE_END_TOKENS:
            yield from self._headless(MessageEnd(ids=(token,)))
            self._header = []
        elif token == tokens.START and self._header:
            yield from self._headless(MessageEnd())
            self._header = [token]
        else:
            self._header.append(token)

    def _headless(self, closed: MessageEnd) -> Iterator[OutputEvent]:
        """Yield the events of a header without `<|message|>`."""
        header, text = split_incomplete_header(self._header)
        if text.strip():
            yield MessageStart(header=header, ids=tuple(self._header))
            yield TextBytes(data=text.encode("utf-8", "replace"), ids=())
            yield closed
        else:
            yield SkippedHeader(ids=(*self._header, *closed.ids))
