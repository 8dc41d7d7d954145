"""A cause: failing results that one defect of the server explains, or that are alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from harmony_conformance.causes.known import TIMING, KnownCause, catalogue, user_effects
from harmony_conformance.json_value import JsonObject
from harmony_conformance.judge.check import Finding, Severity
from harmony_conformance.judge.clause import Clause
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.judge.judge import Result
from harmony_conformance.judge.result_name import result_name


@dataclass(frozen=True, kw_only=True)
class Cause:
    """A cause of failing results.

    Attributes:
        id: The id of the known cause, of the likeliest defect, or of the commonest check in a group.
        sentence: The behaviour of the server, or the commonest message of the group.
        defects: The ids of the defects that explain the failures equally well, the likeliest first. Empty unless signatures name the cause.
        known: What is known about it on real engines. The first one is the cause itself if it was recognized.
        results: The failing results: that of the example, then those of severity MUST. A result can have several causes.
        severity: That of the known cause, or the highest among its own failures. A result can be MUST for another cause.
        example: The failure of highest severity in the smallest exchange, if possible of an everyday request.
    """

    id: str
    sentence: str
    defects: tuple[str, ...]
    known: tuple[KnownCause, ...]
    results: tuple[Result, ...]
    severity: Severity
    example: Finding

    @property
    def catalogue(self) -> tuple[str, ...]:
        """Ids in `golden/defects.json`."""
        entries = (
            entry for cause in self.known for entry in (cause.catalogue or ((cause.id,) if not cause.clause else ()))
        )
        return tuple(dict.fromkeys(entries))

    @cached_property
    def clause(self) -> Clause:
        """The clause of the known cause, or of the example."""
        own = next((CLAUSES[cause.clause] for cause in self.known if cause.clause in CLAUSES), None)
        return own or CLAUSES.get(self.example.clause, self.results[0].clause)

    def to_json(self) -> JsonObject:
        """Return the line of the report, without its kind."""
        first = self.results[0]
        details = (*self.known, *(catalogue()[entry] for entry in self.catalogue))
        own = next((cause for cause in self.known if cause.id == self.id), None)
        optional = {"expected": self.example.expected, "actual": self.example.actual}
        return {
            "id": self.id,
            "sentence": self.sentence,
            "severity": self.severity.value,
            "users_see": next((cause.users_see for cause in details), user_effects().get(self.id, "")),
            "clause": {"id": self.clause.id, "quotation": self.clause.quotation, "source": self.clause.source},
            "defects": list(self.defects),
            "catalogue": list(self.catalogue),
            "threads": [*dict.fromkeys(thread for cause in details for thread in cause.threads)],
            "remedy": own.remedy if own else "",
            **({"affected": own.affected, "fixed_in": own.fixed_in} if own else {}),
            **({"timing": TIMING} if own and own.timing else {}),
            "results": len(self.results),
            "failed": [*sorted(result_name(one.check, one.scenario, one.api) for one in self.results)],
            "scenarios": [*sorted({result.scenario for result in self.results})],
            "checks": [*sorted({result.check for result in self.results})],
            "example": {
                "check": first.check,
                "scenario": first.scenario,
                "api": first.api,
                "exchange": self.example.exchange,
                "at": self.example.location,
                "message": self.example.message,
                **{name: value for name, value in optional.items() if value is not None},
            },
        }
