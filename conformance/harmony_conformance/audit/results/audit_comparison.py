"""Two audits, or two periods of one, compared check by check, with the significance of each difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from harmony_conformance.audit.rates.rate import percent
from harmony_conformance.audit.results.stored_audit import AuditPart
from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.judge.check import Severity
from harmony_conformance.report.intervals import SIGNIFICANCE, difference, holm, p_words, shares_differ
from harmony_conformance.runtime.plural import number_of


class RateChange(StrEnum):
    """Change of the rate of a failure."""

    HIGHER = "higher"
    LOWER = "lower"
    UNCLEAR = "no significant change"


@dataclass(frozen=True, kw_only=True)
class CheckChange:
    """The failures of a check before and after, and the p value of equal rates, adjusted for the number of checks (Holm)."""

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
            f"{self.before} of {self.of_before} ({percent(self.before / self.of_before)}) before,"
            f" {self.after} of {self.of_after} ({percent(self.after / self.of_after)}) after;"
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
    """Two audits compared: a change for each check that failed in one of them."""

    before: AuditPart
    after: AuditPart
    changes: tuple[CheckChange, ...]

    def has_regressed(self, fails_on: frozenset[Severity]) -> bool:
        """Return True if a check of these severities fails significantly more often."""
        return any(one.change is RateChange.HIGHER and one.severity in fails_on for one in self.changes)

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        changes: list[Json] = [one.to_json() for one in self.changes]
        return {"before": self.before.name, "after": self.after.name, "checks": changes}

    def lines(self) -> Iterator[str]:
        """Yield the comparison in words: higher rates, lower rates, the others."""
        yield f"before: {self.before.name}, {number_of(self.before.exchanges, 'exchange')}"
        yield f"after:  {self.after.name}, {number_of(self.after.exchanges, 'exchange')}"
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
    counts = [(before.failures.get(name, 0), after.failures.get(name, 0)) for name in names]
    values = holm([shares_differ(one, before.exchanges, other, after.exchanges) for one, other in counts])
    changes = (
        CheckChange(
            check=name,
            severity=severities.get(name, Severity.MUST),
            before=one,
            of_before=before.exchanges,
            after=other,
            of_after=after.exchanges,
            p=p,
        )
        for name, (one, other), p in zip(names, counts, values, strict=True)
    )
    ordered = sorted(changes, key=lambda one: (one.severity is not Severity.MUST, one.p, one.check))
    return AuditComparison(before=before, after=after, changes=tuple(ordered))
