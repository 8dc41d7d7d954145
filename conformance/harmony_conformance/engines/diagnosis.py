"""Why an endpoint can not be used: what was seen, in one line, and what would be right."""

from __future__ import annotations

from harmony_conformance.apis.api import CHAT
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import InvalidJsonError, Json, at, text
from harmony_conformance.transport.client import SendRequest, SendResult
from harmony_conformance.transport.messages import Failure, FailureKind, Request, Response

REFUSED_KEY = (401, 403)
"""The statuses by which a key is refused."""
MODELS = "/v1/models"
"""Where an OpenAI API lists its models."""
_NOT_FOUND = 404
_NO_PATH = (_NOT_FOUND, 405, 501)
_REDIRECTS = (300, 400)
_SHOWN = 200  # characters of what a server said
_PAGE = "text/html"


class EndpointUnusableError(Exception):
    """No usable endpoint: no answer, the key or the model refused. One line that says what, where and what would be right."""


class KeyRefusedError(EndpointUnusableError):
    """The key, or that there was none, was refused with HTTP `status`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the key was refused (HTTP {status}): name the variable that holds it by --api-key-env")
        self.status = status

    def told(self, variable: str | None) -> str:
        """The line, where `variable` is known to hold the key that was sent."""
        return str(self) if variable is None else f"the key in {variable} was refused (HTTP {self.status})"


def no_model(response: Response) -> str:
    """Why it is not known which model to ask for: what was seen in place of a list."""
    seen = f"GET {MODELS} answered"
    if response.status in _NO_PATH:
        return (
            f"{seen} HTTP {response.status}: give the URL up to /v1, and name a model by --model if the API lists none"
        )
    if not response.is_success:
        return f"{seen} {_status(response)}: name a model by --model to do without the list"
    if isinstance(at(json_of(response), "data"), list):
        return f"the endpoint lists no model at {MODELS}: name one by --model"
    if not response.body.strip():
        return f"{seen} with an empty body: this is no OpenAI API"
    if json_of(response) is None:
        return f"{seen} {response.content_type or 'without a content type'}, no JSON: this is no OpenAI API"
    return f"{seen} JSON without a list of models ({_said(response)}): this is no OpenAI API"


def rate_limited(failure: Failure | None, response: Response | None) -> str:
    """That the endpoint asks to be left alone for a while, and why, as far as it says so; empty where it does not ask."""
    if failure is None or failure.kind is not FailureKind.RATE_LIMITED:
        return ""
    said = _error(response) if response is not None else ""
    return f"rate limited: {failure.detail}" + (f" ({said})" if said else "")


class RateLimitedProbes:
    """What could not be found out, since the endpoint refused to be asked for its rate limit. State: why, by the name of the API that was asked about."""

    def __init__(self, send: SendRequest) -> None:
        self.why: dict[str, str] = {}
        self._send = send

    def of(self, api: str) -> SendRequest:
        """Sends what asks about an API."""

        async def send(request: Request) -> SendResult:
            sent = await self._send(request)
            if sent.failure is not None and rate_limited(sent.failure, None):
                self.why.setdefault(api, rate_limited(sent.failure, None))
            return sent

        return send


def _status(response: Response) -> str:
    """The status, and what the server says of it."""
    page = f", {_PAGE}" if response.content_type == _PAGE else ""
    said = _error(response) or _said(response) or "an empty body"
    return f"HTTP {response.status} ({said}{page})"


def _error(response: Response) -> str:
    """The words of an error object, empty where there are none."""
    error = at(json_of(response), "error")
    return _line(text(at(error, "message")) or text(error))


def _said(response: Response) -> str:
    return _line(response.body[:_SHOWN].decode("utf-8", "replace"))


def refusal(x: Exchange, models: list[str]) -> str:
    """Why the first request got no completion; `models` are those that the endpoint lists."""
    if x.response is None:
        return f"no HTTP answer to the first request: {x.failure.detail if x.failure else 'nothing came back'}"
    status = x.response.status
    said = _line(text(at(x.error, "message")) or text(x.error)) or _said(x.response)
    if limited := rate_limited(x.failure, x.response):
        return limited
    if status == _NOT_FOUND:
        known = f"; it lists {_line(', '.join(models[:5]))}" if models else ""
        return f"the model or the path was refused (HTTP 404: {said or 'an empty body'}){known}"
    if is_redirect(x.response):
        return redirect(x.response)
    if x.failure is not None:
        return f"the first answer broke off: {x.failure.detail}"
    if not x.response.is_success:
        page = f", {_PAGE}" if x.response.content_type == _PAGE else ""
        return f"the first request, POST {CHAT}, was refused (HTTP {status}{page}: {said or 'an empty body'})"
    if x.response.content_type == _PAGE:
        return f"POST {CHAT} answered {_PAGE}, no JSON: this is no OpenAI API ({said})"
    if not said:
        return f"POST {CHAT} answered with an empty body: this is no OpenAI API"
    return f"the first answer is no chat completion (HTTP {status}, {x.response.content_type or 'no content type'}: {said})"


def json_of(response: Response) -> Json:
    """The body, None where it is no JSON."""
    try:
        return response.json
    except InvalidJsonError:
        return None


def is_redirect(response: Response) -> bool:
    """Whether it leads to another address."""
    return _REDIRECTS[0] <= response.status < _REDIRECTS[1]


def redirect(response: Response) -> str:
    """Where it leads instead."""
    where = _line(response.headers.get("location", "")) or "nowhere"
    return f"it redirects to {where} (HTTP {response.status}), which is not followed: name the address itself"


def _line(said: str) -> str:
    """What a server said in one line, without what would steer a terminal."""
    return " ".join("".join(char if char.isprintable() else " " for char in said[:_SHOWN]).split())
