"""Arrival times and prompts of a load, from a seed: the same options give the same requests at the same times."""

from __future__ import annotations

from enum import StrEnum
from random import Random

from harmony_ref import encode

_WORDS = (
    "amber",
    "basin",
    "cedar",
    "delta",
    "ember",
    "field",
    "grain",
    "harbor",
    "island",
    "jungle",
    "kettle",
    "lantern",
    "meadow",
    "nectar",
    "orchard",
    "pebble",
    "quarry",
    "river",
    "saddle",
    "timber",
    "umbrella",
    "valley",
    "window",
    "yellow",
    "zephyr",
)
_LENGTHS = {word: len(encode(f" {word}")) for word in _WORDS}
_TASK = "Write plain sentences that use these words in any order, without a list, until you are stopped: "


class Arrivals(StrEnum):
    """The law of the gaps between two requests: exponential, as of independent users, or constant."""

    POISSON = "poisson"
    CONSTANT = "constant"


def arrival_times(rate: float, requests: int, law: Arrivals, seed: int) -> tuple[float, ...]:
    """Return the times of requests in seconds, the first at 0. `rate`: requests per second."""
    chance = Random(f"{seed} arrivals {rate}")  # noqa: S311 - no secret
    times = [0.0]
    while len(times) < requests:
        times.append(times[-1] + (chance.expovariate(rate) if law is Arrivals.POISSON else 1 / rate))
    return tuple(times[:requests])


def make_prompt(tokens: int, number: int, seed: int) -> str:
    """Return a text of about this number of tokens. Texts differ from their first words on, so that no prefix cache knows them."""
    chance = Random(f"{seed} prompt {number}")  # noqa: S311 - no secret
    words = [f"{chance.randrange(10**6)}"]
    left = tokens - len(encode(f"{words[0]}. {_TASK}{_WORDS[0]}"))
    while left > 0:
        words.append(chance.choice(_WORDS))
        left -= _LENGTHS[words[-1]]
    return f"{' '.join(words)}. {_TASK}{words[-1]}"
