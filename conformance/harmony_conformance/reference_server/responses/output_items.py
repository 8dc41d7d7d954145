"""Output items and their events at the beginning, for each piece of text, and at the end.

Each Harmony message becomes one item. The methods of an item return its events without `sequence_number`, which the
stream adds.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject, items, members
from harmony_conformance.reference_server.requests.fields import FUNCTIONS, Tool
from harmony_conformance.reference_server.responses.builtin_tools import browsing_action
from harmony_conformance.reference_server.responses.client_tools import call_members
from harmony_conformance.reference_server.responses.custom_input import InputReader
from harmony_conformance.reference_server.responses.encrypted_reasoning import seal

COMPLETED = "completed"
INCOMPLETE = "incomplete"
IN_PROGRESS = "in_progress"


@dataclass(frozen=True, kw_only=True)
class ItemPosition:
    """Id of an item, and its index in the output."""

    id: str
    index: int

    def event(self, kind: str, **rest: Json) -> JsonObject:
        """Return an event about a part of the item."""
        return {"type": f"response.{kind}", "item_id": self.id, "output_index": self.index, **rest}

    def item(self, kind: str, value: JsonObject) -> JsonObject:
        """Return an event with the whole item."""
        return {"type": f"response.output_item.{kind}", "output_index": self.index, "item": value}


class OutputItem(ABC):
    """An item in progress."""

    _completion_events: tuple[str, ...] = ()

    def __init__(self, position: ItemPosition) -> None:
        self._position = position
        self._text = ""

    def begin(self) -> Iterator[JsonObject]:
        """Yield the events of its beginning."""
        yield self._position.item("added", self._initial())
        yield from self._opening()

    def write(self, text: str) -> Iterator[JsonObject]:
        """Yield the events of a piece of its text."""
        self._text += text
        yield from self._delta(text)

    def end(self, status: str) -> Iterator[JsonObject]:
        """Yield the events of its end, with its final status."""
        yield from self._closing()
        if status == COMPLETED:
            yield from (self._position.event(kind) for kind in self._completion_events)
        yield self._position.item("done", self.value(status))

    @abstractmethod
    def value(self, status: str) -> JsonObject:
        """Return the item in its current state."""

    def _initial(self) -> JsonObject:
        return self.value(IN_PROGRESS)

    def _opening(self) -> Iterator[JsonObject]:
        yield from ()

    @abstractmethod
    def _delta(self, text: str, /) -> Iterator[JsonObject]: ...

    def _closing(self) -> Iterator[JsonObject]:
        yield from ()


class ReasoningOutput(OutputItem):
    """A chain of thought, in `content` (`reasoning_text`) or in `summary`."""

    def __init__(self, position: ItemPosition, *, in_summary: bool, is_sealed: bool) -> None:
        super().__init__(position)
        self._in_summary = in_summary
        self._is_sealed = is_sealed
        self._index: JsonObject = {"summary_index": 0} if in_summary else {"content_index": 0}
        self._kind = "reasoning_summary_text" if in_summary else "reasoning_text"
        self._part_kind = "reasoning_summary_part" if in_summary else "content_part"

    def value(self, status: str) -> JsonObject:
        """Return the item; `encrypted_content` only if the client requested it."""
        part: list[Json] = [self._part()]
        texts: JsonObject = {"summary": part, "content": []} if self._in_summary else {"summary": [], "content": part}
        encrypted: JsonObject = {"encrypted_content": seal(self._text)} if self._is_sealed else {}
        return {"id": self._position.id, "type": "reasoning", "status": status, **texts, **encrypted}

    def _initial(self) -> JsonObject:
        return {"id": self._position.id, "type": "reasoning", "status": IN_PROGRESS, "summary": []}

    def _opening(self) -> Iterator[JsonObject]:
        yield self._position.event(f"{self._part_kind}.added", **self._index, part=self._part())

    def _delta(self, text: str, /) -> Iterator[JsonObject]:
        yield self._position.event(f"{self._kind}.delta", **self._index, delta=text)

    def _closing(self) -> Iterator[JsonObject]:
        yield self._position.event(f"{self._kind}.done", **self._index, text=self._text)
        yield self._position.event(f"{self._part_kind}.done", **self._index, part=self._part())

    def _part(self) -> JsonObject:
        return {"type": "summary_text" if self._in_summary else "reasoning_text", "text": self._text}


class MessageOutput(OutputItem):
    """Visible text; `phase` distinguishes a preamble (`commentary`) from the answer."""

    def __init__(self, position: ItemPosition, *, phase: str) -> None:
        super().__init__(position)
        self._phase = phase
        self._logprobs: list[Json] = []
        self._new: list[Json] = []

    def set_logprobs(self, entries: list[Json]) -> None:
        """Set the log probabilities of the next piece of text."""
        self._new = entries

    def value(self, status: str) -> JsonObject:
        """Return the item."""
        return {**self._bare(status), "content": [self._part()]}

    def _initial(self) -> JsonObject:
        return {**self._bare(IN_PROGRESS), "content": []}

    def _opening(self) -> Iterator[JsonObject]:
        yield self._position.event("content_part.added", content_index=0, part=self._part())

    def _delta(self, text: str, /) -> Iterator[JsonObject]:
        new, self._new = self._new, []
        self._logprobs += new
        yield self._position.event("output_text.delta", content_index=0, delta=text, logprobs=_without_bytes(new))

    def _closing(self) -> Iterator[JsonObject]:
        entries = _without_bytes(self._logprobs)
        yield self._position.event("output_text.done", content_index=0, text=self._text, logprobs=entries)
        yield self._position.event("content_part.done", content_index=0, part=self._part())

    def _bare(self, status: str) -> JsonObject:
        return {"id": self._position.id, "type": "message", "role": "assistant", "phase": self._phase, "status": status}

    def _part(self) -> JsonObject:
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": [*self._logprobs]}


def _without_bytes(entries: list[Json]) -> list[Json]:
    """Return log probabilities as events have them, without `bytes`."""
    return [
        {
            name: _without_bytes(items(value)) if name == "top_logprobs" and value is not None else value
            for name, value in members(entry).items()
            if name != "bytes"
        }
        for entry in entries
    ]


class ToolCallOutput(OutputItem):
    """A call of a tool of the client."""

    def __init__(self, position: ItemPosition, *, tool: Tool, call_id: str) -> None:
        super().__init__(position)
        self._tool = tool
        self._call_id = call_id

    def _call(self, kind: str, status: str, **rest: Json) -> JsonObject:
        return {"id": self._position.id, "type": kind, "call_id": self._call_id, **rest, "status": status}

    def _names(self) -> JsonObject:
        namespace: JsonObject = {} if self._tool.namespace == FUNCTIONS else {"namespace": self._tool.namespace}
        return {"name": self._tool.name, **namespace}


class FunctionCallOutput(ToolCallOutput):
    """A call of a function."""

    def value(self, status: str) -> JsonObject:
        """Return the item."""
        return self._call("function_call", status, **self._names(), arguments=self._text)

    def _delta(self, text: str, /) -> Iterator[JsonObject]:
        yield self._position.event("function_call_arguments.delta", delta=text)

    def _closing(self) -> Iterator[JsonObject]:
        yield self._position.event("function_call_arguments.done", name=self._tool.name, arguments=self._text)


class CustomCallOutput(ToolCallOutput):
    """A call of a custom tool: its input is the text alone."""

    def __init__(self, position: ItemPosition, *, tool: Tool, call_id: str) -> None:
        super().__init__(position, tool=tool, call_id=call_id)
        self._reader = InputReader()
        self._input = ""

    def value(self, status: str) -> JsonObject:
        """Return the item."""
        return self._call("custom_tool_call", status, **self._names(), input=self._input)

    def _delta(self, text: str, /) -> Iterator[JsonObject]:
        yield from self._show(self._reader.read(text))

    def end(self, status: str) -> Iterator[JsonObject]:
        """Yield the rest of the input before the events of the end."""
        yield from self._show(self._reader.rest())
        yield from super().end(status)

    def _show(self, text: str) -> Iterator[JsonObject]:
        self._input += text
        if text:
            yield self._position.event("custom_tool_call_input.delta", delta=text)

    def _closing(self) -> Iterator[JsonObject]:
        yield self._position.event("custom_tool_call_input.done", input=self._input)


class ActionCallOutput(ToolCallOutput):
    """A call of `local_shell`, `shell`, `apply_patch` or `tool_search`; its members are complete only at the end."""

    def value(self, status: str) -> JsonObject:
        """Return the item."""
        return self._call(f"{self._tool.kind}_call", status, **call_members(self._tool.kind, self._text))

    def _delta(self, _text: str, /) -> Iterator[JsonObject]:
        yield from ()


class PythonOutput(OutputItem):
    """A call of the built-in Python tool, which is not executed."""

    _completion_events = ("code_interpreter_call.interpreting", "code_interpreter_call.completed")

    def value(self, status: str) -> JsonObject:
        """Return the item."""
        return {
            "id": self._position.id,
            "type": "code_interpreter_call",
            "code": self._text,
            "container_id": "",
            "outputs": None,
            "status": status,
        }

    def _opening(self) -> Iterator[JsonObject]:
        yield self._position.event("code_interpreter_call.in_progress")

    def _delta(self, text: str, /) -> Iterator[JsonObject]:
        yield self._position.event("code_interpreter_call_code.delta", delta=text)

    def _closing(self) -> Iterator[JsonObject]:
        yield self._position.event("code_interpreter_call_code.done", code=self._text)


class BrowsingOutput(OutputItem):
    """A call of the built-in browser, which is not executed; its action is complete only at the end."""

    _completion_events = ("web_search_call.searching", "web_search_call.completed")

    def __init__(self, position: ItemPosition, *, recipient: str) -> None:
        super().__init__(position)
        self._recipient = recipient

    def value(self, status: str) -> JsonObject:
        """Return the item; a truncated one has the status `failed`, the only one that the API has for it."""
        return {
            "id": self._position.id,
            "type": "web_search_call",
            "action": browsing_action(self._recipient, self._text),
            "status": "failed" if status == INCOMPLETE else status,
        }

    def _opening(self) -> Iterator[JsonObject]:
        yield self._position.event("web_search_call.in_progress")

    def _delta(self, _text: str, /) -> Iterator[JsonObject]:
        yield from ()
