"""HTTP input and output common to all APIs: JSON bodies, and streams paced by their tokens."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from harmony_conformance.json_value import InvalidJsonError, Json, JsonObject, dumps, loads, members, text
from harmony_conformance.reference_server.defects.stages import ApiFamily, Changes
from harmony_conformance.reference_server.model.generation import Generation
from harmony_conformance.reference_server.pipeline.load import Load
from harmony_conformance.reference_server.requests.errors import ApiError, Reply, server_failure

LARGEST_BODY = 16 * 1024 * 1024
"""Maximum request size in bytes."""

EVENT_STREAM = "text/event-stream"

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_POLLING_SECONDS = 0.05


@dataclass(frozen=True, kw_only=True)
class ServerState:
    """State that all APIs of one server share."""

    changes: Changes
    date: str
    now: Callable[[], float]  # seconds since the epoch
    serials: Iterator[int]  # numbers of the requests
    load: Load

    def check_engine(self, body: JsonObject, api: ApiFamily) -> None:
        """Raise an ApiError (500) if this request crashes the engine, or an earlier event did."""
        self.load.is_down = self.load.is_down or self.changes.is_crash_request(body, api)
        if self.load.is_down:
            raise server_failure("The engine is dead.")

    def reply(self, reply: Reply, api: ApiFamily) -> Response:
        """Return a JSON response after the defects were applied."""
        changed = self.changes.reply(reply, api)
        return json_response(changed.status, changed.body, dict(changed.headers))

    async def wait(self, request: Request, generations: Sequence[Generation], delay: float) -> None:
        """Wait for the generation time of the tokens, or until the client disconnects."""
        with self.load.working():
            remaining = _token_count(generations) * (delay or self.load.token_time)
            while remaining > 0 and not await request.is_disconnected():
                await asyncio.sleep(min(remaining, _POLLING_SECONDS))
                remaining -= _POLLING_SECONDS


async def read_json_body(request: Request) -> JsonObject:
    """Return the JSON object in the request body; raise an ApiError if it is too large or not a JSON object."""
    too_large = ApiError(
        f"The request is larger than {LARGEST_BODY} bytes.",
        status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        code="request_too_large",
    )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > LARGEST_BODY:
        raise too_large
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LARGEST_BODY:
            raise too_large
    return parse_json_object(bytes(body))


def parse_json_object(body: bytes) -> JsonObject:
    """Return the JSON object in a body; raise an ApiError for anything else."""
    try:
        value = loads(body)
    except InvalidJsonError as problem:
        raise ApiError(f"Invalid request body: expected JSON: {problem}", code="invalid_json") from None
    if not isinstance(value, dict):
        raise ApiError("Invalid request body: expected a JSON object.", code="invalid_json")
    if _SURROGATE.search(body):
        try:
            dumps(value).encode()
        except UnicodeEncodeError:
            raise ApiError("Invalid request body: it contains a lone surrogate.", code="invalid_json") from None
    return value


def json_response(status: int, body: Json, headers: dict[str, str] | None = None) -> Response:
    """Return a response with a JSON body."""
    content = dumps(body).encode("utf-8", "replace")
    return Response(content, status_code=status, headers=headers, media_type="application/json")


def stream_response(
    pieces: Iterator[str], generations: Sequence[Generation], delay: float, load: Load, media_type: str = EVENT_STREAM
) -> Response:
    """Return a stream that sends each piece when its tokens are generated; `delay` is the seconds per token."""
    stream = load.serve_stream(lambda: paced(pieces, generations, delay or load.token_time))
    return StreamingResponse(stream, media_type=media_type, headers={"cache-control": "no-cache"})


def format_events(data: Iterator[Json]) -> Iterator[str]:
    """Format server-sent events without a name; a string such as `[DONE]` is sent as it is, other values as JSON."""
    return (f"data: {value if isinstance(value, str) else dumps(value)}\n\n" for value in data)


def format_named_events(events: Iterator[Json]) -> Iterator[str]:
    """Format server-sent events with the `type` of their data as name; send strings unchanged."""
    for event in events:
        name = text(members(event).get("type"))
        data = event if isinstance(event, str) else dumps(event)
        yield f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n"


async def paced(pieces: Iterator[str], generations: Sequence[Generation], delay: float) -> AsyncIterator[bytes]:
    """Yield each piece when its tokens are generated; `delay` is the seconds per token."""
    sent = _token_count(generations)
    for piece in pieces:
        count = _token_count(generations)
        await asyncio.sleep((count - sent) * delay)
        sent = count
        yield piece.encode("utf-8", "replace")


def _token_count(generations: Sequence[Generation]) -> int:
    return sum(len(generation.emitted_tokens) for generation in generations)
