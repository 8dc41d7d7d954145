"""Chat completion: run a request and format the answer, complete or as a stream."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject, members
from harmony_conformance.reference_server.chat.candidate import ChoiceGeneration, logprobs
from harmony_conformance.reference_server.defects.stages import Changes
from harmony_conformance.reference_server.model.generation import STOP_TOKENS, Generation, Sampling, output_tokens
from harmony_conformance.reference_server.model.output_deltas import DONE, ClientCapabilities, OutputDelta, message
from harmony_conformance.reference_server.pipeline.prompt_run import PromptRun, derive_id, render_prompt, request_hash
from harmony_conformance.reference_server.requests.chat_request import ChatRequest, read_request
from harmony_conformance.reference_server.requests.conversation import conversation
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_conformance.reference_server.requests.fields import MODEL, refuse_large_answer


@dataclass(frozen=True, kw_only=True)
class Completion:
    """An accepted request and its choices."""

    id: str
    created: int
    request: ChatRequest
    prompt: tuple[int, ...]
    choices: tuple[ChoiceGeneration, ...]
    changes: Changes

    @property
    def generations(self) -> tuple[Generation, ...]:
        """Generations of the choices."""
        return tuple(one.generation for one in self.choices)

    def complete_response(self) -> JsonObject:
        """Return the complete response body; raise an ApiError if a defect causes an error."""
        choices: list[Json] = [self._choice(one) for one in self.choices]
        body: JsonObject = {**self._envelope("chat.completion"), "choices": choices, "usage": self._usage()}
        if self.request.shows_token_ids:
            body["prompt_token_ids"] = [*self.prompt]
        return self.changes.json(body)

    def _choice(self, one: ChoiceGeneration) -> JsonObject:
        deltas = [*one.deltas()]
        entries = [entry for delta in deltas for entry in logprobs(delta, self.request.top_logprobs)]
        choice: JsonObject = {
            "index": one.index,
            "message": message(deltas, seed=one.id_seed),
            "logprobs": {"content": entries} if self.request.logprobs else None,
            "finish_reason": one.finish_reason,
        }
        return {**choice, "token_ids": [*one.generation.emitted_tokens]} if self.request.shows_token_ids else choice

    def stream(self) -> Iterator[Json]:
        """Yield the data of each event: chunks, then `[DONE]`."""
        return self.changes.stream(self._changed_events())

    def _changed_events(self) -> Iterator[Json]:
        try:
            for chunk in self._chunks():
                yield self.changes.json(chunk)
        except ApiError as error:
            yield error.body
        yield DONE

    def _chunks(self) -> Iterator[JsonObject]:
        """Yield the chunks of all choices in turn, then the usage."""
        unfinished = deque(self._chunks_of(one) for one in self.choices)
        while unfinished:
            chunks = unfinished.popleft()
            chunk = next(chunks, None)
            if chunk is not None:
                yield chunk
                unfinished.append(chunks)
        if self.request.usage_in_stream:
            yield {**self._envelope("chat.completion.chunk"), "choices": [], "usage": self._usage()}

    def _chunks_of(self, one: ChoiceGeneration) -> Iterator[JsonObject]:
        first = self._chunk(one, {"role": "assistant", "content": ""})
        shows_prompt = self.request.shows_token_ids and one.index == 0
        yield {**first, "prompt_token_ids": [*self.prompt]} if shows_prompt else first
        sent = 0
        for deltas in self._batches(one):
            top = self.request.top_logprobs
            entries = [entry for delta in deltas for entry in logprobs(delta, top)] if self.request.logprobs else []
            chunk = self._chunk(one, _joined([one.part(delta) for delta in deltas]), sent, entries)
            sent = len(one.generation.emitted_tokens)
            yield chunk
        yield self._chunk(one, {}, sent, finish=one.finish_reason)

    def _batches(self, one: ChoiceGeneration) -> Iterator[Sequence[OutputDelta]]:
        """Yield the deltas of each event: one, unless the request sets several tokens per event."""
        batch: list[OutputDelta] = []
        sent = 0
        for delta in one.deltas():
            batch.append(delta)
            count = len(one.generation.emitted_tokens)
            if self.request.event_tokens == 1 or count - sent >= self.request.event_tokens:
                yield batch
                batch, sent = [], count
        if batch:
            yield batch

    def _chunk(
        self,
        one: ChoiceGeneration,
        delta: JsonObject,
        sent: int | None = None,
        entries: Sequence[Json] = (),
        *,
        finish: str | None = None,
    ) -> JsonObject:
        likely: Json = {"content": [*entries]} if entries else None
        choice: JsonObject = {"index": one.index, "delta": delta, "logprobs": likely, "finish_reason": finish}
        if sent is not None and self.request.shows_token_ids:
            choice["token_ids"] = [*one.generation.emitted_tokens[sent:]]
        return {**self._envelope("chat.completion.chunk"), "choices": [choice]}

    def _usage(self) -> JsonObject:
        generated = sum(len(generation.emitted_tokens) for generation in self.generations)
        return {
            "prompt_tokens": len(self.prompt),
            "completion_tokens": generated,
            "total_tokens": len(self.prompt) + generated,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": sum(one.reasoning_tokens for one in self.choices)},
        }

    def _envelope(self, kind: str) -> JsonObject:
        return {"id": self.id, "object": kind, "created": self.created, "model": MODEL}


def _joined(deltas: Sequence[JsonObject]) -> JsonObject:
    """Merge deltas: join the texts of each field and the arguments of each call."""
    texts: dict[str, list[str]] = {}
    calls: dict[int, JsonObject] = {}
    for delta in deltas:
        for name, value in delta.items():
            if isinstance(value, str):
                texts.setdefault(name, []).append(value)
            for call in map(members, value if isinstance(value, list) else []):
                _add(calls, call)
    joined: JsonObject = {name: "".join(pieces) for name, pieces in texts.items()}
    return {**joined, "tool_calls": [*calls.values()]} if calls else joined


def _add(calls: dict[int, JsonObject], call: JsonObject) -> None:
    index = call["index"]
    if not isinstance(index, int):
        return
    joined = calls.setdefault(index, {**call, "function": {}})
    function, more = members(joined["function"]), members(call["function"])
    arguments = f"{function.get('arguments', '')}{more.get('arguments', '')}"
    joined["function"] = {**function, **more, "arguments": arguments}


def accept_request(body: JsonObject, *, serial: int, created: int, date: str, changes: Changes) -> Completion:
    """Validate a request body and prepare its completion; raise an ApiError if it is invalid.

    `serial` is the number of the request, `created` is in seconds since the epoch, `date` is part of the prompt.
    """
    request = read_request(body)
    offer = ClientCapabilities(
        declared_functions=frozenset(tool.name for tool in request.tools),
        accepts_calls=bool(request.declared_tools),
        allowed_functions=request.allowed_functions,
    )
    stopping = STOP_TOKENS if request.ends_at_stop else frozenset[int]()
    sampling = changes.sampling(Sampling(limit=request.limit, stop_tokens=stopping, stop_strings=request.stop_strings))
    output = output_tokens(request, changes.unscripted_output, serial)
    refuse_large_answer(len(output), request.limit, choices=request.choice_count, alternatives=request.top_logprobs)
    run = PromptRun(
        id_seed=request_hash(body),
        prompt=render_prompt(conversation(request, date=date), changes),
        generation=Generation(output, sampling),
        client_capabilities=changes.client_capabilities(offer),
        calls_in_parallel=request.calls_in_parallel,
        changes=changes,
    )
    return Completion(
        id=derive_id("chatcmpl-", run.id_seed, serial),
        created=created,
        request=request,
        prompt=run.prompt,
        choices=tuple(ChoiceGeneration(index, run.fresh_copy()) for index in range(request.choice_count)),
        changes=changes,
    )
