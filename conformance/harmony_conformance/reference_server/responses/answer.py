"""Format the answer to a Responses request: the stream of events, whose last one has the complete response."""

import codecs
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.chat.candidate import logprobs
from harmony_conformance.reference_server.defects.stages import ApiFamily
from harmony_conformance.reference_server.model.output_deltas import (
    OutputDelta,
    OutputField,
    call_id,
    destination,
    tokens_in,
)
from harmony_conformance.reference_server.model.output_header import OutputHeader
from harmony_conformance.reference_server.model.output_parser import (
    MessageEnd,
    MessageStart,
    OutputEvent,
    SkippedHeader,
    TextBytes,
)
from harmony_conformance.reference_server.pipeline.prompt_run import PromptRun, derive_id
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_conformance.reference_server.requests.fields import MODEL, Tool
from harmony_conformance.reference_server.responses.builtin_tools import NAMESPACES, PYTHON, namespace_of
from harmony_conformance.reference_server.responses.client_tools import CUSTOM
from harmony_conformance.reference_server.responses.output_items import (
    COMPLETED,
    IN_PROGRESS,
    INCOMPLETE,
    ActionCallOutput,
    BrowsingOutput,
    CustomCallOutput,
    FunctionCallOutput,
    ItemPosition,
    MessageOutput,
    OutputItem,
    PythonOutput,
    ReasoningOutput,
    ToolCallOutput,
)
from harmony_conformance.reference_server.responses.request import ReasoningMember, ResponsesRequest

FAILED: Final = "failed"
QUEUED: Final = "queued"
CANCELLED: Final = "cancelled"

_CALL_OUTPUTS: Mapping[str, tuple[type[ToolCallOutput], str]] = {
    "function": (FunctionCallOutput, "fc_"),
    CUSTOM: (CustomCallOutput, "ctc_"),
}
"""The items of calls by the type of their tool, each with the beginning of its id."""


@dataclass(kw_only=True)
class ResponsesAnswer:
    """An accepted request and its generation; either `complete_response` or `stream` can be called, once."""

    id: str
    created: int
    request: ResponsesRequest
    run: PromptRun
    output: list[JsonObject] = field(default_factory=list[JsonObject])  # completed items
    _calls: int = 0
    _built_in_calls: int = 0
    _ids: list[int] = field(default_factory=list[int])
    _reasoning_tokens: int = 0
    _open: "OutputItem | None" = None
    _is_reasoning: bool = False
    _is_announced: bool = False

    @property
    def token_count(self) -> int:
        """Number of tokens generated so far."""
        return len(self.run.generation.emitted_tokens)

    def queued(self) -> JsonObject:
        """Return the response before its generation, which runs in the background."""
        return self.run.changes.json(self._response(QUEUED), ApiFamily.RESPONSES)

    def cancelled(self) -> JsonObject:
        """Return the response with the items that were completed before it was cancelled."""
        response: JsonObject = {**self._response(CANCELLED), "output": [*self.output], "usage": self._usage()}
        return self.run.changes.json(response, ApiFamily.RESPONSES)

    def warmed_up(self) -> Iterator[JsonObject]:
        """Yield the events of a request that generates nothing."""
        for number, event in enumerate(
            (
                self._response_event("created", self._response(IN_PROGRESS)),
                self._response_event("completed", self._last()),
            )
        ):
            yield {"type": event["type"], "sequence_number": number, **event}

    def complete_response(self) -> JsonObject:
        """Return the complete response; raise an ApiError if a defect causes an error."""
        for _ in self._items():
            pass
        return self.run.changes.json(self._last(), ApiFamily.RESPONSES)

    def stream(self) -> Iterator[JsonObject]:
        """Yield the numbered events; the last one has the complete response or the error."""
        sent = 0
        for number, event in enumerate(self._events()):
            ids: list[Json] = [*self.run.generation.emitted_tokens[sent:]]
            sent = len(self.run.generation.emitted_tokens)
            numbered: JsonObject = {"type": event["type"], "sequence_number": number, **event}
            yield {**numbered, "token_ids": ids} if ids and self.request.shows_token_ids else numbered

    def _events(self) -> Iterator[JsonObject]:
        yield self._response_event("created", self._response(IN_PROGRESS))
        yield self._response_event("in_progress", self._response(IN_PROGRESS))
        try:
            yield from self._items()
            last = self._last()
            yield self._response_event("incomplete" if last["status"] == INCOMPLETE else "completed", last)
        except ApiError as problem:
            error: JsonObject = {"code": problem.code or "server_error", "message": problem.message}
            yield self._response_event(FAILED, {**self._response(FAILED), "error": error})

    def _response_event(self, kind: str, response: JsonObject) -> JsonObject:
        return {"type": f"response.{kind}", "response": self.run.changes.json(response, ApiFamily.RESPONSES)}

    def _items(self) -> Iterator[JsonObject]:
        """Yield the events of all items."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        for event in self.run.events():
            match event:
                case MessageStart():
                    decoder.reset()
                    self._ids.clear()
                    yield from self._begin(event)
                case TextBytes():
                    self._ids += event.ids if event.data else ()
                    yield from self._write(decoder.decode(event.data))
                    self._reasoning_tokens += tokens_in(event) if self._is_reasoning else 0
                case MessageEnd():
                    yield from self._write("" if event.hit_token_limit else decoder.decode(b"", final=True))
                    yield from self._end(event)
                case SkippedHeader():
                    pass

    def _begin(self, event: MessageStart) -> Iterator[JsonObject]:
        self._open = self._item(event.header)
        self._is_reasoning = isinstance(self._open, ReasoningOutput)
        self._is_announced = self._open is not None and not self._is_reasoning
        if self._open is not None and self._is_announced:
            yield from self._open.begin()

    def _write(self, text: str) -> Iterator[JsonObject]:
        """Yield the events of a text; a reasoning item begins with its first text and is omitted without any."""
        if not text or self._open is None:
            return
        if not self._is_announced:
            self._is_announced = True
            yield from self._open.begin()
        if isinstance(self._open, MessageOutput) and self.request.top_logprobs is not None:
            delta = OutputDelta(field=OutputField.CONTENT, text=text, ids=tuple(self._ids))
            self._open.set_logprobs(logprobs(delta, self.request.top_logprobs))
        self._ids.clear()
        yield from self._open.write(text)

    def _end(self, event: OutputEvent) -> Iterator[JsonObject]:
        status = INCOMPLETE if isinstance(event, MessageEnd) and event.hit_token_limit else COMPLETED
        if self._open is not None and self._is_announced:
            self.output.append(self._open.value(status))
            yield from self._open.end(status)
        self._open = None
        self._is_reasoning = False

    def _item(self, header: OutputHeader) -> "OutputItem | None":
        """Return the item of a message. None for a call that `max_tool_calls` forbids, which is ignored."""
        recipient = header.recipient or ""
        built_in = self.request.built_in if self.request.can_call_tools else ()
        if header.role == "assistant" and namespace_of(recipient) in {NAMESPACES[tool].name for tool in built_in}:
            self._built_in_calls += 1
            if self._built_in_calls > (self.request.most_built_in_calls or self._built_in_calls):
                return None
            if recipient == PYTHON:
                return PythonOutput(self._position("ci_"))
            return BrowsingOutput(self._position("ws_"), recipient=recipient)
        target = destination(header, self.run.client_capabilities)
        if target.field is OutputField.ARGUMENTS:
            self._calls += 1
            return self._call(target.function, call_id(self.run.id_seed, self._calls - 1))
        if target.field is OutputField.REASONING:
            in_summary = self.request.reasoning_member is ReasoningMember.SUMMARY
            return ReasoningOutput(
                self._position("rs_"), in_summary=in_summary, is_sealed=self.request.encrypts_reasoning
            )
        phase = "commentary" if header.channel == "commentary" else "final_answer"
        return MessageOutput(self._position("msg_"), phase=phase)

    def _call(self, name: str, call: str) -> OutputItem:
        """Return the item of a call; a tool that was not offered is a function."""
        unknown = Tool(name=name, description="", parameters=None)
        tool = next((tool for tool in self.request.tools if tool.qualified_name == name), unknown)
        output, prefix = _CALL_OUTPUTS.get(tool.kind, (ActionCallOutput, f"{tool.kind}_"))
        return output(self._position(prefix), tool=tool, call_id=call)

    def _position(self, prefix: str) -> ItemPosition:
        index = len(self.output)
        return ItemPosition(id=derive_id(prefix, self.id, index), index=index)

    def _last(self) -> JsonObject:
        """Return the response after the last token."""
        response = self._response(INCOMPLETE if self.run.generation.hit_token_limit else COMPLETED)
        ids: JsonObject = {"token_ids": [*self.run.generation.emitted_tokens]} if self.request.shows_token_ids else {}
        return {**response, "output": [*self.output], "usage": self._usage(), **ids}

    def _response(self, status: str) -> JsonObject:
        details: JsonObject | None = {"reason": "max_output_tokens"} if status == INCOMPLETE else None
        ids: JsonObject = {"prompt_token_ids": [*self.run.prompt]} if self.request.shows_token_ids else {}
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": self.request.is_background,
            "error": None,
            "incomplete_details": details,
            "model": MODEL,
            "output": [],
            **self.request.echoed_members,
            "usage": None,
            **ids,
        }

    def _usage(self) -> JsonObject:
        generated = len(self.run.generation.emitted_tokens)
        return {
            "input_tokens": len(self.run.prompt),
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": generated,
            "output_tokens_details": {"reasoning_tokens": self._reasoning_tokens},
            "total_tokens": len(self.run.prompt) + generated,
        }
