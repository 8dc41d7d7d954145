"""An audit as its file `audit.jsonl` has it, and the part of it in a period."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from harmony_conformance.audit.folder.folder_marks import AUDIT
from harmony_conformance.audit.plans.plan import AuditPlan, PlanName
from harmony_conformance.audit.rates.groups import GroupTally
from harmony_conformance.audit.rates.rate import GroupRate
from harmony_conformance.errors import UsageError
from harmony_conformance.json_value import InvalidJsonError, JsonObject, integer, items, loads, members, text, value_at
from harmony_conformance.judge.check import Severity

_PERIOD = re.compile(r"(.+)@(\d{4}-\d\d-\d\d)?\.\.(\d{4}-\d\d-\d\d)?", re.ASCII)
_UNKNOWN = "unknown"
_MOST_EXCHANGES = 1 << 53
_SEVERITIES = frozenset(one.value for one in Severity)


@dataclass(frozen=True, kw_only=True)
class AuditPart:
    """An audit, or the days of it in a period.

    Attributes:
        exchanges: The number of exchanges that were judged.
        failures: Those that each check failed for.
        must: Those with a failure of severity MUST; None if this is not known of the whole log.
        applied: The exchanges that each check applied to, if all checks judged only some of them (plan `needles`).
    """

    name: str
    exchanges: int
    failures: Mapping[str, int]
    must: int | None = None
    applied: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True)
class StoredAudit:
    """The lines of `audit.jsonl`."""

    name: str
    header: JsonObject
    checks: tuple[JsonObject, ...]
    causes: tuple[JsonObject, ...]
    rates: tuple[GroupRate, ...]

    @cached_property
    def severities(self) -> Mapping[str, Severity]:
        """The severity of each check; of one that failed, the severity of its failures."""
        return {text(value_at(one, "check")): Severity(text(value_at(one, "severity"))) for one in self.checks}

    @property
    def plan(self) -> AuditPlan:
        """The plan, without its library."""
        is_by_needle = text(value_at(self.header, "plan", "name")) == PlanName.NEEDLES
        return AuditPlan(name=PlanName.NEEDLES if is_by_needle else PlanName.STRUCTURE)

    def by(self, dimension: str) -> tuple[GroupRate, ...]:
        """Return the rates of one dimension."""
        return tuple(rate for rate in self.rates if rate.dimension == dimension)

    def whole(self) -> AuditPart:
        """Return all exchanges."""
        failures = {
            text(value_at(one, "check")): count
            for one in self.checks
            if (count := integer(value_at(one, "counts", "fail")))
        }
        applied = {text(one.get("check")): integer(one.get("applied")) or 0 for one in self.checks}
        return AuditPart(
            name=self.name,
            exchanges=integer(self.header.get("exchanges")) or 0,
            failures=failures,
            must=integer(self.header.get("must")),
            applied={} if self.plan.has_rates else applied,
        )

    def between(self, first: str, last: str) -> AuditPart:
        """Return the exchanges of the days from `first` to `last`, both included. An empty bound is open."""
        days = [one for one in self.by("day") if one.name != _UNKNOWN and first <= one.name <= (last or "9999")]
        failures = sum((Counter(dict(day.tally.checks)) for day in days), Counter[str]())
        name = f"{self.name} from {first or 'the beginning'} to {last or 'the end'}"
        return AuditPart(
            name=name,
            exchanges=sum(day.tally.exchanges for day in days),
            failures=failures,
            must=sum(day.tally.must for day in days) if "must" in self.header else None,
        )


def is_audit(name: str) -> bool:
    """Return True for the folder or the file of an audit, with or without a period."""
    found = _PERIOD.fullmatch(name)
    path = Path(found[1] if found and not Path(name).exists() else name)
    return path.name == AUDIT or (path / AUDIT).is_file()


def read_part(name: str) -> tuple[StoredAudit, AuditPart]:
    """Read `FOLDER`, or `FOLDER@2026-11-01..2026-11-07` with the days of a period.

    Raises:
        UsageError: There is no complete audit, or no exchange in the period.
    """
    found = None if Path(name).exists() else _PERIOD.fullmatch(name)
    audit = read_audit_file(Path(found[1] if found else name))
    if found and not audit.plan.has_rates:
        raise UsageError(
            f"invalid period of {found[1]}: expected an audit with --plan structure, got needles, which judges a part of each day only"
        )
    part = audit.between(found[2] or "", found[3] or "") if found else audit.whole()
    if not part.exchanges:
        days = [one.name for one in audit.by("day") if one.name != _UNKNOWN]
        known = f"days from {days[0]} to {days[-1]}" if days else "no exchange with a time"
        raise UsageError(f"{name}: expected exchanges in this period, got none: the audit has {known}")
    return audit, part


def read_audit_file(path: Path) -> StoredAudit:
    """Read the audit of a folder, or its `audit.jsonl`.

    Raises:
        UsageError: It cannot be read, or is not complete.
    """
    file = path / AUDIT if path.is_dir() else path
    try:
        return read_audit(file.read_text("utf-8").removesuffix("\n").split("\n"), str(path))
    except OSError as problem:
        raise UsageError(f"{file}: {problem.strerror}") from None
    except (InvalidJsonError, UnicodeDecodeError) as problem:
        raise UsageError(f"{file}: {problem}") from None


def read_audit(lines: Iterable[str], name: str) -> StoredAudit:
    """Read the lines of `audit.jsonl`.

    Raises:
        UsageError: The first or the last line is missing, or a line has another severity or number than an audit writes.
        InvalidJsonError: A line is not JSON.
    """
    found = [members(loads(line)) for line in lines]
    kinds = [text(one.get("kind")) for one in found]
    if kinds[:1] != ["header"] or found[0].get("source") != "audit" or kinds[-1:] != ["footer"]:
        raise UsageError(f"{name}: expected a complete {AUDIT} from its header to its footer")
    for number, one in enumerate(found, 1):
        if problem := _problem_of(one):
            raise UsageError(f"{name}: invalid line {number} of {AUDIT}: expected {problem}")
    by_kind = {kind: tuple(one for one in found if one.get("kind") == kind) for kind in ("result", "cause", "rate")}
    return StoredAudit(
        name=name,
        header=found[0],
        checks=by_kind["result"],
        causes=by_kind["cause"],
        rates=tuple(map(_read_rate, by_kind["rate"])),
    )


def _problem_of(line: JsonObject) -> str:
    """Return what a line should have, if it is not as an audit writes it; otherwise an empty text."""
    kind = line.get("kind")
    if kind == "result" and text(line.get("severity")) not in _SEVERITIES:
        return "a severity"
    failed = value_at(line, "counts", "fail") if kind == "result" else line.get("failed")
    counts = [line.get("exchanges"), line.get("must")] if kind in ("header", "rate") else []
    counts += [failed, *members(line.get("checks")).values()] if kind in ("result", "rate") else []
    numbers = [integer(count) or 0 for count in counts]
    is_plain = all(0 <= number <= (_MOST_EXCHANGES if kind == "result" else numbers[0]) for number in numbers)
    return "" if is_plain and max(numbers, default=0) <= _MOST_EXCHANGES else "numbers of exchanges"


def _read_rate(value: JsonObject) -> GroupRate:
    checks = {name: integer(count) or 0 for name, count in members(value.get("checks")).items()}
    tally = GroupTally(
        exchanges=integer(value.get("exchanges")) or 0,
        failed=integer(value.get("failed")) or 0,
        must=integer(value.get("must")) or 0,
        checks=checks,
    )
    has_share = value.get("share") is not None
    return GroupRate(dimension=text(value.get("by")), name=text(value.get("name")), tally=tally, has_share=has_share)


def shown_files(audit: StoredAudit) -> str:
    """Return the files of the log on one line."""
    files = [text(file) for file in items(audit.header.get("files"))]
    return ", ".join(files[:3]) + (f" and {len(files) - 3} more" if len(files) > 3 else "")  # noqa: PLR2004
