"""The emitted part of a stream, with its deltas joined: judging it costs as much as its text, not as much as its events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at
from harmony_proxy.repair.text.api_dialects import ChoiceContent, Dialect

_ALWAYS = frozenset({"role", "tool_calls"})


@dataclass
class _Call:
    head: JsonObject
    name: str
    arguments: list[str]


@dataclass
class _Choice:
    texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    calls: dict[int, _Call] = field(default_factory=dict[int, _Call])
    whole_calls: list[Json] = field(default_factory=list[Json])
    ids: list[Json] = field(default_factory=list[Json])
    others: list[JsonObject] = field(default_factory=list[JsonObject])


class EmittedHistory:
    """Stores the emitted texts, calls and ids of each choice, and the raw bytes if the complete stream is judged at its end."""

    def __init__(self, dialect: Dialect | None, *, keeps_bytes: bool) -> None:
        self.raw: list[bytes] = []
        self._dialect = dialect
        self._keeps_bytes = keeps_bytes
        self._choices: dict[int, _Choice] = {}
        self._known = _ALWAYS if dialect is None else _ALWAYS | {dialect.content, *dialect.reasoning}

    def add(self, raw: bytes, parts: Iterable[ChoiceContent]) -> None:
        """Add an emitted event."""
        if self._keeps_bytes:
            self.raw.append(raw)
        if self._dialect is None:
            return
        for part in parts:
            choice = self._choices.get(part.choice)
            if choice is None:
                choice = self._choices[part.choice] = _Choice()
            for member, fragment in self._dialect.texts(part):
                choice.texts.setdefault(member, []).append(fragment)
            if "tool_calls" in part.message:
                self._add_calls(choice, items(part.message["tool_calls"]))
            if part.ids:
                choice.ids.extend(part.ids)
            others: JsonObject = {name: one for name, one in part.message.items() if one and name not in self._known}
            if others:
                choice.others.append(others)

    def grow(self, raw: bytes, choice: int, member: str, fragment: str) -> None:
        """Add an emitted event that only continues a known text."""
        if self._keeps_bytes:
            self.raw.append(raw)
        self._choices[choice].texts[member].append(fragment)

    def emitted_text(self, choice: int, member: str) -> str:
        """Return the emitted text of a member of a choice."""
        return "".join(self._choices[choice].texts.get(member, ())) if choice in self._choices else ""

    def _add_calls(self, choice: _Choice, calls: Iterable[Json]) -> None:
        if self._dialect is None or self._dialect.calls_are_whole:
            choice.whole_calls.extend(calls)
            return
        for call in calls:
            index = integer(value_at(call, "index")) or 0
            known = choice.calls.get(index)
            if known is None:
                head: JsonObject = {name: one for name, one in members(call).items() if name != "function"}
                known = choice.calls[index] = _Call(head=head, name="", arguments=[])
            known.name = known.name or text(value_at(call, "function", "name"))
            known.arguments.append(text(value_at(call, "function", "arguments")))

    def events(self) -> Iterator[JsonObject]:
        """Yield one event per choice, with everything emitted of it."""
        if self._dialect is None:
            return
        for index, choice in self._choices.items():
            message: JsonObject = {"role": "assistant"}
            for member, pieces in choice.texts.items():
                pieces[:] = ["".join(pieces)]
                message[member] = pieces[0]
            calls: list[Json] = [*choice.whole_calls]
            for call in choice.calls.values():
                call.arguments[:] = ["".join(call.arguments)]
                calls.append({**call.head, "function": {"name": call.name, "arguments": call.arguments[0]}})
            if calls:
                message["tool_calls"] = calls
            yield self._dialect.delta(index, message, choice.ids)

    def unrewritten_events(self) -> Iterator[JsonObject]:
        """Yield events with the emitted members that are never rewritten."""
        if self._dialect is None:
            return
        for index, choice in self._choices.items():
            yield from (self._dialect.delta(index, message, ()) for message in choice.others)

    def copy(self) -> EmittedHistory:
        """Return a copy to roll back to."""
        other = EmittedHistory(self._dialect, keeps_bytes=self._keeps_bytes)
        other.raw, other._choices = list(self.raw), deepcopy(self._choices)
        return other
