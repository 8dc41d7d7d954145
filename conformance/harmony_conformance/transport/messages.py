"""What crossed the wire: a request, the bytes that came back and when, and how the exchange ended.

A response is kept as the chunks that arrived, each with its time; everything else (JSON, events, a turn) is read from them, so that a recorded
exchange can be judged again at any time, by other checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from harmony_conformance.json_value import InvalidJsonError, Json, loads
from harmony_conformance.runtime.caching import cached_property

_FIRST_REDIRECT = 300
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class FailureKind(StrEnum):
    """How an exchange ended that did not end well. All but the last are something the endpoint did; by the two before it the client was turned away."""

    NO_CONNECTION = "no_connection"
    TIMEOUT = "timeout"
    RESET = "reset"
    CUT = "cut"
    TOO_LARGE = "too_large"
    MALFORMED_HTTP = "malformed_http"
    CLIENT_LEFT = "client_left"
    RATE_LIMITED = "rate_limited"
    ACCESS_REFUSED = "access_refused"
    NOT_SENT = "not_sent"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What went wrong on the wire, in one line."""

    kind: FailureKind
    detail: str


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as it was sent, without secrets: header names are lower case, credentials are never kept."""

    path: str
    body: bytes
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)

    @cached_property
    def json(self) -> Json:
        """The body as JSON, None where it is none (a request that is malformed on purpose)."""
        try:
            return loads(self.body)
        except InvalidJsonError:
            return None


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Bytes that arrived together, `at` seconds after the request was sent (monotonic clock)."""

    at: float
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Response:
    """A status, headers (names in lower case) and the body as it arrived, content decoding done."""

    status: int
    chunks: tuple[Chunk, ...]
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)

    @cached_property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(chunk.data for chunk in self.chunks)

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters; empty where there is none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @cached_property
    def json(self) -> Json:
        """The body as JSON.

        Raises:
            NotJson: it is none.
        """
        return loads(self.body)

    @property
    def is_success(self) -> bool:
        """Whether the status says that the request was carried out: below 300."""
        return self.status < _FIRST_REDIRECT

    @property
    def is_event_stream(self) -> bool:
        """Whether the server said that this is a stream of server-sent events."""
        return self.content_type == "text/event-stream"

    @property
    def is_line_stream(self) -> bool:
        """Whether the server said that this is a stream of JSON values, one a line."""
        return self.content_type in ("application/x-ndjson", "application/ndjson", "application/jsonl")
