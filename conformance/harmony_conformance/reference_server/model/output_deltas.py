"""Convert parser events to the deltas that a client receives: reasoning, content, calls.

The complete answer and the stream are built from the same deltas.
"""

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.model.output_header import OutputHeader
from harmony_conformance.reference_server.model.output_parser import (
    MessageEnd,
    MessageStart,
    OutputEvent,
    SkippedHeader,
    TextBytes,
)
from harmony_ref import tokens

DONE = "[DONE]"
"""Data of the last event of a stream."""

_NO_CALL = frozenset({"", "all", "assistant", "user", "system", "developer", "tool"})
_BUILT_IN = ("python", "browser", "container")


class OutputField(StrEnum):
    """Field of the answer that a delta extends."""

    REASONING = "reasoning"
    CONTENT = "content"
    NAME = "name"
    ARGUMENTS = "arguments"


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputDelta:
    """A piece of the answer; `call` is the index of the call, `ids` are the tokens that this piece completes."""

    field: OutputField
    text: str
    call: int = 0
    ids: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClientCapabilities:
    """The calls that a client accepts; `declared_functions` are the functions that it declared."""

    declared_functions: frozenset[str]
    accepts_calls: bool
    allowed_functions: frozenset[str] | None = None  # None: any function may be called

    def accepts(self, function: str) -> bool:
        """Return True if a call of the function goes to the client."""
        return self.accepts_calls and (self.allowed_functions is None or function in self.allowed_functions)


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Field that receives the text of a message, and the function name of a call."""

    field: OutputField
    function: str = ""


def destination(header: OutputHeader, offer: ClientCapabilities) -> Destination:
    """Return the destination of the text under a header.

    A recipient without a namespace is a function name. A message to a built-in tool that was not offered is no call;
    its text goes to the field of its channel. Text under another role than assistant counts as reasoning.
    """
    if header.role != "assistant":
        return Destination(field=OutputField.REASONING)
    function = _function_name(header.recipient or "", offer)
    if function and offer.accepts(function):
        return Destination(field=OutputField.ARGUMENTS, function=function)
    if header.channel == "analysis" and not function:
        return Destination(field=OutputField.REASONING)
    return Destination(field=OutputField.CONTENT)


def _function_name(recipient: str, offer: ClientCapabilities) -> str:
    if recipient.startswith("functions."):
        return recipient.removeprefix("functions.")
    if recipient in offer.declared_functions:
        return recipient
    if recipient in _NO_CALL or recipient.partition(".")[0] in _BUILT_IN:
        return ""
    return recipient


def until_first_call(events: Iterable[OutputEvent], offer: ClientCapabilities) -> Iterator[OutputEvent]:
    """Yield the events up to the end of the first call, where generation stops without parallel calls."""
    calling = False
    for event in events:
        if isinstance(event, MessageStart):
            calling = destination(event.header, offer).field is OutputField.ARGUMENTS
        yield event
        if calling and isinstance(event, MessageEnd):
            return


class DeltaBuilder:
    """Converts events to deltas; counts the calls and the tokens of reasoning text."""

    def __init__(self, offer: ClientCapabilities) -> None:
        self._offer = offer
        self._open: Destination | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._written = {OutputField.REASONING: False, OutputField.CONTENT: False}
        self._separator = ""
        self._ids: list[int] = []
        self.call_count = 0
        self.reasoning_tokens = 0

    def deltas(self, events: Iterable[OutputEvent]) -> Iterator[OutputDelta]:
        """Yield the deltas of all events in order; only the name of a call can be empty."""
        for event in events:
            match event:
                case MessageStart():
                    yield from self._begin(event.header)
                case TextBytes():
                    self.reasoning_tokens += tokens_in(event) if self._field is OutputField.REASONING else 0
                    self._ids += event.ids if event.data else ()
                    yield from self._write(self._decoder.decode(event.data))
                case MessageEnd():
                    yield from self._write("" if event.hit_token_limit else self._decoder.decode(b"", final=True))
                    self._decoder.reset()
                    self._open, self._ids = None, []
                case SkippedHeader():
                    pass

    @property
    def _field(self) -> OutputField | None:
        return self._open.field if self._open else None

    def _begin(self, header: OutputHeader) -> Iterator[OutputDelta]:
        target = self._open = destination(header, self._offer)
        self._separator = "\n" if self._written.get(target.field) else ""
        if target.field is OutputField.ARGUMENTS:
            yield OutputDelta(field=OutputField.NAME, text=target.function, call=self.call_count)
            self.call_count += 1

    def _write(self, text: str) -> Iterator[OutputDelta]:
        if not text or self._open is None:
            return
        field, ids = self._open.field, tuple(self._ids)
        self._ids = []
        if field is OutputField.ARGUMENTS:
            yield OutputDelta(field=field, text=text, call=self.call_count - 1)
            return
        self._written[field] = True
        yield OutputDelta(field=field, text=self._separator + text, ids=ids)
        self._separator = ""


def tokens_in(event: TextBytes) -> int:
    """Return the number of tokens of a text; text taken from a header has no ids and is encoded to count it."""
    return len(event.ids) or len(tokens.encode(event.data.decode("utf-8", "replace")))


def call_id(seed: str, call: int) -> str:
    """Return the id of a call; equal requests get equal ids."""
    return "call_" + sha256(f"{seed}/{call}".encode()).hexdigest()[:24]


def message(deltas: Iterable[OutputDelta], *, seed: str) -> JsonObject:
    """Return the assistant message that the deltas form."""
    texts: dict[OutputField, list[str]] = {OutputField.REASONING: [], OutputField.CONTENT: []}
    names: list[str] = []
    arguments: list[list[str]] = []
    for delta in deltas:
        match delta.field:
            case OutputField.NAME:
                names.append(delta.text)
                arguments.append([])
            case OutputField.ARGUMENTS:
                arguments[delta.call].append(delta.text)
            case field:
                texts[field].append(delta.text)
    built: JsonObject = {
        "role": "assistant",
        "content": "".join(texts[OutputField.CONTENT]) if texts[OutputField.CONTENT] else None,
        "reasoning": "".join(texts[OutputField.REASONING]) if texts[OutputField.REASONING] else None,
    }
    calls: list[Json] = [
        {"id": call_id(seed, index), "type": "function", "function": {"name": name, "arguments": "".join(pieces)}}
        for index, (name, pieces) in enumerate(zip(names, arguments, strict=True))
    ]
    return {**built, "tool_calls": calls} if calls else built
