"""Output items and their events at the beginning, for each piece of text, and at the end.

Each Harmony message becomes one item. The methods of an item return its events without `sequence_number`, which the
stream adds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from harmony_conformance.json_value import Json, JsonObject, items, members
from harmony_conformance.reference_server.responses.builtin_tools import browsing_action
from harmony_conformance.reference_server.responses.encrypted_reasoning import sealed

COMPLETED = "completed"
INCOMPLETE = "incomplete"
IN_PROGRESS = "in_progress"


class OutputItem(Protocol):
    """An item in progress."""

    def begin(self) -> Iterator[JsonObject]:
        """Yield the events of its beginning."""
        ...

    def write(self, text: str) -> Iterator[JsonObject]:
        """Yield the events of a piece of its text."""
        ...

    def end(self, status: str) -> Iterator[JsonObject]:
        """Yield the events of its end, with its final status."""
        ...

    def value(self, status: str) -> JsonObject:
        """Return the item in its current state."""
        ...


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


class ReasoningOutput:
    """A chain of thought, in `content` (`reasoning_text`) or in `summary`."""

    def __init__(self, place: ItemPosition, *, in_summary: bool, is_sealed: bool) -> None:
        self._place = place
        self._in_summary = in_summary
        self._is_sealed = is_sealed
        self._index: JsonObject = {"summary_index": 0} if in_summary else {"content_index": 0}
        self._kind = "reasoning_summary_text" if in_summary else "reasoning_text"
        self._part_kind = "reasoning_summary_part" if in_summary else "content_part"
        self._text = ""

    def begin(self) -> Iterator[JsonObject]:
        """Yield the item without a part, then its empty part."""
        yield self._place.item("added", {**self._bare(IN_PROGRESS), "summary": []})
        yield self._place.event(f"{self._part_kind}.added", **self._index, part=self._part())

    def write(self, text: str) -> Iterator[JsonObject]:
        """Yield one delta."""
        self._text += text
        yield self._place.event(f"{self._kind}.delta", **self._index, delta=text)

    def end(self, status: str) -> Iterator[JsonObject]:
        """Yield the text, the part and the item."""
        yield self._place.event(f"{self._kind}.done", **self._index, text=self._text)
        yield self._place.event(f"{self._part_kind}.done", **self._index, part=self._part())
        yield self._place.item("done", self.value(status))

    def value(self, status: str) -> JsonObject:
        """Return the item; `encrypted_content` only if the client requested it."""
        parts: list[Json] = [self._part()]
        summary, content = (parts, []) if self._in_summary else ([], parts)
        encrypted: JsonObject = {"encrypted_content": sealed(self._text)} if self._is_sealed else {}
        return {**self._bare(status), "summary": summary, "content": content, **encrypted}

    def _bare(self, status: str) -> JsonObject:
        return {"id": self._place.id, "type": "reasoning", "status": status}

    def _part(self) -> JsonObject:
        return {"type": "summary_text" if self._in_summary else "reasoning_text", "text": self._text}


class MessageOutput:
    """Visible text; `phase` distinguishes a preamble (`commentary`) from the answer."""

    def __init__(self, place: ItemPosition, *, phase: str) -> None:
        self._place = place
        self._phase = phase
        self._text = ""
        self._logprobs: list[Json] = []
        self._new: list[Json] = []

    def take(self, entries: list[Json]) -> None:
        """Set the log probabilities of the next piece of text."""
        self._new = entries

    def begin(self) -> Iterator[JsonObject]:
        """Yield the item without a part, then its empty part."""
        yield self._place.item("added", {**self._bare(IN_PROGRESS), "content": []})
        yield self._place.event("content_part.added", content_index=0, part=self._part())

    def write(self, text: str) -> Iterator[JsonObject]:
        """Yield one delta."""
        self._text += text
        new, self._new = self._new, []
        self._logprobs += new
        yield self._place.event("output_text.delta", content_index=0, delta=text, logprobs=_without_bytes(new))

    def end(self, status: str) -> Iterator[JsonObject]:
        """Yield the text, the part and the item."""
        entries = _without_bytes(self._logprobs)
        yield self._place.event("output_text.done", content_index=0, text=self._text, logprobs=entries)
        yield self._place.event("content_part.done", content_index=0, part=self._part())
        yield self._place.item("done", self.value(status))

    def value(self, status: str) -> JsonObject:
        """Return the item."""
        return {**self._bare(status), "content": [self._part()]}

    def _bare(self, status: str) -> JsonObject:
        return {"id": self._place.id, "type": "message", "role": "assistant", "phase": self._phase, "status": status}

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


class FunctionCallOutput:
    """A call of a function of the client."""

    def __init__(self, place: ItemPosition, *, name: str, call_id: str) -> None:
        self._place = place
        self._name = name
        self._call_id = call_id
        self._arguments = ""

    def begin(self) -> Iterator[JsonObject]:
        """Yield the item without arguments."""
        yield self._place.item("added", self.value(IN_PROGRESS))

    def write(self, text: str) -> Iterator[JsonObject]:
        """Yield one delta of the arguments."""
        self._arguments += text
        yield self._place.event("function_call_arguments.delta", delta=text)

    def end(self, status: str) -> Iterator[JsonObject]:
        """Yield the arguments and the item."""
        yield self._place.event("function_call_arguments.done", name=self._name, arguments=self._arguments)
        yield self._place.item("done", self.value(status))

    def value(self, status: str) -> JsonObject:
        """Return the item."""
        return {
            "id": self._place.id,
            "type": "function_call",
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self._arguments,
            "status": status,
        }


class PythonOutput:
    """A call of the built-in Python tool, which is not executed."""

    def __init__(self, place: ItemPosition) -> None:
        self._place = place
        self._code = ""

    def begin(self) -> Iterator[JsonObject]:
        """Yield the item without code."""
        yield self._place.item("added", self.value(IN_PROGRESS))
        yield self._place.event("code_interpreter_call.in_progress")

    def write(self, text: str) -> Iterator[JsonObject]:
        """Yield one delta of the code."""
        self._code += text
        yield self._place.event("code_interpreter_call_code.delta", delta=text)

    def end(self, status: str) -> Iterator[JsonObject]:
        """Yield the code and the item."""
        yield self._place.event("code_interpreter_call_code.done", code=self._code)
        if status == COMPLETED:
            yield self._place.event("code_interpreter_call.interpreting")
            yield self._place.event("code_interpreter_call.completed")
        yield self._place.item("done", self.value(status))

    def value(self, status: str) -> JsonObject:
        """Return the item."""
        return {
            "id": self._place.id,
            "type": "code_interpreter_call",
            "code": self._code,
            "container_id": "",
            "outputs": None,
            "status": status,
        }


class BrowsingOutput:
    """A call of the built-in browser, which is not executed; its action is complete only at the end."""

    def __init__(self, place: ItemPosition, *, recipient: str) -> None:
        self._place = place
        self._recipient = recipient
        self._content = ""

    def begin(self) -> Iterator[JsonObject]:
        """Yield the item without an action."""
        yield self._place.item("added", self.value(IN_PROGRESS))
        yield self._place.event("web_search_call.in_progress")

    def write(self, text: str) -> Iterator[JsonObject]:
        """Buffer the text; there is no event for it."""
        self._content += text
        yield from ()

    def end(self, status: str) -> Iterator[JsonObject]:
        """Yield the item."""
        if status == COMPLETED:
            yield self._place.event("web_search_call.searching")
            yield self._place.event("web_search_call.completed")
        yield self._place.item("done", self.value(status))

    def value(self, status: str) -> JsonObject:
        """Return the item; a truncated one has the status `failed`, the only one that the API has for it."""
        return {
            "id": self._place.id,
            "type": "web_search_call",
            "action": browsing_action(self._recipient, self._content),
            "status": "failed" if status == INCOMPLETE else status,
        }
