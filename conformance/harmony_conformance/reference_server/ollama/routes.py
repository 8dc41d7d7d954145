"""HTTP routes of Ollama's API: chat, generate, and information about the server and the model."""

from hashlib import sha256
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.reference_server.defects.stages import ApiFamily
from harmony_conformance.reference_server.ollama.accept_request import chat_answer, generate_answer
from harmony_conformance.reference_server.ollama.answer import OllamaAnswer, in_message, in_response, instant
from harmony_conformance.reference_server.ollama.request import read_delivery
from harmony_conformance.reference_server.pipeline.http import (
    ServerState,
    json_response,
    read_json_body,
    stream_response,
)
from harmony_conformance.reference_server.requests.errors import ApiError, Reply
from harmony_conformance.reference_server.requests.fields import MODEL

VERSION = "0.33.0"
"""Ollama version of this API."""

_NDJSON = "application/x-ndjson"
_MODIFIED = "2025-06-28T00:00:00Z"
_CONTEXT = 131_072
_DETAILS: JsonObject = {
    "parent_model": "",
    "format": "gguf",
    "family": "gptoss",
    "families": ["gptoss"],
    "parameter_size": "20.9B",
    "quantization_level": "MXFP4",
}
_LISTED: JsonObject = {
    "name": f"{MODEL}:latest",
    "model": f"{MODEL}:latest",
    "size": 0,
    "digest": sha256(MODEL.encode()).hexdigest(),
    "details": _DETAILS,
}


def error_body(problem: ApiError) -> JsonObject:
    """Return an error in Ollama's form."""
    return {"error": problem.message}


class Ollama:
    """Endpoints of Ollama's API."""

    def __init__(self, host: ServerState) -> None:
        self._host = host

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/", self.banner, methods=["GET"]),
            Route("/api/chat", self.chat, methods=["POST"]),
            Route("/api/generate", self.generate, methods=["POST"]),
            Route("/api/tags", self.tags, methods=["GET"]),
            Route("/api/ps", self.loaded, methods=["GET"]),
            Route("/api/show", self.show, methods=["POST"]),
            Route("/api/version", self.version, methods=["GET"]),
        ]

    async def banner(self, _request: Request) -> Response:
        """GET /."""
        return PlainTextResponse("Ollama is running")

    async def version(self, _request: Request) -> Response:
        """GET /api/version."""
        return json_response(HTTPStatus.OK, {"version": VERSION})

    async def tags(self, _request: Request) -> Response:
        """GET /api/tags."""
        return json_response(HTTPStatus.OK, {"models": [{**_LISTED, "modified_at": _MODIFIED}]})

    async def loaded(self, _request: Request) -> Response:
        """GET /api/ps."""
        running: JsonObject = {"expires_at": _MODIFIED, "size_vram": 0, "context_length": _CONTEXT}
        return json_response(HTTPStatus.OK, {"models": [{**_LISTED, **running}]})

    async def show(self, request: Request) -> Response:
        """POST /api/show."""
        body = await read_json_body(request)
        read_delivery({"model": body.get("model", body.get("name"))})
        description: JsonObject = {
            "modelfile": f"FROM {MODEL}\n",
            "parameters": "temperature 1",
            "template": "",
            "details": _DETAILS,
            "model_info": {"general.architecture": "gptoss", "gptoss.context_length": _CONTEXT},
            "capabilities": ["completion", "tools", "thinking"],
            "modified_at": _MODIFIED,
        }
        return json_response(HTTPStatus.OK, description)

    async def chat(self, request: Request) -> Response:
        """POST /api/chat."""
        body = await self._body(request)
        answer = chat_answer(body, self._host)
        return self._loading(body, in_message({})) if answer is None else await self._answered(request, answer)

    async def generate(self, request: Request) -> Response:
        """POST /api/generate."""
        body = await self._body(request)
        answer = generate_answer(body, self._host)
        return self._loading(body, in_response({})) if answer is None else await self._answered(request, answer)

    async def _body(self, request: Request) -> JsonObject:
        return self._host.changes.request(await read_json_body(request), api=ApiFamily.OLLAMA)

    def _loading(self, body: JsonObject, output: JsonObject) -> Response:
        """Answer a request without a prompt, which loads or unloads the model."""
        delivery = read_delivery(body)
        ending: JsonObject = {"done": True, "done_reason": "unload" if delivery.unloads else "load"}
        created = instant(self._host.now())
        return json_response(HTTPStatus.OK, {"model": delivery.model, "created_at": created, **output, **ending})

    async def _answered(self, request: Request, answer: OllamaAnswer) -> Response:
        if answer.delivery.renders_only:
            return json_response(HTTPStatus.OK, answer.rendered_prompt_response())
        generations = [answer.run.generation]
        if answer.delivery.is_streamed:
            lines = (f"{line if isinstance(line, str) else dumps(line)}\n" for line in answer.stream())
            return stream_response(lines, generations, answer.token_delay, self._host.load, _NDJSON)
        body = answer.complete_response()
        await self._host.wait(request, generations, answer.token_delay)
        return self._host.reply(Reply(status=HTTPStatus.OK, body=body), ApiFamily.OLLAMA)
