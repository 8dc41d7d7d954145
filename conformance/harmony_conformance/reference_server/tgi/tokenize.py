"""Response of TGI's tokenizer: id, text and offsets of each token."""

import codecs
from collections.abc import Sequence

from harmony_conformance.json_value import Json
from harmony_conformance.reference_server.model.plain_text import decode_ids
from harmony_ref import tokens


def token_offsets(ids: Sequence[int]) -> list[Json]:
    """Return tokens with character offsets; a character of several tokens is in the range of each of them."""
    entries: list[Json] = []
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    complete = 0
    for token in ids:
        start = complete
        complete += len(decoder.decode(tokens.decode_bytes([token])))
        begun, _ = decoder.getstate()
        stop = complete + bool(begun)
        entries.append({"id": token, "text": decode_ids([token], shows_special=True), "start": start, "stop": stop})
    return entries
