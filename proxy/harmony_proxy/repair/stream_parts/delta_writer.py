"""Streams told anew: the deltas of one choice once a text of it leaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harmony_conformance.json_value import Json, JsonObject
from harmony_proxy.repair.answer.fixes import new_id
from harmony_proxy.repair.text.api_dialects import Dialect, called, join, object_called
from harmony_proxy.repair.text.leaked_text_parser import NoDestinationError, ParsedText, TextKind


@dataclass
class DeltaWriter:
    """State: the calls of the choice, the reasoning that was found, and the call that is being made, where it has to come in one piece.

    `reasoning` is the member that takes the reasoning, `made` how many of the calls were made here. `problem`: what had no place, and was told as content:
    once a part of the answer went out anew there is no way back (`is_final`).
    """

    dialect: Dialect
    body: bytes
    choice: int
    reasoning: str
    calls: int = 0
    made: int = 0
    thought: list[str] = field(default_factory=list[str])
    is_final: bool = False
    problem: str = ""
    _name: str | None = None
    _arguments: str = ""

    def copy(self) -> DeltaWriter:
        """The same, to go back to."""
        return replace(self, thought=[*self.thought])

    def deltas(self, said: Sequence[ParsedText], *, is_over: bool) -> list[JsonObject]:
        """The deltas that say this.

        Raises:
            NoPlace: the API has no place for it, and there is a way back.
        """
        told: list[JsonObject] = []
        for one in join(said):
            if one.kind is TextKind.CALL:
                told += self._called(one)
            else:
                told += self._whole_call()
                if one.kind is TextKind.REASONING:
                    self.thought.append(one.text)
                told.append({self.dialect.content if one.kind is TextKind.CONTENT else self.reasoning: one.text})
        return [*told, *self._whole_call()] if is_over else told

    def _called(self, one: ParsedText) -> list[JsonObject]:
        if self.dialect.calls_are_whole:
            before = self._whole_call() if one.name is not None else []
            self._name = one.name if one.name is not None else self._name
            self._arguments += one.text
            return before
        if one.name is None:
            more: Json = {"index": self.calls - 1, "function": {"arguments": one.text}}
            return [{"tool_calls": [more]}]
        identity = new_id(self.body, self.choice, self.made)
        self.calls, self.made = self.calls + 1, self.made + 1
        return [{"tool_calls": [called(one.name, one.text, index=self.calls - 1, identity=identity)]}]

    def _whole_call(self) -> list[JsonObject]:
        if self._name is None:
            return []
        name, arguments = self._name, self._arguments
        self._name, self._arguments = None, ""
        try:
            call = object_called(name, arguments)
        except NoDestinationError as problem:
            if not self.is_final:
                raise
            self.problem = f"the model wrote {problem}"
            return [{self.dialect.content: arguments}] if arguments else []
        self.calls, self.made = self.calls + 1, self.made + 1
        return [{"tool_calls": [call]}]
