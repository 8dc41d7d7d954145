"""Generated tokens as a text that nobody parses: what raw continuation returns.

Special tokens are left out, as vLLM, TGI and llama.cpp do by default, or shown as their markers where the client asks
for them. A text ends before a stop string, or behind it where the client wants to see it.
"""

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harmony_conformance.reference_server.model.generation import Generation
from harmony_conformance.reference_server.model.stop_strings_in_messages import begun
from harmony_ref import tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPiece:
    """Text that became certain, and the tokens that came with it."""

    text: str
    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How tokens become text.

    Attributes:
        shows_special: whether special tokens are shown as their markers; the token that ends a generation never is.
        stops: texts that end the generation.
        shows_stop: whether the text that ended it is part of the answer.
    """

    shows_special: bool = False
    stops: tuple[str, ...] = ()
    shows_stop: bool = False


class PlainTextReader:
    """Reads a generation as text, once.

    Attributes:
        stopped_by: the stop string that ended it.
    """

    def __init__(self, generation: Generation, spelling: TextOptions, ending: frozenset[int]) -> None:
        self._generation = generation
        self._spelling = spelling
        self._ending = ending
        self.stopped_by: str | None = None

    def pieces(self) -> Iterator[TextPiece]:
        """The text as it comes: what may still become a stop string is held back, and half a character is."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        held = ""
        ids: list[int] = []
        for token in self._generation:
            ids.append(token)
            held += decoder.decode(self._bytes(token))
            found = [(held.index(stop), stop) for stop in self._spelling.stops if stop in held]
            if found:
                place, self.stopped_by = min(found)
                end = place + (len(self.stopped_by) if self._spelling.shows_stop else 0)
                yield TextPiece(text=held[:end], ids=tuple(ids))
                return
            certain = len(held) - begun(held, self._spelling.stops)
            if certain:
                yield TextPiece(text=held[:certain], ids=tuple(ids))
                held = held[certain:]
                ids = []
        rest = held + ("" if self._generation.cut else decoder.decode(b"", final=True))
        if rest or ids:
            yield TextPiece(text=rest, ids=tuple(ids))

    def _bytes(self, token: int) -> bytes:
        if not tokens.is_special(token):
            return tokens.TOKEN_BYTES[token]
        shown = self._spelling.shows_special and token not in self._ending
        return tokens.decode_bytes([token]) if shown else b""


def spelled(ids: Sequence[int], *, shows_special: bool) -> str:
    """Token ids as a text."""
    return tokens.decode([token for token in ids if shows_special or not tokens.is_special(token)])


def marked_up(text: str) -> list[int]:
    """A text whose markers are special tokens, as the tokenizers of servers read a raw prompt."""
    return tokens.encode_with_special_tokens(text)


_THOUGHT = "<|channel|>analysis<|message|>The user wants a short answer.<|end|><|start|>assistant"
_ANSWER = "Hello! How can I help you?"


def continuation(prompt: Sequence[int]) -> tuple[int, ...]:
    """What the model says where no script says it: it goes on where a Harmony prompt ends, and says a text elsewhere."""
    special = [token for token in prompt if tokens.is_special(token)]
    match special[-1] if special else None:
        case tokens.START:
            return tuple(marked_up(f"{_THOUGHT}<|channel|>final<|message|>{_ANSWER}<|return|>"))
        case tokens.CHANNEL:
            return tuple(marked_up(f"<|message|>{_ANSWER}<|return|>"))
        case tokens.MESSAGE:
            return tuple(marked_up(f"{_ANSWER}<|return|>"))
        case _:
            return tuple(marked_up(f" {_ANSWER}<|endoftext|>"))
