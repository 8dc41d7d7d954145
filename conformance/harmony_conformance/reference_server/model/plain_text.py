"""Detokenize output without parsing it, for raw continuation.

Special tokens are skipped, as vLLM, TGI and llama.cpp do by default, or shown as markers if the client requests it.
A text ends before a stop string, or after it if the client requests it.
"""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harmony_conformance.reference_server.model.generation import Generation
from harmony_conformance.reference_server.model.stop_strings_in_messages import partial_match_length
from harmony_ref import tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPiece:
    """Text that cannot become part of a stop string any more, and its tokens."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """Detokenization options; the token that ends a generation is never shown."""

    shows_special: bool = False
    stop_strings: tuple[str, ...] = ()
    shows_stop: bool = False  # the stop string is part of the answer


class PlainTextReader:
    """Detokenizes a generation once; `stopped_by` is the stop string that ended it."""

    def __init__(self, generation: Generation, spelling: TextOptions, ending: frozenset[int]) -> None:
        self._generation = generation
        self._spelling = spelling
        self._ending = ending
        self.stopped_by: str | None = None

    def pieces(self) -> Iterator[TextPiece]:
        """Yield the text incrementally; buffer incomplete characters and text that can become a stop string."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        buffer = ""
        ids: list[int] = []
        for token in self._generation:
            ids.append(token)
            buffer += decoder.decode(self._bytes(token))
            matches = [(buffer.index(stop), stop) for stop in self._spelling.stop_strings if stop in buffer]
            if matches:
                start, self.stopped_by = min(matches)
                end = start + (len(self.stopped_by) if self._spelling.shows_stop else 0)
                yield TextPiece(text=buffer[:end], ids=tuple(ids))
                return
            certain = len(buffer) - partial_match_length(buffer, self._spelling.stop_strings)
            if certain:
                yield TextPiece(text=buffer[:certain], ids=tuple(ids))
                buffer, ids = buffer[certain:], []
        rest = buffer + ("" if self._generation.hit_token_limit else decoder.decode(b"", final=True))
        if rest or ids:
            yield TextPiece(text=rest, ids=tuple(ids))

    def _bytes(self, token: int) -> bytes:
        if not tokens.is_special(token):
            return tokens.TOKEN_BYTES[token]
        is_visible = self._spelling.shows_special and token not in self._ending
        return tokens.decode_bytes([token]) if is_visible else b""


def decode_ids(ids: Sequence[int], *, shows_special: bool) -> str:
    """Decode token ids."""
    return tokens.decode([token for token in ids if shows_special or not tokens.is_special(token)])


def encode_raw_prompt(text: str) -> list[int]:
    """Encode a text, markers as special tokens, as servers tokenize a raw prompt."""
    return tokens.encode_with_special_tokens(text)


_THOUGHT = "<|channel|>analysis<|message|>The user wants a short answer.<|end|><|start|>assistant"
_ANSWER = "Hello! How can I help you?"


def unscripted_continuation(prompt: Sequence[int]) -> tuple[int, ...]:
    """Return the unscripted output: it continues a Harmony prompt at its last special token, else plain text."""
    special = [token for token in prompt if tokens.is_special(token)]
    match special[-1] if special else None:
        case tokens.START:
            return tuple(encode_raw_prompt(f"{_THOUGHT}<|channel|>final<|message|>{_ANSWER}<|return|>"))
        case tokens.CHANNEL:
            return tuple(encode_raw_prompt(f"<|message|>{_ANSWER}<|return|>"))
        case tokens.MESSAGE:
            return tuple(encode_raw_prompt(f"{_ANSWER}<|return|>"))
        case _:
            return tuple(encode_raw_prompt(f" {_ANSWER}<|endoftext|>"))
