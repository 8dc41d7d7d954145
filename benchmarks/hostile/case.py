"""Hostile cases: the record of one, and the limits that all share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ADDRESS_SPACE = 6 * 2**30
"""Bytes that each process of a case may map: a bomb that is not bounded ends its process, not the machine."""


class UnexpectedOutcomeError(Exception):
    """An outcome other than the expected one. The message is the outcome."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One attack.

    Attributes:
        name: unique, as `--only` takes it.
        part: the part that is attacked.
        report: the id in the attack report.
        expected: the outcome, in a few words.
        attack: runs in a separate process, in an empty folder; returns the outcome or raises.
        memory: MiB of resident memory that no process of the part may exceed.
        seconds: limit of the whole attack; the case is stopped after it.
    """

    name: str
    part: str
    report: str
    expected: str
    attack: Callable[[Path], str]
    memory: int = 400
    seconds: float = 60


def expect(condition: object, outcome: str) -> None:
    """Raise with the outcome unless the condition holds."""
    if not condition:
        raise UnexpectedOutcomeError(outcome)
