"""Injection: text of a request that reached the model as special tokens, told apart from the same letters in ordinary tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harmony_conformance.prompts.prompt_parser import pieces

SPECIAL = re.compile(r"<\|(?:start|end|message|channel|constrain|return|call|startoftext|endoftext|reserved_\d{6})\|>")
"""The text of a special token."""

_ESCAPED = re.compile(r'[\n\r\t"\\]')
_AROUND = 12
_WORDS_OF_HEADERS = frozenset(
    {"", "system", "developer", "user", "assistant", "tool", "analysis", "commentary", "final", "json"}
)


@dataclass(frozen=True, kw_only=True)
class Injected:
    """A text with a special token's text in it, and how the prompt shows it: the special token between its neighbours."""

    text: str
    shown: str


def injected(ids: Sequence[int], texts: Iterable[str], *, own: int = 0) -> Injected | None:
    """The first of the texts that does not stand in the prompt as text, while special tokens stand where it has theirs.

    What a renderer may escape (quotes, line ends) is not looked at: a text is compared in the pieces between. `own` is how many characters of its own a
    text needs beside a marker to be recognised: a text that a server may leave out is not told by a bare marker, which every prompt has.
    """
    fed = list(pieces(ids))
    ordinary = "\0".join(text for text, is_special in fed if not is_special)
    marked = "".join(f"\0{text}\0" if is_special else text for text, is_special in fed)
    for piece in (piece for text in texts for piece in _ESCAPED.split(text)):
        if SPECIAL.search(piece) and piece not in ordinary:
            for near in _telling(piece, own):
                if SPECIAL.sub(r"\0\g<0>\0", near) in marked:
                    return Injected(text=piece, shown=SPECIAL.sub(lambda found: f"⟦{found.group()[2:-2]}⟧", near))
    return None


def _telling(text: str, own: int) -> list[str]:
    """The markers of a text with what is around them, as far as that tells the text from any prompt; all of them where a text is nothing but markers."""
    places = list(_around_markers(text))
    told = [near for near in places if SPECIAL.sub("", near).strip() not in _WORDS_OF_HEADERS]
    return [near for near in told if len(SPECIAL.sub("", near)) >= own] if own else told or places


def _around_markers(text: str) -> Iterator[str]:
    """Each marker of a text with up to twelve characters on either side, other markers left out."""
    found = list(SPECIAL.finditer(text))
    for index, marker in enumerate(found):
        before = found[index - 1].end() if index else 0
        after = found[index + 1].start() if index + 1 < len(found) else len(text)
        yield text[max(before, marker.start() - _AROUND) : min(after, marker.end() + _AROUND)]
