"""HTTP routes of the Responses API: create, retrieve or resume, cancel, list input items, delete; and conversations."""

from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.websockets import WebSocket

from harmony_conformance.json_value import Json, JsonObject, integer, items, members
from harmony_conformance.reference_server.defects.stages import ApiFamily
from harmony_conformance.reference_server.model.generation import (
    STOP_TOKENS,
    Generation,
    Sampling,
    keep_output,
    output_tokens,
)
from harmony_conformance.reference_server.model.output_deltas import ClientCapabilities
from harmony_conformance.reference_server.pipeline.http import (
    EVENT_STREAM,
    ServerState,
    format_named_events,
    json_response,
    read_json_body,
    stream_response,
)
from harmony_conformance.reference_server.pipeline.prompt_run import PromptRun, derive_id, request_hash
from harmony_conformance.reference_server.requests.errors import Reply, wrong_value
from harmony_conformance.reference_server.requests.fields import refuse_large_answer
from harmony_conformance.reference_server.responses.answer import FAILED, ResponsesAnswer
from harmony_conformance.reference_server.responses.background import BackgroundRun, refuse_synchronous
from harmony_conformance.reference_server.responses.context_window import prompt_in_context
from harmony_conformance.reference_server.responses.conversation_store import Conversations
from harmony_conformance.reference_server.responses.input_items import to_item_list
from harmony_conformance.reference_server.responses.request import ResponsesRequest, conversation_id, read_request
from harmony_conformance.reference_server.responses.store import Store, StoredResponse, input_items
from harmony_conformance.reference_server.responses.websocket import Connection


class Responses:
    """Endpoints of the Responses API and the stored responses."""

    def __init__(self, host: ServerState) -> None:
        self._host = host
        self._store = Store()
        self._conversations = Conversations(host.now)
        self._background: dict[str, BackgroundRun] = {}

    def routes(self) -> list[BaseRoute]:
        """Return the routes."""
        return [
            Route("/v1/responses", self.create, methods=["POST"]),
            WebSocketRoute("/v1/responses", self.connect),
            Route("/v1/responses/{id}", self.retrieve, methods=["GET"]),
            Route("/v1/responses/{id}", self.delete, methods=["DELETE"]),
            Route("/v1/responses/{id}/cancel", self.cancel, methods=["POST"]),
            *self._conversations.routes(),
            Route("/v1/responses/{id}/input_items", self.input_items, methods=["GET"]),
        ]

    async def create(self, request: Request) -> Response:
        """POST /v1/responses."""
        answer = self._accept(self._host.changes.request(await read_json_body(request), api=ApiFamily.RESPONSES))
        generations, delay = [answer.run.generation], answer.request.token_delay
        if answer.request.is_background:
            return self._in_background(answer)
        if answer.request.is_streamed:
            events = self._host.changes.stream(self._stored_events(answer), ApiFamily.RESPONSES)
            return stream_response(format_named_events(events), generations, delay, self._host.load)
        body = answer.complete_response()
        self._store_response(answer.request, body)
        await self._host.wait(request, generations, delay)
        return self._host.reply(Reply(status=HTTPStatus.OK, body=body), ApiFamily.RESPONSES)

    async def connect(self, socket: WebSocket) -> None:
        """Answer over the WebSocket /v1/responses."""
        await Connection(socket, self._host, self._accept, self._stored_events).serve()

    async def retrieve(self, request: Request) -> Response:
        """GET /v1/responses/{id}, with `stream` the events after `starting_after`."""
        name, query = request.path_params["id"], request.query_params
        stored, run = self._store.get(name), self._background.get(name)
        if query.get("stream", "false") != "true":
            body = stored.response if run is None else run.response
            return self._host.reply(Reply(status=HTTPStatus.OK, body=body), ApiFamily.RESPONSES)
        after = query.get("starting_after", "-1")
        if not after.removeprefix("-").isdecimal():
            raise wrong_value("starting_after", f"expected a whole number, got {after!r}.")
        changed = self._host.changes.request({"starting_after": max(int(after), -1)}, api=ApiFamily.RESPONSES)
        first = integer(changed.get("starting_after"))
        return _background_stream(refuse_synchronous(run, "stream"), -1 if first is None else first)

    async def cancel(self, request: Request) -> Response:
        """POST /v1/responses/{id}/cancel; a response that is over remains as it is."""
        name = request.path_params["id"]
        self._store.get(name)
        run = refuse_synchronous(self._background.get(name), "cancel")
        if "cancel" in self._host.changes.request({"cancel": name}, api=ApiFamily.RESPONSES):
            await run.cancel()
        return json_response(HTTPStatus.OK, run.response)

    async def delete(self, request: Request) -> Response:
        """DELETE /v1/responses/{id}."""
        response = request.path_params["id"]
        self._store.remove(response)
        if (run := self._background.pop(response, None)) is not None:
            await run.cancel()
        return json_response(HTTPStatus.OK, {"id": response, "object": "response", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        """GET /v1/responses/{id}/input_items."""
        entries = input_items(self._store.get(request.path_params["id"]))
        ends: JsonObject = {
            "first_id": members(entries[0]).get("id"),
            "last_id": members(entries[-1]).get("id"),
            "has_more": False,
        }
        return json_response(HTTPStatus.OK, {"object": "list", "data": entries, **ends})

    def _accept(self, body: JsonObject, last: StoredResponse | None = None) -> ResponsesAnswer:
        previous = self._store.previous_items(body.get("previous_response_id"), last)
        previous = self._host.changes.stored_items((*previous, *self._conversations.entries(conversation_id(body))))
        request = read_request(body, previous, self._store.resolve_references(to_item_list(body.get("input"))))
        changes = self._host.changes
        offer = ClientCapabilities(
            declared_functions=frozenset(tool.qualified_name for tool in request.tools),
            accepts_calls=bool(request.declared_tools),
            allowed_functions=request.allowed_functions,
        )
        stopping = STOP_TOKENS if request.ends_at_stop else frozenset[int]()
        output = output_tokens(request, keep_output)
        refuse_large_answer(len(output), request.limit, alternatives=request.top_logprobs or 0)
        run = PromptRun(
            id_seed=request_hash(body),
            prompt=prompt_in_context(request, changes, date=self._host.date),
            generation=Generation(
                output,
                changes.sampling(Sampling(stop_tokens=stopping, limit=request.limit)),
            ),
            client_capabilities=changes.client_capabilities(offer),
            calls_in_parallel=request.calls_in_parallel,
            changes=changes,
        )
        identity = derive_id("resp_", run.id_seed, next(self._host.serials))
        return ResponsesAnswer(id=identity, created=int(self._host.now()), request=request, run=run)

    def _stored_events(self, answer: ResponsesAnswer) -> Iterator[Json]:
        """Yield the events; store the response before its last event."""
        for event in answer.stream():
            response = members(event.get("response"))
            if response.get("usage") is not None and response.get("status") != FAILED:
                self._store_response(answer.request, response)
            yield event

    def _in_background(self, answer: ResponsesAnswer) -> Response:
        run = BackgroundRun(answer, self._host.changes, self._host.load)
        self._store.add(StoredResponse(response=run.response, entries=answer.request.entries))
        self._background[answer.id] = run
        for name in [name for name in self._background if not self._store.has(name)]:
            del self._background[name]

        def store_end(response: JsonObject) -> None:
            if self._store.has(answer.id):
                self._store_response(answer.request, response)

        run.start(store_end)
        return _background_stream(run, -1) if answer.request.is_streamed else json_response(HTTPStatus.OK, run.response)

    def _store_response(self, request: ResponsesRequest, response: JsonObject) -> None:
        if request.is_stored:
            self._store.add(StoredResponse(response=response, entries=request.entries))
        if request.conversation is not None:
            self._conversations.extend(request.conversation, (*request.new_entries, *items(response.get("output"))))


def _background_stream(run: BackgroundRun, after: int) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        async for event in run.events(after):
            for piece in format_named_events(iter([event])):
                yield piece.encode("utf-8", "replace")

    return StreamingResponse(pieces(), media_type=EVENT_STREAM, headers={"cache-control": "no-cache"})
