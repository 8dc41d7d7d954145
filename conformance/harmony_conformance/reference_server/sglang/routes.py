"""HTTP of SGLang beside what OpenAI has: generation, parsers, tokens. Its Chat Completions are everybody's."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harmony_conformance.json_value import JsonObject, at, items, text
from harmony_conformance.reference_server.defects.stages import ApiFamily
from harmony_conformance.reference_server.model.plain_text import marked_up
from harmony_conformance.reference_server.pipeline.http import Host, body_of, server_sent, stream_response
from harmony_conformance.reference_server.pipeline.prompt_run import id_of, prompt_of, seed_of
from harmony_conformance.reference_server.requests.chat_request import read_request as read_chat
from harmony_conformance.reference_server.requests.conversation import conversation
from harmony_conformance.reference_server.requests.errors import ApiError, Reply, wrong_value
from harmony_conformance.reference_server.requests.fields import MODEL
from harmony_conformance.reference_server.sglang.generate import generated
from harmony_conformance.reference_server.sglang.parser_endpoints import called, separated
from harmony_conformance.reference_server.sglang.request import GENERATE, read_request

PREFIX = "/sglang"
"""Where /generate is served: at the root it is TGI's."""
PATHS = ("/separate_reasoning", "/parse_function_call", "/v1/tokenize")
"""What nobody else serves."""
_PARSER = "gpt-oss"
_LONGEST = 131_072


def error_body(problem: ApiError) -> JsonObject:
    """An error in SGLang's words: flat, but for those of /generate."""
    if problem.code == GENERATE:
        return {"error": {"message": problem.message}}
    kind = "InternalServerError" if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR else "BadRequestError"
    return {
        "object": "error",
        "message": problem.message,
        "type": kind,
        "param": problem.param,
        "code": int(problem.status),
    }


class SGLang:
    """The endpoints."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def routes(self) -> list[Route]:
        """What has a path of its own at the root, and all of it under `PREFIX`."""
        shared = [*zip(PATHS, (self.separate_reasoning, self.parse_function_call, self.tokenize), strict=True)]
        return [
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in shared),
            *(
                Route(PREFIX + path, endpoint, methods=["POST"])
                for path, endpoint in (*shared, ("/generate", self.generate))
            ),
        ]

    async def generate(self, request: Request) -> Response:
        """POST /generate."""
        body = await self._body(request)
        asked = read_request(body)
        answer = generated(asked, id_of("", seed_of(body), next(self._host.serials)), self._host.changes)
        if asked.streamed:
            events = server_sent(answer.stream())
            return stream_response(events, [answer.generation], asked.token_delay, self._host.load)
        told = answer.whole()
        await self._host.wait(request, [answer.generation], asked.token_delay)
        return self._reply(told)

    async def separate_reasoning(self, request: Request) -> Response:
        """POST /separate_reasoning."""
        body = await self._body(request)
        written = _text_for(body, "reasoning_parser")
        return self._reply(self._host.changes.json(separated(written), ApiFamily.SGLANG))

    async def parse_function_call(self, request: Request) -> Response:
        """POST /parse_function_call."""
        body = await self._body(request)
        written = _text_for(body, "tool_call_parser")
        names = {text(at(tool, "function", "name")) for tool in items(body.get("tools"))}
        return self._reply(self._host.changes.json(called(written, names - {""}), ApiFamily.SGLANG))

    async def tokenize(self, request: Request) -> Response:
        """POST /v1/tokenize: of a prompt as it stands, or of a chat."""
        body = await self._body(request)
        prompt = body.get("prompt")
        if isinstance(prompt, str):
            ids = tuple(marked_up(prompt))
        elif body.get("messages") is not None:
            asked = read_chat({**body, "model": MODEL})
            ids = prompt_of(conversation(asked, date=self._host.date), self._host.changes)
        else:
            raise wrong_value("prompt", "a text or messages are needed.")
        told: JsonObject = {"tokens": [*ids], "count": len(ids), "max_model_len": _LONGEST}
        return self._reply(self._host.changes.json(told, ApiFamily.SGLANG))

    async def _body(self, request: Request) -> JsonObject:
        return self._host.changes.request(await body_of(request), api=ApiFamily.SGLANG)

    def _reply(self, body: JsonObject) -> Response:
        return self._host.reply(Reply(status=HTTPStatus.OK, body=body), ApiFamily.SGLANG)


def _text_for(body: JsonObject, parser: str) -> str:
    """The text that a parser is to read.

    Raises:
        ApiError: there is none, or another parser is asked for.
    """
    if body.get(parser) != _PARSER:
        raise wrong_value(parser, f"this server reads {_PARSER}.")
    written = body.get("text")
    if not isinstance(written, str):
        raise wrong_value("text", "a text is needed.")
    return written
