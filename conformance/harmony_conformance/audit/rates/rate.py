"""Rates of failures in groups of exchanges, with Wilson intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harmony_conformance.audit.rates.groups import Groups, GroupTally
from harmony_conformance.json_value import JsonObject
from harmony_conformance.report.intervals import wilson

_DIGITS = 9
_NO_SHARE: JsonObject = {"share": None, "low": None, "high": None}


def percent(share: float) -> str:
    """Return a share in percent with three significant digits: leaks can be rare."""
    return f"{100 * share:.3g} %"


def share_json(count: int, of: int) -> JsonObject:
    """Return a share and its 95 % interval in JSON."""
    low, high = wilson(count, of)
    return {"share": round(count / of, _DIGITS), "low": round(low, _DIGITS), "high": round(high, _DIGITS)}


@dataclass(frozen=True, kw_only=True)
class GroupRate:
    """The rate of failures in a group. The name of the unknown is empty.

    Without `has_share`, the number of all exchanges of the group is not known, only that of the judged ones.
    """

    dimension: str
    name: str
    tally: GroupTally
    has_share: bool = True

    def __str__(self) -> str:
        """Return counts, share and interval in words."""
        if not self.has_share:
            return f"{self.tally.failed} failed"
        low, high = wilson(self.tally.failed, self.tally.exchanges)
        share = self.tally.failed / self.tally.exchanges
        return f"{self.tally.failed} of {self.tally.exchanges} ({percent(share)}, {percent(low)} to {percent(high)})"

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "by": self.dimension,
            "name": self.name or "unknown",
            "exchanges": self.tally.exchanges,
            "failed": self.tally.failed,
            "must": self.tally.must,
            **(share_json(self.tally.failed, self.tally.exchanges) if self.has_share else _NO_SHARE),
            "checks": {name: self.tally.checks[name] for name in sorted(self.tally.checks)},
        }


def rates(groups: Groups, *, has_share: bool = True) -> Iterator[GroupRate]:
    """Yield the rates of all groups, by dimension and name."""
    for dimension, names in groups.items():
        for name in sorted(names):
            if names[name].exchanges:
                yield GroupRate(dimension=dimension, name=name, tally=names[name], has_share=has_share)
