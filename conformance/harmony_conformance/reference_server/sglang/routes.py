"""HTTP routes of SGLang's native API: generation, parsers, tokenizer. Its Chat Completions are those of OpenAI."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harmony_conformance.json_value import JsonObject, items, text, value_at
from harmony_conformance.reference_server.defects.stages import ApiFamily
from harmony_conformance.reference_server.model.plain_text import encode_raw_prompt
from harmony_conformance.reference_server.pipeline.http import (
    ServerState,
    format_events,
    read_json_body,
    stream_response,
)
from harmony_conformance.reference_server.pipeline.prompt_run import derive_id, render_prompt, request_hash
from harmony_conformance.reference_server.requests.chat_request import read_request as read_chat
from harmony_conformance.reference_server.requests.conversation import conversation
from harmony_conformance.reference_server.requests.errors import ApiError, Reply, wrong_value
from harmony_conformance.reference_server.requests.fields import MODEL
from harmony_conformance.reference_server.sglang.generate import prepare_generation
from harmony_conformance.reference_server.sglang.parser_endpoints import parse_calls, split_reasoning
from harmony_conformance.reference_server.sglang.request import GENERATE, read_request

PREFIX = "/sglang"
"""Path prefix of SGLang; /generate at the root is TGI's."""
PATHS = ("/separate_reasoning", "/parse_function_call", "/v1/tokenize")
"""Paths that no other API uses."""
_PARSER = "gpt-oss"
_LONGEST = 131_072


def error_body(problem: ApiError) -> JsonObject:
    """Return an error in SGLang's form: flat, except for /generate."""
    if problem.code == GENERATE:
        return {"error": {"message": problem.message}}
    kind = "InternalServerError" if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR else "BadRequestError"
    error: JsonObject = {"message": problem.message, "type": kind, "param": problem.param, "code": int(problem.status)}
    return {"object": "error", **error}


class SGLang:
    """Endpoints of SGLang."""

    def __init__(self, host: ServerState) -> None:
        self._host = host

    def routes(self) -> list[Route]:
        """Return the routes: all under `PREFIX`, and those of `PATHS` at the root too."""
        shared = [*zip(PATHS, (self.separate_reasoning, self.parse_function_call, self.tokenize), strict=True)]
        prefixed = [(PREFIX + path, endpoint) for path, endpoint in (*shared, ("/generate", self.generate))]
        return [Route(path, endpoint, methods=["POST"]) for path, endpoint in (*shared, *prefixed)]

    async def generate(self, request: Request) -> Response:
        """POST /generate."""
        body = await self._body(request)
        options = read_request(body)
        answer = prepare_generation(
            options, derive_id("", request_hash(body), next(self._host.serials)), self._host.changes
        )
        if options.is_streamed:
            events = format_events(answer.stream())
            return stream_response(events, [answer.generation], options.token_delay, self._host.load)
        answer_body = answer.complete_response()
        await self._host.wait(request, [answer.generation], options.token_delay)
        return self._reply(answer_body)

    async def separate_reasoning(self, request: Request) -> Response:
        """POST /separate_reasoning."""
        completion = _text_for(await self._body(request), "reasoning_parser")
        return self._reply(self._host.changes.json(split_reasoning(completion), ApiFamily.SGLANG))

    async def parse_function_call(self, request: Request) -> Response:
        """POST /parse_function_call."""
        body = await self._body(request)
        completion = _text_for(body, "tool_call_parser")
        names = {text(value_at(tool, "function", "name")) for tool in items(body.get("tools"))}
        return self._reply(self._host.changes.json(parse_calls(completion, names - {""}), ApiFamily.SGLANG))

    async def tokenize(self, request: Request) -> Response:
        """POST /v1/tokenize: tokens of a raw prompt or of a chat."""
        body = await self._body(request)
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            ids = tuple(encode_raw_prompt(prompt))
        elif body.get("messages") is not None:
            chat = read_chat({**body, "model": MODEL})
            ids = render_prompt(conversation(chat, date=self._host.date), self._host.changes)
        else:
            raise wrong_value("prompt", "expected a string, or messages.")
        answer: JsonObject = {"tokens": [*ids], "count": len(ids), "max_model_len": _LONGEST}
        return self._reply(self._host.changes.json(answer, ApiFamily.SGLANG))

    async def _body(self, request: Request) -> JsonObject:
        return self._host.changes.request(await read_json_body(request), api=ApiFamily.SGLANG)

    def _reply(self, body: JsonObject) -> Response:
        return self._host.reply(Reply(status=HTTPStatus.OK, body=body), ApiFamily.SGLANG)


def _text_for(body: JsonObject, parser: str) -> str:
    """Return the text to parse; raise an ApiError without a text, or for another parser."""
    if body.get(parser) != _PARSER:
        raise wrong_value(parser, f"expected {_PARSER}.")
    completion = body.get("text")
    if not isinstance(completion, str):
        raise wrong_value("text", "expected a string.")
    return completion
