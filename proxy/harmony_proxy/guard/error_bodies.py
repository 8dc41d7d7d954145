"""What a client is told where its answer is blocked or broke off, in the words of its API. Check ids and the request's id, never a word of the content."""

from __future__ import annotations

from collections.abc import Sequence

from harmony_conformance.apis.api import Framing
from harmony_conformance.apis.registry import CHAT_COMPLETIONS, COMPLETIONS, RESPONSES, api_named
from harmony_conformance.json_value import JsonObject, dumps

BLOCKED = "blocked_by_policy"
BROKEN_OFF = "upstream_broke_off"
NOT_EXAMINED = "not_examined"
_OPENAI = frozenset({CHAT_COMPLETIONS.name, RESPONSES.name, COMPLETIONS.name, ""})


def blocked_message(checks: Sequence[str], request_id: str) -> str:
    """The line that says why an answer was blocked."""
    why = ", ".join(checks) or "it could not be examined"
    return f"The answer was blocked: {why} (request {request_id})"


def unexamined_message(request_id: str) -> str:
    """The line that says that nobody knows what an answer holds."""
    return f"The answer could not be examined (request {request_id})"


def error_body(api: str, code: str, message: str) -> bytes:
    """The body of an error response."""
    return dumps(_error(api, code, message)).encode()


def error_event(api: str, code: str, message: str, *, number: int = 0) -> bytes:
    """The last bytes of a stream: an error, and the end that the API has. `number` is the sequence number, of the Responses API."""
    if api_named(api).framing is Framing.LINES:
        return dumps(_error(api, code, message)).encode() + b"\n"
    if api == RESPONSES.name:
        event: JsonObject = {
            "type": "error",
            "code": code,
            "message": message,
            "param": None,
            "sequence_number": number,
        }
        return b"event: error\ndata: " + dumps(event).encode() + b"\n\n"
    done = b"data: [DONE]\n\n" if api in _OPENAI else b""
    return b"data: " + dumps(_error(api, code, message)).encode() + b"\n\n" + done


def _error(api: str, code: str, message: str) -> JsonObject:
    if api in _OPENAI:
        return {"error": {"message": message, "type": "server_error", "param": None, "code": code}}
    return {"error": message, "error_type": code}
