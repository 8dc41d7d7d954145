"""Report of an audit: a result line for each check, as in `report.jsonl`, with counts of exchanges; and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from harmony_conformance.audit.plans.needles import NEEDLE_CHECKS
from harmony_conformance.audit.plans.plan import AuditPlan, PlanName
from harmony_conformance.audit.rates.rate import rates, share_json
from harmony_conformance.audit.readers.records.proxy_log import WITHOUT_SHARE
from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.audit.results.log_baseline import BaselineCounter, LogBaseline
from harmony_conformance.audit.results.log_causes import SCENARIO, log_causes
from harmony_conformance.audit.tallies import CheckTally, FindingExample, LineProblems, Tally
from harmony_conformance.errors import Exit
from harmony_conformance.evidence.file_lines import NOT_READ
from harmony_conformance.json_value import Json, JsonObject, dumps
from harmony_conformance.judge.check import Check, Comparison, Outcome, Severity
from harmony_conformance.judge.judge import is_comparison
from harmony_conformance.plugins.registry import all_checks, plugin_header
from harmony_conformance.report.model import ORDER, ResultLine, count_all, finding_json

WORST_FIRST = (
    Outcome.ERROR,
    Outcome.FAIL,
    Outcome.VARIANT,
    Outcome.PASS,
    Outcome.INCONCLUSIVE,
    Outcome.NOT_APPLICABLE,
)
_EXPECTED_LINE = (
    "expected pairs of request and response, or another format of docs/audit-formats.md;"
    " --explain-format shows what was detected, --map names the members"
)
NO_SHARE = "samples of failures: no share of the traffic"
"""Note of a report if the log of a proxy has lines that cannot be counted."""
_PASSED_UNNAMED = "the log of the proxy does not name the checks that passed"
COMPARISON_REASON = "compares exchanges, each line is judged alone"
"""Reason why comparisons are not applicable."""


@dataclass(frozen=True, kw_only=True)
class AuditLine:
    """Result of a check over a log: its line, its counts of exchanges, and its first examples after redaction."""

    result: ResultLine
    counts: Mapping[Outcome, int]
    examples: tuple[FindingExample, ...]

    def to_json(self) -> JsonObject:
        """Return the JSON form: a result line with counts."""
        failed, applied = self.counts.get(Outcome.FAIL, 0), self.result.applied
        rate: JsonObject = {"rate": share_json(failed, applied)} if applied else {}
        return {
            **self.result.to_json(),
            "counts": {outcome.value: self.counts.get(outcome, 0) for outcome in ORDER},
            **rate,
        }


@dataclass(frozen=True, kw_only=True)
class Audit:
    """The report of a log: its files, its tally, one line for each check, sorted by check, and the comparison with a baseline."""

    files: tuple[str, ...]
    tally: Tally
    lines: tuple[AuditLine, ...]
    causes: tuple[JsonObject, ...]
    excerpts: Excerpts
    version: str
    plan: AuditPlan
    baseline: LogBaseline | None = None
    empty_files: tuple[str, ...] = ()

    @property
    def counts(self) -> Counter[Outcome]:
        """Number of exchanges times checks for each outcome."""
        unnamed = Counter(dict(self.tally.counted.outcomes))
        return sum((Counter(dict(line.counts)) for line in self.lines), unnamed)

    @property
    def has_share(self) -> bool:
        """False if the log of a proxy has samples of failures alone: their number is no share of the traffic."""
        return not WITHOUT_SHARE & self.tally.unreadable_by_kind.keys()

    @property
    def failed(self) -> int:
        """Number of exchanges with a failure."""
        return sum(group.failed for group in self.tally.groups.get("api", {}).values())

    @property
    def must_failed(self) -> int:
        """Number of exchanges with a failure of severity MUST."""
        return sum(group.must for group in self.tally.groups.get("api", {}).values())

    def summary(self) -> str:
        """Return the last line of the printed report."""
        return count_all(self.counts)

    def jsonl(self) -> Iterator[str]:
        """Yield the lines of `audit.jsonl`: header, causes, a result for each check, a rate for each group, footer."""
        files: list[Json] = list(self.files)
        yield dumps(
            {
                "kind": "header",
                "version": self.version,
                "source": "audit",
                "files": files,
                "excerpts": self.excerpts.value,
                **plugin_header(),
                "exchanges": self.tally.exchanges,
                **({"counted": counted} if (counted := self.tally.counted.exchanges) else {}),
                **({} if self.has_share else {"note": NO_SHARE}),
                "left_out": self.tally.discovery_exchanges,
                "plan": {
                    "name": self.plan.name.value,
                    "sample": self.plan.sample,
                    "passed_over": self.tally.passed_over,
                    "sentence": str(self.plan),
                },
                **({"must": self.must_failed} if self.plan.has_rates else {}),
                "unreadable": self.tally.unreadable,
                "unread": _problems_json(self.tally.unreadable_by_kind),
                **({"empty_files": [*self.empty_files]} if self.empty_files else {}),
                "errors": self.tally.errors,
                "not_judged": _problems_json(self.tally.errors_by_kind),
                **({"baseline": self.baseline.to_json()} if self.baseline is not None else {}),
                "models": {
                    name or "unknown": {"exchanges": model.exchanges, "failed": model.failed}
                    for name, model in sorted(self.tally.groups.get("model", {}).items())
                },
            }
        )
        yield from (dumps({"kind": "cause", **cause}) for cause in self.causes)
        yield from (dumps(line.to_json()) for line in self.lines)
        yield from (
            dumps({"kind": "rate", **rate.to_json()})
            for rate in rates(self.tally.groups, has_share=self.plan.has_rates)
        )
        counts: JsonObject = {outcome.value: self.counts[outcome] for outcome in ORDER}
        yield dumps(
            {
                "kind": "footer",
                "counts": counts,
                "exchanges": self.tally.exchanges,
                "unreadable": self.tally.unreadable,
                "errors": self.tally.errors,
                "complete": True,
            }
        )


def make_audit(  # noqa: PLR0913 - what the log had, and how it was read
    tally: Tally,
    files: tuple[str, ...],
    excerpts: Excerpts,
    version: str,
    plan: AuditPlan | None = None,
    *,
    empty_files: tuple[str, ...] = (),
) -> Audit:
    """Return the report of a tally. Every check has a line, even if no exchange was read."""
    plan = plan or AuditPlan()
    lines = (_line(rule, tally, plan) for rule in all_checks())
    return Audit(
        files=files,
        tally=tally,
        lines=tuple(sorted(lines, key=lambda line: line.result.check)),
        causes=tuple(cause.to_json() for cause in log_causes(tally)),
        excerpts=excerpts,
        version=version,
        plan=plan,
        empty_files=empty_files,
    )


def with_baseline(audit: Audit, counted: BaselineCounter) -> Audit:
    """Return the report with the comparison of its failures with a baseline."""
    return replace(audit, baseline=compare_with_baseline(audit, counted))


def compare_with_baseline(audit: Audit, counted: BaselineCounter) -> LogBaseline:
    """Return the comparison of the failures of a log, which were counted, with a baseline."""
    judged = (line.result.check for line in audit.lines if line.result.applied)
    certain = frozenset(check for check in judged if audit.plan.judges_all or check in NEEDLE_CHECKS)
    return counted.compare(audit.causes, certain, audit.tally.groups)


def exit_code(audit: Audit, fails_on: frozenset[Severity]) -> Exit:
    """Return 3 after an internal error, 2 if nothing was checked, 1 if a check of a severity in `fails_on` failed, else 0.

    With a baseline, 1 means such a failure that it does not expect, or a stale entry.
    """
    if audit.counts[Outcome.ERROR] or audit.tally.errors:
        return Exit.INTERNAL_ERROR
    if unchecked_reason(audit):
        return Exit.USAGE
    if audit.baseline is not None:
        return Exit.DIVERGES if audit.baseline.is_broken(fails_on) else Exit.CONFORMS
    failed = any(line.counts.get(Outcome.FAIL) and line.result.severity in fails_on for line in audit.lines)
    return Exit.DIVERGES if failed else Exit.CONFORMS


def unchecked_reason(audit: Audit) -> str:
    """Return the reason why nothing could be checked, empty if something was."""
    if not audit.tally.exchanges:
        empty = "only discovery requests" if audit.tally.discovery_exchanges else "the input is empty"
        return f"no exchange in the input ({unreadable_summary(audit.tally) or empty}); {_EXPECTED_LINE}"
    has_passes = audit.tally.passed_over or audit.tally.counted.outcomes.get(Outcome.PASS)
    if not has_passes and not any(line.result.applied for line in audit.lines if line.result.severity is Severity.MUST):
        return "no MUST check was applicable"
    return ""


def unreadable_summary(tally: Tally) -> str:
    """Return the unreadable lines on one line: count, kind and first position of each kind. Empty if all were readable."""
    return _summary(tally.unreadable_by_kind)


def error_summary(tally: Tally) -> str:
    """Return the lines that were not judged because of an internal error, on one line. Empty if all were judged."""
    return _summary(tally.errors_by_kind)


def _summary(problems: Mapping[str, LineProblems]) -> str:
    return "; ".join(
        f"{found.count} x {kind}, first at {place}{f': {detail}' if detail and kind.startswith(NOT_READ) else ''}"
        for kind, found in sorted(problems.items())
        for place, detail in found.examples[:1]
    )


def _problems_json(problems: Mapping[str, LineProblems]) -> JsonObject:
    return {
        kind: {
            "count": found.count,
            "first": [
                {"file": place.file, "offset": place.offset, "detail": detail} for place, detail in found.examples
            ],
        }
        for kind, found in sorted(problems.items())
    }


def _line(rule: Check | Comparison, tally: Tally, plan: AuditPlan) -> AuditLine:
    tallied = tally.checks.get(rule.id, CheckTally())
    applied = sum(tallied.counts.get(outcome, 0) for outcome in WORST_FIRST[:4])
    if tallied.counts.get(Outcome.FAIL):  # a line without content does not name the checks that passed
        applied += tally.counted.exchanges - tally.counted.checks.get(rule.id, 0)
    is_by_needle = plan.name is PlanName.NEEDLES and rule.id in NEEDLE_CHECKS
    unseen = tally.passed_over if applied and is_by_needle else 0  # these records cannot fail the check
    examples = tallied.examples
    outcome = next((outcome for outcome in WORST_FIRST if tallied.counts.get(outcome)), Outcome.NOT_APPLICABLE)
    result = ResultLine(
        check=rule.id,
        severity=rule.severity,
        outcome=outcome,
        scenario=SCENARIO,
        api="chat",
        spec=rule.clause.id,
        quotation=rule.clause.quotation,
        evidence=tuple(sorted(tallied.evidence)),
        exchanges=tuple(str(example.place) for example in examples),
        passed=tallied.counts.get(Outcome.PASS, 0) + tallied.counts.get(Outcome.VARIANT, 0) + unseen,
        applied=applied + unseen,
        tries=tally.exchanges,
        findings=tuple(finding_json(finding) for example in examples for finding in example.findings),
        reason=_reason(rule, tally, outcome, examples),
    )
    return AuditLine(result=result, counts=tallied.counts, examples=examples)


def _reason(rule: Check | Comparison, tally: Tally, outcome: Outcome, examples: tuple[FindingExample, ...]) -> str:
    tallied = tally.checks.get(rule.id, CheckTally())
    if outcome is Outcome.ERROR:
        return next((example.reason for example in examples if example.reason), "")
    if outcome is not Outcome.NOT_APPLICABLE:
        return ""
    if is_comparison(rule):
        return COMPARISON_REASON
    unknown = _PASSED_UNNAMED if tally.counted.exchanges else "the log has no exchange"
    return min(tallied.reasons, key=lambda reason: (-tallied.reasons[reason], reason), default=unknown)
