"""What must never be written down: keys, and the values of headers that hold credentials. A server may echo them; then they are masked."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from urllib.parse import quote

from harmony_conformance.json_value import Json, at, items, members, text
from harmony_conformance.wire import Chunk

MASK = "***"
_SHORTEST = 6
_CREDENTIALS = ("auth", "key", "token", "secret", "cookie", "password", "credential")
_COMMON = """
    accept assistant arguments authorization bearer cached_tokens chat.completion.chunk choices completion_tokens_details content content-length
    content-type created default delta developer dummy empty encrypted error false finish_reason function functions harmony id index invalid_request_error
    keep-alive length local logprobs message messages model models nokey none null object output param placeholder prompt_token_ids prompt_tokens
    reasoning reasoning_content refusal response return role server service_tier stop stream system system_fingerprint text/event-stream tool_call_id
    tool_calls total_tokens true type usage user value version
"""


def secrets(key: str | None, headers: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets among what is sent. What stands in for a key (`EMPTY`, `none`, a word of the protocol) is none: to mask it would change answers."""
    named = {name: value for name, value in headers.items() if any(word in name.lower() for word in _CREDENTIALS)}
    parts = [part for name, value in named.items() for part in _parts(name, value)]
    return tuple(dict.fromkeys(word for word in (key or "", *parts) if _is_secret(word)))


def handed_on(request: Json) -> tuple[str, ...]:
    """The secrets that a request holds for others: what the servers of its tools (MCP) are to be sent."""
    told: list[str] = []
    for tool in items(at(request, "tools")):
        told += text(at(tool, "authorization")).split()
        told += [part for value in members(at(tool, "headers")).values() for part in text(value).split()]
    return tuple(dict.fromkeys(word for word in told if _is_secret(word)))


def _parts(name: str, value: str) -> list[str]:
    """What of a header may be told alone: of cookies also their values, without their names."""
    parts = value.split()
    if "cookie" not in name.lower():
        return parts
    return [*parts, *(cookie.partition("=")[2].strip() for cookie in value.split(";"))]


def _is_secret(word: str) -> bool:
    return len(word) >= _SHORTEST and word.lower() not in _COMMON


class Mask:
    """Replaces secrets in what a server sent, also where it wrote them as JSON or as part of a URL."""

    def __init__(self, held: Iterable[str]) -> None:
        spellings = {spelling for secret in held for spelling in _spellings(secret)}
        self._words = sorted(spellings, key=len, reverse=True)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to replace."""
        return not self._words

    def text(self, value: str) -> str:
        """The text without them."""
        for word in self._words:
            value = value.replace(word, MASK)
        return value

    def chunks(self, chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
        """The chunks without them, even where one lies across chunks; the mask arrives when its first byte did."""
        if self.is_idle:
            return tuple(chunks)
        body = b"".join(chunk.data for chunk in chunks)
        for word in self._words:
            spans = list(_spans(body, word.encode()))
            if spans:
                chunks = _without(chunks, spans)
                body = b"".join(chunk.data for chunk in chunks)
        return tuple(chunks)


def _spellings(secret: str) -> Iterator[str]:
    in_json = json.dumps(secret)[1:-1]
    yield from (secret, in_json, in_json.replace("/", "\\/"), quote(secret, safe=""), quote(secret))


def _spans(body: bytes, word: bytes) -> Iterator[tuple[int, int]]:
    start = body.find(word)
    while start >= 0:
        yield start, start + len(word)
        start = body.find(word, start + len(word))


def _without(chunks: Sequence[Chunk], spans: Iterable[tuple[int, int]]) -> tuple[Chunk, ...]:
    """The chunks with each span of the body replaced by the mask, in the chunk in which it begins."""
    starts = [0, *accumulate(len(chunk.data) for chunk in chunks)][:-1]
    parts = [bytearray(chunk.data) for chunk in chunks]
    for start, end in reversed(list(spans)):
        first = bisect_right(starts, start) - 1
        for place in range(bisect_right(starts, end - 1) - 1, first, -1):
            del parts[place][: end - starts[place]]
        parts[first][start - starts[first] : end - starts[first]] = MASK.encode()
    return tuple(replace(chunk, data=bytes(part)) for chunk, part in zip(chunks, parts, strict=True))
