"""HTTP routes of TGI: generation, tokens, the Messages API, and information about the server."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harmony_conformance.json_value import JsonObject
from harmony_conformance.reference_server.defects.stages import ApiFamily
from harmony_conformance.reference_server.model.generation import Generation
from harmony_conformance.reference_server.model.plain_text import encode_raw_prompt
from harmony_conformance.reference_server.pipeline.http import (
    ServerState,
    format_events,
    json_response,
    read_json_body,
    stream_response,
)
from harmony_conformance.reference_server.pipeline.prompt_run import render_prompt
from harmony_conformance.reference_server.requests.conversation import conversation
from harmony_conformance.reference_server.requests.errors import ApiError, Reply
from harmony_conformance.reference_server.requests.fields import MODEL, read_boolean
from harmony_conformance.reference_server.tgi.chat import TOOL_ERROR, VERSION, accept_request, read_chat
from harmony_conformance.reference_server.tgi.generate import prepare_generation
from harmony_conformance.reference_server.tgi.request import MOST_STOPS, invalid, read_request
from harmony_conformance.reference_server.tgi.tokenize import token_offsets
from harmony_ref import decode

PREFIX = "/tgi"
"""Path prefix of the complete TGI; its Messages API differs from Chat Completions."""

_ERROR_TYPES = {HTTPStatus.INTERNAL_SERVER_ERROR: "incomplete_generation"}
_INFO: JsonObject = {
    "model_id": MODEL,
    "model_sha": None,
    "model_pipeline_tag": "text-generation",
    "max_concurrent_requests": 128,
    "max_best_of": 1,
    "max_stop_sequences": MOST_STOPS,
    "max_input_tokens": 131_071,
    "max_total_tokens": 131_072,
    "validation_workers": 2,
    "max_client_batch_size": 4,
    "router": "text-generation-router",
    "version": VERSION,
    "sha": None,
    "docker_label": None,
}


def error_body(problem: ApiError) -> JsonObject:
    """Return an error in TGI's form."""
    other = TOOL_ERROR if problem.code == TOOL_ERROR else "validation"
    return {"error": problem.message, "error_type": _ERROR_TYPES.get(problem.status, other)}


class Tgi:
    """Endpoints of TGI."""

    def __init__(self, host: ServerState) -> None:
        self._host = host

    def routes(self) -> list[Route]:
        """Return the routes: all under `PREFIX`, and at the root those whose path no other API uses."""
        shared = [
            ("/generate", self.generate, "POST"),
            ("/generate_stream", self.generate_stream, "POST"),
            ("/tokenize", self.tokenize, "POST"),
            ("/chat_tokenize", self.chat_tokenize, "POST"),
            ("/info", self.info, "GET"),
        ]
        prefixed = [
            ("/health", self.health, "GET"),
            ("/ping", self.health, "GET"),
            ("/v1/chat/completions", self.chat, "POST"),
            ("/v1/models", self.models, "GET"),
        ]
        roots = [Route(path, self.compatible, methods=["POST"]) for path in ("/", PREFIX, f"{PREFIX}/")]
        health = [Route(path, self.health, methods=["GET"]) for path in (PREFIX, f"{PREFIX}/")]
        return [
            *roots,
            *health,
            *(Route(path, endpoint, methods=[method]) for path, endpoint, method in shared),
            *(Route(PREFIX + path, endpoint, methods=[method]) for path, endpoint, method in (*shared, *prefixed)),
        ]

    async def generate(self, request: Request) -> Response:
        """POST /generate."""
        return await self._whole(request, await self._body(request))

    async def generate_stream(self, request: Request) -> Response:
        """POST /generate_stream."""
        return self._stream(await self._body(request))

    async def compatible(self, request: Request) -> Response:
        """POST /: as /generate_stream if `stream` is true, else as /generate, with the answer in a list."""
        body = await self._body(request)
        if read_boolean(body, "stream"):
            return self._stream(body)
        return await self._whole(request, body, in_list=True)

    async def chat(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        chat = accept_request(await self._body(request), self._host)
        generation, delay = chat.run.generation, chat.request.token_delay
        if chat.request.is_streamed:
            return stream_response(format_events(chat.stream()), [generation], delay, self._host.load)
        body = chat.complete_response()
        await self._host.wait(request, [generation], delay)
        return self._reply(body, _headers(chat.run.prompt, generation, delay))

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize."""
        inputs = (await read_json_body(request)).get("inputs")
        if not isinstance(inputs, str):
            raise invalid("`inputs`: expected a string")
        return json_response(HTTPStatus.OK, token_offsets(encode_raw_prompt(inputs)))

    async def chat_tokenize(self, request: Request) -> Response:
        """POST /chat_tokenize."""
        chat = read_chat(await self._body(request))
        prompt = render_prompt(conversation(chat, date=self._host.date), self._host.changes)
        body: JsonObject = {"tokenize_response": token_offsets(prompt), "templated_text": decode(prompt)}
        return json_response(HTTPStatus.OK, self._host.changes.json(body, ApiFamily.TGI))

    async def info(self, _request: Request) -> Response:
        """GET /info."""
        return json_response(HTTPStatus.OK, _INFO)

    async def health(self, _request: Request) -> Response:
        """GET /health."""
        return Response(status_code=HTTPStatus.OK)

    async def models(self, _request: Request) -> Response:
        """GET /v1/models."""
        model: JsonObject = {"id": MODEL, "object": "model", "created": 0, "owned_by": MODEL}
        return json_response(HTTPStatus.OK, {"object": "list", "data": [model]})

    async def _body(self, request: Request) -> JsonObject:
        return self._host.changes.request(await read_json_body(request), api=ApiFamily.TGI)

    async def _whole(self, request: Request, body: JsonObject, *, in_list: bool = False) -> Response:
        answer = prepare_generation(read_request(body, streamed=False), self._host.changes)
        answer_body, delay = answer.complete_response(), answer.request.token_delay
        await self._host.wait(request, [answer.generation], delay)
        headers = _headers(answer.prompt, answer.generation, delay)
        return json_response(HTTPStatus.OK, [answer_body], headers) if in_list else self._reply(answer_body, headers)

    def _stream(self, body: JsonObject) -> Response:
        answer = prepare_generation(read_request(body, streamed=True), self._host.changes)
        delay = answer.request.token_delay
        return stream_response(format_events(answer.stream()), [answer.generation], delay, self._host.load)

    def _reply(self, body: JsonObject, headers: dict[str, str]) -> Response:
        return self._host.reply(Reply(status=HTTPStatus.OK, body=body, headers=headers), ApiFamily.TGI)


def _headers(prompt: tuple[int, ...], generation: Generation, delay: float) -> dict[str, str]:
    """Return TGI's headers of token counts and times, in milliseconds except `x-compute-time`, in seconds."""
    count = len(generation.emitted_tokens)
    inference = str(int(count * delay * 1000))
    return {
        "x-compute-type": "cpu+reference",
        "x-compute-time": f"{count * delay:g}",
        "x-compute-characters": str(len(decode(prompt))),
        "x-total-time": inference,
        "x-validation-time": "0",
        "x-queue-time": "0",
        "x-inference-time": inference,
        "x-time-per-token": str(int(delay * 1000)),
        "x-prompt-tokens": str(len(prompt)),
        "x-generated-tokens": str(count),
    }
