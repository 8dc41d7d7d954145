"""Response of TGI's tokenizer: id, text and offsets of each token."""

from collections.abc import Sequence

from harmony_conformance.json_value import Json
from harmony_conformance.reference_server.model.plain_text import decode_ids
from harmony_ref import tokens


def token_offsets(ids: Sequence[int]) -> list[Json]:
    """Return tokens with character offsets; a character of several tokens is in the range of each of them."""
    entries: list[Json] = []
    data = b""
    for token in ids:
        start = len(data.decode("utf-8", "ignore"))
        data += tokens.decode_bytes([token])
        stop = len(data.decode("utf-8", "replace"))
        entries.append({"id": token, "text": decode_ids([token], shows_special=True), "start": start, "stop": stop})
    return entries
