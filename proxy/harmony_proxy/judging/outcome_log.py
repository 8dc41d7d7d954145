"""The outcome log: one JSON object a line for each exchange that went by.

Content-free unless asked otherwise: what a request said, and what was answered, does not stand in it.

    {"kind": "exchange", "id": "9f3a1c20-7", "started": "2026-01-31T12:00:00.000+00:00", "method": "POST", "path": "/v1/chat/completions", "api": "chat",
     "request_id": "…", "status": 200, "end": "complete", "request_bytes": 311, "response_bytes": 2218, "chunks": 12, "first_byte": 0.03, "seconds": 0.41,
     "judged": true, "outcomes": {"pass": 24, …}, "failed": ["streaming.ends_with_done"], "variants": [], "errors": []}

`id` is what the client was told as `x-harmony-request-id`, where it was told one. An exchange that was not judged has `judged: false` and `unjudged`,
the reason. Where something was done, `acted` says what: `repaired` (check: times), `blocked` (checks), `left` (check: why not). With excerpts, `findings`
says more; a sample of a failing exchange is `sample`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harmony_conformance.audit.redaction import Excerpts, apply_excerpts, names_in, redact
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.recording import write_exchange
from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import Result
from harmony_conformance.report.model import ORDER, finding_json
from harmony_proxy.capture.build_exchange import BuiltExchange
from harmony_proxy.capture.routes import api_of

_TOLD = frozenset({Outcome.FAIL, Outcome.VARIANT, Outcome.ERROR})
SAMPLES = 10
"""How many exchanges are kept as samples of each failing check, since the start."""


def log_line(
    told: BuiltExchange, started: str, applied: Sequence[Result], aside: int, excerpts: Excerpts
) -> JsonObject:
    """The line of one exchange. `applied`: what was said by the checks that applied to it; to how many it did not, `aside`."""
    kept = told.kept
    line: JsonObject = {
        "kind": "exchange",
        "id": kept.id,
        "started": started,
        "method": kept.method,
        "path": kept.path,
        "api": api_of(kept.path),
        "request_id": told.request_id,
        "status": kept.status,
        "end": told.end,
        "request_bytes": kept.request_bytes,
        "response_bytes": kept.response_bytes,
        "chunks": kept.chunks,
        "first_byte": round(kept.first_byte, 6) if kept.first_byte is not None else None,
        "seconds": round(kept.seconds, 6),
        "judged": told.exchange is not None,
    }
    if kept.repaired or kept.blocked or kept.left:
        repaired: JsonObject = dict(kept.repaired)
        left: JsonObject = dict(kept.left)
        line["acted"] = {"repaired": repaired, "blocked": list(kept.blocked), "left": left}
    if told.exchange is None:
        return {**line, "unjudged": told.unjudged}
    more = [said for said in applied if said.outcome is not Outcome.PASS]
    counts = Counter([said.outcome for said in more])
    counts[Outcome.PASS], counts[Outcome.NOT_APPLICABLE] = len(applied) - len(more), aside
    outcomes: JsonObject = {outcome: counts[outcome] for outcome in ORDER}
    line |= {
        "outcomes": outcomes,
        "failed": _checks(more, Outcome.FAIL),
        "variants": _checks(more, Outcome.VARIANT),
        "errors": _checks(more, Outcome.ERROR),
    }
    if excerpts is not Excerpts.NONE:
        line["findings"] = _findings(told.exchange, more, excerpts)
    return line


class Samples:
    """Keeps the first exchanges on which each check failed. State: how many there were of each."""

    def __init__(self, capture: Excerpts) -> None:
        self._capture = capture
        self._taken: Counter[str] = Counter()

    def take(self, x: Exchange, results: Sequence[Result]) -> JsonObject | None:
        """The exchange as it can be judged again, or its shape; None where there are enough, or none are wanted. Credentials were masked before."""
        if self._capture is Excerpts.NONE:
            return None
        wanted = [
            result.check for result in results if result.outcome is Outcome.FAIL and self._taken[result.check] < SAMPLES
        ]
        if not wanted:
            return None
        self._taken.update(wanted)
        sample = write_exchange(x)
        if self._capture is Excerpts.FULL:
            return sample
        return {
            name: _redacted(value) if name in ("request", "response") else value
            for name, value in sample.items()
            if name != "failure"
        }


_PLAIN = frozenset({"method", "path", "headers", "status", "at"})


def _redacted(value: Json) -> Json:
    match value:
        case str():
            return redact(value)
        case list():
            return [_redacted(item) for item in value]
        case dict():
            return {name: item if name in _PLAIN else _redacted(item) for name, item in value.items()}
        case _:
            return value


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
