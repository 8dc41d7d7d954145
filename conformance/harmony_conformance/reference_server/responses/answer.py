"""The answer to a Responses request: the stream of events, whose last one holds the answer in one piece."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field

from harmony_conformance.json_value import JsonObject
from harmony_conformance.reference_server.chat.candidate import logprobs
from harmony_conformance.reference_server.defects.stages import ApiFamily
from harmony_conformance.reference_server.model.output_events import (
    OutputDelta,
    OutputField,
    call_id,
    destination,
    tokens_in,
)
from harmony_conformance.reference_server.model.output_header import OutputHeader
from harmony_conformance.reference_server.model.output_parser import Closed, Event, Opened, Skipped, Text
from harmony_conformance.reference_server.pipeline.prompt_run import PromptRun, id_of
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_conformance.reference_server.requests.fields import MODEL
from harmony_conformance.reference_server.responses.builtin_tools import NAMESPACES, PYTHON, namespace_of
from harmony_conformance.reference_server.responses.output_items import (
    COMPLETED,
    IN_PROGRESS,
    INCOMPLETE,
    BrowsingOutput,
    FunctionCallOutput,
    ItemPosition,
    MessageOutput,
    OutputItem,
    PythonOutput,
    ReasoningOutput,
)
from harmony_conformance.reference_server.responses.request import ResponsesRequest, Thoughts

FAILED = "failed"


@dataclass(kw_only=True)
class ResponsesAnswer:
    """A request that was accepted, and the generation that answers it; to be told once.

    Attributes:
        output: the items that are finished.
    """

    id: str
    created: int
    request: ResponsesRequest
    run: PromptRun
    output: list[JsonObject] = field(default_factory=list[JsonObject])
    _calls: int = 0
    _ids: list[int] = field(default_factory=list[int])
    _reasoning_tokens: int = 0
    _open: "OutputItem | None" = None
    _is_thought: bool = False
    _is_told: bool = False

    def whole(self) -> JsonObject:
        """The answer in one piece.

        Raises:
            ApiError: a defect made it one.
        """
        for _ in self._items():
            pass
        return self.run.changes.json(self._last(), ApiFamily.RESPONSES)

    def stream(self) -> Iterator[JsonObject]:
        """The events, numbered; the last one has the whole answer, or says why there is none."""
        shown = 0
        for number, event in enumerate(self._events()):
            come = [*self.run.generation.emitted[shown:]]
            shown = len(self.run.generation.emitted)
            told: JsonObject = {"type": event["type"], "sequence_number": number, **event}
            yield {**told, "token_ids": [*come]} if come and self.request.shows_token_ids else told

    def _events(self) -> Iterator[JsonObject]:
        yield self._told("created", self._response(IN_PROGRESS))
        yield self._told("in_progress", self._response(IN_PROGRESS))
        try:
            yield from self._items()
            last = self._last()
            yield self._told("incomplete" if last["status"] == INCOMPLETE else "completed", last)
        except ApiError as problem:
            error: JsonObject = {"code": problem.code or "server_error", "message": problem.message}
            yield self._told(FAILED, {**self._response(FAILED), "error": error})

    def _told(self, kind: str, response: JsonObject) -> JsonObject:
        return {"type": f"response.{kind}", "response": self.run.changes.json(response, ApiFamily.RESPONSES)}

    def _items(self) -> Iterator[JsonObject]:
        """The events of all items."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for event in self.run.events():
            match event:
                case Opened():
                    decoder.reset()
                    self._ids.clear()
                    yield from self._begin(event)
                case Text():
                    self._ids += event.ids if event.data else ()
                    yield from self._write(decoder.decode(event.data))
                    self._reasoning_tokens += tokens_in(event) if self._is_thought else 0
                case Closed():
                    yield from self._write("" if event.cut else decoder.decode(b"", final=True))
                    yield from self._end(event)
                case Skipped():
                    pass

    def _begin(self, event: Opened) -> Iterator[JsonObject]:
        self._open = self._item(event.header)
        self._is_thought = isinstance(self._open, ReasoningOutput)
        self._is_told = not self._is_thought
        if self._is_told:
            yield from self._open.begin()

    def _write(self, text: str) -> Iterator[JsonObject]:
        """A thought is told of with its first text: one without any is no item."""
        if not text or self._open is None:
            return
        if not self._is_told:
            self._is_told = True
            yield from self._open.begin()
        if isinstance(self._open, MessageOutput) and self.request.likely is not None:
            self._open.take(
                logprobs(OutputDelta(field=OutputField.CONTENT, text=text, ids=tuple(self._ids)), self.request.likely)
            )
        self._ids.clear()
        yield from self._open.write(text)

    def _end(self, event: Event) -> Iterator[JsonObject]:
        status = INCOMPLETE if isinstance(event, Closed) and event.cut else COMPLETED
        if self._open is not None and self._is_told:
            self.output.append(self._open.value(status))
            yield from self._open.end(status)
        self._open = None
        self._is_thought = False

    def _item(self, header: OutputHeader) -> OutputItem:
        index = len(self.output)
        recipient = header.recipient or ""
        built_in = self.request.built_in if self.request.calls_allowed else ()
        offered = {NAMESPACES[tool].name for tool in built_in}
        if header.role == "assistant" and namespace_of(recipient) in offered:
            if recipient == PYTHON:
                return PythonOutput(self._place("ci_", index))
            return BrowsingOutput(self._place("ws_", index), recipient=recipient)
        where = destination(header, self.run.offer)
        if where.field is OutputField.ARGUMENTS:
            self._calls += 1
            place, call = self._place("fc_", index), call_id(self.run.seed, self._calls - 1)
            return FunctionCallOutput(place, name=where.function, call_id=call)
        if where.field is OutputField.REASONING:
            in_summary = self.request.thoughts is Thoughts.SUMMARY
            return ReasoningOutput(
                self._place("rs_", index), in_summary=in_summary, is_sealed=self.request.seals_thoughts
            )
        phase = "commentary" if header.channel == "commentary" else "final_answer"
        return MessageOutput(self._place("msg_", index), phase=phase)

    def _place(self, prefix: str, index: int) -> ItemPosition:
        return ItemPosition(id=id_of(prefix, self.id, index), index=index)

    def _last(self) -> JsonObject:
        """The answer when all tokens have come."""
        response = self._response(INCOMPLETE if self.run.generation.cut else COMPLETED)
        ids: JsonObject = {"token_ids": [*self.run.generation.emitted]} if self.request.shows_token_ids else {}
        return {**response, "output": [*self.output], "usage": self._usage(), **ids}

    def _response(self, status: str) -> JsonObject:
        cut: JsonObject | None = {"reason": "max_output_tokens"} if status == INCOMPLETE else None
        ids: JsonObject = {"prompt_token_ids": [*self.run.prompt]} if self.request.shows_token_ids else {}
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": cut,
            "model": MODEL,
            "output": [],
            **self.request.echoed,
            "usage": None,
            **ids,
        }

    def _usage(self) -> JsonObject:
        generated = len(self.run.generation.emitted)
        return {
            "input_tokens": len(self.run.prompt),
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": generated,
            "output_tokens_details": {"reasoning_tokens": self._reasoning_tokens},
            "total_tokens": len(self.run.prompt) + generated,
        }
