"""Deltas of one choice of a stream from its first leak on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from harmony_conformance.json_value import Json, JsonObject
from harmony_proxy.repair.answer.fixes import new_id
from harmony_proxy.repair.text.api_dialects import Dialect, join, object_tool_call, tool_call
from harmony_proxy.repair.text.leaked_text_parser import NoDestinationError, ParsedText, TextKind


@dataclass
class DeltaWriter:
    """Writes parsed texts of one choice as deltas. Stores its calls, its reasoning, and an incomplete call of an API without partial calls.

    Attributes:
        dialect: Member names and message forms of the API.
        body: Body of the request, from which call ids are derived.
        choice: Index of the choice.
        reasoning: Name of the member for reasoning.
        calls: Number of all calls of the choice.
        new_calls: Number of calls that this writer created.
        reasoning_fragments: Pieces of reasoning that were parsed.
        is_final: True if the repair cannot be rolled back any more. A call without a destination then becomes content.
        problem: Description of such a call, or an empty string.
    """

    dialect: Dialect
    body: bytes
    choice: int
    reasoning: str
    calls: int = 0
    new_calls: int = 0
    reasoning_fragments: list[str] = field(default_factory=list[str])
    is_final: bool = False
    problem: str = ""
    _name: str | None = None
    _arguments: str = ""

    def copy(self) -> DeltaWriter:
        """Return a copy to roll back to."""
        return replace(self, reasoning_fragments=[*self.reasoning_fragments])

    def deltas(self, parsed: Sequence[ParsedText], *, is_over: bool) -> list[JsonObject]:
        """Return the deltas for these parsed texts.

        Raises:
            NoDestinationError: the API has no place for a text, and the repair can be rolled back.
        """
        deltas: list[JsonObject] = []
        for one in join(parsed):
            if one.kind is TextKind.CALL:
                deltas += self._write_call(one)
            else:
                deltas += self._complete_call()
                if one.kind is TextKind.REASONING:
                    self.reasoning_fragments.append(one.text)
                deltas.append({self.dialect.content if one.kind is TextKind.CONTENT else self.reasoning: one.text})
        return [*deltas, *self._complete_call()] if is_over else deltas

    def _write_call(self, one: ParsedText) -> list[JsonObject]:
        if self.dialect.calls_are_whole:
            completed = self._complete_call() if one.name is not None else []
            self._name = one.name if one.name is not None else self._name
            self._arguments += one.text
            return completed
        if one.name is None:
            more: Json = {"index": self.calls - 1, "function": {"arguments": one.text}}
            return [{"tool_calls": [more]}]
        identity = new_id(self.body, self.choice, self.new_calls)
        self.calls, self.new_calls = self.calls + 1, self.new_calls + 1
        return [{"tool_calls": [tool_call(one.name, one.text, index=self.calls - 1, identity=identity)]}]

    def _complete_call(self) -> list[JsonObject]:
        if self._name is None:
            return []
        name, arguments = self._name, self._arguments
        self._name, self._arguments = None, ""
        try:
            call = object_tool_call(name, arguments)
        except NoDestinationError as problem:
            if not self.is_final:
                raise
            self.problem = f"the model wrote {problem}"
            return [{self.dialect.content: arguments}] if arguments else []
        self.calls, self.new_calls = self.calls + 1, self.new_calls + 1
        return [{"tool_calls": [call]}]
