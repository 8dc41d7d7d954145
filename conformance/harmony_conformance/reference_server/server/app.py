"""ASGI application: Chat Completions, models, health, metrics, version, and the routes of the other APIs."""

import time
from collections.abc import Callable, Iterable
from http import HTTPStatus
from importlib.metadata import version
from itertools import count

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harmony_conformance.json_value import JsonObject
from harmony_conformance.reference_server.chat.completion import accept_request
from harmony_conformance.reference_server.completions.routes import Completions
from harmony_conformance.reference_server.defects import find_defects
from harmony_conformance.reference_server.defects.stages import OVERLOAD_REQUESTS, ApiFamily, Changes
from harmony_conformance.reference_server.messages.routes import Messages
from harmony_conformance.reference_server.messages.routes import error_body as messages_error
from harmony_conformance.reference_server.ollama.routes import Ollama
from harmony_conformance.reference_server.ollama.routes import error_body as ollama_error
from harmony_conformance.reference_server.pipeline.http import (
    ServerState,
    format_events,
    json_response,
    read_json_body,
    stream_response,
)
from harmony_conformance.reference_server.pipeline.load import Load
from harmony_conformance.reference_server.requests.errors import ApiError, Reply, server_failure
from harmony_conformance.reference_server.requests.fields import MODEL
from harmony_conformance.reference_server.responses.routes import Responses
from harmony_conformance.reference_server.server.own_host import OwnHost
from harmony_conformance.reference_server.sglang.routes import PATHS as SGLANG_PATHS
from harmony_conformance.reference_server.sglang.routes import PREFIX as SGLANG_PREFIX
from harmony_conformance.reference_server.sglang.routes import SGLang
from harmony_conformance.reference_server.sglang.routes import error_body as sglang_error
from harmony_conformance.reference_server.tgi.routes import Tgi
from harmony_conformance.reference_server.tgi.routes import error_body as tgi_error

VERSION = version("harmony-conformance")
SERVER = f"harmony-conformance/{VERSION}"
DATE = "2025-06-28"
"""Default `Current date` in the prompt; fixed, so that the prompts of two runs are equal."""

_CREATED = 1_750_000_000


def create_app(
    *,
    defects: Iterable[str] = (),
    date: str = DATE,
    now: Callable[[], float] = time.time,
    hosts: frozenset[str] | None = None,
    token_time: float = 0.0,
) -> Starlette:
    """Return the ASGI application.

    Args:
        defects: ids from `DEFECTS`; they combine.
        date: the `Current date` in the prompt.
        now: returns seconds since the epoch, for `created`.
        hosts: names in the Host header that are answered (`own_hosts`); None for any name.
        token_time: seconds per output token, for requests that name none.

    Raises:
        LookupError: unknown defect id; the message lists the known ones.
    """
    changes = Changes(find_defects(defects))
    host = ServerState(changes=changes, date=date, now=now, serials=count(1), load=Load(changes, token_time))
    server = _Server(host)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", server.chat, methods=["POST"]),
            *Responses(host).routes(),
            *Messages(host).routes(),
            *Completions(host).routes(),
            *Ollama(host).routes(),
            *Tgi(host).routes(),
            *SGLang(host).routes(),
            Route("/v1/models", server.models, methods=["GET"]),
            Route("/health", server.health, methods=["GET"]),
            Route("/metrics", server.metrics, methods=["GET"]),
            Route("/version", server.version, methods=["GET"]),
        ],
        middleware=[Middleware(_ServerHeader), Middleware(OwnHost, hosts=hosts, refuse=server.refuse)],
        exception_handlers=dict.fromkeys((ApiError, HTTPException, Exception), server.refuse),
    )


class _ServerHeader:
    """Sets the header `server` in each response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_header(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["server"] = SERVER
            await send(message)

        await self._app(scope, receive, send_with_header)


class _Server:
    """Endpoints, and the last request body for the defects that mix requests."""

    def __init__(self, host: ServerState) -> None:
        self._host = host
        self._changes = host.changes
        self._last_body: JsonObject | None = None

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        body = await read_json_body(request)
        self._host.check_engine(body, ApiFamily.CHAT)
        serial = next(self._host.serials)
        neighbour = None
        if self._changes.crosses_requests:
            neighbour, self._last_body = self._last_body if self._host.load.running >= OVERLOAD_REQUESTS else None, body
        completion = accept_request(
            self._changes.request(self._changes.overload_request(body, self._host.load.running), neighbour),
            serial=serial,
            created=int(self._host.now()),
            date=self._host.date,
            changes=self._changes.for_body(body),
        )
        generations, delay = completion.generations, completion.request.token_delay
        if completion.request.is_streamed:
            return stream_response(format_events(completion.stream()), generations, delay, self._host.load)
        answer = completion.complete_response()
        await self._host.wait(request, generations, delay)
        return self._host.reply(Reply(status=HTTPStatus.OK, body=answer), ApiFamily.CHAT)

    async def models(self, _request: Request) -> Response:
        """GET /v1/models."""
        model: JsonObject = {"id": MODEL, "object": "model", "created": _CREATED, "owned_by": "harmony-conformance"}
        return json_response(HTTPStatus.OK, {"object": "list", "data": [model]})

    async def health(self, _request: Request) -> Response:
        """GET /health."""
        return json_response(HTTPStatus.OK, {"status": "ok"})

    async def metrics(self, _request: Request) -> Response:
        """GET /metrics: number of requests in progress, in the text format of Prometheus."""
        metrics = f"# TYPE harmony_requests_running gauge\nharmony_requests_running {self._host.load.running}\n"
        return Response(metrics, media_type="text/plain; version=0.0.4")

    async def version(self, _request: Request) -> Response:
        """GET /version."""
        return json_response(HTTPStatus.OK, {"version": VERSION})

    async def refuse(self, request: Request, error: Exception) -> Response:
        """Return the error response in the form of the API."""
        problem = _failure(request, error)
        api = _api_of(request.url.path)
        body = _ERROR_BODIES[api](problem) if api in _ERROR_BODIES else problem.body
        return self._host.reply(Reply(status=problem.status, body=body), api)


_APIS = {
    **dict.fromkeys(("/v1/responses", "/v1/conversations"), ApiFamily.RESPONSES),
    "/v1/messages": ApiFamily.MESSAGES,
    "/v1/completions": ApiFamily.COMPLETIONS,
    "/api/": ApiFamily.OLLAMA,
    **dict.fromkeys(("/tgi", "/generate", "/tokenize", "/chat_tokenize"), ApiFamily.TGI),
    **dict.fromkeys((SGLANG_PREFIX, *SGLANG_PATHS), ApiFamily.SGLANG),
}
"""API by path prefix."""


def _api_of(path: str) -> ApiFamily:
    """Return the API of a path; a failed request to the root belongs to TGI."""
    if path == "/":
        return ApiFamily.TGI
    return next((api for prefix, api in _APIS.items() if path.startswith(prefix)), ApiFamily.CHAT)


_ERROR_BODIES: dict[ApiFamily, Callable[[ApiError], JsonObject]] = {
    ApiFamily.MESSAGES: messages_error,
    ApiFamily.OLLAMA: ollama_error,
    ApiFamily.TGI: tgi_error,
    ApiFamily.SGLANG: sglang_error,
}


def _failure(request: Request, error: Exception) -> ApiError:
    match error:
        case ApiError():
            return error
        case HTTPException(status_code=HTTPStatus.NOT_FOUND):
            return ApiError(f"No route for {request.url.path}.", status=HTTPStatus.NOT_FOUND, code="not_found")
        case HTTPException():
            status = HTTPStatus(error.status_code)
            return ApiError(f"{request.method} {request.url.path}: {status.phrase}.", status=status, code="refused")
        case _:
            return server_failure(f"{type(error).__name__}: {error}")
