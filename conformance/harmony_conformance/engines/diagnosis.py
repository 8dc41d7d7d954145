"""Diagnosis of unusable endpoints: one line with the observation and the remedy."""

from __future__ import annotations

import asyncio
from codecs import BOM_UTF8

from harmony_conformance.apis.api import CHAT_PATH
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import InvalidJsonError, Json, text, value_at
from harmony_conformance.transport.client import SendRequest, SendResult
from harmony_conformance.transport.messages import Failure, FailureKind, Request, Response

REFUSED_KEY_STATUSES = (401, 403)
"""HTTP statuses of a rejected API key."""
MODELS_PATH = "/v1/models"
"""Path of the model list in an OpenAI API."""
_NOT_FOUND = 404
_NO_PATH = (_NOT_FOUND, 405, 501)
_REDIRECTS = (300, 400)
_MAX_QUOTE = 200  # characters quoted from a response
_PAGE = "text/html"
_JSON = "application/json"
_INTERRUPTED = frozenset({FailureKind.RESET, FailureKind.CUT})
_LOST = _INTERRUPTED | {FailureKind.NO_CONNECTION, FailureKind.TIMEOUT}
_OVERLOADED = (502, 503, 504)
_SERVER_ERROR = 500
_REPEATS = 2  # of a probe whose connection was interrupted, or whose answer is a server error
_PAUSE = 0.5  # seconds before the first repetition after a server error


class EndpointUnusableError(Exception):
    """An endpoint without an answer, or one that rejects the key or the model. The message is one line with the remedy."""


class KeyRefusedError(EndpointUnusableError):
    """The endpoint rejected the API key, or its absence, with HTTP `status`."""

    def __init__(self, status: int) -> None:
        problem = f"invalid API key (HTTP {status})"
        super().__init__(f"{problem}: expected a valid key in the variable named by --api-key-env")
        self.status = status

    def message_with_variable(self, variable: str | None) -> str:
        """Return the message, with the name of the variable that held the key if it is known."""
        return str(self) if variable is None else f"invalid API key in {variable} (HTTP {self.status})"


def explain_missing_chat(problem: EndpointUnusableError, command: str) -> str:
    """Return the message for a command that sends Chat Completions alone. A 404 may mean that the endpoint offers another API only."""
    hint = f"; {command} needs Chat Completions, POST {CHAT_PATH}" if f"HTTP {_NOT_FOUND}" in str(problem) else ""
    return f"{problem}{hint}"


def describe_missing_models(response: Response) -> str:
    """Describe a response to `GET /v1/models` that lists no model."""
    seen = f"GET {MODELS_PATH} returned"
    if response.status in _NO_PATH:
        return f"{seen} HTTP {response.status}: give the URL up to /v1, or name a model with --model"
    if not response.is_success:
        return f"{seen} {_status(response)}: name a model with --model to skip the list"
    if isinstance(value_at(json_of(response), "data"), list):
        return f"{seen} an empty list: name a model with --model"
    if not response.body.strip():
        return f"{seen} an empty body: not an OpenAI API"
    if response.body.startswith(BOM_UTF8):
        return f"{seen} a byte order mark before its text, expected UTF-8 that begins with the JSON (RFC 8259, section 8.1)"
    if json_of(response) is None and response.content_type == _JSON:
        return f"{seen} no JSON (HTTP {response.status}, {_JSON}: {_quote(response)}): not an OpenAI API"
    if json_of(response) is None:
        return f"{seen} {response.content_type or 'no content type'}, expected JSON: not an OpenAI API"
    return f"{seen} JSON without a list of models ({_quote(response)}): not an OpenAI API"


def describe_rate_limit(failure: Failure | None, response: Response | None) -> str:
    """Describe a rate limit, with the server's error message if there is one; empty if the failure is another."""
    if failure is None or failure.kind is not FailureKind.RATE_LIMITED:
        return ""
    error = _error(response) if response is not None else ""
    return f"rate limited: {failure.detail}" + (f" ({error})" if error else "")


def describe_overload(response: Response | None) -> str:
    """Describe a status that says that the server cannot answer now; empty for any other."""
    return _status(response) if response is not None and response.status in _OVERLOADED else ""


def describe_lost_probe(failure: Failure | None, response: Response | None) -> str:
    """Describe a probe that shows nothing about the endpoint: rate limited, overloaded, or without a whole answer. Empty for any other."""
    if overload := describe_overload(response):
        return overload
    if failure is None or failure.kind not in _LOST:
        return describe_rate_limit(failure, None)
    return f"no whole answer: {failure.detail}"


class UnansweredProbes:
    """Probes without a result because of a rate limit, an overload or a lost connection. State: the reason for each API, by its name.

    An overload and a lost connection may be chance, so the probe is repeated. A lost connection counts only before the first answer of an API.
    Later it may be the server's reaction to a member that it does not know.
    """

    def __init__(self, send: SendRequest) -> None:
        self.why: dict[str, str] = {}
        self._send = send
        self._answered = set[str]()

    def sender_for(self, api: str) -> SendRequest:
        """Return a sender for the probes of an API."""

        async def send(request: Request) -> SendResult:
            sent = await self._send(request)
            for repetition in range(_REPEATS):
                status = sent.response.status if sent.response is not None else 0
                if status in (_SERVER_ERROR, *_OVERLOADED):
                    await asyncio.sleep(_PAUSE * (repetition + 1))
                elif sent.failure is None or sent.failure.kind not in _INTERRUPTED:
                    break
                sent = await self._send(request)
            if api in self._answered:
                lost = describe_overload(sent.response) or describe_rate_limit(sent.failure, None)
            else:
                lost = describe_lost_probe(sent.failure, sent.response)
            if lost:
                self.why.setdefault(api, lost)
            else:
                self._answered.add(api)
            return sent

        return send


def _status(response: Response) -> str:
    page = f", {_PAGE}" if response.content_type == _PAGE else ""
    return f"HTTP {response.status} ({_error(response) or _quote(response) or 'an empty body'}{page})"


def _error(response: Response) -> str:
    error = value_at(json_of(response), "error")
    return _line(text(value_at(error, "message")) or text(error))


def _quote(response: Response) -> str:
    return _line(response.body[:_MAX_QUOTE].decode("utf-8", "replace"))


def describe_refusal(x: Exchange, models: list[str]) -> str:
    """Describe a first request without a completion; `models` are those that the endpoint lists."""
    if x.response is None:
        return f"no HTTP response to the first request: {x.failure.detail if x.failure else 'nothing was received'}"
    status = x.response.status
    quote = _line(text(value_at(x.error, "message")) or text(x.error)) or _quote(x.response)
    if limited := describe_rate_limit(x.failure, x.response):
        return limited
    if status == _NOT_FOUND:
        known = f"; available models: {_line(', '.join(models[:5]))}" if models else ""
        return f"invalid model or path (HTTP 404: {quote or 'an empty body'}){known}"
    if is_redirect(x.response):
        return describe_redirect(x.response)
    if x.failure is not None:
        return f"the first response was truncated: {x.failure.detail}"
    if not x.response.is_success:
        page = f", {_PAGE}" if x.response.content_type == _PAGE else ""
        return f"POST {CHAT_PATH} was rejected (HTTP {status}{page}: {quote or 'an empty body'})"
    if x.response.content_type == _PAGE:
        return f"POST {CHAT_PATH} returned {_PAGE}, expected JSON: not an OpenAI API ({quote})"
    if not quote:
        return f"POST {CHAT_PATH} returned an empty body: not an OpenAI API"
    content_type = x.response.content_type or "no content type"
    return f"POST {CHAT_PATH} returned no chat completion (HTTP {status}, {content_type}: {quote})"


def json_of(response: Response) -> Json:
    """Return the body as JSON, None if it is invalid."""
    try:
        return response.json
    except InvalidJsonError:
        return None


def is_redirect(response: Response) -> bool:
    """Return True if the status is 300 to 399."""
    return _REDIRECTS[0] <= response.status < _REDIRECTS[1]


def describe_redirect(response: Response) -> str:
    """Describe a redirect and its target."""
    where = _line(response.headers.get("location", ""))
    if not where:
        return f"the endpoint redirects without a location (HTTP {response.status}): expected the URL of an API"
    return f"the endpoint redirects to {where} (HTTP {response.status}); redirects are not followed: use that URL"


def _line(message: str) -> str:
    """Return text of a server in one line, without control characters of a terminal."""
    return " ".join("".join(char if char.isprintable() else " " for char in message[:_MAX_QUOTE]).split())
