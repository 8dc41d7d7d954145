"""The head of an answer as the client gets it, when it is given out, and what we write in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.judge.judge import Result
from harmony_proxy.policy.actions import Actions

REQUEST_ID = b"x-harmony-request-id"
VERDICT = b"x-harmony-verdict"
_STREAMS = frozenset({"text/event-stream", "application/x-ndjson", "application/ndjson", "application/jsonl"})
_OF_THE_BODY = frozenset(
    {
        *(b"content-length", b"content-encoding", b"transfer-encoding", b"etag"),
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
    """The last of an answer. `head` is None where it went before, or where there is no answer."""

    head: ResponseHead | None
    body: list[bytes]


class ResponseHeads(Enum):
    """When the head of a stream is given out: at once, or with its first bytes, so that a stream that is blocked before them is still a 502."""

    AT_ONCE = auto()
    WITH_BYTES = auto()


def values_of(head: ResponseHead) -> dict[str, str]:
    """The headers by name, in small letters; the values of one that is sent more than once are a list, by commas."""
    told: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.lower().decode("latin-1"), raw_value.decode("latin-1")
        told[name] = f"{told[name]}, {value}" if name in told else value
    return told


def is_stream(told: Mapping[str, str]) -> bool:
    """Whether an answer with these headers is told in events or lines."""
    return told.get("content-type", "").partition(";")[0].strip().lower() in _STREAMS


def named(head: ResponseHead, request_id: str, verdict: str = "") -> ResponseHead:
    """The head with the id of the request, and the verdict where there is one."""
    added = [(REQUEST_ID, request_id.encode("ascii", "replace"))]
    if verdict:
        added.append((VERDICT, verdict.encode("ascii", "replace")))
    kept = [pair for pair in head.headers if pair[0].lower() not in (REQUEST_ID, VERDICT)]
    return ResponseHead(status=head.status, headers=(*kept, *added))


def without_body(head: ResponseHead) -> ResponseHead:
    """The head of a body that is not, or may not be, as the server sent it."""
    return ResponseHead(
        status=head.status, headers=tuple(pair for pair in head.headers if pair[0].lower() not in _OF_THE_BODY)
    )


def with_body(head: ResponseHead, body: bytes) -> ResponseHead:
    """The head of a body that is ours."""
    changed = without_body(head)
    return ResponseHead(status=changed.status, headers=(*changed.headers, (b"content-length", b"%d" % len(body))))


def verdict_of(acted: Actions, results: Iterable[Result]) -> str:
    """What `x-harmony-verdict` says of an answer that was sent."""
    if acted.repaired:
        return "repaired; " + ", ".join(sorted(acted.repaired))
    failed = sorted(
        {result.check for result in results if result.outcome is Outcome.FAIL and result.severity is Severity.MUST}
    )
    return "fail; " + ", ".join(failed) if failed else "pass"
