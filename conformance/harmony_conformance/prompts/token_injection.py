"""Detect injection: markers in a request's texts that became special tokens of the prompt instead of ordinary ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harmony_conformance.prompts.expected_parts import text_pieces

SPECIAL_TOKEN = re.compile(
    r"<\|(?:start|end|message|channel|constrain|return|call|startoftext|endoftext|reserved_\d{6})\|>"
)
"""The spelling of a special token."""

_ESCAPED = re.compile(r'[\n\r\t"\\]')
_AROUND = 12
_HEADER_WORDS = frozenset(
    {"", "system", "developer", "user", "assistant", "tool", "analysis", "commentary", "final", "json"}
)


@dataclass(frozen=True, kw_only=True)
class Injected:
    """An injected text, and how the prompt shows it: `⟦name⟧` for each special token, with the text around it."""

    text: str
    prompt_excerpt: str


def find_injection(ids: Sequence[int], texts: Iterable[str], *, min_context: int = 0) -> Injected | None:
    """Return the first text that is in the prompt with special tokens for its markers, and not in ordinary tokens. None without injection.

    Characters that a renderer may escape (quotes, line ends) are skipped: only the pieces between them are compared.

    Args:
        ids: The prompt's token ids.
        texts: The texts of the request.
        min_context: The least number of characters next to a marker that identify a text. Use it for texts that the server may omit:
            a bare marker occurs in every prompt.
    """
    segments = list(text_pieces(ids))
    ordinary = "\0".join(text for text, is_special in segments if not is_special)
    marked = "".join(f"\0{text}\0" if is_special else text for text, is_special in segments)
    for piece in (piece for text in texts for piece in _ESCAPED.split(text)):
        if SPECIAL_TOKEN.search(piece) and piece not in ordinary:
            for near in _distinctive(piece, min_context):
                if SPECIAL_TOKEN.sub(r"\0\g<0>\0", near) in marked:
                    return Injected(
                        text=piece, prompt_excerpt=SPECIAL_TOKEN.sub(lambda marker: f"⟦{marker.group()[2:-2]}⟧", near)
                    )
    return None


def _distinctive(text: str, own: int) -> list[str]:
    """Return the markers with surroundings that do not occur in every prompt; all of them if none is distinctive.

    The surroundings are up to twelve characters on either side, without other markers.
    """
    markers, excerpts = list(SPECIAL_TOKEN.finditer(text)), list[str]()
    for before, marker, after in zip([None, *markers], markers, [*markers[1:], None], strict=False):
        start = max(before.end() if before else 0, marker.start() - _AROUND)
        excerpts.append(text[start : min(after.start() if after else len(text), marker.end() + _AROUND)])
    distinctive = [near for near in excerpts if SPECIAL_TOKEN.sub("", near).strip() not in _HEADER_WORDS]
    return [near for near in distinctive if len(SPECIAL_TOKEN.sub("", near)) >= own] if own else distinctive or excerpts
