"""The outcome log: one JSON object a line for each exchange that went by.

Content-free unless asked otherwise: what a request said, and what was answered, does not stand in it.

    {"kind": "exchange", "id": 7, "started": "2026-01-31T12:00:00.000+00:00", "method": "POST", "path": "/v1/chat/completions", "request_id": "…",
     "status": 200, "end": "complete", "request_bytes": 311, "response_bytes": 2218, "chunks": 12, "first_byte": 0.03, "seconds": 0.41,
     "judged": true, "outcomes": {"pass": 24, …}, "failed": ["streaming.ends_with_done"], "variants": [], "errors": []}

An exchange that was not judged has `judged: false` and `unjudged`, the reason. With excerpts, `findings` says more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from harmony_conformance.audit.excerpt import Excerpts, apply_excerpts, names_in
from harmony_conformance.check import Outcome, Severity
from harmony_conformance.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.judge import Result
from harmony_conformance.report.model import ORDER, finding_json
from harmony_proxy.passage import Passage

_TOLD = frozenset({Outcome.FAIL, Outcome.VARIANT, Outcome.ERROR})


def log_line(passage: Passage, number: int, started: str, results: Sequence[Result], excerpts: Excerpts) -> JsonObject:
    """The line of one exchange."""
    line: JsonObject = {
        "kind": "exchange",
        "id": number,
        "started": started,
        "method": passage.kept.method,
        "path": passage.kept.path,
        "request_id": passage.request_id,
        "status": passage.kept.status,
        "end": passage.end.value,
        "request_bytes": passage.kept.request_bytes,
        "response_bytes": passage.kept.response_bytes,
        "chunks": passage.kept.chunks,
        "first_byte": round(passage.kept.first_byte, 6) if passage.kept.first_byte is not None else None,
        "seconds": round(passage.kept.seconds, 6),
        "judged": passage.exchange is not None,
    }
    if passage.exchange is None:
        return {**line, "unjudged": passage.unjudged}
    counts = Counter(result.outcome for result in results)
    outcomes: JsonObject = {outcome.value: counts[outcome] for outcome in ORDER}
    line |= {
        "outcomes": outcomes,
        "failed": _checks(results, Outcome.FAIL),
        "variants": _checks(results, Outcome.VARIANT),
        "errors": _checks(results, Outcome.ERROR),
    }
    if excerpts is not Excerpts.NONE:
        line["findings"] = _findings(passage.exchange, results, excerpts)
    return line


def _checks(results: Sequence[Result], outcome: Outcome) -> list[Json]:
    return [result.check for result in results if result.outcome is outcome]


def _findings(x: Exchange, results: Sequence[Result], excerpts: Excerpts) -> list[Json]:
    told = [result for result in results if result.outcome in _TOLD]
    names = names_in(x) if told else frozenset[str]()
    return [
        {"check": result.check, **finding_json(apply_excerpts(finding, excerpts, names))}
        for result in told
        for finding in result.findings
    ]


@dataclass(kw_only=True)
class Summary:
    """Counts since the start; the one line that is printed at the end."""

    exchanges: int = 0
    judged: int = 0
    dropped: int = 0
    failing: int = 0
    problems: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter[Outcome])
    failed: Counter[str] = field(default_factory=Counter[str])

    def add(self, passage: Passage, results: Sequence[Result]) -> None:
        """Count an exchange that went by."""
        self.exchanges += 1
        self.judged += passage.exchange is not None
        self.outcomes.update(result.outcome for result in results)
        failed = [result for result in results if result.outcome is Outcome.FAIL]
        self.failed.update(result.check for result in failed)
        self.failing += any(result.severity is Severity.MUST for result in failed)

    def __str__(self) -> str:
        """One line."""
        told = [
            f"{self.exchanges} exchanges went by",
            f"{self.judged} judged",
            f"{self.failing} broke a MUST",
        ]
        if self.outcomes[Outcome.ERROR]:
            told.append(f"{self.outcomes[Outcome.ERROR]} errors of our own checks")
        if self.dropped:
            told.append(f"{self.dropped} not judged: the queue was full")
        if self.problems:
            told.append(f"{self.problems} problems of our own (see the log of the program)")
        worst = ", ".join(f"{check} {times}" for check, times in self.failed.most_common(5))
        return ", ".join(told) + (f"; failed most: {worst}" if worst else "")
