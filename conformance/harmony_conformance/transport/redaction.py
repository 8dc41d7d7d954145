"""Mask secrets before anything is recorded: keys, header values with credentials, tokens in URLs and cookies, also if a server echoes them."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from urllib.parse import quote, unquote, unquote_plus, urlsplit

from harmony_conformance.json_value import Json, items, members, text
from harmony_conformance.transport.messages import Chunk

MASK = "***"
_SHORTEST = 6
_CREDENTIALS = ("auth", "key", "token", "secret", "cookie", "password", "credential")
_SECRET_PARAMETER = re.compile(
    r"(?:.*[-_.])?(?:access|api|app)?key|.*(?:auth|authorization|credentials?|passw(?:or)?d|secret|signature|token)"
    r"|code|jwt|pass|pwd|sig|sid|.*session(?:[-_.]?id)?",
    re.IGNORECASE,
)
"""Names of URL parameters with credentials: `api_key`, `access_token`, `sig`, `X-Amz-Signature`."""
_RANDOM = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[A-Za-z0-9_~.+/=-]{16,}")
"""A random word, which may be a key if it is in the path of a URL."""
_NEVER_ENCODED = re.compile(r"[\w.~-]+", re.ASCII)
_COOKIE_ATTRIBUTES = frozenset({"domain", "expires", "max-age", "path", "samesite", "priority"})
_BETWEEN_PAIRS = re.compile("[;,]")
_PREFERENCE = re.compile("[a-z]{1,12}")
"""A plain word, such as a language's name. Masking it would change answers."""
_TOOL_CREDENTIALS = frozenset({"authorization", "headers", "server_url"})
_KEYS = ("api_key", "access_token")
_COMMON_WORDS = """
    accept assistant arguments authorization bearer cached_tokens chat.completion.chunk choices completion_tokens_details content content-length
    content-type created default delta developer dummy empty encrypted error false finish_reason function functions harmony id index invalid_request_error
    keep-alive length local logprobs message messages model models nokey none null object output param placeholder prompt_token_ids prompt_tokens
    reasoning reasoning_content refusal response return role server service_tier stop stream system system_fingerprint text/event-stream tool_call_id
    tool_calls total_tokens true type usage user value version
"""


def header_secrets(key: str | None, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets in the key and the headers of requests.

    Placeholders (`EMPTY`, `none`) and words of the protocol are no secrets: masking them would change answers.
    """
    parts = [part for name, value in headers.items() if _has_credentials(name) for part in _parts(name, value)]
    return tuple(dict.fromkeys(word for word in (key or "", *parts) if _is_secret(word)))


def request_secrets(request: Json) -> tuple[str, ...]:
    """Return the secrets in a request body: the member `api_key` or `access_token`, and credentials for tool servers (MCP)."""
    body = members(request)
    words = [text(body[name]) for name in _KEYS if name in body]
    for tool in map(members, items(body.get("tools"))):
        if not _TOOL_CREDENTIALS.isdisjoint(tool):
            values = (tool.get("authorization"), *members(tool.get("headers")).values())
            words += [word for value in values for word in text(value).split()]
            words += _url_secrets(text(tool.get("server_url")))
    return tuple(dict.fromkeys(word for word in words if _is_secret(word))) if words else ()


def query_secrets(query: str) -> tuple[str, ...]:
    """Return the secrets in a URL's query, each as written and decoded."""
    if not query:
        return ()
    pairs = (pair.partition("=") for pair in query.split("&"))
    raw = [value for name, _, value in pairs if _SECRET_PARAMETER.fullmatch(unquote_plus(name))]
    return tuple(dict.fromkeys(word for value in raw for word in (value, unquote_plus(value)) if _is_secret(word)))


def cookie_secrets(headers: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the cookie values that a server sets. Header names are in lower case."""
    cookies = [value for name, value in headers if name == "set-cookie"]
    pairs = (pair.partition("=") for cookie in cookies for pair in _BETWEEN_PAIRS.split(cookie))
    values = (value.strip(' "') for name, _, value in pairs if name.strip().lower() not in _COOKIE_ATTRIBUTES)
    return tuple(dict.fromkeys(word for word in values if _is_secret(word) and not _PREFERENCE.fullmatch(word)))


def _url_secrets(url: str) -> Iterator[str]:
    """Yield the possible secrets in a URL: user and password, parameters, and random words in its path."""
    try:
        split = urlsplit(url)
    except ValueError:
        return
    user, has_password, password = split.netloc.rpartition("@")[0].partition(":")
    credentials = [password, *([user] if not has_password or _RANDOM.fullmatch(user) else [])]
    yield from (word for part in credentials for word in (part, unquote(part)))
    yield from (*query_secrets(split.query), *query_secrets(split.fragment))
    yield from (part for part in split.path.split("/") if _RANDOM.fullmatch(part))


@lru_cache(maxsize=1024)
def _has_credentials(name: str) -> bool:
    return any(word in name.lower() for word in _CREDENTIALS)


def _parts(name: str, value: str) -> list[str]:
    """Return the parts of a header value that a server may echo alone: its words, and the values of cookies."""
    cookies = value.split(";") if "cookie" in name.lower() else []
    return [*value.split(), *(cookie.partition("=")[2].strip() for cookie in cookies)]


def _is_secret(word: str) -> bool:
    return len(word) >= _SHORTEST and word.lower() not in _COMMON_WORDS


class Mask:
    """Replaces secrets in responses, plain or encoded as JSON or for a URL."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spellings = {spelling for secret in secrets for spelling in _spellings(secret)}
        self._words = sorted(spellings, key=len, reverse=True)

    @property
    def is_empty(self) -> bool:
        """True without secrets."""
        return not self._words

    def mask_text(self, value: str) -> str:
        """Return the text with every secret replaced by `***`."""
        for word in self._words:
            value = value.replace(word, MASK)
        return value

    def mask_chunks(self, chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
        """Return the chunks with every secret replaced, also if it is split between chunks. The mask is in the first of these."""
        if self.is_empty:
            return tuple(chunks)
        body = b"".join(chunk.data for chunk in chunks)
        for word in self._words:
            if (secret := word.encode()) in body:
                chunks = _mask_spans(chunks, [match.span() for match in re.finditer(re.escape(secret), body)])
                body = b"".join(chunk.data for chunk in chunks)
        return tuple(chunks)


def _spellings(secret: str) -> Iterator[str]:
    if _NEVER_ENCODED.fullmatch(secret):  # equal in JSON and in a URL
        yield secret
        return
    in_json = json.dumps(secret)[1:-1]
    yield from (secret, in_json, in_json.replace("/", "\\/"), quote(secret, safe=""), quote(secret))


def _mask_spans(chunks: Sequence[Chunk], spans: Sequence[tuple[int, int]]) -> tuple[Chunk, ...]:
    """Replace each span of the body by the mask, in the chunk where the span begins."""
    starts = [0, *accumulate(len(chunk.data) for chunk in chunks)][:-1]
    parts = [bytearray(chunk.data) for chunk in chunks]
    for start, end in reversed(spans):
        first = bisect_right(starts, start) - 1
        for place in range(bisect_right(starts, end - 1) - 1, first, -1):
            del parts[place][: end - starts[place]]
        parts[first][start - starts[first] : end - starts[first]] = MASK.encode()
    return tuple(replace(chunk, data=bytes(part)) for chunk, part in zip(chunks, parts, strict=True))
