"""`report.html` of an audit: one page without script and without external resources. `audit.html.jinja` is its template."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harmony_conformance.audit.plans.plan import COUNTS_ONLY
from harmony_conformance.audit.rates.groups import DIMENSIONS
from harmony_conformance.audit.rates.rate import GroupRate, percent
from harmony_conformance.audit.readers.records.record import counted_note, delivery_notes
from harmony_conformance.audit.results.stored_audit import StoredAudit, shown_files
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at
from harmony_conformance.report import text_excerpt
from harmony_conformance.report.intervals import wilson
from harmony_conformance.report.pages import markup
from harmony_conformance.report.pages.html import environment
from harmony_conformance.report.plugins_used import describe_plugins
from harmony_conformance.report.summary import grouped, sides
from harmony_conformance.runtime.plural import number_of

_DAYS, _GROUPS, _EXAMPLES, _THREADS = 366, 40, 3, 4
_WIDTH, _HEIGHT = 960, 180


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One day of the trend, in the units of the drawing: the left edge, the width, and the heights of share and interval."""

    rate: GroupRate
    left: float
    width: float
    top: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class FailedCheck:
    """A check that failed: its counts in words, and its worst examples."""

    check: str
    severity: str
    extent: str
    quotation: str
    examples: Sequence[tuple[JsonObject, Sequence[tuple[str, str]]]]


def audit_html(audit: StoredAudit) -> str:
    """Return the page of an audit."""
    failed = tuple(_failed_checks(audit))
    days = [one for one in audit.by("day") if one.name != "unknown"]
    trend = days[-_DAYS:] if audit.plan.has_rates else []
    groups = {dimension: _largest(audit, dimension) for dimension in DIMENSIONS if dimension != "day" or not trend}
    exchanges = integer(audit.header.get("exchanges")) or 0
    return (
        environment()
        .get_template("audit.html.jinja", globals={"excerpt": text_excerpt, "markup": markup, "sides": sides})
        .render(
            name=shown_files(audit),
            standing="fail"
            if any(one.severity == "MUST" for one in failed)
            else "pass"
            if exchanges
            else "inconclusive",
            headline=f"{number_of(len(failed), 'check')} failed in {_extent(audit)}" if failed else "no failure found",
            facts=_facts(audit),
            days=trend,
            bars=tuple(_bars(trend)),
            highest=max((wilson(one.tally.failed, one.tally.exchanges)[1] for one in trend), default=0),
            size=(_WIDTH, _HEIGHT),
            groups={dimension: found for dimension, found in groups.items() if found},
            causes=[_cause(one) for one in audit.causes],
            failed=failed,
            notes=list(_notes(audit)),
            empty=list(map(text, items(audit.header.get("empty_files")))),
            problems=[*_problems(audit.header.get("unread")), *_problems(audit.header.get("not_judged"))],
        )
    )


def _extent(audit: StoredAudit) -> str:
    """Return the number of exchanges with a failure."""
    failed, exchanges = sum(one.tally.failed for one in audit.by("api")), integer(audit.header.get("exchanges")) or 0
    return f"{failed} of {number_of(exchanges, 'exchange')}" if audit.plan.has_rates else number_of(failed, "exchange")


def _notes(audit: StoredAudit) -> Iterator[str]:
    if passed_over := integer(value_at(audit.header, "plan", "passed_over")):
        yield text(value_at(audit.header, "plan", "sentence"))
        yield f"{number_of(passed_over, 'record')} not judged"
    if not audit.plan.has_rates:
        yield f"By day, model and the like: {COUNTS_ONLY}"
    if note := text(audit.header.get("note")):
        yield note
    if counted := integer(audit.header.get("counted")):
        yield counted_note(counted)
    yield from delivery_notes({one.name: one.tally.exchanges for one in audit.by("delivery")})


def _facts(audit: StoredAudit) -> list[tuple[str, Json]]:
    header = audit.header
    return [
        ("Exchanges", header.get("exchanges")),
        ("Unreadable records", header.get("unreadable")),
        ("Internal errors", header.get("errors")),
        ("Quotations", header.get("excerpts")),
        *_baseline(header.get("baseline")),
        *((("Plug-ins", plugins),) if (plugins := describe_plugins(header)) else ()),
        ("Suite", f"harmony-conformance {text(header.get('version'))}"),
    ]


def _baseline(compared: Json) -> list[tuple[str, Json]]:
    """Return the fact about a baseline, none without one."""
    if not isinstance(compared, dict):
        return []
    others = sum(integer(count) or 0 for count in members(compared.get("unexpected")).values())
    stale = len(items(compared.get("stale")))
    expected = number_of(integer(compared.get("expected")) or 0, "failure")
    return [
        ("Baseline", f"{expected} expected, {others} not expected, {number_of(stale, 'stale entry', 'stale entries')}")
    ]


def _largest(audit: StoredAudit, dimension: str) -> list[GroupRate]:
    found = sorted(
        audit.by(dimension), key=lambda one: (-one.tally.exchanges * one.has_share, -one.tally.failed, one.name)
    )
    return [] if [one.name for one in found] == ["unknown"] else found[:_GROUPS]


def _bars(days: Sequence[GroupRate]) -> Iterator[Bar]:
    """Yield a bar for each day. The scale ends at the highest upper bound."""
    intervals = [wilson(one.tally.failed, one.tally.exchanges) for one in days]
    scale = _HEIGHT / max((high for _, high in intervals), default=1)
    step = min(_WIDTH / max(len(days), 1), 48)
    for number, (one, (low, high)) in enumerate(zip(days, intervals, strict=True)):
        yield Bar(
            rate=one,
            left=number * step,
            width=step * 0.8,
            top=_HEIGHT - scale * one.tally.failed / one.tally.exchanges,
            low=_HEIGHT - scale * low,
            high=_HEIGHT - scale * high,
        )


def _failed_checks(audit: StoredAudit) -> Iterator[FailedCheck]:
    """Yield the checks that failed, those of severity MUST first, then by their rate."""
    failed = [one for one in audit.checks if integer(value_at(one, "counts", "fail"))]
    failed.sort(key=lambda one: (one.get("severity") != "must", -_share(one), text(one.get("check"))))
    for one in failed:
        count, applied = integer(value_at(one, "counts", "fail")) or 0, integer(one.get("applied")) or 1
        low, high = wilson(count, applied)
        findings = [members(found) for found in items(one.get("findings")) if value_at(found, "verdict") == "fail"]
        yield FailedCheck(
            check=text(one.get("check")),
            severity=text(one.get("severity")).upper(),
            extent=f"{count} of {audit.plan.records(text(one.get('check')), applied)} ({percent(count / applied)}, {percent(low)} to {percent(high)})",
            quotation=text(one.get("quotation")),
            examples=[(found, places[:_EXAMPLES]) for found, places in grouped(findings)[:_EXAMPLES]],
        )


def _share(check: JsonObject) -> float:
    return (integer(value_at(check, "counts", "fail")) or 0) / (integer(check.get("applied")) or 1)


def _cause(cause: JsonObject) -> dict[str, object]:
    members_shown = ("id", "severity", "sentence", "users_see", "remedy")
    return {
        **{name: text(cause.get(name)) for name in members_shown},
        "checks": ", ".join(map(text, items(cause.get("checks")))),
        "threads": [text(thread) for thread in items(cause.get("threads"))[:_THREADS]],
    }


def _problems(problems: Json) -> list[tuple[str, int]]:
    return [(kind, integer(value_at(found, "count")) or 0) for kind, found in members(problems).items()]
