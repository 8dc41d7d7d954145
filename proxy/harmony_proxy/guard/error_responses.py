"""What takes the place of an answer that is not sent."""

from __future__ import annotations

from collections.abc import Sequence

from harmony_proxy.guard.error_bodies import BLOCKED, NOT_EXAMINED, blocked_message, error_body
from harmony_proxy.guard.response_head import Closing, ResponseHead, named

_BAD_GATEWAY = 502


def refused(api: str, code: str, message: str, request_id: str, verdict: str = "blocked") -> Closing:
    """A 502 in the place of an answer, in the words of its API."""
    body = error_body(api, code, message)
    headers = ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)))
    return Closing(head=named(ResponseHead(status=_BAD_GATEWAY, headers=headers), request_id, verdict), body=[body])


def blocked(api: str, checks: Sequence[str], request_id: str) -> Closing:
    """The same for an answer that fails these checks; none of them where it could not be examined."""
    return refused(api, BLOCKED if checks else NOT_EXAMINED, blocked_message(checks, request_id), request_id)
