"""The outcome log: one JSON line for each exchange.

By default it contains nothing of the content of requests and responses.

    {"kind": "exchange", "id": "9f3a1c20-7", "started": "2026-01-31T12:00:00.000+00:00", "method": "POST", "path": "/v1/chat/completions", "api": "chat",
     "request_id": "…", "status": 200, "end": "complete", "request_bytes": 311, "response_bytes": 2218, "chunks": 12, "first_byte": 0.03, "seconds": 0.41,
     "judged": true,
     "model": "gpt-oss-20b", "engine": "", "outcomes": {"pass": 24, …}, "failed": ["streaming.ends_with_done"], "variants": [], "errors": []}

- `id` is also sent to the client as `x-harmony-request-id` if the route repairs or blocks.
- `model` and `engine` are the names in the answer, empty unless they are plain words.
- An exchange that was not judged has `judged: false` and the reason as `unjudged`, after an internal error its type and place.
- `error` (type and place) means that findings and sample could not be written.
- `acted` lists actions: `repaired` (check: count), `blocked` (checks), `left` (check: reason why not repaired).
- `request`, `before` and `after` (with capture): the request, the response of the server, and what the client got instead: repaired or blocked.
- `findings` (with excerpts) has details; `sample` (with capture) is a sample of a failing exchange.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harmony_conformance.audit.answer_names import engine_of, model_of
from harmony_conformance.audit.redaction import Excerpts, apply_excerpts, function_names, redact_json
from harmony_conformance.engines.answer_signature import engine_in_answer
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import write_exchange, write_request, write_response
from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import Result
from harmony_conformance.report.model import ORDER, finding_json
from harmony_proxy.capture.build_exchange import BuiltExchange
from harmony_proxy.capture.recorder import End, RecordedExchange
from harmony_proxy.capture.routes import api_of

_REPORTED = frozenset({Outcome.FAIL, Outcome.VARIANT, Outcome.ERROR})
UNNAMED_ENGINE = "openai"
"""The profile of an upstream without a named engine: any OpenAI-compatible server."""
SAMPLES = 10
"""Largest number of samples of each failing check since the start."""


def log_line(
    built: BuiltExchange, started: str, applied: Sequence[Result], not_applicable: int, excerpts: Excerpts
) -> JsonObject:
    """Return the line of one exchange: with the results of the checks that applied, and how many did not apply."""
    record = built.record
    line: JsonObject = {
        "kind": "exchange",
        "id": record.id,
        "started": started,
        "method": record.method,
        "path": record.path,
        "api": api_of(record.path),
        "request_id": built.request_id,
        "status": record.status,
        "end": built.end,
        "request_bytes": record.request_bytes,
        "response_bytes": record.response_bytes,
        "chunks": record.chunks,
        "first_byte": round(record.first_byte, 6) if record.first_byte is not None else None,
        "seconds": round(record.seconds, 6),
        "judged": built.exchange is not None,
    }
    if record.repair_counts or record.blocked_checks or record.unrepaired_reasons:
        line["acted"] = {
            "repaired": {**record.repair_counts},
            "blocked": [*record.blocked_checks],
            "left": {**record.unrepaired_reasons},
        }
    if built.exchange is None:
        return {**line, "unjudged": built.unjudged_reason}
    others = [result for result in applied if result.outcome is not Outcome.PASS]
    counts = Counter([result.outcome for result in others])
    counts[Outcome.PASS], counts[Outcome.NOT_APPLICABLE] = len(applied) - len(others), not_applicable
    line |= {
        "model": model_of(built.exchange),
        "engine": engine_of(built.exchange),
        "outcomes": {outcome: counts[outcome] for outcome in ORDER},
        "failed": _checks(others, Outcome.FAIL),
        "variants": _checks(others, Outcome.VARIANT),
        "errors": _checks(others, Outcome.ERROR),
    }
    if excerpts is not Excerpts.NONE:
        line["findings"] = _findings(built.exchange, others, excerpts)
    return line


def without_exchange(record: RecordedExchange, place: str) -> BuiltExchange:
    """Return an exchange on which judging failed. `place` is the type and place of the exception."""
    reason = f"internal error: {place}"
    return BuiltExchange(record=record, end=End(record.end), request_id="", exchange=None, unjudged_reason=reason)


def error_line(record: RecordedExchange, started: str, place: str) -> JsonObject:
    """Return the line of an exchange on which judging or writing failed. `place` is the type and place of the exception."""
    return log_line(without_exchange(record, place), started, (), 0, Excerpts.NONE)


def before_and_after(built: BuiltExchange, capture: Excerpts) -> JsonObject:
    """Return the members `request`, `before` and `after` of a line, null if not retained. Empty unless they are asked for and the answers differ."""
    if capture is Excerpts.NONE or built.record.sent is None:
        return {}
    values = {
        "request": write_request(built.asked) if built.asked is not None else None,
        "before": write_response(built.before) if built.before is not None else None,
        "after": write_response(built.after) if built.after is not None else None,
    }
    return {name: value if capture is Excerpts.FULL else redact_json(value) for name, value in values.items()}


class Samples:
    """Selects the first exchanges that fail each check. State: the number of samples by check."""

    def __init__(self, capture: Excerpts) -> None:
        self._capture = capture
        self._taken: Counter[str] = Counter()

    def select_sample(self, x: Exchange, results: Sequence[Result]) -> JsonObject | None:
        """Return a sample: the recorded exchange without credentials, or its redacted form; None if no sample is needed."""
        failed = [one.check for one in results if one.outcome is Outcome.FAIL and self._taken[one.check] < SAMPLES]
        if self._capture is Excerpts.NONE or not failed:
            return None
        self._taken.update(failed)
        sample = write_exchange(x)
        if x.engine == UNNAMED_ENGINE:
            sample["engine"] = engine_in_answer(x)
        if self._capture is Excerpts.FULL:
            return sample
        return {
            name: redact_json(value) if name in ("request", "response") else value
            for name, value in sample.items()
            if name != "failure"
        }


def _checks(results: Sequence[Result], outcome: Outcome) -> list[Json]:
    return [result.check for result in results if result.outcome is outcome]


def _findings(x: Exchange, results: Sequence[Result], excerpts: Excerpts) -> list[Json]:
    reported = [result for result in results if result.outcome in _REPORTED]
    names = function_names(x) if reported else frozenset[str]()
    return [
        {"check": result.check, **finding_json(apply_excerpts(finding, excerpts, names))}
        for result in reported
        for finding in result.findings
    ]
