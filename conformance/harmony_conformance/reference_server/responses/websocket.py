"""The Responses API over a WebSocket: one turn after another, each by a message `response.create`.

The last response of a connection can be continued on it, also if it is not stored. An error does not end the connection.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import aclosing

from starlette.websockets import WebSocket, WebSocketDisconnect

from harmony_conformance.json_value import Json, JsonObject, dumps, members, text
from harmony_conformance.reference_server.defects.stages import ApiFamily
from harmony_conformance.reference_server.pipeline.http import LARGEST_BODY, ServerState, paced, parse_json_object
from harmony_conformance.reference_server.requests.errors import ApiError, server_failure, unsupported, wrong_value
from harmony_conformance.reference_server.responses.answer import FAILED, ResponsesAnswer
from harmony_conformance.reference_server.responses.store import StoredResponse

_CREATE = "response.create"
_UNUSED = frozenset({"type", "stream", "background", "generate"})
_INTERNAL_ERROR = 1011

AcceptTurn = Callable[[JsonObject, StoredResponse | None], ResponsesAnswer]
"""A function that accepts a request, with the last response of the connection, which it may continue."""
StreamTurn = Callable[[ResponsesAnswer], Iterator[Json]]
"""A function that yields the events of an accepted request."""


class Connection:
    """One connection. State: its last response, and the events of its last turn."""

    def __init__(self, socket: WebSocket, host: ServerState, accept: AcceptTurn, stream: StreamTurn) -> None:
        self._socket, self._host = socket, host
        self._accept_turn, self._stream_turn = accept, stream
        self._behaviour = host.changes.websocket_behaviour()
        self._last: StoredResponse | None = None
        self._last_events: tuple[Json, ...] = ()
        self._turns: set[asyncio.Task[bool]] = set()

    async def serve(self) -> None:
        """Answer messages until the client leaves."""
        await self._socket.accept()
        try:
            while True:
                received = await self._socket.receive()
                if received["type"] == "websocket.disconnect":
                    return
                message = received.get("text") or received.get("bytes") or b""
                turn = self._turn(message.encode() if isinstance(message, str) else message)
                if not self._behaviour.is_sequential:
                    self._turns.add(asyncio.create_task(turn))
                elif not await turn:
                    await self._socket.close(_INTERNAL_ERROR)
                    return
        except WebSocketDisconnect:
            return
        finally:
            for task in self._turns:
                task.cancel()
            await asyncio.gather(*self._turns, return_exceptions=True)

    async def _turn(self, message: bytes) -> bool:
        """Answer one message; return False if the connection is to be closed."""
        body: JsonObject = {}
        try:
            body = _read_message(message)
            request: JsonObject = {name: value for name, value in body.items() if name not in _UNUSED}
            last = self._last if self._behaviour.remembers else None
            changed = self._host.changes.request({**request, "stream": True}, api=ApiFamily.RESPONSES)
            answer = self._accept_turn(changed, last)
            if body.get("generate") is False and self._behaviour.warms_up:
                await self._send_all(self._keep(answer, answer.warmed_up()))
            else:
                await self._generate(answer)
        except ApiError as problem:
            await self._send_error(problem, body)
            return self._behaviour.survives_errors
        except WebSocketDisconnect:
            raise
        except Exception as error:  # noqa: BLE001 - as over HTTP, where it is an error 500
            await self._send_error(server_failure(f"{type(error).__name__}: {error}"), body)
            return self._behaviour.survives_errors
        return True

    async def _generate(self, answer: ResponsesAnswer) -> None:
        host = self._host
        events = host.changes.stream(self._keep(answer, self._stream_turn(answer)), ApiFamily.RESPONSES)
        sent: list[Json] = []
        messages = self._noted(self._behaviour.events(events, self._last_events), sent)
        delay = answer.request.token_delay or host.load.token_time
        stream = host.load.serve_stream(lambda: paced(messages, [answer.run.generation], delay))
        async with aclosing(stream):
            async for message in stream:
                await self._socket.send_text(message.decode())
        self._last_events = tuple(sent)

    def _keep(self, answer: ResponsesAnswer, events: Iterator[Json]) -> Iterator[Json]:
        """Yield the events; keep the response of the last one for the next turn."""
        for event in events:
            response = members(members(event).get("response"))
            if response.get("usage") is not None and response.get("status") != FAILED:
                self._last = StoredResponse(response=response, entries=answer.request.entries)
            yield event

    def _noted(self, events: Iterator[Json], sent: list[Json]) -> Iterator[str]:
        for event in events:
            sent.append(event)
            yield event if isinstance(event, str) else dumps(event)

    async def _send_all(self, events: Iterator[Json]) -> None:
        for event in events:
            await self._socket.send_text(dumps(event))

    async def _send_error(self, problem: ApiError, body: JsonObject) -> None:
        """Send an error event. A failed continuation of the last response forgets it."""
        if self._last is not None and text(body.get("previous_response_id")) == self._last.response.get("id"):
            self._last = None
        event: JsonObject = {"type": "error", "status": int(problem.status), **problem.body}
        await self._socket.send_text(dumps(self._behaviour.error(event)))


def _read_message(message: bytes) -> JsonObject:
    if len(message) > LARGEST_BODY:
        raise wrong_value("message", f"expected at most {LARGEST_BODY} bytes.")
    body = parse_json_object(message)
    if body.get("type") != _CREATE:
        raise wrong_value("type", f"expected {_CREATE!r}, got {dumps(body.get('type'))}.")
    if body.get("background") is True:
        raise unsupported("background", "a response over a WebSocket is always streamed.")
    if not isinstance(body.get("generate", True), bool):
        raise wrong_value("generate", "expected a boolean.")
    return body
