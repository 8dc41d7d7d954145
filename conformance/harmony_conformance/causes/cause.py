"""A cause: failing results that one defect of the server explains, or that are alike."""

from __future__ import annotations

from dataclasses import dataclass

from harmony_conformance.json_value import JsonObject
from harmony_conformance.judge.check import Finding, Severity, Verdict
from harmony_conformance.judge.judge import Result


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A cause of failing results.

    Attributes:
        id: The id of the defect, or of the first failing check of a group.
        sentence: The defect in one sentence, or the commonest message of the group.
        defects: The ids of the defects that explain the failures equally well, the likeliest first. Empty for a group.
        catalogue: The ids of these defects in `golden/defects.json`.
        results: The failing results, MUST first. A result with failures of several causes is in each of them.
        example: The first failure of the first result.
    """

    id: str
    sentence: str
    defects: tuple[str, ...]
    catalogue: tuple[str, ...]
    results: tuple[Result, ...]
    example: Finding

    @property
    def severity(self) -> Severity:
        """The highest severity among the results."""
        return self.results[0].severity

    def to_json(self) -> JsonObject:
        """Return the line of the report, without its kind."""
        first = self.results[0]
        return {
            "id": self.id,
            "sentence": self.sentence,
            "severity": self.severity.value,
            "defects": list(self.defects),
            "catalogue": list(self.catalogue),
            "results": len(self.results),
            "scenarios": [*sorted({result.scenario for result in self.results})],
            "checks": [*sorted({result.check for result in self.results})],
            "example": {
                "check": first.check,
                "scenario": first.scenario,
                "api": first.api,
                "exchange": self.example.exchange,
                "at": self.example.location,
                "message": self.example.message,
            },
        }


def first_failure(result: Result) -> Finding:
    """Return the first failure of a failing result."""
    return next(finding for finding in result.findings if finding.verdict is Verdict.FAIL)
