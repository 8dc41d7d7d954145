"""The share of the checks that could judge a server, and what would let more of them judge it."""

from __future__ import annotations

from dataclasses import dataclass

from harmony_conformance.json_value import JsonObject, text, value_at
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import NOT_ENOUGH_EVIDENCE
from harmony_conformance.report.model import Report
from harmony_conformance.report.summary import CheckResults, by_check

_IDS = "if the server returned token ids (vLLM and SGLang do: return_token_ids)"
_SCRIPT = "with a scripted model (see --script and engines/)"
_OTHER = "with other requests, answers or evidence"
_OPEN = "are inconclusive"


@dataclass(frozen=True, kw_only=True)
class EvidenceGrade:
    """The number of checks of a run, of those that judged the server, and of the others by what they need."""

    checks: int
    judged: int
    missing: tuple[tuple[str, int], ...]

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        missing: list[JsonObject] = [{"checks": count, "need": need} for need, count in self.missing]
        return {"total": self.checks, "judged": self.judged, "missing": [*missing]}


def evidence_grade(report: Report) -> EvidenceGrade:
    """Return the share of the checks that could judge the server."""
    checks = by_check(report)
    capabilities = value_at(report.header, "capabilities")
    has_ids, has_script = (
        text(value_at(capabilities, "prompt")) == "ids",
        text(value_at(capabilities, "script")) != "none",
    )
    needs = [_need(check, has_ids=has_ids, has_script=has_script) for check in checks if not check.applied]
    missing = ((need, needs.count(need)) for need in (_IDS, _SCRIPT, _OTHER, _OPEN))
    return EvidenceGrade(
        checks=len(checks),
        judged=len(checks) - len(needs),
        missing=tuple((need, count) for need, count in missing if count),
    )


def _need(check: CheckResults, *, has_ids: bool, has_script: bool) -> str:
    """Return what a check needs that never applied."""
    if check.outcome is Outcome.INCONCLUSIVE:
        return _OPEN
    reasons = {result.reason for result in check.results}
    lacks_evidence = any(reason.startswith(NOT_ENOUGH_EVIDENCE) for reason in reasons)
    if not has_ids and (lacks_evidence or any("token ids" in reason for reason in reasons)):
        return _IDS
    is_unscripted = not has_script and (lacks_evidence or any("scripted model" in reason for reason in reasons))
    return _SCRIPT if is_unscripted else _OTHER
