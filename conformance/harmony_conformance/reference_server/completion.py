"""One completion: what a request became, ready to be answered in one piece or as a stream."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from harmony_conformance.json_value import Json, JsonObject, canonical
from harmony_conformance.reference_server.answer import (
    DONE,
    Assembler,
    Delta,
    Field,
    Offer,
    call_id,
    message,
    until_first_call,
)
from harmony_conformance.reference_server.changes import Changes
from harmony_conformance.reference_server.chat_request import MODEL, ChatRequest, Choice, read_request
from harmony_conformance.reference_server.conversation import conversation
from harmony_conformance.reference_server.errors import ApiError, wrong_value
from harmony_conformance.reference_server.generation import Generation, Sampling, script_of
from harmony_conformance.reference_server.reading import Event, read
from harmony_ref import HarmonyError, render_conversation_for_completion

_DELIVERY = frozenset({"stream", "stream_options", "return_token_ids", "harmony_token_delay"})
"""What a request says of the way its answer is sent: the calls in the answer have the same ids whatever it is."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A request that was accepted, its prompt, and the generation that answers it.

    Attributes:
        seed: what the ids of its calls are made of.
        changes: the defects that are switched on.
    """

    id: str
    created: int
    seed: str
    request: ChatRequest
    prompt: tuple[int, ...]
    generation: Generation
    offer: Offer
    changes: Changes

    def whole(self) -> JsonObject:
        """The answer in one piece.

        Raises:
            ApiError: a defect made it one.
        """
        assembler = Assembler(self.offer)
        built = message(assembler.deltas(self._events()), seed=self.seed)
        choice: JsonObject = {"index": 0, "message": built, "logprobs": None, "finish_reason": self._finish(assembler)}
        body: JsonObject = {**self._envelope("chat.completion"), "choices": [choice], "usage": self._usage(assembler)}
        if self.request.shows_token_ids:
            choice["token_ids"] = [*self.generation.emitted]
            body["prompt_token_ids"] = [*self.prompt]
        return self.changes.json(body)

    def stream(self) -> Iterator[Json]:
        """The data of each event: chunks, and `[DONE]`."""
        return self.changes.stream(self._changed_events())

    def _changed_events(self) -> Iterator[Json]:
        try:
            for chunk in self._chunks():
                yield self.changes.json(chunk)
        except ApiError as error:
            yield error.body
        yield DONE

    def _events(self) -> Iterator[Event]:
        events = read(self.generation)
        return self.changes.events(events if self.request.calls_in_parallel else until_first_call(events, self.offer))

    def _chunks(self) -> Iterator[JsonObject]:
        assembler = Assembler(self.offer)
        first = self._chunk({"role": "assistant", "content": ""})
        yield {**first, "prompt_token_ids": [*self.prompt]} if self.request.shows_token_ids else first
        shown = 0
        for delta in assembler.deltas(self._events()):
            chunk = self._chunk(self._delta(delta), shown)
            shown = len(self.generation.emitted)
            yield chunk
        yield self._chunk({}, shown, finish=self._finish(assembler))
        if self.request.usage_in_stream:
            yield {**self._envelope("chat.completion.chunk"), "choices": [], "usage": self._usage(assembler)}

    def _chunk(self, delta: JsonObject, shown: int | None = None, *, finish: str | None = None) -> JsonObject:
        choice: JsonObject = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        if shown is not None and self.request.shows_token_ids:
            choice["token_ids"] = [*self.generation.emitted[shown:]]
        return {**self._envelope("chat.completion.chunk"), "choices": [choice]}

    def _delta(self, delta: Delta) -> JsonObject:
        match delta.field:
            case Field.NAME:
                function: JsonObject = {"name": delta.text, "arguments": ""}
                opened: JsonObject = {"index": delta.call, "id": call_id(self.seed, delta.call), "type": "function"}
                return {"tool_calls": [{**opened, "function": function}]}
            case Field.ARGUMENTS:
                return {"tool_calls": [{"index": delta.call, "function": {"arguments": delta.text}}]}
            case field:
                return {field.value: delta.text}

    def _finish(self, assembler: Assembler) -> str:
        if self.generation.cut:
            return "length"
        return "tool_calls" if assembler.calls else "stop"

    def _usage(self, assembler: Assembler) -> JsonObject:
        generated = len(self.generation.emitted)
        return {
            "prompt_tokens": len(self.prompt),
            "completion_tokens": generated,
            "total_tokens": len(self.prompt) + generated,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": assembler.reasoning_tokens},
        }

    def _envelope(self, kind: str) -> JsonObject:
        return {"id": self.id, "object": kind, "created": self.created, "model": MODEL}


def accept(body: JsonObject, *, serial: int, created: int, date: str, changes: Changes) -> Completion:
    """What becomes of a request's body.

    Args:
        body: the JSON that was sent.
        serial: tells the server's requests apart.
        created: seconds since the epoch.
        date: the model is told that this is today.
        changes: the defects that are switched on.

    Raises:
        ApiError: the request is refused.
    """
    request = read_request(body)
    messages = changes.conversation(conversation(request, date=date))
    try:
        prompt = tuple(render_conversation_for_completion(messages, auto_drop_analysis=False))
    except HarmonyError as problem:
        raise wrong_value("tools", f"Harmony cannot carry it: {problem}") from None
    asked = {name: value for name, value in body.items() if name not in _DELIVERY}
    seed = sha256(canonical(asked).encode("utf-8", "replace")).hexdigest()
    offer = Offer(
        names=frozenset(tool.name for tool in request.tools),
        takes_calls=bool(request.tools) and request.choice is not Choice.NONE,
    )
    return Completion(
        id="chatcmpl-" + sha256(f"{seed}/{serial}".encode()).hexdigest()[:32],
        created=created,
        seed=seed,
        request=request,
        prompt=changes.prompt(prompt),
        generation=Generation(script_of(request, changes.words), changes.sampling(Sampling(limit=request.limit))),
        offer=changes.offer(offer),
        changes=changes,
    )
