"""Texts and chats as TGI's tokenizer shows them: id, text and place of each token."""

from collections.abc import Sequence

from harmony_conformance.json_value import Json
from harmony_conformance.reference_server.model.plain_text import spelled
from harmony_ref import tokens


def placed(ids: Sequence[int]) -> list[Json]:
    """Tokens with the characters that they stand for; a character of several tokens is told at each of them."""
    told: list[Json] = []
    data = b""
    for token in ids:
        start = len(data.decode("utf-8", "ignore"))
        data += tokens.decode_bytes([token])
        stop = len(data.decode("utf-8", "replace"))
        told.append({"id": token, "text": spelled([token], shows_special=True), "start": start, "stop": stop})
    return told
