"""The HTTP surface: Chat Completions, streamed and not, models, health and version, as an ASGI application."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable
from http import HTTPStatus
from importlib.metadata import version
from itertools import count

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from harmony_conformance.json_value import Json, JsonObject, NotJson, dumps, loads
from harmony_conformance.reference_server.changes import Changes
from harmony_conformance.reference_server.chat_request import MODEL
from harmony_conformance.reference_server.completion import Completion, accept
from harmony_conformance.reference_server.defects import defects_named
from harmony_conformance.reference_server.errors import ApiError, Reply, server_failure

VERSION = version("harmony-conformance")
SERVER = f"harmony-conformance/{VERSION}"
DATE = "2025-06-28"
"""What the model is told is today's date, unless the server is told otherwise: prompts of two runs are equal."""

LARGEST_BODY = 64 * 1024 * 1024
"""Bytes; a larger request is refused."""

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_UNCACHED = {"cache-control": "no-cache"}
_CREATED = 1_750_000_000
_BATCHING_SECONDS = 0.05
_POLLING_SECONDS = 0.05


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
    server = _Server(changes=Changes(defects_named(defects)), date=date, now=now)
    return Starlette(
        routes=[
            Route("/v1/chat/completions", server.chat, methods=["POST"]),
            Route("/v1/models", server.models, methods=["GET"]),
            Route("/health", server.health, methods=["GET"]),
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
    """The endpoints, and the little they remember: how many requests there were, which are being batched, and whether the engine is down."""

    def __init__(self, *, changes: Changes, date: str, now: Callable[[], float]) -> None:
        self._changes = changes
        self._date = date
        self._now = now
        self._serials = count(1)
        self._batched: dict[int, JsonObject] = {}
        self._is_down = False

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        body = _json_object(await _body(request))
        self._is_down = self._is_down or self._changes.brings_down(body)
        if self._is_down:
            raise server_failure("The engine is dead.")
        serial = next(self._serials)
        neighbour = await self._neighbour(serial, body) if self._changes.crosses_requests else None
        completion = accept(
            self._changes.request(body, neighbour),
            serial=serial,
            created=int(self._now()),
            date=self._date,
            changes=self._changes,
        )
        if completion.request.streamed:
            return StreamingResponse(_events(completion), media_type="text/event-stream", headers=_UNCACHED)
        answer = completion.whole()
        await _take_time(request, completion)
        return self._reply(Reply(status=HTTPStatus.OK, body=answer))

    async def models(self, _request: Request) -> Response:
        """GET /v1/models."""
        model: JsonObject = {"id": MODEL, "object": "model", "created": _CREATED, "owned_by": "harmony-conformance"}
        return _json(HTTPStatus.OK, {"object": "list", "data": [model]})

    async def health(self, _request: Request) -> Response:
        """GET /health."""
        return _json(HTTPStatus.OK, {"status": "ok"})

    async def version(self, _request: Request) -> Response:
        """GET /version."""
        return _json(HTTPStatus.OK, {"version": VERSION})

    async def refuse(self, request: Request, error: Exception) -> Response:
        """The answer to a request that failed, in the API's words."""
        return self._reply(_failure(request, error))

    def _reply(self, reply: Reply) -> Response:
        changed = self._changes.reply(reply)
        return _json(changed.status, changed.body)

    async def _neighbour(self, serial: int, body: JsonObject) -> "JsonObject | None":
        """For every second request the one before it, when that is still waiting to be answered."""
        before = self._batched.get(serial - 1) if serial % 2 == 0 else None
        self._batched[serial] = body
        await asyncio.sleep(_BATCHING_SECONDS)
        del self._batched[serial]
        return before


async def _body(request: Request) -> bytes:
    """The body, refused as soon as it is too large."""
    too_large = ApiError(
        f"The request is larger than {LARGEST_BODY} bytes.",
        status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        code="request_too_large",
    )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > LARGEST_BODY:
        raise too_large
    received = bytearray()
    async for piece in request.stream():
        received += piece
        if len(received) > LARGEST_BODY:
            raise too_large
    return bytes(received)


def _json_object(body: bytes) -> JsonObject:
    try:
        value = loads(body)
    except NotJson as problem:
        raise ApiError(f"The body is not JSON: {problem}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError("The body is JSON, but no object.", code="invalid_json")
    if _SURROGATE.search(body) and not _is_text(dumps(value)):
        raise ApiError("The body has half of a surrogate pair, which is no character.", code="invalid_json")
    return value


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


async def _events(completion: Completion) -> AsyncIterator[bytes]:
    """The stream's events, each sent when the tokens it shows have come."""
    passed = 0
    for data in completion.stream():
        come = len(completion.generation.emitted)
        await asyncio.sleep((come - passed) * completion.request.token_delay)
        passed = come
        yield f"data: {data if isinstance(data, str) else dumps(data)}\n\n".encode()


async def _take_time(request: Request, completion: Completion) -> None:
    """Wait as long as the tokens take, or until the client leaves."""
    left = len(completion.generation.emitted) * completion.request.token_delay
    while left > 0 and not await request.is_disconnected():
        await asyncio.sleep(min(left, _POLLING_SECONDS))
        left -= _POLLING_SECONDS


def _failure(request: Request, error: Exception) -> Reply:
    match error:
        case ApiError():
            problem = error
        case HTTPException(status_code=HTTPStatus.NOT_FOUND):
            problem = ApiError(
                f"Nothing is served at {request.url.path}.", status=HTTPStatus.NOT_FOUND, code="not_found"
            )
        case HTTPException():
            status = HTTPStatus(error.status_code)
            problem = ApiError(f"{request.method} {request.url.path}: {status.phrase}.", status=status, code="refused")
        case _:
            problem = server_failure(f"{type(error).__name__}: {error}")
    return Reply(status=problem.status, body=problem.body)


def _json(status: int, body: Json) -> Response:
    return Response(dumps(body).encode("utf-8", "replace"), status_code=status, media_type="application/json")
