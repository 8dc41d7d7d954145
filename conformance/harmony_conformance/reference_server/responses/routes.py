"""HTTP routes of the Responses API: create, retrieve, list input items, delete."""

from collections.abc import Iterator
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harmony_conformance.json_value import Json, JsonObject, dumps, members, text
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
    ServerState,
    json_response,
    read_json_body,
    stream_response,
)
from harmony_conformance.reference_server.pipeline.prompt_run import PromptRun, derive_id, render_prompt, request_hash
from harmony_conformance.reference_server.requests.errors import Reply
from harmony_conformance.reference_server.requests.fields import refuse_large_answer
from harmony_conformance.reference_server.responses.answer import FAILED, ResponsesAnswer
from harmony_conformance.reference_server.responses.conversation import conversation
from harmony_conformance.reference_server.responses.input_items import to_item_list
from harmony_conformance.reference_server.responses.request import ResponsesRequest, read_request
from harmony_conformance.reference_server.responses.store import Store, StoredResponse, input_items


class Responses:
    """Endpoints of the Responses API and the stored responses."""

    def __init__(self, host: ServerState) -> None:
        self._host = host
        self._store = Store()

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v1/responses", self.create, methods=["POST"]),
            Route("/v1/responses/{id}", self.retrieve, methods=["GET"]),
            Route("/v1/responses/{id}", self.delete, methods=["DELETE"]),
            Route("/v1/responses/{id}/input_items", self.input_items, methods=["GET"]),
        ]

    async def create(self, request: Request) -> Response:
        """POST /v1/responses."""
        answer = self._accept(self._host.changes.request(await read_json_body(request), api=ApiFamily.RESPONSES))
        generations, delay = [answer.run.generation], answer.request.token_delay
        if answer.request.is_streamed:
            events = self._host.changes.stream(self._stored_events(answer), ApiFamily.RESPONSES)
            return stream_response(_named_events(events), generations, delay, self._host.load)
        body = answer.complete_response()
        self._store_response(answer.request, body)
        await self._host.wait(request, generations, delay)
        return self._host.reply(Reply(status=HTTPStatus.OK, body=body), ApiFamily.RESPONSES)

    async def retrieve(self, request: Request) -> Response:
        """GET /v1/responses/{id}."""
        return json_response(HTTPStatus.OK, self._store.get(request.path_params["id"]).response)

    async def delete(self, request: Request) -> Response:
        """DELETE /v1/responses/{id}."""
        response = request.path_params["id"]
        self._store.remove(response)
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

    def _accept(self, body: JsonObject) -> ResponsesAnswer:
        previous = self._store.previous_items(body.get("previous_response_id"))
        request = read_request(body, (*previous, *self._store.resolve_references(to_item_list(body.get("input")))))
        changes = self._host.changes
        offer = ClientCapabilities(
            declared_functions=frozenset(tool.name for tool in request.tools),
            accepts_calls=bool(request.declared_tools),
            allowed_functions=request.allowed_functions,
        )
        stopping = STOP_TOKENS if request.ends_at_stop else frozenset[int]()
        output = output_tokens(request, keep_output)
        refuse_large_answer(len(output), request.limit, alternatives=request.top_logprobs or 0)
        run = PromptRun(
            id_seed=request_hash(body),
            prompt=render_prompt(conversation(request, date=self._host.date), changes),
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

    def _store_response(self, request: ResponsesRequest, response: JsonObject) -> None:
        if request.is_stored:
            self._store.add(StoredResponse(response=response, entries=request.entries))


def _named_events(events: Iterator[Json]) -> Iterator[str]:
    """Format server-sent events with the `type` of their data as name; send strings unchanged."""
    for event in events:
        name = text(members(event).get("type"))
        data = event if isinstance(event, str) else dumps(event)
        yield f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n"
