"""Bytes of HTTP in and out, the same for every API: bodies as JSON, streams that take as long as their tokens."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from harmony_conformance.json_value import InvalidJsonError, Json, JsonObject, dumps, loads
from harmony_conformance.reference_server.defects.stages import ApiFamily, Changes
from harmony_conformance.reference_server.model.generation import Generation
from harmony_conformance.reference_server.pipeline.load import Load
from harmony_conformance.reference_server.requests.errors import ApiError, Reply

LARGEST_BODY = 64 * 1024 * 1024
"""Bytes; a larger request is refused."""

EVENT_STREAM = "text/event-stream"

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_UNCACHED = {"cache-control": "no-cache"}
_POLLING_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class Host:
    """What all APIs of one server share.

    Attributes:
        changes: the defects that are switched on.
        date: the model is told that this is today.
        now: seconds since the epoch.
        serials: tells the server's requests apart.
        load: what the server is working on.
    """

    changes: Changes
    date: str
    now: Callable[[], float]
    serials: Iterator[int]
    load: Load

    def reply(self, reply: Reply, api: ApiFamily) -> Response:
        """Return an answer in one piece, as the defects change it."""
        changed = self.changes.reply(reply, api)
        return json_response(changed.status, changed.body, dict(changed.headers))

    async def wait(self, request: Request, generations: Sequence[Generation], delay: float) -> None:
        """Wait as long as the tokens take, or until the client leaves."""
        with self.load.working():
            left = _come(generations) * delay
            while left > 0 and not await request.is_disconnected():
                await asyncio.sleep(min(left, _POLLING_SECONDS))
                left -= _POLLING_SECONDS


async def body_of(request: Request) -> JsonObject:
    """The JSON object that was sent.

    Raises:
        ApiError: it is none, or too large.
    """
    return _json_object(await _bytes_of(request))


async def _bytes_of(request: Request) -> bytes:
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
    except InvalidJsonError as problem:
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


def json_response(status: int, body: Json, headers: dict[str, str] | None = None) -> Response:
    """An answer in one piece."""
    content = dumps(body).encode("utf-8", "replace")
    return Response(content, status_code=status, headers=headers, media_type="application/json")


def stream_response(
    pieces: Iterator[str], generations: Sequence[Generation], delay: float, load: Load, media_type: str = EVENT_STREAM
) -> Response:
    """A stream, each piece sent when the tokens that it shows have come; `delay` is the seconds that each takes."""
    paced = load.streamed(lambda: _paced(pieces, generations, delay))
    return StreamingResponse(paced, media_type=media_type, headers=_UNCACHED)


def server_sent(data: Iterator[Json]) -> Iterator[str]:
    """Server-sent events without a name: JSON values, or texts such as `[DONE]`, which are sent as they are."""
    return (f"data: {value if isinstance(value, str) else dumps(value)}\n\n" for value in data)


async def _paced(pieces: Iterator[str], generations: Sequence[Generation], delay: float) -> AsyncIterator[bytes]:
    passed = _come(generations)
    for piece in pieces:
        come = _come(generations)
        await asyncio.sleep((come - passed) * delay)
        passed = come
        yield piece.encode("utf-8", "replace")


def _come(generations: Sequence[Generation]) -> int:
    return sum(len(generation.emitted) for generation in generations)
