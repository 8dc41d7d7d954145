"""One of the answers that a client asked for (`n`): a generation, read as its tokens come."""

from collections.abc import Iterator

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.model.output_events import Assembler, OutputDelta, OutputField, call_id
from harmony_conformance.reference_server.model.stop_strings import StopStrings
from harmony_conformance.reference_server.pipeline.prompt_run import PromptRun
from harmony_ref import tokens

_LOGPROB = -0.25
_UNLIKELY = -9.0


class ChoiceGeneration:
    """One choice.

    Attributes:
        index: its place among the choices.
        seed: what the ids of its calls are made of.
        generation: the tokens as they come.
    """

    def __init__(self, index: int, run: PromptRun) -> None:
        self.index = index
        self.seed = f"{run.seed}/{index}" if index else run.seed
        self.generation = run.generation
        self._events = run.events
        self._assembler = Assembler(run.offer)
        self._stops = StopStrings(run.generation.sampling)

    def deltas(self) -> Iterator[OutputDelta]:
        """What the client is shown, once."""
        return self._stops.cut(self._assembler.deltas(self._events()))

    @property
    def finish(self) -> str:
        """Why it ended; known when all deltas were taken."""
        if self._stops.met:
            return "stop"
        if self.generation.cut:
            return "length"
        return "tool_calls" if self._assembler.calls else "stop"

    @property
    def reasoning_tokens(self) -> int:
        """How many tokens its reasoning had so far."""
        return self._assembler.reasoning_tokens

    def part(self, delta: OutputDelta) -> JsonObject:
        """A delta as the API words it."""
        match delta.field:
            case OutputField.NAME:
                function: JsonObject = {"name": delta.text, "arguments": ""}
                opened: JsonObject = {"index": delta.call, "id": call_id(self.seed, delta.call), "type": "function"}
                return {"tool_calls": [{**opened, "function": function}]}
            case OutputField.ARGUMENTS:
                return {"tool_calls": [{"index": delta.call, "function": {"arguments": delta.text}}]}
            case field:
                return {field.value: delta.text}


def logprobs(delta: OutputDelta, top: int) -> list[Json]:
    """The entries of the content's tokens: a made-up probability, the token itself and `top` - 1 others as the most likely."""
    if delta.field is not OutputField.CONTENT:
        return []
    return [_with_top(token, top) for token in delta.ids]


def _with_top(token: int, top: int) -> JsonObject:
    others = (_entry(other, _UNLIKELY) for other in range(21) if other != token)
    likely: list[Json] = [_entry(token, _LOGPROB), *others]
    return {**_entry(token, _LOGPROB), "top_logprobs": likely[:top]}


def _entry(token: int, logprob: float) -> JsonObject:
    spelled = tokens.TOKEN_BYTES[token]
    return {"token": spelled.decode("utf-8", "replace"), "logprob": logprob, "bytes": [*spelled]}
