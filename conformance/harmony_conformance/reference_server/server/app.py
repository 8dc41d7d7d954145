"""The HTTP surface: Chat Completions, streamed and not, models, health and version, as an ASGI application."""

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
from harmony_conformance.reference_server.chat.completion import accept
from harmony_conformance.reference_server.completions.routes import Completions
from harmony_conformance.reference_server.defects import defects_named
from harmony_conformance.reference_server.defects.stages import CROWD, ApiFamily, Changes
from harmony_conformance.reference_server.ollama.routes import Ollama
from harmony_conformance.reference_server.ollama.routes import error_body as ollama_error
from harmony_conformance.reference_server.pipeline.http import (
    Host,
    body_of,
    json_response,
    server_sent,
    stream_response,
)
from harmony_conformance.reference_server.pipeline.load import Load
from harmony_conformance.reference_server.requests.errors import ApiError, Reply, server_failure
from harmony_conformance.reference_server.requests.fields import MODEL
from harmony_conformance.reference_server.responses.routes import Responses
from harmony_conformance.reference_server.sglang.routes import PATHS as SGLANG_PATHS
from harmony_conformance.reference_server.sglang.routes import PREFIX as SGLANG_PREFIX
from harmony_conformance.reference_server.sglang.routes import SGLang
from harmony_conformance.reference_server.sglang.routes import error_body as sglang_error
from harmony_conformance.reference_server.tgi.routes import Tgi
from harmony_conformance.reference_server.tgi.routes import error_body as tgi_error

VERSION = version("harmony-conformance")
SERVER = f"harmony-conformance/{VERSION}"
DATE = "2025-06-28"
"""What the model is told is today's date, unless the server is told otherwise: prompts of two runs are equal."""

_CREATED = 1_750_000_000


def create_app(
    *,
    defects: Iterable[str] = (),
    date: str = DATE,
    now: Callable[[], float] = time.time,
) -> Starlette:
    """The server as an ASGI application.

    Args:
        defects: ids from `DEFECTS`; they combine.
        date: the `Current date` in the prompt.
        now: seconds since the epoch, for `created`.

    Raises:
        LookupError: there is no such defect; names those there are.
    """
    changes = Changes(defects_named(defects))
    host = Host(changes=changes, date=date, now=now, serials=count(1), load=Load(changes))
    server = _Server(host)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", server.chat, methods=["POST"]),
            *Responses(host).routes(),
            *Completions(host).routes(),
            *Ollama(host).routes(),
            *Tgi(host).routes(),
            *SGLang(host).routes(),
            Route("/v1/models", server.models, methods=["GET"]),
            Route("/health", server.health, methods=["GET"]),
            Route("/metrics", server.metrics, methods=["GET"]),
            Route("/version", server.version, methods=["GET"]),
        ],
        middleware=[Middleware(_Signed)],
        exception_handlers={
            ApiError: server.refuse,
            HTTPException: server.refuse,
            Exception: server.refuse,
        },
    )


class _Signed:
    """Names the server in each response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def signed(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["server"] = SERVER
            await send(message)

        await self._app(scope, receive, signed)


class _Server:
    """The endpoints, and the little they remember: which request came last."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._changes = host.changes
        self._last: JsonObject | None = None

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        body = await body_of(request)
        if self._changes.brings_down(body):
            self._host.load.is_down = True
        if self._host.load.is_down:
            raise server_failure("The engine is dead.")
        serial = next(self._host.serials)
        neighbour = self._neighbour(body) if self._changes.crosses_requests else None
        completion = accept(
            self._changes.request(self._changes.crowded(body, self._host.load.running), neighbour),
            serial=serial,
            created=int(self._host.now()),
            date=self._host.date,
            changes=self._changes.for_body(body),
        )
        generations, delay = completion.generations, completion.request.token_delay
        if completion.request.streamed:
            return stream_response(server_sent(completion.stream()), generations, delay, self._host.load)
        answer = completion.whole()
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
        """GET /metrics: how many requests are being answered, in the text format of Prometheus."""
        told = f"# TYPE harmony_requests_running gauge\nharmony_requests_running {self._host.load.running}\n"
        return Response(told, media_type="text/plain; version=0.0.4")

    async def version(self, _request: Request) -> Response:
        """GET /version."""
        return json_response(HTTPStatus.OK, {"version": VERSION})

    async def refuse(self, request: Request, error: Exception) -> Response:
        """The answer to a request that failed, in the API's words."""
        problem = _failure(request, error)
        api = _api_of(request.url.path)
        return self._host.reply(Reply(status=problem.status, body=_WORDS.get(api, _openai)(problem)), api)

    def _neighbour(self, body: JsonObject) -> "JsonObject | None":
        """In a crowd, the request that came before."""
        before, self._last = self._last, body
        return before if self._host.load.running >= CROWD else None


_APIS = {
    "/v1/responses": ApiFamily.RESPONSES,
    "/v1/completions": ApiFamily.COMPLETIONS,
    "/api/": ApiFamily.OLLAMA,
    **dict.fromkeys(("/tgi", "/generate", "/tokenize", "/chat_tokenize"), ApiFamily.TGI),
    **dict.fromkeys((SGLANG_PREFIX, *SGLANG_PATHS), ApiFamily.SGLANG),
}
"""The API that a path belongs to, by how it begins."""


def _api_of(path: str) -> ApiFamily:
    """The API that speaks at a path; at the root, where only refused requests come here, it is TGI."""
    return (
        ApiFamily.TGI
        if path == "/"
        else next((api for begin, api in _APIS.items() if path.startswith(begin)), ApiFamily.CHAT)
    )


def _openai(problem: ApiError) -> JsonObject:
    return problem.body


_WORDS: dict[ApiFamily, Callable[[ApiError], JsonObject]] = {
    ApiFamily.OLLAMA: ollama_error,
    ApiFamily.TGI: tgi_error,
    ApiFamily.SGLANG: sglang_error,
}


def _failure(request: Request, error: Exception) -> ApiError:
    match error:
        case ApiError():
            return error
        case HTTPException(status_code=HTTPStatus.NOT_FOUND):
            return ApiError(f"Nothing is served at {request.url.path}.", status=HTTPStatus.NOT_FOUND, code="not_found")
        case HTTPException():
            status = HTTPStatus(error.status_code)
            return ApiError(f"{request.method} {request.url.path}: {status.phrase}.", status=status, code="refused")
        case _:
            return server_failure(f"{type(error).__name__}: {error}")
