"""Two audits, or two periods of one, compared check by check, with the significance of each difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from harmony_conformance.audit.rates.rate import percent
from harmony_conformance.audit.results.stored_audit import AuditPart
from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.judge.check import Severity
from harmony_conformance.report.intervals import SIGNIFICANCE, difference, holm, p_words, shares_differ
from harmony_conformance.runtime.plural import number_of

_NO_NUMBER = "since an audit has no number of them: its plan is needles, or it is of an earlier version"


class RateChange(StrEnum):
    """Change of the rate of a failure."""

    HIGHER = "higher"
    LOWER = "lower"
    UNCLEAR = "no significant change"


@dataclass(frozen=True, kw_only=True)
class CheckChange:
    """The failures of a check before and after, and the p value of equal rates, adjusted for the number of checks (Holm).

    `check` is empty for the exchanges with a failure of any MUST check, whose p value is not adjusted.
    """

    check: str
    severity: Severity
    before: int
    of_before: int
    after: int
    of_after: int
    p: float

    @property
    def change(self) -> RateChange:
        """The change, if it is significant."""
        if self.p >= SIGNIFICANCE:
            return RateChange.UNCLEAR
        is_higher = self.after * self.of_before > self.before * self.of_after
        return RateChange.HIGHER if is_higher else RateChange.LOWER

    def __str__(self) -> str:
        """Return the rates in words."""
        low, high = difference(self.after, self.of_after, self.before, self.of_before)
        return (
            f"{self.before} of {self.of_before} ({percent(self.before / max(self.of_before, 1))}) before,"
            f" {self.after} of {self.of_after} ({percent(self.after / max(self.of_after, 1))}) after;"
            f" difference {percent(low)} to {percent(high)}, {p_words(self.p, ' = ')}"
        )

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        low, high = difference(self.after, self.of_after, self.before, self.of_before)
        return {
            "check": self.check,
            "severity": self.severity.value,
            "change": self.change.value,
            "before": {"failed": self.before, "exchanges": self.of_before},
            "after": {"failed": self.after, "exchanges": self.of_after},
            "difference": {"low": low, "high": high},
            "p": self.p,
        }


@dataclass(frozen=True, kw_only=True)
class AuditComparison:
    """Two audits compared: a change for each check that failed in one of them, and one for any MUST check.

    A fault of a server can divide over several checks, each too rare to be significant. So both are tested, each at 5 %.
    """

    before: AuditPart
    after: AuditPart
    changes: tuple[CheckChange, ...]
    any_must: CheckChange | None

    def has_regressed(self, fails_on: frozenset[Severity]) -> bool:
        """Return True if a check of these severities, or any MUST check, fails significantly more often."""
        changes = self.changes if self.any_must is None else (self.any_must, *self.changes)
        return any(one.change is RateChange.HIGHER and one.severity in fails_on for one in changes)

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        changes: list[Json] = [one.to_json() for one in self.changes]
        any_must = (
            {name: it for name, it in self.any_must.to_json().items() if name != "check"} if self.any_must else None
        )
        return {"before": self.before.name, "after": self.after.name, "any_must": any_must, "checks": changes}

    def lines(self) -> Iterator[str]:
        """Yield the comparison in words: higher rates, lower rates, the others."""
        yield f"before: {self.before.name}, {number_of(self.before.exchanges, 'exchange')}"
        yield f"after:  {self.after.name}, {number_of(self.after.exchanges, 'exchange')}"
        yield ""
        if self.any_must is None:
            yield f"exchanges with a failure of any MUST check: not compared, {_NO_NUMBER}"
        else:
            yield f"exchanges with a failure of any MUST check: {self.any_must.change.value}"
            yield f"  {self.any_must}"
        yield ""
        yield f"{number_of(len(self.changes), 'check')} failed in one of them or in both"
        for change in RateChange:
            found = [one for one in self.changes if one.change is change]
            yield ""
            yield f"{change.value}: {number_of(len(found), 'check')}"
            for one in found:
                yield f"  {one.severity.value.upper()} {one.check}: {one}"


def compare_audits(before: AuditPart, after: AuditPart, severities: Mapping[str, Severity]) -> AuditComparison:
    """Compare the share of exchanges that each check failed for. Checks that failed in neither are left out."""
    names = sorted({*before.failures, *after.failures})
    changes = [
        _change(
            name,
            severities.get(name, Severity.MUST),
            (before.failures.get(name, 0), before.applied.get(name, before.exchanges)),
            (after.failures.get(name, 0), after.applied.get(name, after.exchanges)),
        )
        for name in names
    ]
    values = holm([one.p for one in changes])
    adjusted = (replace(one, p=p) for one, p in zip(changes, values, strict=True))
    ordered = sorted(adjusted, key=lambda one: (one.severity is not Severity.MUST, one.p, one.check))
    any_must = None
    if before.must is not None and after.must is not None:
        any_must = _change("", Severity.MUST, (before.must, before.exchanges), (after.must, after.exchanges))
    return AuditComparison(before=before, after=after, changes=tuple(ordered), any_must=any_must)


def _change(check: str, severity: Severity, before: tuple[int, int], after: tuple[int, int]) -> CheckChange:
    return CheckChange(
        check=check,
        severity=severity,
        before=before[0],
        of_before=before[1],
        after=after[0],
        of_after=after[1],
        p=shares_differ(*after, *before),
    )
