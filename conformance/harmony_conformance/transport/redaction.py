"""Mask secrets before anything is recorded: keys, header values with credentials, tokens in URLs and cookies, also if a server echoes them."""

from __future__ import annotations

import re
from base64 import b64decode
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from urllib.parse import unquote, unquote_plus, urlsplit

from harmony_conformance.json_value import Json, items, members, text
from harmony_conformance.transport.messages import Chunk
from harmony_conformance.transport.secret_spans import Hit, SecretFinder, Span

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
_COOKIE_ATTRIBUTES = frozenset({"domain", "expires", "max-age", "path", "samesite", "priority"})
_BETWEEN_PAIRS = re.compile("[;,]")
_PREFERENCE = re.compile("[a-z]{1,12}")
"""A plain word, such as a language's name. Masking it would change answers."""
_TOOL_CREDENTIALS = frozenset({"authorization", "headers", "server_url"})
_SECRET_HEADER = re.compile(r"(?:.*[-_])?(?:sig|signature|session|sid|jwt)(?:[-_].*)?", re.IGNORECASE)
_HARMLESS = """
    accept accept-charset accept-encoding accept-language cache-control connection content-encoding content-language content-length content-type
    date expect host origin pragma te traceparent tracestate transfer-encoding upgrade user-agent x-request-id
"""
_HARMLESS_HEADERS = frozenset(_HARMLESS.split())
"""Names of headers whose values are no secrets, also if a user adds them."""
_SECRET_MEMBER = re.compile(
    r"(?:.*[-_.])?(?:access|api|app|auth|private|secret|subscription)[-_.]?key|key|.*apikey"
    r"|.*(?:auth|authorization|credentials?|passw(?:or)?d|secrets?|signature|cookies?)"
    r"|(?:.*[-_.])?(?:access|api|auth|bearer|refresh|session|security|client|hf|id|user)?[-_.]?token|jwt|pwd|.*session[-_.]?id",
    re.IGNORECASE,
)
"""Names of members of a request with credentials, but not `max_tokens` or `prompt_cache_key`."""
_TOKENS_OF_MODELS = re.compile(
    r"(?:.*[-_])?(?:bos|eos|pad|unk|sep|cls|mask|stop|eot|end|start|image|audio|special)[-_]?token"
)
_CONTENT = """
    messages input prompt instructions system tools functions tool_choice response_format text format json_schema guided_json guided_regex
    guided_grammar structured_outputs grammar suffix template logit_bias images
"""
_CONTENT_MEMBERS = frozenset(_CONTENT.split())
"""Members with the conversation and with schemas, whose names are the application's. Credentials of `tools` are found separately."""
_LIKELY_RANDOM = re.compile(r"(?=.*[0-9A-Z]).{6,}")
_DEEPEST = 32
_COMMON = """
    accept assistant arguments authorization bearer cached_tokens chat.completion.chunk choices completion_tokens_details content content-length
    content-type created default delta developer dummy empty encrypted error false finish_reason function functions harmony id index invalid_request_error
    keep-alive length local logprobs message messages model models nokey none null object output param placeholder prompt_token_ids prompt_tokens
    reasoning reasoning_content refusal response return role server service_tier stop stream system system_fingerprint text/event-stream tool_call_id
    tool_calls total_tokens true type usage user value version
"""
_COMMON_WORDS = frozenset(_COMMON.split())


def header_secrets(key: str | None, headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the secrets in the key and the headers of requests.

    Placeholders (`EMPTY`, `none`) and words of the protocol are no secrets: masking them would change answers.
    """
    parts = [part for name, value in headers.items() if has_credentials(name) for part in _parts(name, value)]
    return tuple(dict.fromkeys(word for word in (key or "", *parts) if _is_secret(word)))


def custom_header_secrets(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of headers that a user adds, however named, except those of `_HARMLESS_HEADERS`; and their random words."""
    values = [value for name, value in headers.items() if name.lower() not in _HARMLESS_HEADERS]
    words = [word for value in values for word in re.split(r"[\s;,=&]+", value) if _LIKELY_RANDOM.fullmatch(word)]
    return tuple(dict.fromkeys(word for word in (*values, *words) if _is_secret(word)))


def request_secrets(request: Json) -> tuple[str, ...]:
    """Return the secrets in a request body: members named like credentials, at any depth, and credentials for tool servers (MCP)."""
    body = members(request)
    words = [
        word for name, value in body.items() if name not in _CONTENT_MEMBERS for word in _member_secrets(name, value)
    ]
    for tool in map(members, items(body.get("tools"))):
        if not _TOOL_CREDENTIALS.isdisjoint(tool):
            values = (tool.get("authorization"), *members(tool.get("headers")).values())
            words += [word for value in values for word in text(value).split()]
            words += _url_secrets(text(tool.get("server_url")))
    return tuple(dict.fromkeys(word for word in words if _is_secret(word))) if words else ()


def _member_secrets(name: str, value: Json, depth: int = 0) -> Iterator[str]:
    """Yield the strings in a member with credentials, or in such members of it. Schemas and deeper values are left out."""
    if depth > _DEEPEST:
        return
    if _is_secret_member(name):
        yield from (word for string in _strings(value, depth) for word in (string, *string.split()))
    elif isinstance(value, dict) and "properties" not in value and "$schema" not in value:
        is_of_headers = name.lower().endswith("headers")
        for inner, item in value.items():
            is_custom = is_of_headers and inner.lower() not in _HARMLESS_HEADERS
            yield from _member_secrets("secret" if is_custom else inner, item, depth + 1)
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, dict | list):
                yield from _member_secrets(name, item, depth + 1)
    elif isinstance(value, str) and "://" in value:
        yield from _url_secrets(value)


def _strings(value: Json, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif depth <= _DEEPEST and isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item, depth + 1)


@lru_cache(maxsize=1024)
def _is_secret_member(name: str) -> bool:
    return _SECRET_MEMBER.fullmatch(name) is not None and _TOKENS_OF_MODELS.fullmatch(name.lower()) is None


def is_secret_parameter(name: str) -> bool:
    """Return True for the name of a URL parameter with a credential."""
    return _SECRET_PARAMETER.fullmatch(unquote_plus(name)) is not None


def query_secrets(query: str) -> tuple[str, ...]:
    """Return the secrets in a URL's query, each as written and decoded."""
    if not query:
        return ()
    pairs = (pair.partition("=") for pair in query.split("&"))
    raw = [value for name, _, value in pairs if is_secret_parameter(name)]
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
def has_credentials(name: str) -> bool:
    """Return True for the name of a header with a credential."""
    return any(word in name.lower() for word in _CREDENTIALS) or _SECRET_HEADER.fullmatch(name) is not None


def _parts(name: str, value: str) -> list[str]:
    """Return the parts of a header value that a server may echo alone: its words, and the values of cookies."""
    cookies = value.split(";") if "cookie" in name.lower() else []
    words = [*value.split(), *(cookie.partition("=")[2].strip() for cookie in cookies)]
    return [*words, *(part for word in words[1:] if words[0].lower() == "basic" for part in _decode_basic(word))]


def _decode_basic(word: str) -> Iterator[str]:
    """Yield `user:password` and the password of Basic authentication."""
    try:
        pair = b64decode(word, validate=True).decode()
    except ValueError:
        return
    yield from (pair, pair.partition(":")[2])


def _is_secret(word: str) -> bool:
    return len(word) >= _SHORTEST and word.lower() not in _COMMON_WORDS


class Mask:
    """Replaces secrets, however they are written: see `SecretFinder`. A secret of digits becomes 0, so that JSON stays JSON."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._finder = SecretFinder(secrets)

    @property
    def is_empty(self) -> bool:
        """True without secrets."""
        return self._finder.is_empty

    def mask_text(self, value: str) -> str:
        """Return the text with every secret replaced by `***`."""
        if self.is_empty:
            return value
        data = value.encode("utf-8", "surrogatepass")
        hits = self._finder.find(data)
        if not hits:
            return value
        (masked,) = _replace(hits, data, (Chunk(arrival_time=0.0, data=data),))
        return masked.data.decode("utf-8", "surrogatepass")

    def mask_body(self, body: bytes) -> bytes:
        """Return a body with every secret replaced."""
        return b"".join(chunk.data for chunk in self.mask_chunks((Chunk(arrival_time=0.0, data=body),)))

    def mask_chunks(self, chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
        """Return the chunks with every secret replaced, also if it is split between chunks or events. The mask is in the first of these."""
        if self.is_empty:
            return tuple(chunks)
        body = b"".join(chunk.data for chunk in chunks)
        if hits := self._finder.find(body):
            chunks = _replace(hits, body, chunks)
            body = b"".join(chunk.data for chunk in chunks)
        if hits := self._finder.find_split(body):
            chunks = _replace(hits, body, chunks)
        return tuple(chunks)


def _replace(hits: Iterable[Hit], body: bytes, chunks: Sequence[Chunk]) -> tuple[Chunk, ...]:
    """Replace the first span of each occurrence by the mask, and remove its other spans."""
    wanted = sorted({(span, place == 0) for hit in hits for place, span in enumerate(hit)}, key=lambda one: one[0])
    merged: list[tuple[Span, bool]] = []
    for (start, end), is_first in wanted:
        if merged and start < merged[-1][0][1]:  # overlaps
            (begin, before), was_first = merged[-1]
            merged[-1] = (begin, max(before, end)), was_first or is_first
        else:
            merged.append(((start, end), is_first))
    spans = [(start, end, _mask_of(body[start:end]) if is_first else b"") for (start, end), is_first in merged]
    return _replace_spans(chunks, spans)


def _mask_of(secret: bytes) -> bytes:
    return b"0" if secret.isdigit() else MASK.encode()


def _replace_spans(chunks: Sequence[Chunk], spans: Sequence[tuple[int, int, bytes]]) -> tuple[Chunk, ...]:
    """Replace each span of the body, in the chunk where the span begins."""
    starts = [0, *accumulate(len(chunk.data) for chunk in chunks)][:-1]
    parts = [bytearray(chunk.data) for chunk in chunks]
    for start, end, replacement in reversed(spans):
        first = bisect_right(starts, start) - 1
        for place in range(bisect_right(starts, end - 1) - 1, first, -1):
            del parts[place][: end - starts[place]]
        parts[first][start - starts[first] : end - starts[first]] = replacement
    return tuple(replace(chunk, data=bytes(part)) for chunk, part in zip(chunks, parts, strict=True))
