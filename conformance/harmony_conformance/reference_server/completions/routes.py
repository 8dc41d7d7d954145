"""HTTP routes of the Completions API."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harmony_conformance.json_value import JsonObject
from harmony_conformance.reference_server.completions.answer import CompletionsAnswer, PromptContinuation
from harmony_conformance.reference_server.completions.request import CompletionsRequest, Prompt, read_request
from harmony_conformance.reference_server.defects.stages import ApiFamily
from harmony_conformance.reference_server.model.generation import Generation, Sampling
from harmony_conformance.reference_server.model.plain_text import PlainTextReader, unscripted_continuation
from harmony_conformance.reference_server.pipeline.http import (
    ServerState,
    format_events,
    read_json_body,
    stream_response,
)
from harmony_conformance.reference_server.pipeline.prompt_run import derive_id, request_hash
from harmony_conformance.reference_server.requests.errors import Reply
from harmony_conformance.reference_server.requests.fields import refuse_large_answer


class Completions:
    """Endpoint of the Completions API."""

    def __init__(self, host: ServerState) -> None:
        self._host = host

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/v1/completions", self.create, methods=["POST"])]

    async def create(self, request: Request) -> Response:
        """POST /v1/completions."""
        answer = self._accept(self._host.changes.request(await read_json_body(request), api=ApiFamily.COMPLETIONS))
        generations, delay = [choice.generation for choice in answer.choices], answer.request.token_delay
        if answer.request.is_streamed:
            return stream_response(format_events(answer.stream()), generations, delay, self._host.load)
        body = answer.complete_response()
        await self._host.wait(request, generations, delay)
        return self._host.reply(Reply(status=HTTPStatus.OK, body=body), ApiFamily.COMPLETIONS)

    def _accept(self, body: JsonObject) -> CompletionsAnswer:
        request = read_request(body)
        refuse_large_answer(len(request.script or ()), request.limit, choices=len(request.prompts))
        return CompletionsAnswer(
            id=derive_id("cmpl-", request_hash(body), next(self._host.serials)),
            created=int(self._host.now()),
            request=request,
            choices=tuple(self._choice(request, prompt) for prompt in request.prompts),
            changes=self._host.changes,
        )

    def _choice(self, request: CompletionsRequest, prompt: Prompt) -> PromptContinuation:
        ids = self._host.changes.prompt(prompt.ids)
        script = request.script if request.script is not None else unscripted_continuation(ids)
        sampling = self._host.changes.sampling(Sampling(limit=request.limit))
        generation = Generation(script if request.limit else (), sampling)
        return PromptContinuation(
            prompt=Prompt(ids=ids, text=prompt.text),
            generation=generation,
            text=PlainTextReader(generation, request.text_options, sampling.stop_tokens),
            limit=request.limit,
        )
