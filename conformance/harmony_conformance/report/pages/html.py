"""HTML report: one page without external resources. Its content security policy permits one script, by its hash, and no connection.

`page.html.jinja` is the template; `markup.to_markup` escapes each value that it prints. `page.js` adds search, filters, keys and copy buttons;
without it the page has the same content. Supports phones, dark mode and print.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from harmony_conformance import json_value
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report import latency_table, model, summary, text_excerpt
from harmony_conformance.report.cause_summary import cause_summaries
from harmony_conformance.report.client_rows import client_rows
from harmony_conformance.report.comparison.matrix import Matrix
from harmony_conformance.report.comparison.prompt_changes import PromptChange
from harmony_conformance.report.comparison.run_comparison import Change, Comparison
from harmony_conformance.report.model import Report, ResultLine
from harmony_conformance.report.pages import markup
from harmony_conformance.report.pages.exchange_view import ExchangeView
from harmony_conformance.report.pages.markup import to_markup
from harmony_conformance.report.summary import DEFAULT_FAILS_ON, Standing, by_check, run_verdict
from harmony_conformance.runtime.plural import number_of

_STANDING = {
    Standing.CONFORMS: "pass",
    Standing.DIVERGES: "fail",
    Standing.STALE_BASELINE: "fail",
    Standing.NOT_ALL_CHECKED: "inconclusive",
    Standing.ONLY_IGNORED_FAILURES: "inconclusive",
    Standing.ONLY_EXPECTED_FAILURES: "variant",
    Standing.UNCHECKED: "inconclusive",
    Standing.OUR_ERROR: "error",
    Standing.PLUGIN_ERROR: "error",
}
_MEANING = {
    Outcome.PASS: "the requirement was met wherever it applied",
    Outcome.FAIL: "the requirement was violated at least once",
    Outcome.VARIANT: "a legitimate difference, never a failure",
    Outcome.INCONCLUSIVE: "the scenario never exercised the check: neither a pass nor a failure",
    Outcome.NOT_APPLICABLE: "the conditions of the check do not hold, or the endpoint lacks the evidence it needs",
    Outcome.ERROR: "an internal error of this suite or of a plug-in, not of the endpoint",
}

_BADGE = {
    Change.NEW: "fail",
    Change.MORE: "fail",
    Change.CHANGED: "variant",
    Change.FEWER: "pass",
    Change.SAME: "na",
    Change.FIXED: "pass",
    Change.UNJUDGED: "inconclusive",
    Change.ERROR: "error",
}


def html(
    report: Report,
    fails_on: frozenset[Severity] = DEFAULT_FAILS_ON,
    exchanges: Mapping[str, ExchangeView] | None = None,
) -> str:
    """Return the page. Failures of the severities in `fails_on` decide the verdict. `exchanges`: those that the page shows, by id."""
    views = exchanges or {}
    return _template().render(
        report=report,
        verdict=run_verdict(report, fails_on),
        checks=by_check(report),
        exchanges=views,
        client_rows=[*client_rows(report)],
        number_of={name: number for number, name in enumerate(views, start=1)},
    )


def _streamed(result: ResultLine) -> str:
    """Return `yes`, `no`, or both: whether the failing exchanges of a result are streams, by the names of their steps."""
    names = [json_value.text(json_value.value_at(found, "exchange")) for found in summary.failures(result)]
    return "|".join(sorted({"yes" if "+stream" in name else "no" for name in names}))


def _attribute(value: str) -> Markup:
    """Return a text as the value of an attribute."""
    return escape(text_excerpt.visible(value))


@cache
def _script() -> str:
    return (files("harmony_conformance.report.pages") / "page.js").read_text("utf-8")


def matrix_html(matrix: Matrix, untested: Sequence[str] = (), linked: Sequence[Sequence[tuple[str, str]]] = ()) -> str:
    """Return a page of several runs side by side.

    Args:
        matrix: The runs.
        untested: Endpoints that could not be tested, with the reason.
        linked: The files of each run to link, each with its name and its path from the page.
    """
    prose = {"prose": markup.prose, "thread_link": markup.thread_link}
    first = (matrix.summary, matrix.causes)  # what is wrong comes first
    links = [[(name, quote(path)) for name, path in one] for one in linked] or [[] for _ in matrix.runs]
    parts = sorted(matrix.parts(), key=lambda part: part[1] not in first)
    return (
        environment()
        .get_template("matrix.html.jinja", globals=prose)
        .render(runs=matrix.runs, parts=parts, untested=untested, links=links)
    )


def comparison_html(compared: Comparison, prompts: Mapping[str, PromptChange] | None = None) -> str:
    """Return a page of two runs, before and after: causes, results, prompts and latencies. `prompts`: those that are known, by exchange."""
    names = {"prose": markup.prose, "pieces": markup.pieces, "Change": Change, "BADGE": _BADGE}
    shown = prompts or {}
    number_of = {name: number for number, name in enumerate(shown, start=1)}
    template = environment().get_template("comparison.html.jinja", globals=names)
    return template.render(compared=compared, prompts=shown, number_of=number_of)


@cache
def environment() -> Environment:
    """Return the environment of the templates of this package, which escapes each value that it prints."""
    made = Environment(
        loader=PackageLoader("harmony_conformance", "report/pages"),
        autoescape=True,
        finalize=to_markup,
        keep_trailing_newline=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    made.globals["counted"] = number_of  # pyright: ignore[reportArgumentType] # the type of jinja2's names alone is known
    return made


@cache
def _template() -> Template:
    modules = {"excerpt": text_excerpt, "figures": latency_table, "json": json_value, "markup": markup, "model": model}
    names = {
        "MEANING": _MEANING,
        "Outcome": Outcome,
        "STANDING": _STANDING,
        "overview": summary,
        "cause_summaries": cause_summaries,
        "SCRIPT": Markup(_script()),  # noqa: S704 - a file of this package
        "SCRIPT_HASH": b64encode(sha256(_script().encode()).digest()).decode(),
        "attribute": _attribute,
        "streamed": _streamed,
    }
    return environment().get_template("page.html.jinja", globals={**modules, **names})
