"""The summary of a run as one JSON document, for programs that need no single results."""

from __future__ import annotations

from harmony_conformance.json_value import Json, JsonObject, value_at
from harmony_conformance.judge.check import Severity
from harmony_conformance.report.evidence_grade import evidence_grade
from harmony_conformance.report.model import ORDER, Report
from harmony_conformance.report.summary import run_verdict

_HEADER_MEMBERS = ("client", "target", "plugins", "incomplete", "features", "missing_features")


def run_json(report: Report, fails_on: frozenset[Severity]) -> JsonObject:
    """Return verdict, counts, causes, evidence grade, endpoint and features of a run."""
    verdict = run_verdict(report, fails_on)
    header: JsonObject = {
        name: value for name in _HEADER_MEMBERS if (value := value_at(report.header, name)) is not None
    }
    causes: list[Json] = [*report.causes]
    return {
        "verdict": verdict.standing.value,
        "sentence": verdict.sentence,
        "counts": {outcome.value: report.counts[outcome] for outcome in ORDER},
        "causes": causes,
        "checks": evidence_grade(report).to_json(),
        **header,
    }
