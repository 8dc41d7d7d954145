"""What went out of a stream, as short as can be: what is judged with it is the same answer with its deltas joined, and costs what its text costs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field

from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, text
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
    """State: the texts, calls and ids of each choice; and the bytes themselves, where the whole stream is to be judged at its end."""

    def __init__(self, dialect: Dialect | None, *, keeps_bytes: bool) -> None:
        self.raw: list[bytes] = []
        self._dialect = dialect
        self._keeps_bytes = keeps_bytes
        self._choices: dict[int, _Choice] = {}
        self._known = _ALWAYS if dialect is None else _ALWAYS | {dialect.content, *dialect.reasoning}

    def add(self, raw: bytes, parts: Iterable[ChoiceContent]) -> None:
        """One more event went out."""
        if self._keeps_bytes:
            self.raw.append(raw)
        if self._dialect is None:
            return
        for part in parts:
            choice = self._choices.get(part.choice)
            if choice is None:
                choice = self._choices[part.choice] = _Choice()
            for member, said in self._dialect.texts(part):
                choice.texts.setdefault(member, []).append(said)
            if "tool_calls" in part.said:
                self._add_calls(choice, items(part.said["tool_calls"]))
            if part.ids:
                choice.ids.extend(part.ids)
            if part.said.keys() - self._known:
                self._add_others(choice, part.said)

    def grow(self, raw: bytes, choice: int, member: str, said: str) -> None:
        """An event went out in which nothing but a text went on that began before."""
        if self._keeps_bytes:
            self.raw.append(raw)
        self._choices[choice].texts[member].append(said)

    def said(self, choice: int, member: str) -> str:
        """A text of a choice as far as it went out."""
        found = self._choices.get(choice)
        return "".join(found.texts.get(member, ())) if found is not None else ""

    def _add_calls(self, choice: _Choice, calls: Iterable[Json]) -> None:
        if self._dialect is None or self._dialect.calls_are_whole:
            choice.whole_calls.extend(calls)
            return
        for call in calls:
            index = number(at(call, "index")) or 0
            known = choice.calls.get(index)
            if known is None:
                head: JsonObject = {name: one for name, one in members(call).items() if name != "function"}
                known = choice.calls[index] = _Call(head=head, name="", arguments=[])
            known.name = known.name or text(at(call, "function", "name"))
            known.arguments.append(text(at(call, "function", "arguments")))

    def events(self) -> Iterator[JsonObject]:
        """One event for each choice, with all that went out of it."""
        if self._dialect is None:
            return
        for index, choice in self._choices.items():
            said: JsonObject = {"role": "assistant"}
            for member, pieces in choice.texts.items():
                pieces[:] = ["".join(pieces)]
                said[member] = pieces[0]
            calls: list[Json] = [*choice.whole_calls, *map(_told, choice.calls.values())]
            if calls:
                said["tool_calls"] = calls
            yield self._dialect.delta(index, said, choice.ids)

    def _add_others(self, choice: _Choice, said: JsonObject) -> None:
        others: JsonObject = {name: value for name, value in said.items() if value and name not in self._known}
        if others:
            choice.others.append(others)

    def others(self) -> Iterator[JsonObject]:
        """What was said in members that are not told anew."""
        for index, choice in self._choices.items():
            for said in choice.others if self._dialect is not None else ():
                if self._dialect is not None:
                    yield self._dialect.delta(index, said, ())

    def copy(self) -> EmittedHistory:
        """The same, to go back to."""
        other = EmittedHistory(self._dialect, keeps_bytes=self._keeps_bytes)
        other.raw, other._choices = list(self.raw), deepcopy(self._choices)
        return other


def _told(call: _Call) -> Json:
    call.arguments[:] = ["".join(call.arguments)]
    return {**call.head, "function": {"name": call.name, "arguments": call.arguments[0]}}
