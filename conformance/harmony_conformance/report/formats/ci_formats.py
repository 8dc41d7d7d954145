"""A report for continuous integration: SARIF, CTRF, annotations of GitHub, badges. One entry for each cause or each result that was judged.

SARIF 2.1.0: https://docs.oasis-open.org/sarif/sarif/v2.1.0/. CTRF: https://ctrf.io. Badge: the endpoint format of shields.io.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from xml.sax.saxutils import escape

from harmony_conformance.json_value import Json, JsonObject, dumps, text, value_at
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.cause_summary import CauseSummary, cause_summaries
from harmony_conformance.report.model import Report, ResultLine
from harmony_conformance.report.plugins_used import plugin_options, used_plugins
from harmony_conformance.report.summary import DEFAULT_FAILS_ON, Standing, failures, gate_failures, run_verdict, title
from harmony_conformance.report.text_excerpt import line
from harmony_conformance.runtime.plural import number_of

_LEVELS: Mapping[Severity, str] = MappingProxyType({Severity.MUST: "error", Severity.SHOULD: "warning"})
_CTRF_STATUS: Mapping[Outcome, str] = MappingProxyType(
    {
        Outcome.PASS: "passed",
        Outcome.VARIANT: "passed",
        Outcome.FAIL: "failed",
        Outcome.INCONCLUSIVE: "other",
        Outcome.ERROR: "other",
        Outcome.NOT_APPLICABLE: "skipped",
    }
)
_COLORS: Mapping[Standing, tuple[str, str]] = MappingProxyType(
    {
        Standing.CONFORMS: ("brightgreen", "#4c1"),
        Standing.NOT_ALL_CHECKED: ("yellow", "#dfb317"),
        Standing.ONLY_IGNORED_FAILURES: ("yellow", "#dfb317"),
        Standing.ONLY_EXPECTED_FAILURES: ("yellow", "#dfb317"),
        Standing.STALE_BASELINE: ("yellow", "#dfb317"),
        Standing.DIVERGES: ("red", "#e05d44"),
        Standing.UNCHECKED: ("lightgrey", "#9f9f9f"),
        Standing.OUR_ERROR: ("lightgrey", "#9f9f9f"),
        Standing.PLUGIN_ERROR: ("lightgrey", "#9f9f9f"),
    }
)
_LABEL = "harmony"
_CHARACTER_WIDTH, _PADDING = 7, 10  # pixels, of an 11 px font without serifs


def sarif(report: Report, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON) -> str:
    """Return a SARIF log with one result for each cause. Severities outside of `fails_on`, and what a baseline expects, are notes."""
    causes = cause_summaries(report)
    has_baseline = value_at(report.header, "baseline") is not None
    rules: list[Json] = [
        {
            "id": cause.name,
            "shortDescription": {"text": line(cause.sentence)},
            "fullDescription": {"text": line(cause.users_see or cause.sentence)},
            "help": {
                "text": line(f"harmony-conformance explain {cause.name}{plugin_options(report.header, cause.name)}")
            },
        }
        for cause in causes
    ]
    results: list[Json] = [
        {
            "ruleId": cause.name,
            "level": _level(cause, fails_on) or "note",
            "message": {"text": f"{line(cause.sentence)} {cause.extent}. For example {line(cause.example)}."},
            "locations": [
                {
                    "physicalLocation": {"artifactLocation": {"uri": "exchanges.jsonl"}},
                    "logicalLocations": [{"fullyQualifiedName": line(cause.example)}],
                }
            ],
            "partialFingerprints": {"cause/v1": cause.name},
            **({"baselineState": "unchanged" if cause.is_expected else "new"} if has_baseline else {}),
        }
        for cause in causes
    ]
    driver: JsonObject = {
        "name": "harmony-conformance",
        "version": text(value_at(report.header, "version")),
        "rules": rules,
    }
    log: JsonObject = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver, **_extensions(report)}, "results": results}],
    }
    return dumps(log)


def _extensions(report: Report) -> JsonObject:
    """Return the member of a tool that names its extensions: the plug-ins. Empty without a plug-in."""
    extensions: list[Json] = [
        {"name": line(text(one.get("name"))), "properties": {"sha256": text(one.get("sha256"))}}
        for one in used_plugins(report.header)
    ]
    return {"extensions": extensions} if extensions else {}


def _level(cause: CauseSummary, fails_on: frozenset[Severity]) -> str:
    """Return the level of a cause that fails the run, else an empty text."""
    return _LEVELS[cause.severity] if cause.severity in fails_on and not cause.is_expected else ""


def ctrf(report: Report, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON) -> str:
    """Return a CTRF report of the results that were judged or are open.

    Failures outside of `fails_on` are skipped, and those that a baseline expects. A stale entry of the baseline and a missing feature are tests that failed.
    """
    shown = [result for result in report.results if result.outcome is not Outcome.NOT_APPLICABLE]
    tests = [_ctrf_test(result, fails_on, is_expected=result.name in report.expected) for result in shown]
    tests += [_ctrf_gate(name, sentence) for name, sentence in gate_failures(report)]
    started = _milliseconds(text(value_at(report.header, "started")))
    statuses = [text(test["status"]) for test in tests]
    summary: JsonObject = {
        "tests": len(tests),
        **{name: statuses.count(name) for name in ("passed", "failed", "pending", "skipped", "other")},
        "start": started,
        "stop": started,
    }
    plugins: list[Json] = [*used_plugins(report.header)]
    environment: JsonObject = {
        "testEnvironment": title(report),
        **({"extra": {"plugins": plugins}} if plugins else {}),
    }
    results: JsonObject = {
        "tool": {"name": "harmony-conformance", "version": text(value_at(report.header, "version"))},
        "summary": summary,
        "tests": [*tests],
        "environment": environment,
    }
    return dumps({"reportFormat": "CTRF", "specVersion": "0.0.0", "results": results})


def _ctrf_test(result: ResultLine, fails_on: frozenset[Severity], *, is_expected: bool) -> JsonObject:
    is_ignored = result.outcome is Outcome.FAIL and (is_expected or result.severity not in fails_on)
    messages = [text(value_at(finding, "message")) for finding in failures(result)]
    message = line("; ".join(dict.fromkeys(messages)) or result.reason)
    return {
        "name": result.name,
        "status": "skipped" if is_ignored else _CTRF_STATUS[result.outcome],
        "duration": 0,
        "suite": [result.check.partition(".")[0]],
        "rawStatus": result.outcome.value,
        "tags": [result.severity.value, result.api],
        **({"message": message} if message else {}),
    }


def _ctrf_gate(name: str, sentence: str) -> JsonObject:
    return {
        "name": f"gate.{line(name)}",
        "status": "failed",
        "duration": 0,
        "suite": ["gate"],
        "message": line(sentence),
    }


def _milliseconds(started: str) -> int:
    try:
        return int(datetime.fromisoformat(started).timestamp() * 1000)
    except ValueError:
        return 0


def github_annotations(report: Report, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON) -> str:
    """Return workflow commands of GitHub, one for each cause, each stale entry of the baseline and each missing feature."""
    causes = (_annotation(cause, fails_on) for cause in cause_summaries(report))
    gates = (f"::error title=Harmony gate::{_escaped(line(sentence))}" for _, sentence in gate_failures(report))
    return "\n".join((*causes, *gates))


def _annotation(cause: CauseSummary, fails_on: frozenset[Severity]) -> str:
    level = _level(cause, fails_on) or "notice"
    name = _escaped(line(cause.name)).replace(":", "%3A").replace(",", "%2C")
    expected = " Expected by the baseline." if cause.is_expected else ""
    return f"::{level} title=Harmony {name}::{_escaped(f'{line(cause.sentence)} {cause.extent}.{expected}')}"


def _escaped(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def badge_json(report: Report, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON) -> str:
    """Return the endpoint document of a badge of shields.io."""
    message, standing = _badge(report, fails_on)
    return dumps({"schemaVersion": 1, "label": _LABEL, "message": message, "color": _COLORS[standing][0]})


def badge_svg(report: Report, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON) -> str:
    """Return a badge as SVG."""
    message, standing = _badge(report, fails_on)
    left, right = (_PADDING + _CHARACTER_WIDTH * len(word) for word in (_LABEL, message))
    color = _COLORS[standing][1]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{_LABEL}: {escape(message)}">'
        f'<rect width="{left}" height="20" fill="#555"/><rect x="{left}" width="{right}" height="20" fill="{color}"/>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{left / 2:g}" y="14">{_LABEL}</text><text x="{left + right / 2:g}" y="14">{escape(message)}</text></g></svg>'
    )


def _badge(report: Report, fails_on: frozenset[Severity]) -> tuple[str, Standing]:
    standing = run_verdict(report, fails_on).standing
    if standing is not Standing.DIVERGES:
        return standing.value, standing
    counted = [cause for cause in cause_summaries(report) if _level(cause, fails_on)]
    return number_of(len(counted), "cause") if counted else standing.value, standing
