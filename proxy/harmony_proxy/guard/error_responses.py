"""Responses and events that replace a blocked, truncated or unexaminable response, in the format of its API.

They contain check ids and the id of the request, but nothing of the content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from harmony_conformance.apis.api import Framing
from harmony_conformance.apis.registry import CHAT_COMPLETIONS, COMPLETIONS, MESSAGES, RESPONSES, find_api
from harmony_conformance.json_value import Json, dumps
from harmony_proxy.guard.response_head import Closing, ResponseHead, with_request_id

BLOCKED = "blocked_by_policy"
BROKEN_OFF = "upstream_broke_off"
NOT_EXAMINED = "not_examined"
NOT_GUARDED = "path_not_guarded"
UNKNOWN_PATH = "invalid request: expected a method and path that the guard examines, or that show no output"
OVERLOADED = "the memory limit of all exchanges was reached"
_BAD_GATEWAY = 502
_UNAVAILABLE = 503
_FORBIDDEN = 403
_NO_RETRY = (b"x-should-retry", b"false")
"""The official clients of OpenAI and Anthropic obey it. Without it they retry after each status from 500 on."""
_OPENAI = frozenset({CHAT_COMPLETIONS.name, RESPONSES.name, COMPLETIONS.name, ""})


def bad_gateway_response(api: str, code: str, message: str, request_id: str, verdict: str = "blocked") -> Closing:
    """Return a 502 response in the format of the API. Its headers ask clients not to retry after a block."""
    head, body = _json_response(_BAD_GATEWAY, error_body(api, code, message))
    if verdict == "blocked":
        head = replace(head, headers=(*head.headers, _NO_RETRY))
    return Closing(head=with_request_id(head, request_id, verdict), body=[body])


def unguarded_response() -> tuple[ResponseHead, bytes]:
    """Return a 403 response for a request on an unknown path, under a policy that fails closed. It quotes nothing."""
    error: Json = {"message": UNKNOWN_PATH, "type": "invalid_request_error", "param": None, "code": NOT_GUARDED}
    return _json_response(_FORBIDDEN, dumps({"error": error}).encode())


def blocked_response(api: str, checks: Sequence[str], request_id: str) -> Closing:
    """Return a 502 response for a response that failed these checks; for no checks, one that could not be examined."""
    return bad_gateway_response(
        api, BLOCKED if checks else NOT_EXAMINED, blocked_message(checks, request_id), request_id
    )


def blocked_message(checks: Sequence[str], request_id: str) -> str:
    """Return the message for a blocked response."""
    why = ", ".join(checks) or "it could not be examined"
    return f"The answer was blocked: {why} (request {request_id})"


def unexamined_message(request_id: str) -> str:
    """Return the message for a response that could not be examined."""
    return f"The answer could not be examined (request {request_id})"


def error_body(api: str, code: str, message: str) -> bytes:
    """Return the body of an error response."""
    if api in _OPENAI:
        return dumps({"error": {"message": message, "type": "server_error", "param": None, "code": code}}).encode()
    if api == MESSAGES.name:
        return dumps({"type": "error", "error": {"type": "api_error", "message": message, "code": code}}).encode()
    return dumps({"error": message, "error_type": code}).encode()


def overloaded_response() -> tuple[ResponseHead, bytes]:
    """Return a 503 response for a request that cannot be examined because the memory is used up."""
    error: Json = {"message": OVERLOADED, "type": "server_error", "param": None, "code": "memory_limit"}
    head, body = _json_response(_UNAVAILABLE, dumps({"error": error}).encode())
    return replace(head, headers=(*head.headers, (b"retry-after", b"5"))), body


def _json_response(status: int, body: bytes) -> tuple[ResponseHead, bytes]:
    headers = ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)))
    return ResponseHead(status=status, headers=headers), body


def error_event(api: str, code: str, message: str, *, number: int = 0) -> bytes:
    """Return the last bytes of a stream: an error, and the end marker of the API. `number`: of the event (Responses API)."""
    if find_api(api).framing is Framing.LINES:
        return error_body(api, code, message) + b"\n"
    if api == RESPONSES.name:
        event = dumps({"type": "error", "code": code, "message": message, "param": None, "sequence_number": number})
        return b"event: error\ndata: " + event.encode() + b"\n\n"
    if api == MESSAGES.name:
        return b"event: error\ndata: " + error_body(api, code, message) + b"\n\n"
    done = b"data: [DONE]\n\n" if api in _OPENAI else b""
    return b"data: " + error_body(api, code, message) + b"\n\n" + done
