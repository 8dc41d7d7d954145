"""What is known of an exchange beyond what crossed the wire, and which part of that a failure rests on.

A proxy and a log have the bytes. The suite knows more: what the model was made to say, what a side endpoint shows, which requests are valid ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType

from harmony_conformance.check import Check, Comparison, Outcome
from harmony_conformance.exchange import AnsweredBy, Exchange, Validity
from harmony_conformance.judge import judge_alone

_CROSSED = frozenset({"id", "request", "response", "failure", "api", "started"})
_UNKNOWN: Mapping[str, object] = MappingProxyType(
    {
        "scenario": "traffic",
        "step": "",
        "attempt": 0,
        "engine": "openai",
        "validity": Validity.UNKNOWN,
        "script": None,
        "expected": None,
        "unplayed": "",
        "rendered": None,
        "counted": None,
        "waited": (),
        "rebuilt": False,
        "together": None,
        "answered_by": AnsweredBy.API,
        "choice": 0,
    }
)

KNOWLEDGE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "what the model was made to say": ("script", "expected", "unplayed"),
        "the prompt as a side endpoint shows it": ("rendered", "counted"),
        "that the request is a valid one, or is not": ("validity",),
        "which engine it is": ("engine",),
        "how many requests were under way, and for the how manieth time": ("together", "waited", "attempt"),
        "which part of a scenario it is": ("scenario", "step"),
    }
)
"""What only the suite knows, in words, and the members of an exchange that hold it."""


def wire_only(x: Exchange) -> Exchange:
    """The exchange as somebody knows it who saw it go by."""
    return _without(x, tuple(_UNKNOWN))


def fails(rule: Check | Comparison, x: Exchange) -> bool:
    """Whether a check fails on an exchange by itself."""
    return judge_alone(x, (rule,))[0].outcome is Outcome.FAIL


def rests_on(rule: Check | Comparison, x: Exchange) -> tuple[str, ...]:
    """What, beyond the wire, a failure of the check rests on; nothing, where the wire alone shows it.

    Each part is what the check does not fail without. Where no part alone is so, it takes one of several, and all are named that are known.
    """
    if fails(rule, wire_only(x)):
        return ()
    known = {about: members for about, members in KNOWLEDGE.items() if _without(x, members) != x}
    needed = tuple(about for about, members in known.items() if not fails(rule, _without(x, members)))
    return needed or tuple(known)


def _without(x: Exchange, members: tuple[str, ...]) -> Exchange:
    return replace(x, **{member: _UNKNOWN[member] for member in members})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def unaccounted() -> frozenset[str]:
    """Members of an exchange that are neither bytes nor listed here: a new one has to be given its place."""
    return frozenset(member.name for member in fields(Exchange)) - _CROSSED - _UNKNOWN.keys()
