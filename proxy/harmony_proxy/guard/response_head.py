"""The status and headers that the client gets, and the headers that the guard adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from harmony_conformance.apis.api import Framing
from harmony_conformance.apis.registry import find_api
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.judge.judge import Result
from harmony_proxy.capture.build_exchange import EVENT_STREAM, STREAM_TYPES
from harmony_proxy.policy.repair_interface import Actions

CONTENT_ENCODING = b"content-encoding"
REQUEST_ID = b"x-harmony-request-id"
VERDICT = b"x-harmony-verdict"
_BODY_HEADERS = frozenset(
    {
        *(b"content-length", CONTENT_ENCODING, b"transfer-encoding", b"etag"),
        *(b"content-md5", b"digest", b"content-digest", b"repr-digest"),
    }
)


@dataclass(frozen=True, kw_only=True)
class ResponseHead:
    """The status and headers that the client gets."""

    status: int
    headers: tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, kw_only=True)
class Closing:
    """The end of a response."""

    head: ResponseHead | None  # None: it was sent before, or there is no response
    body: list[bytes]


class HeadTiming(Enum):
    """The time to send the head of a stream."""

    AT_ONCE = auto()
    WITH_BYTES = auto()  # with its first bytes: a stream that is blocked before them still becomes a 502


def values_of(head: ResponseHead) -> dict[str, str]:
    """Return the headers by lower-case name; repeated headers are joined by commas."""
    values: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.lower().decode("latin-1"), raw_value.decode("latin-1")
        values[name] = f"{values[name]}, {value}" if name in values else value
    return values


def is_stream(headers: Mapping[str, str], api: str) -> bool:
    """Return True if the content type is one of server-sent events, or of JSON lines and the API has them.

    Anything else is examined when it is complete, in every form that a client may read.
    """
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    return content_type == EVENT_STREAM or (content_type in STREAM_TYPES and find_api(api).framing is Framing.LINES)


def with_request_id(head: ResponseHead, request_id: str, verdict: str = "") -> ResponseHead:
    """Return the head with the id of the request, and with the verdict unless it is empty."""
    added = ((REQUEST_ID, request_id), *([(VERDICT, verdict)] if verdict else ()))
    others = [pair for pair in head.headers if pair[0].lower() not in (REQUEST_ID, VERDICT)]
    return replace(head, headers=(*others, *((name, value.encode("ascii", "replace")) for name, value in added)))


def without_body(head: ResponseHead, keep: bytes = b"") -> ResponseHead:
    """Return the head without headers about the body, except `keep`, for a body that may differ from the server's."""
    removed = _BODY_HEADERS - {keep}
    return replace(head, headers=tuple(pair for pair in head.headers if pair[0].lower() not in removed))


def with_body(head: ResponseHead, body: bytes) -> ResponseHead:
    """Return the head for a new body, with its length."""
    return replace(head, headers=(*without_body(head).headers, (b"content-length", b"%d" % len(body))))


def verdict_of(actions: Actions, results: Iterable[Result]) -> str:
    """Return the value of `x-harmony-verdict` for a response that was sent."""
    if actions.repair_counts:
        return "repaired; " + ", ".join(sorted(actions.repair_counts))
    failed = sorted({one.check for one in results if one.outcome is Outcome.FAIL and one.severity is Severity.MUST})
    return "fail; " + ", ".join(failed) if failed else "pass"
