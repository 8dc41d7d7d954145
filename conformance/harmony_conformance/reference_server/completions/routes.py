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
from harmony_conformance.reference_server.model.plain_text import PlainTextReader, continuation
from harmony_conformance.reference_server.pipeline.http import Host, body_of, server_sent, stream_response
from harmony_conformance.reference_server.pipeline.prompt_run import id_of, seed_of
from harmony_conformance.reference_server.requests.errors import Reply


class Completions:
    """Endpoint of the Completions API."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def routes(self) -> list[Route]:
        """Return the routes."""
        return [Route("/v1/completions", self.create, methods=["POST"])]

    async def create(self, request: Request) -> Response:
        """POST /v1/completions."""
        answer = self._accept(self._host.changes.request(await body_of(request), api=ApiFamily.COMPLETIONS))
        generations, delay = [choice.generation for choice in answer.choices], answer.request.token_delay
        if answer.request.streamed:
            return stream_response(server_sent(answer.stream()), generations, delay, self._host.load)
        body = answer.whole()
        await self._host.wait(request, generations, delay)
        return self._host.reply(Reply(status=HTTPStatus.OK, body=body), ApiFamily.COMPLETIONS)

    def _accept(self, body: JsonObject) -> CompletionsAnswer:
        request = read_request(body)
        return CompletionsAnswer(
            id=id_of("cmpl-", seed_of(body), next(self._host.serials)),
            created=int(self._host.now()),
            request=request,
            choices=tuple(self._choice(request, prompt) for prompt in request.prompts),
            changes=self._host.changes,
        )

    def _choice(self, request: CompletionsRequest, prompt: Prompt) -> PromptContinuation:
        ids = self._host.changes.prompt(prompt.ids)
        script = request.script if request.script is not None else continuation(ids)
        sampling = self._host.changes.sampling(Sampling(limit=request.limit))
        generation = Generation(script if request.limit else (), sampling)
        return PromptContinuation(
            prompt=Prompt(ids=ids, text=prompt.text),
            generation=generation,
            text=PlainTextReader(generation, request.spelling, sampling.stopping),
            limit=request.limit,
        )
