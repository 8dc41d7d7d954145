"""The data that crossed the wire: a request, the response's bytes with their times, and the transport error.

A response stores the chunks as they arrived, each with its time. Everything else (JSON, events, a turn) is derived from them, so that
other checks can judge a recorded exchange later.
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
    """The reason why an exchange is incomplete.

    `rate_limited` and `access_refused` mean that the server rejects the client, and `not_sent` that the suite skipped the request.
    `run_stopped` means that the run ended before the answer, and `server_gone` that the server went away before it.
    """

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
    RUN_STOPPED = "run_stopped"
    SERVER_GONE = "server_gone"


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A transport error: its kind, and a description in one line."""

    kind: FailureKind
    detail: str


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request as sent, without credentials. `path` is relative to the base URL, header names are in lower case."""

    path: str
    body: bytes
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)

    @cached_property
    def json(self) -> Json:
        """The body as JSON. None if it is invalid, as in requests that are malformed on purpose."""
        try:
            return loads(self.body)
        except InvalidJsonError:
            return None


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Bytes that arrived together, `arrival_time` seconds after the request was sent (monotonic clock)."""

    arrival_time: float
    data: bytes


@dataclass(frozen=True, kw_only=True)
class Response:
    """The status, the headers (names in lower case) and the body's chunks as they arrived, content coding removed."""

    status: int
    chunks: tuple[Chunk, ...]
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)

    @cached_property
    def body(self) -> bytes:
        """The complete body."""
        return b"".join(chunk.data for chunk in self.chunks)

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters. Empty if the header is missing."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @cached_property
    def json(self) -> Json:
        """The body as JSON.

        Raises:
            InvalidJsonError: The body is not JSON.
        """
        return loads(self.body)

    @property
    def is_success(self) -> bool:
        """True for a status below 300."""
        return self.status < _FIRST_REDIRECT

    @property
    def is_event_stream(self) -> bool:
        """True if the media type is that of server-sent events."""
        return self.content_type == "text/event-stream"

    @property
    def is_line_stream(self) -> bool:
        """True if the media type is that of JSON lines."""
        return self.content_type in ("application/x-ndjson", "application/ndjson", "application/jsonl")
