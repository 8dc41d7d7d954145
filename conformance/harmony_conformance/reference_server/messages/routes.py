"""HTTP routes of Messages: create a message, and count the tokens of its prompt."""

from dataclasses import replace
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harmony_conformance.json_value import JsonObject
from harmony_conformance.reference_server.chat.candidate import ChoiceGeneration
from harmony_conformance.reference_server.defects.stages import ApiFamily
from harmony_conformance.reference_server.messages.answer import MessagesAnswer, error_body
from harmony_conformance.reference_server.messages.request import MessagesRequest, read_request
from harmony_conformance.reference_server.model.generation import Generation, Sampling, output_tokens
from harmony_conformance.reference_server.model.output_deltas import ClientCapabilities
from harmony_conformance.reference_server.model.plain_text import unscripted_continuation
from harmony_conformance.reference_server.pipeline.http import (
    ServerState,
    format_named_events,
    read_json_body,
    stream_response,
)
from harmony_conformance.reference_server.pipeline.prefill import split_prefill
from harmony_conformance.reference_server.pipeline.prompt_run import PromptRun, derive_id, render_prompt, request_hash
from harmony_conformance.reference_server.requests.conversation import conversation
from harmony_conformance.reference_server.requests.errors import Reply
from harmony_conformance.reference_server.requests.fields import refuse_large_answer

__all__ = ["Messages", "error_body"]


class Messages:
    """Endpoints of Messages."""

    def __init__(self, host: ServerState) -> None:
        self._host = host

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [
            Route("/v1/messages", self.create, methods=["POST"]),
            Route("/v1/messages/count_tokens", self.count_tokens, methods=["POST"]),
        ]

    async def create(self, request: Request) -> Response:
        """POST /v1/messages."""
        sent = await read_json_body(request)
        self._host.check_engine(sent, ApiFamily.MESSAGES)
        body = self._host.changes.overload_request(sent, self._host.load.running)
        answer = self._accept(self._read(body))
        generations, delay = [answer.output.generation], answer.request.chat.token_delay
        if answer.request.chat.is_streamed:
            return stream_response(format_named_events(answer.stream()), generations, delay, self._host.load)
        message = answer.complete_response()
        await self._host.wait(request, generations, delay)
        return self._reply(message)

    async def count_tokens(self, request: Request) -> Response:
        """POST /v1/messages/count_tokens: the number of tokens of the prompt, without an answer."""
        accepted = read_request(self._read(await read_json_body(request)), is_generated=False)
        prompt, _ = self._prompt(accepted)
        return self._reply(self._host.changes.json({"input_tokens": len(prompt)}, ApiFamily.MESSAGES))

    def _read(self, body: JsonObject) -> JsonObject:
        return self._host.changes.request(body, api=ApiFamily.MESSAGES)

    def _reply(self, body: JsonObject) -> Response:
        return self._host.reply(Reply(status=HTTPStatus.OK, body=body), ApiFamily.MESSAGES)

    def _prompt(self, request: MessagesRequest) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the prompt, and the end of it that the answer continues."""
        finished, opening = split_prefill(request.chat.messages)
        chat = replace(request.chat, messages=finished)
        prompt = render_prompt(conversation(chat, date=self._host.date), self._host.changes)
        return (*prompt, *opening), opening

    def _accept(self, body: JsonObject) -> MessagesAnswer:
        request, changes = read_request(body), self._host.changes
        chat = request.chat
        prompt, opening = self._prompt(request)
        offer = ClientCapabilities(
            declared_functions=frozenset(tool.name for tool in chat.tools), accepts_calls=bool(chat.declared_tools)
        )
        is_continued = bool(opening) and chat.script is None
        output = unscripted_continuation(prompt) if is_continued else output_tokens(chat, changes.unscripted_output)
        refuse_large_answer(len(output), chat.limit)
        run = PromptRun(
            id_seed=request_hash(body),
            prompt=prompt,
            answer_prefix=opening,
            generation=Generation(output, changes.sampling(Sampling(limit=chat.limit, stop_strings=chat.stop_strings))),
            client_capabilities=changes.client_capabilities(offer),
            calls_in_parallel=chat.calls_in_parallel,
            changes=changes,
        )
        identity = derive_id("msg_", run.id_seed, next(self._host.serials))
        return MessagesAnswer(
            id=identity, request=request, prompt=prompt, output=ChoiceGeneration(0, run), changes=changes
        )
