"""Compare two runs: causes and results that are new, fixed or changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from harmony_conformance.json_value import Json, JsonObject, integer, items, text, value_at
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.comparison.latency_comparison import LatencyChange, compare_latency, probe_figures
from harmony_conformance.report.model import Report, ResultLine
from harmony_conformance.report.summary import failures, title

_JUDGED = frozenset((Outcome.PASS, Outcome.VARIANT, Outcome.FAIL))


class Change(StrEnum):
    """Change of a failure or of a cause between two runs."""

    NEW = "new"
    MORE = "in more results"
    CHANGED = "fails in another way"
    FEWER = "in fewer results"
    SAME = "still fails"
    FIXED = "fixed"
    UNJUDGED = "failed, and is no longer judged"
    ERROR = "error of the suite"


@dataclass(frozen=True, kw_only=True)
class ResultChange:
    """A result that failed in one of two runs.

    Attributes:
        name: `check@scenario`, with the API unless that is Chat Completions.
        message: The first message of the later failure, else of the earlier one.
        earlier_message: The first message of the earlier failure, empty if it did not fail.
        was_judged: True if the earlier run judged it.
        exchange: The id of the exchange with the first finding, empty without findings.
    """

    name: str
    severity: Severity
    change: Change
    message: str
    was_judged: bool
    earlier_message: str = ""
    exchange: str = ""

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "result": self.name,
            "severity": self.severity.value,
            "change": self.change.value,
            "message": self.message,
            "was_judged": self.was_judged,
            "earlier_message": self.earlier_message,
        }


@dataclass(frozen=True, kw_only=True)
class CauseChange:
    """A cause of one of two runs, with its number of failed results in each.

    Attributes:
        failed: The names of the failed results of the later run.
    """

    id: str
    severity: Severity
    sentence: str
    before: int
    after: int
    failed: frozenset[str] = frozenset()

    @property
    def change(self) -> Change:
        """The change."""
        if not self.before:
            return Change.NEW
        if not self.after:
            return Change.FIXED
        return Change.MORE if self.before < self.after else Change.FEWER if self.before > self.after else Change.SAME

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "cause": self.id,
            "severity": self.severity.value,
            "sentence": self.sentence,
            "change": self.change.value,
            "results_before": self.before,
            "results_after": self.after,
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two runs compared.

    Attributes:
        both_judged: Number of results that both runs judged.
        no_longer_judged: Number of results that the earlier run alone judged.
        incomplete: The reason why the later run is incomplete, empty for a complete one.
        latency: The medians of the latency probes, if both runs measured it with intervals.
    """

    before: str
    after: str
    causes: tuple[CauseChange, ...]
    results: tuple[ResultChange, ...]
    both_judged: int
    no_longer_judged: int = 0
    incomplete: str = ""
    latency: tuple[LatencyChange, ...] = ()

    def with_change(self, change: Change) -> tuple[ResultChange, ...]:
        """Return the results with a change."""
        return tuple(result for result in self.results if result.change is change)

    def explained(self) -> frozenset[str]:
        """Return the names of the results that new or larger causes explain."""
        causes = (one for one in self.causes if one.change in {Change.NEW, Change.MORE})
        return frozenset(name for cause in causes for name in cause.failed)

    def has_regressed(self, fails_on: frozenset[Severity]) -> bool:
        """True if a result of these severities is a new failure."""
        return any(result.severity in fails_on for result in self.with_change(Change.NEW))

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        causes: list[Json] = [cause.to_json() for cause in self.causes]
        results: list[Json] = [result.to_json() for result in self.results]
        return {
            "$schema": "comparison.schema.json",
            "before": self.before,
            "after": self.after,
            "both_judged": self.both_judged,
            "no_longer_judged": self.no_longer_judged,
            "incomplete": self.incomplete,
            "causes": causes,
            "results": results,
            "latency": [one.to_json() for one in self.latency],
        }


def compare(before: Report, after: Report, places: tuple[str, str] | None = None) -> Comparison:
    """Compare two runs. Results are matched by check, scenario and API, causes by id.

    Args:
        before: The earlier run.
        after: The later one.
        places: The folder or URL of each, which its title names: both may be of the same model and server.
    """
    earlier, later = _by_name(before), _by_name(after)
    names = sorted({*earlier, *later})
    judged, judged_now = (
        {name for name, one in results.items() if one.outcome in _JUDGED} for results in (earlier, later)
    )
    changes = [(name, _change(earlier.get(name), later.get(name))) for name in names]
    results = tuple(
        _result_change(name, change, earlier.get(name), later.get(name)) for name, change in changes if change
    )
    return Comparison(
        before=", ".join((title(before), *(places or ())[:1])),
        after=", ".join((title(after), *(places or ())[1:])),
        causes=tuple(_causes(before, after)),
        results=tuple(sorted(results, key=lambda one: (one.severity is not Severity.MUST, one.name))),
        both_judged=len(judged & judged_now),
        no_longer_judged=len(judged - judged_now),
        incomplete=text(value_at(after.header, "incomplete")),
        latency=compare_latency(probe_figures(before.latency), probe_figures(after.latency)),
    )


def _by_name(report: Report) -> Mapping[str, ResultLine]:
    return {result.name: result for result in report.results}


def _change(before: ResultLine | None, after: ResultLine | None) -> Change | None:
    """Return the change of a result. None if it failed in neither run."""
    if after is not None and after.outcome is Outcome.ERROR:
        return Change.ERROR
    fails_now = after is not None and after.outcome is Outcome.FAIL
    if before is None or before.outcome is not Outcome.FAIL:
        return Change.NEW if fails_now else None
    if after is None or after.outcome not in _JUDGED:
        return Change.UNJUDGED
    if not fails_now:
        return Change.FIXED
    return Change.SAME if _messages(before) == _messages(after) else Change.CHANGED


def _result_change(name: str, change: Change, before: ResultLine | None, after: ResultLine | None) -> ResultChange:
    shown = after if after is not None and after.outcome in (Outcome.FAIL, Outcome.ERROR) else before
    assert shown is not None, "a result of one of the two"
    return ResultChange(
        name=name,
        severity=shown.severity,
        change=change,
        message=next(iter(_messages(shown)), shown.reason),
        was_judged=before is not None and before.outcome in _JUDGED,
        earlier_message=next(iter(_messages(before)), "") if before is not None else "",
        exchange=next((text(value_at(finding, "exchange")) for finding in failures(shown)), ""),
    )


def _messages(result: ResultLine) -> list[str]:
    return [*dict.fromkeys(text(value_at(finding, "message")) for finding in failures(result))]


def _causes(before: Report, after: Report) -> list[CauseChange]:
    earlier, later = ({text(value_at(one, "id")): one for one in report.causes} for report in (before, after))
    changes = [
        CauseChange(
            id=name,
            severity=Severity(text(value_at(later.get(name, earlier.get(name)), "severity"))),
            sentence=text(value_at(later.get(name, earlier.get(name)), "sentence")),
            before=_extent(earlier.get(name)),
            after=_extent(later.get(name)),
            failed=frozenset(map(text, items(value_at(later.get(name), "failed")))),
        )
        for name in {**later, **earlier}
    ]
    order = list(Change)
    return sorted(changes, key=lambda one: (order.index(one.change), one.severity is not Severity.MUST, one.id))


def _extent(cause: Json) -> int:
    return integer(value_at(cause, "results")) or len(items(value_at(cause, "failed")))
