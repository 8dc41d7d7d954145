"""What must never be written down: keys, and the values of headers that hold credentials. A server may echo them; then they are masked."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from urllib.parse import quote, unquote, unquote_plus, urlsplit

from harmony_conformance.json_value import Json, JsonObject, items, members, text
from harmony_conformance.transport.messages import Chunk

MASK = "***"
_SHORTEST = 6
_CREDENTIALS = ("auth", "key", "token", "secret", "cookie", "password", "credential")
_IN_A_QUERY = re.compile(
    r"(?:.*[-_.])?(?:access|api|app)?key|.*(?:auth|authorization|credentials?|passw(?:or)?d|secret|signature|token)"
    r"|code|jwt|pass|pwd|sig|sid|.*session(?:[-_.]?id)?",
    re.IGNORECASE,
)
"""Names of parameters that hold credentials: `api_key`, `access_token`, `sig`, `X-Amz-Signature`."""
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9_~.+/=-]{16,}")
"""A word that nobody chose: in the path of a URL it is as good as a key."""
_SPELLED_ALIKE = re.compile(r"[\w.~-]+", re.ASCII)
_OF_COOKIES = frozenset({"domain", "expires", "max-age", "path", "samesite", "priority"})
_BETWEEN_PAIRS = re.compile("[;,]")
_PREFERENCE = re.compile("[a-z]{1,12}")
"""A word like the name of a language: to mask it would change answers."""
_HANDED_ON = frozenset({"authorization", "headers", "server_url"})
_KEYS = ("api_key", "access_token")
_COMMON = """
    accept assistant arguments authorization bearer cached_tokens chat.completion.chunk choices completion_tokens_details content content-length
    content-type created default delta developer dummy empty encrypted error false finish_reason function functions harmony id index invalid_request_error
    keep-alive length local logprobs message messages model models nokey none null object output param placeholder prompt_token_ids prompt_tokens
    reasoning reasoning_content refusal response return role server service_tier stop stream system system_fingerprint text/event-stream tool_call_id
    tool_calls total_tokens true type usage user value version
"""


def secrets(key: str | None, headers: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets among what is sent. What stands in for a key (`EMPTY`, `none`, a word of the protocol) is none: to mask it would change answers."""
    parts = [part for name, value in headers.items() if _holds_credentials(name) for part in _parts(name, value)]
    return tuple(dict.fromkeys(word for word in (key or "", *parts) if _is_secret(word)))


def request_secrets(request: Json) -> tuple[str, ...]:
    """The secrets that the body of a request holds: what the servers of its tools (MCP) are to be sent, or have in their URL, and a key beside the messages."""
    held = members(request)
    told = [text(held[name]) for name in _KEYS if name in held]
    for tool in map(members, items(held.get("tools"))):
        if not _HANDED_ON.isdisjoint(tool):
            told += _of_tool(tool)
    return tuple(dict.fromkeys(word for word in told if _is_secret(word))) if told else ()


def query_secrets(query: str) -> tuple[str, ...]:
    """The secrets in the query of a URL, each as it stands there and as it is read."""
    if not query:
        return ()
    pairs = (pair.partition("=") for pair in query.split("&"))
    raw = [value for name, _, value in pairs if _IN_A_QUERY.fullmatch(unquote_plus(name))]
    return tuple(dict.fromkeys(word for value in raw for word in (value, unquote_plus(value)) if _is_secret(word)))


def cookie_secrets(headers: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The secrets that a server gives to a client: the values of its cookies, without their names. Names of headers are in lower case."""
    cookies = [value for name, value in headers if name == "set-cookie"]
    pairs = (pair.partition("=") for cookie in cookies for pair in _BETWEEN_PAIRS.split(cookie))
    values = (value.strip(' "') for name, _, value in pairs if name.strip().lower() not in _OF_COOKIES)
    found = (word for word in values if _is_secret(word) and not _PREFERENCE.fullmatch(word))
    return tuple(dict.fromkeys(found)) if cookies else ()


def _of_tool(tool: JsonObject) -> Iterator[str]:
    yield from text(tool.get("authorization")).split()
    for value in members(tool.get("headers")).values():
        yield from text(value).split()
    yield from _in_url(text(tool.get("server_url")))


def _in_url(url: str) -> Iterator[str]:
    """Secrets in a URL: who asks, its parameters, and a word in its path that nobody chose."""
    try:
        split = urlsplit(url)
    except ValueError:
        return
    user, has_password, password = split.netloc.rpartition("@")[0].partition(":")
    asking = [password, *([user] if not has_password or _RANDOM.fullmatch(user) else [])]
    yield from (word for part in asking for word in (part, unquote(part)))
    yield from (*query_secrets(split.query), *query_secrets(split.fragment))
    yield from (part for part in split.path.split("/") if _RANDOM.fullmatch(part))


@lru_cache(maxsize=1024)
def _holds_credentials(name: str) -> bool:
    return any(word in name.lower() for word in _CREDENTIALS)


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
    if _SPELLED_ALIKE.fullmatch(secret):  # alone, in JSON and in a URL
        yield secret
        return
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
