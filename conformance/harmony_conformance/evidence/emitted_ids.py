"""The ids that were emitted for a script, and where a turn ends."""

from __future__ import annotations

from collections.abc import Sequence

from harmony_conformance.json_value import Json, members
from harmony_ref import decode, tokens

TURN_END_TOKENS = frozenset({tokens.RETURN, tokens.CALL})
GENERATION_END_TOKENS = TURN_END_TOKENS | {tokens.ENDOFTEXT}
"""The tokens that end generation: those of the format, and the vocabulary's `<|endoftext|>`."""


def cut_at_stop(ids: Sequence[int]) -> tuple[int, ...]:
    """Return the ids up to and including the first `<|return|>` or `<|call|>`, as an engine emits them."""
    return tuple(ids[: next((place for place, token in enumerate(ids, 1) if token in TURN_END_TOKENS), None)])


def ends_a_turn(ids: Sequence[int]) -> bool:
    """Return True if the last id is `<|return|>` or `<|call|>`."""
    return len(ids) > 0 and ids[-1] in TURN_END_TOKENS


def reconcile(
    script: tuple[int, ...],
    returned: tuple[int, ...] | None,
    count: int | None,
    limit: int | None,
    *,
    added_end: int | None,
) -> tuple[int, ...]:
    """Return the ids that were emitted for a script: those returned, unless script and count prove that some are missing or duplicated.

    Args:
        script: The forced ids.
        returned: The ids in the response, or None.
        count: The number of completion tokens in the response's usage, or None.
        limit: The largest number of output tokens that the request allows, or None.
        added_end: The token that the engine emits behind a script without a stop token. None if generation continues after stop tokens.
    """
    cut = (script if added_end is None else cut_at_stop(script))[:limit]
    is_open = bool(cut) and cut[-1] not in GENERATION_END_TOKENS
    ended = (*cut, added_end) if added_end is not None and is_open and count == len(cut) + 1 else cut
    if returned is None or (count == len(cut) and returned != cut):
        return ended
    shorter = min(len(returned), len(script))
    if returned[:shorter] == script[:shorter]:
        return returned
    if ended != cut and returned[-1:] == ended[-1:]:
        return ended  # a stream with ids per event, some of them missing (vLLM 0.11.0)
    # the server may have stopped before the end of the script: the count shows where
    return cut[: max(count or 0, 0) or None]


def added_end(request: Json) -> int:
    """Return the token that the engine emits behind a script without a stop token: `<|return|>` if the prompt spells the script."""
    is_forced = "harmony_script" in members(request) or "vllm_xargs" in members(request)
    return tokens.ENDOFTEXT if is_forced else tokens.RETURN


def end_early(
    script: tuple[int, ...], count: int | None, stop_strings: Sequence[str], wants_one_call: bool
) -> tuple[int, ...]:
    """Return the ids of a script that were emitted by their number, if the request may end the generation before the script ends.

    A stop string ends it in the content, or as some servers read it in all of the output. `parallel_tool_calls: false` may end it with the first call,
    with or without its last token.
    """
    if count and any(one in decode(script[:count]) for one in stop_strings):
        return script[:count]
    start = 0
    for place, token in enumerate(script if wants_one_call else (), 1):
        if token in tokens.STOP_TOKENS:
            header, mark, _ = decode(script[start:place]).partition("<|message|>")
            if mark and "to=" in header:
                return script[:count] if count in (place - 1, place) else script
            start = place
    return script


def strip_endoftext(ids: Sequence[int]) -> tuple[int, ...]:
    """Return the ids without a last `<|endoftext|>`, which engines add to output without a stop token."""
    return tuple(ids[:-1] if ids and ids[-1] == tokens.ENDOFTEXT else ids)
