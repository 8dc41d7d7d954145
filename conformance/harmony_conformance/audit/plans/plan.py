"""The plan of an audit: all checks on all records or on a sample, or needles on all records and all checks on a sample."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from harmony_conformance.audit.plans.needles import NEEDLE_CHECKS
from harmony_conformance.audit.plans.prefilter import LIBRARIES, installed_library
from harmony_conformance.errors import UsageError
from harmony_conformance.runtime.plural import number_of
from harmony_ref.extras import install_command


class PlanName(StrEnum):
    """Values of `--plan`."""

    AUTO = "auto"
    NEEDLES = "needles"
    STRUCTURE = "structure"


LARGE_LOG: Final = 2 * 1024**3
"""Size of the files of a log, in bytes, above which `auto` chooses needles."""
SAMPLE_OF_LARGE_LOG: Final = 0.01
"""The share of the records of a large log that all checks judge."""

UNSEEN: Final = (
    "not seen in the other records: thoughts without marker or channel word, finish reasons, calls, schemas, histories, usage, streams;"
    " unreadable records; texts in base64"
)
"""Failures that the plan `needles` does not find."""
_NO_LIBRARY: Final = (
    f"not needles, as for other logs above {LARGE_LOG >> 30} GiB: neither {' nor '.join(LIBRARIES)} is installed"
    " (extra needles)"
)
COUNTS_ONLY: Final = "counts without shares: the plan needles judged a part of each group only"
_FACTOR, _RANGE = 0x9E3779B97F4A7C15, 2**64


@dataclass(frozen=True, kw_only=True)
class AuditPlan:
    """The records that are judged.

    Attributes:
        name: `needles`: the checks of leaks judge each record that has a needle. `structure`: they need none.
        sample: The share of the records that all checks judge, from 0 to 1. The plan `needles` includes the first record of each file.
        library: The library that finds the needles.
        note: The reason why `auto` did not choose what it would have chosen, else empty.
    """

    name: PlanName = PlanName.STRUCTURE
    sample: float = 1.0
    library: str = ""
    note: str = ""

    @property
    def has_rates(self) -> bool:
        """False if the judged records are no sample of the log: most records of a group were not judged, and their source is not known."""
        return self.name is not PlanName.NEEDLES

    def records(self, check: str, count: int) -> str:
        """Return a number of exchanges to which a check applied, in words: what they are of the log."""
        if self.has_rates:
            return number_of(count, "exchange")
        return number_of(count, "record") if check in NEEDLE_CHECKS else f"{number_of(count, 'exchange')} of the sample"

    @property
    def judges_all(self) -> bool:
        """True if all checks judge all records."""
        return self.sample >= 1

    def is_sampled(self, offset: int) -> bool:
        """Return True if all checks judge the record at this offset. The choice depends on the offset alone."""
        is_first = not offset and self.name is PlanName.NEEDLES
        return is_first or (offset + 1) * _FACTOR % _RANGE < self.sample * _RANGE

    def __str__(self) -> str:
        """Return the plan in one line."""
        if self.name is PlanName.NEEDLES:
            found = f"plan needles: leaks of markers and channel words in every record ({self.library})"
            return f"{found}; all checks on {self.sample:.4g} of the records; {UNSEEN}"
        share = "every record" if self.judges_all else f"{self.sample:.4g} of the records; not seen: the other records"
        return f"plan structure: all checks on {share}{self.note and f'; {self.note}'}"


def choose_plan(name: PlanName, sample: float | None, paths: Iterable[str]) -> AuditPlan:
    """Return the plan of that name. `auto` is `needles` for large files, unless `sample` is given.

    Raises:
        UsageError: The library that finds needles is missing.
    """
    library = installed_library()
    if name is PlanName.NEEDLES and not library:
        names = " or ".join(LIBRARIES)
        raise UsageError(f"invalid --plan needles: expected {names}, got neither: {install_command('needles')}")
    note = ""
    if name is PlanName.AUTO:
        is_large = sum(path.stat().st_size for path in map(Path, paths) if path.is_file()) > LARGE_LOG
        name = PlanName.NEEDLES if is_large and sample is None and library else PlanName.STRUCTURE
        note = _NO_LIBRARY if is_large and sample is None and not library else ""
        sample = SAMPLE_OF_LARGE_LOG if name is PlanName.NEEDLES else sample
    if name is PlanName.NEEDLES:
        return AuditPlan(name=name, sample=sample or 0.0, library=library)
    return AuditPlan(name=name, sample=1.0 if sample is None else sample, note=note)


__all__ = ["COUNTS_ONLY", "LARGE_LOG", "SAMPLE_OF_LARGE_LOG", "UNSEEN", "AuditPlan", "PlanName", "choose_plan"]
