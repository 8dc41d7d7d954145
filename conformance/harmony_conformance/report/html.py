"""HTML report: one page without scripts and external resources, which its content security policy forbids.

`page.html.jinja` is the template; `markup.printed` escapes each value that it prints. Supports phones, dark mode and print.
"""

from __future__ import annotations

from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from harmony_conformance import json_value
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report import latency_table, markup, model, summary, text_excerpt
from harmony_conformance.report.cause_summary import cause_summaries
from harmony_conformance.report.markup import to_markup
from harmony_conformance.report.model import Report
from harmony_conformance.report.summary import DEFAULT_FAILS_ON, Standing, by_check, run_verdict

_STANDING = {
    Standing.CONFORMS: "pass",
    Standing.DIVERGES: "fail",
    Standing.NOT_ALL_CHECKED: "inconclusive",
    Standing.ONLY_IGNORED_FAILURES: "inconclusive",
    Standing.UNCHECKED: "inconclusive",
    Standing.OUR_ERROR: "error",
}
_MEANING = {
    Outcome.PASS: "the requirement was met wherever it applied",
    Outcome.FAIL: "the requirement was violated at least once",
    Outcome.VARIANT: "a legitimate difference, never a failure",
    Outcome.INCONCLUSIVE: "the scenario never exercised the check: neither a pass nor a failure",
    Outcome.NOT_APPLICABLE: "the conditions of the check do not hold, or the endpoint lacks the evidence it needs",
    Outcome.ERROR: "an internal error of this suite, not of the endpoint",
}


def html(report: Report, fails_on: frozenset[Severity] = DEFAULT_FAILS_ON) -> str:
    """Return the page. Failures of the severities in `fails_on` decide the verdict."""
    return _template().render(report=report, verdict=run_verdict(report, fails_on), checks=by_check(report))


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("harmony_conformance", "report"),
        autoescape=True,
        finalize=to_markup,
        keep_trailing_newline=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    modules = {"excerpt": text_excerpt, "figures": latency_table, "json": json_value, "markup": markup, "model": model}
    names = {
        "MEANING": _MEANING,
        "Outcome": Outcome,
        "STANDING": _STANDING,
        "overview": summary,
        "cause_summaries": cause_summaries,
    }
    return environment.get_template("page.html.jinja", globals={**modules, **names})
