"""One choice of a chat completion (parameter `n`) and its log probabilities."""

from collections.abc import Iterator

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.model.output_deltas import DeltaBuilder, OutputDelta, OutputField, call_id
from harmony_conformance.reference_server.model.stop_strings import StopStringFilter
from harmony_conformance.reference_server.pipeline.prompt_run import PromptRun
from harmony_ref import tokens

_LOGPROB = -0.25
_UNLIKELY = -9.0


class ChoiceGeneration:
    """One choice."""

    def __init__(self, index: int, run: PromptRun) -> None:
        self.index = index
        self.id_seed = f"{run.id_seed}/{index}" if index else run.id_seed  # source of the ids of its calls
        self.generation = run.generation
        self._events = run.events
        self._assembler = DeltaBuilder(run.client_capabilities)
        self._stops = StopStringFilter(run.generation.sampling)

    def deltas(self) -> Iterator[OutputDelta]:
        """Yield the deltas for the client; can be used once."""
        return self._stops.truncate(self._assembler.deltas(self._events()))

    @property
    def finish_reason(self) -> str:
        """The `finish_reason`; valid after all deltas were consumed."""
        if self._stops.match:
            return "stop"
        if self.generation.hit_token_limit:
            return "length"
        return "tool_calls" if self._assembler.call_count else "stop"

    @property
    def matched_stop(self) -> str:
        """The stop string that ended the content; empty without one."""
        return self._stops.match

    @property
    def reasoning_tokens(self) -> int:
        """Number of reasoning tokens so far."""
        return self._assembler.reasoning_tokens

    def part(self, delta: OutputDelta) -> JsonObject:
        """Return the JSON of a delta."""
        match delta.field:
            case OutputField.NAME:
                call: JsonObject = {"index": delta.call, "id": call_id(self.id_seed, delta.call), "type": "function"}
                return {"tool_calls": [{**call, "function": {"name": delta.text, "arguments": ""}}]}
            case OutputField.ARGUMENTS:
                return {"tool_calls": [{"index": delta.call, "function": {"arguments": delta.text}}]}
            case field:
                return {field.value: delta.text}


def logprobs(delta: OutputDelta, top: int) -> list[Json]:
    """Return invented log probabilities of a content delta; the most likely are the token and `top` - 1 others."""
    if delta.field is not OutputField.CONTENT:
        return []
    entries: list[Json] = []
    for token in delta.ids:
        entry = _entry(token, _LOGPROB)
        likely: list[Json] = [entry, *(_entry(other, _UNLIKELY) for other in range(21) if other != token)]
        entries.append({**entry, "top_logprobs": likely[:top]})
    return entries


def _entry(token: int, logprob: float) -> JsonObject:
    spelled = tokens.TOKEN_BYTES[token]
    return {"token": spelled.decode("utf-8", "replace"), "logprob": logprob, "bytes": [*spelled]}
