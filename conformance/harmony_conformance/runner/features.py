"""Features that the answers of a run had: a gateway that removes one from every answer breaks no check."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from harmony_conformance.apis.chat_completion import Turn
from harmony_conformance.evidence.exchange import Series
from harmony_conformance.json_value import Json, JsonObject, value_at

ANSWERS, NEVER = "answers", "never"
"""Members of the counts that are no features."""

_IN_TURN: Mapping[str, Callable[[Turn], bool]] = MappingProxyType(
    {
        "reasoning": lambda turn: bool((turn.reasoning or "").strip()),
        "tools": lambda turn: bool(turn.tool_calls),
        "usage": lambda turn: turn.usage is not None,
        "token-ids": lambda turn: turn.prompt_ids is not None or turn.output_ids is not None,
        "prompt-ids": lambda turn: turn.prompt_ids is not None,
        "output-ids": lambda turn: turn.output_ids is not None,
    }
)
_STREAMING = "streaming"
FEATURES = (*_IN_TURN, _STREAMING)
"""Names of the features: reasoning, tool calls, token counts, token ids (of the prompt or the output, of the prompt, of the output), streams."""


def count_features(series: Iterable[Series]) -> JsonObject:
    """Return the number of answers and of those with each feature, and the features that clients rely on and no answer had."""
    sent = [x for one in series for x in one.exchanges.values()]
    answered = [(x, x.turn) for x in sent if x.turn is not None]
    counts = {name: sum(has(turn) for _, turn in answered) for name, has in _IN_TURN.items()}
    counts[_STREAMING] = sum(x.stream is not None for x, _ in answered)
    relied_on = {
        "reasoning": bool(answered),
        "tools": any(value_at(x.chat_request, "tools") for x, _ in answered),
        "usage": bool(answered),
        _STREAMING: any(x.wants_stream for x in sent),
    }
    never: list[Json] = [name for name, is_relied_on in relied_on.items() if is_relied_on and not counts[name]]
    return {ANSWERS: len(answered), **counts, NEVER: never}
