"""One request of the worker: its tokens, and why they end, as SGLang's scheduler ends them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scripted_output import CONTEXT, STOPS, output_of

from harmony_ref import decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, kw_only=True)
class Output:
    """The output of the engine for a request, and why it ends: `matched` is a token, a string, or none at the limit."""

    ids: Sequence[int]
    matched: int | str | None

    def steps(self, size: int) -> Iterator[Sequence[int]]:
        """Yield the tokens of each step."""
        for place in range(0, len(self.ids), size):
            yield self.ids[place : place + size]


@dataclass(frozen=True, kw_only=True)
class Stops:
    """The end of a request; without a limit the end of the window."""

    limit: int | None = None
    strings: Sequence[str] = ()
    ids: Sequence[int] = ()
    ignores_ids: bool = False


def generate(prompt: Sequence[int], stops: Stops) -> Output:
    """Return the output for a prompt, up to a stop token, a stop string, or the limit."""
    room = CONTEXT - len(prompt) - 1
    script = output_of(prompt, max(1, room if stops.limit is None else min(stops.limit, room)))
    ending = set() if stops.ignores_ids else {*STOPS, *stops.ids}
    longest = max((len(one.encode()) for one in stops.strings), default=0)  # in tokens: each has a byte or more
    for place, token in enumerate(script, start=1):
        if token in ending:
            return Output(ids=script[:place], matched=token)
        if stops.strings:
            text = decode(script[max(0, place - longest) : place])
            if matched := next((one for one in stops.strings if one in text), None):
                return Output(ids=script[:place], matched=matched)
    return Output(ids=script, matched=None)
