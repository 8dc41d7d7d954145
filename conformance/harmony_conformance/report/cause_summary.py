"""The causes of a report in words, shared by all renderings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harmony_conformance.json_value import JsonObject, integer, items, text, value_at
from harmony_conformance.judge.check import Severity
from harmony_conformance.report.model import Report
from harmony_conformance.report.summary import sides
from harmony_conformance.report.text_excerpt import Pieces
from harmony_conformance.runtime.plural import number_of


@dataclass(frozen=True, kw_only=True)
class CauseSummary:
    """A cause of a report in words.

    Attributes:
        name: The known cause, the likeliest defect, or the failing check of a group of like failures.
        alternatives: What else explains the failures equally well. Empty if there is nothing.
        catalogued: The ids of the catalogue. Empty without one.
        extent: How many results and scenarios it explains.
        users_see: What a user of the server sees. Empty if unknown.
        clause: The quotation and its source.
        threads: Addresses of issues and pull requests about it.
        facts: The heading and the sentence of each known fact: effect on users, versions, timing, remedy.
        example: The check, the exchange and the place of the example.
        exchange: The id of the exchange of the example.
        sides: The expected and the actual text of the example, by name.
        script: The scripted output of the model. Empty without a script.
        is_expected: True if the baseline of the run expects all of its failures.
    """

    name: str
    severity: Severity
    sentence: str
    alternatives: str
    catalogued: str
    extent: str
    users_see: str
    clause: tuple[str, str]
    threads: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    message: str
    example: str
    exchange: str
    sides: tuple[tuple[str, Pieces], ...]
    script: str
    reproduce: str
    is_expected: bool

    @property
    def also(self) -> str:
        """Alternatives and ids of the catalogue."""
        return "; ".join(filter(None, (self.alternatives, self.catalogued)))


def cause_summaries(report: Report) -> tuple[CauseSummary, ...]:
    """Return the causes of a report, in its order."""
    return tuple(map(_cause_summary, report.causes))


def _cause_summary(cause: JsonObject) -> CauseSummary:
    example = value_at(cause, "example")
    check, scenario, exchange, at, message = (
        text(value_at(example, name)) for name in ("check", "scenario", "exchange", "at", "message")
    )
    alternatives = " or ".join(map(text, items(value_at(cause, "defects"))[1:]))
    catalogued = ", ".join(map(text, items(value_at(cause, "catalogue"))))
    scenarios = number_of(len(items(value_at(cause, "scenarios"))), "scenario")
    return CauseSummary(
        name=text(value_at(cause, "id")),
        severity=Severity(text(value_at(cause, "severity"))),
        sentence=text(value_at(cause, "sentence")),
        alternatives=f"or {alternatives}" if alternatives else "",
        catalogued=catalogued,
        extent=f"{number_of(integer(value_at(cause, 'results')) or 0, 'result')} in {scenarios}",
        users_see=text(value_at(cause, "users_see")),
        clause=(text(value_at(cause, "clause", "quotation")), text(value_at(cause, "clause", "source"))),
        threads=tuple(map(text, items(value_at(cause, "threads")))),
        facts=tuple(_facts(cause)),
        message=message,
        exchange=exchange,
        example=" at ".join(filter(None, (f"{check} in {exchange or scenario}", at))),
        sides=tuple(sides(example if isinstance(example, dict) else {})),
        script=text(value_at(example, "script")),
        reproduce=text(value_at(example, "reproduce")),
        is_expected=value_at(cause, "expected") is True,
    )


def _facts(cause: JsonObject) -> Iterator[tuple[str, str]]:
    users_see, affected, fixed_in, timing, remedy = (
        text(value_at(cause, name)) for name in ("users_see", "affected", "fixed_in", "timing", "remedy")
    )
    if users_see:
        yield "Effect", users_see
    if affected:
        yield "Versions", affected + (f"; fixed in {fixed_in}" if fixed_in else "")
    if timing:
        yield "Timing", timing
    if remedy:
        yield "Remedy", remedy
