"""Response of TGI's tokenizer: id, text and offsets of each token."""

from collections.abc import Sequence

from harmony_conformance.json_value import Json
from harmony_ref import tokens

_CONTINUES, _MASK = 0x80, 0xC0  # bytes of UTF-8 after the first of a character


def token_offsets(ids: Sequence[int]) -> list[Json]:
    """Return tokens with byte offsets and the text between them; a character of several tokens is in the range of each of them."""
    data = tokens.decode_bytes(ids)
    entries: list[Json] = []
    end = 0
    for token in ids:
        start, end = end, end + len(tokens.decode_bytes([token]))
        stop = end
        while start and _is_within_character(data, start):
            start -= 1
        while _is_within_character(data, stop):
            stop += 1
        entries.append({"id": token, "text": data[start:stop].decode("utf-8", "replace"), "start": start, "stop": stop})
    return entries


def _is_within_character(data: bytes, place: int) -> bool:
    return place < len(data) and data[place] & _MASK == _CONTINUES
