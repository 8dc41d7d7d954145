"""One completion: what a request became, ready to be answered in one piece or as a stream."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject, members
from harmony_conformance.reference_server.answer import DONE, Assembler, Delta, Field, Offer, call_id, message
from harmony_conformance.reference_server.changes import Changes
from harmony_conformance.reference_server.chat_request import ChatRequest, read_request
from harmony_conformance.reference_server.conversation import conversation
from harmony_conformance.reference_server.errors import ApiError
from harmony_conformance.reference_server.fields import MODEL, Choice
from harmony_conformance.reference_server.generation import STOPPING, Generation, Sampling, script_of
from harmony_conformance.reference_server.run import Run, id_of, prompt_of, seed_of


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A request that was accepted, and the generation that answers it."""

    id: str
    created: int
    request: ChatRequest
    run: Run

    def whole(self) -> JsonObject:
        """The answer in one piece.

        Raises:
            ApiError: a defect made it one.
        """
        assembler = Assembler(self.run.offer)
        built = message(assembler.deltas(self.run.events()), seed=self.run.seed)
        choice: JsonObject = {"index": 0, "message": built, "logprobs": None, "finish_reason": self._finish(assembler)}
        body: JsonObject = {**self._envelope("chat.completion"), "choices": [choice], "usage": self._usage(assembler)}
        if self.request.shows_token_ids:
            choice["token_ids"] = [*self.run.generation.emitted]
            body["prompt_token_ids"] = [*self.run.prompt]
        return self.run.changes.json(body)

    def stream(self) -> Iterator[Json]:
        """The data of each event: chunks, and `[DONE]`."""
        return self.run.changes.stream(self._changed_events())

    def _changed_events(self) -> Iterator[Json]:
        try:
            for chunk in self._chunks():
                yield self.run.changes.json(chunk)
        except ApiError as error:
            yield error.body
        yield DONE

    def _chunks(self) -> Iterator[JsonObject]:
        assembler = Assembler(self.run.offer)
        first = self._chunk({"role": "assistant", "content": ""})
        yield {**first, "prompt_token_ids": [*self.run.prompt]} if self.request.shows_token_ids else first
        shown = 0
        for deltas in self._batches(assembler.deltas(self.run.events())):
            chunk = self._chunk(_joined([self._delta(delta) for delta in deltas]), shown)
            shown = len(self.run.generation.emitted)
            yield chunk
        yield self._chunk({}, shown, finish=self._finish(assembler))
        if self.request.usage_in_stream:
            yield {**self._envelope("chat.completion.chunk"), "choices": [], "usage": self._usage(assembler)}

    def _batches(self, deltas: Iterable[Delta]) -> Iterator[Sequence[Delta]]:
        """The deltas that go in one event: one, unless the request asks for several tokens an event."""
        held: list[Delta] = []
        since = 0
        for delta in deltas:
            held.append(delta)
            come = len(self.run.generation.emitted)
            if self.request.event_tokens == 1 or come - since >= self.request.event_tokens:
                yield held
                held, since = [], come
        if held:
            yield held

    def _chunk(self, delta: JsonObject, shown: int | None = None, *, finish: str | None = None) -> JsonObject:
        choice: JsonObject = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        if shown is not None and self.request.shows_token_ids:
            choice["token_ids"] = [*self.run.generation.emitted[shown:]]
        return {**self._envelope("chat.completion.chunk"), "choices": [choice]}

    def _delta(self, delta: Delta) -> JsonObject:
        match delta.field:
            case Field.NAME:
                function: JsonObject = {"name": delta.text, "arguments": ""}
                opened: JsonObject = {"index": delta.call, "id": call_id(self.run.seed, delta.call), "type": "function"}
                return {"tool_calls": [{**opened, "function": function}]}
            case Field.ARGUMENTS:
                return {"tool_calls": [{"index": delta.call, "function": {"arguments": delta.text}}]}
            case field:
                return {field.value: delta.text}

    def _finish(self, assembler: Assembler) -> str:
        if self.run.generation.cut:
            return "length"
        return "tool_calls" if assembler.calls else "stop"

    def _usage(self, assembler: Assembler) -> JsonObject:
        generated = len(self.run.generation.emitted)
        return {
            "prompt_tokens": len(self.run.prompt),
            "completion_tokens": generated,
            "total_tokens": len(self.run.prompt) + generated,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": assembler.reasoning_tokens},
        }

    def _envelope(self, kind: str) -> JsonObject:
        return {"id": self.id, "object": kind, "created": self.created, "model": MODEL}


def _joined(deltas: Sequence[JsonObject]) -> JsonObject:
    """Deltas as one: texts of a field follow each other, and so do the arguments of a call."""
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
    place = call["index"]
    if not isinstance(place, int):
        return
    opened = calls.setdefault(place, {**call, "function": {}})
    told, more = members(opened["function"]), members(call["function"])
    written = f"{told.get('arguments', '')}{more.get('arguments', '')}"
    opened["function"] = {**told, **more, "arguments": written}


def accept(body: JsonObject, *, serial: int, created: int, date: str, changes: Changes) -> Completion:
    """What becomes of a request's body.

    Args:
        body: the JSON as the server reads it.
        serial: tells the server's requests apart.
        created: seconds since the epoch.
        date: the model is told that this is today.
        changes: the defects that are switched on.

    Raises:
        ApiError: the request is refused.
    """
    request = read_request(body)
    offer = Offer(
        names=frozenset(tool.name for tool in request.tools),
        takes_calls=bool(request.tools) and request.choice is not Choice.NONE,
    )
    run = Run(
        seed=seed_of(body),
        prompt=prompt_of(conversation(request, date=date), changes),
        generation=Generation(script_of(request, changes.words), changes.sampling(_sampling(request))),
        offer=changes.offer(offer),
        calls_in_parallel=request.calls_in_parallel,
        changes=changes,
    )
    return Completion(id=id_of("chatcmpl-", run.seed, serial), created=created, request=request, run=run)


def _sampling(request: ChatRequest) -> Sampling:
    return Sampling(limit=request.limit, stopping=STOPPING if request.ends_at_stop else frozenset())
