"""One output item as it grows: what it is told as when it begins, with each piece of text, and when it ends.

Every Harmony message becomes an item of its own. An item's methods return the events that tell of it, without the
members that only the stream knows (`sequence_number`).
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
    """An item that is being written."""

    def begin(self) -> Iterator[JsonObject]:
        """The events that announce it."""
        ...

    def write(self, text: str) -> Iterator[JsonObject]:
        """The events of a piece of its text."""
        ...

    def end(self, status: str) -> Iterator[JsonObject]:
        """The events that finish it; afterwards it has its last status."""
        ...

    def value(self, status: str) -> JsonObject:
        """The item as it stands."""
        ...


@dataclass(frozen=True, kw_only=True)
class ItemPosition:
    """Where an item stands: its id, and its index in the output."""

    id: str
    index: int

    def event(self, kind: str, **told: Json) -> JsonObject:
        """An event about a part of the item."""
        return {"type": f"response.{kind}", "item_id": self.id, "output_index": self.index, **told}

    def item(self, kind: str, value: JsonObject) -> JsonObject:
        """An event with the whole item."""
        return {"type": f"response.output_item.{kind}", "output_index": self.index, "item": value}


class ReasoningOutput:
    """A chain of thought, told as it is (`reasoning_text`) or in the place of a summary."""

    def __init__(self, place: ItemPosition, *, in_summary: bool, is_sealed: bool) -> None:
        self._place = place
        self._in_summary = in_summary
        self._is_sealed = is_sealed
        self._index: JsonObject = {"summary_index": 0} if in_summary else {"content_index": 0}
        self._kind = "reasoning_summary_text" if in_summary else "reasoning_text"
        self._part_kind = "reasoning_summary_part" if in_summary else "content_part"
        self._text = ""

    def begin(self) -> Iterator[JsonObject]:
        """The item without a part, then its part without a text."""
        yield self._place.item("added", {**self._bare(IN_PROGRESS), "summary": []})
        yield self._place.event(f"{self._part_kind}.added", **self._index, part=self._part())

    def write(self, text: str) -> Iterator[JsonObject]:
        """One delta."""
        self._text += text
        yield self._place.event(f"{self._kind}.delta", **self._index, delta=text)

    def end(self, status: str) -> Iterator[JsonObject]:
        """The text, the part and the item."""
        yield self._place.event(f"{self._kind}.done", **self._index, text=self._text)
        yield self._place.event(f"{self._part_kind}.done", **self._index, part=self._part())
        yield self._place.item("done", self.value(status))

    def value(self, status: str) -> JsonObject:
        """The item; `encrypted_content` only where the client asked for it."""
        parts: JsonObject = (
            {"summary": [self._part()], "content": []}
            if self._in_summary
            else {"summary": [], "content": [self._part()]}
        )
        kept: JsonObject = {"encrypted_content": sealed(self._text)} if self._is_sealed else {}
        return {**self._bare(status), **parts, **kept}

    def _bare(self, status: str) -> JsonObject:
        return {"id": self._place.id, "type": "reasoning", "status": status}

    def _part(self) -> JsonObject:
        return {"type": "summary_text" if self._in_summary else "reasoning_text", "text": self._text}


class MessageOutput:
    """What the user is to see; `phase` tells a preamble (`commentary`) from the answer."""

    def __init__(self, place: ItemPosition, *, phase: str) -> None:
        self._place = place
        self._phase = phase
        self._text = ""
        self._logprobs: list[Json] = []
        self._new: list[Json] = []

    def take(self, entries: list[Json]) -> None:
        """The log probabilities of the tokens of the next piece of text."""
        self._new = entries

    def begin(self) -> Iterator[JsonObject]:
        """The item without a part, then its part without a text."""
        yield self._place.item("added", {**self._bare(IN_PROGRESS), "content": []})
        yield self._place.event("content_part.added", content_index=0, part=self._part())

    def write(self, text: str) -> Iterator[JsonObject]:
        """One delta."""
        self._text += text
        told, self._new = self._new, []
        self._logprobs += told
        yield self._place.event("output_text.delta", content_index=0, delta=text, logprobs=_without_bytes(told))

    def end(self, status: str) -> Iterator[JsonObject]:
        """The text, the part and the item."""
        told = _without_bytes(self._logprobs)
        yield self._place.event("output_text.done", content_index=0, text=self._text, logprobs=told)
        yield self._place.event("content_part.done", content_index=0, part=self._part())
        yield self._place.item("done", self.value(status))

    def value(self, status: str) -> JsonObject:
        """The item."""
        return {**self._bare(status), "content": [self._part()]}

    def _bare(self, status: str) -> JsonObject:
        return {
            "id": self._place.id,
            "type": "message",
            "role": "assistant",
            "phase": self._phase,
            "status": status,
        }

    def _part(self) -> JsonObject:
        return {"type": "output_text", "text": self._text, "annotations": [], "logprobs": [*self._logprobs]}


def _without_bytes(entries: list[Json]) -> list[Json]:
    """Log probabilities as events have them."""
    return [
        {
            **{name: value for name, value in members(entry).items() if name != "bytes"},
            **(
                {"top_logprobs": _without_bytes(items(top))}
                if (top := members(entry).get("top_logprobs")) is not None
                else {}
            ),
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
        """The item without arguments."""
        yield self._place.item("added", self.value(IN_PROGRESS))

    def write(self, text: str) -> Iterator[JsonObject]:
        """One delta of the arguments."""
        self._arguments += text
        yield self._place.event("function_call_arguments.delta", delta=text)

    def end(self, status: str) -> Iterator[JsonObject]:
        """The arguments and the item."""
        yield self._place.event("function_call_arguments.done", name=self._name, arguments=self._arguments)
        yield self._place.item("done", self.value(status))

    def value(self, status: str) -> JsonObject:
        """The item."""
        return {
            "id": self._place.id,
            "type": "function_call",
            "call_id": self._call_id,
            "name": self._name,
            "arguments": self._arguments,
            "status": status,
        }


class PythonOutput:
    """A call of the built-in Python tool, which nobody runs here."""

    def __init__(self, place: ItemPosition) -> None:
        self._place = place
        self._code = ""

    def begin(self) -> Iterator[JsonObject]:
        """The item without code."""
        yield self._place.item("added", self.value(IN_PROGRESS))
        yield self._place.event("code_interpreter_call.in_progress")

    def write(self, text: str) -> Iterator[JsonObject]:
        """One delta of the code."""
        self._code += text
        yield self._place.event("code_interpreter_call_code.delta", delta=text)

    def end(self, status: str) -> Iterator[JsonObject]:
        """The code and the item."""
        yield self._place.event("code_interpreter_call_code.done", code=self._code)
        if status == COMPLETED:
            yield self._place.event("code_interpreter_call.interpreting")
            yield self._place.event("code_interpreter_call.completed")
        yield self._place.item("done", self.value(status))

    def value(self, status: str) -> JsonObject:
        """The item."""
        return {
            "id": self._place.id,
            "type": "code_interpreter_call",
            "code": self._code,
            "container_id": "",
            "outputs": None,
            "status": status,
        }


class BrowsingOutput:
    """A call of the built-in browser, which nobody runs here; it is told whole."""

    def __init__(self, place: ItemPosition, *, recipient: str) -> None:
        self._place = place
        self._recipient = recipient
        self._content = ""

    def begin(self) -> Iterator[JsonObject]:
        """The item without an action."""
        yield self._place.item("added", self.value(IN_PROGRESS))
        yield self._place.event("web_search_call.in_progress")

    def write(self, text: str) -> Iterator[JsonObject]:
        """Nothing yet."""
        self._content += text
        yield from ()

    def end(self, status: str) -> Iterator[JsonObject]:
        """The item."""
        if status == COMPLETED:
            yield self._place.event("web_search_call.searching")
            yield self._place.event("web_search_call.completed")
        yield self._place.item("done", self.value(status))

    def value(self, status: str) -> JsonObject:
        """The item; the API has no word for one that was cut off but `failed`."""
        return {
            "id": self._place.id,
            "type": "web_search_call",
            "action": browsing_action(self._recipient, self._content),
            "status": "failed" if status == INCOMPLETE else status,
        }
