"""A finding whose severity a ruling settles has it in every form of the report."""

from io import StringIO

import jsonschema
import pytest
from rich.console import Console

from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import loads
from harmony_conformance.judge.check import Finding, Outcome, Severity
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.judge.judge import Result
from harmony_conformance.judge.rulings import QUOTED_RESULTS, RULINGS
from harmony_conformance.report.formats.markdown import markdown
from harmony_conformance.report.formats.terminal import print_report
from harmony_conformance.report.model import make_report, result_line
from harmony_conformance.report.pages.html import html

NOTE = f"SHOULD, by a ruling of CHECKS.md: {RULINGS[QUOTED_RESULTS].subject}"


def line(ruling):
    finding = Finding(message="it is quoted", exchange="results/chat/a/0", location="prompt", ruling=ruling)
    return result_line(
        Result(
            "prompt.results_are_rendered",
            Severity.SHOULD,
            CLAUSES["harmony#tool-messages"],
            "results",
            "chat",
            Outcome.FAIL,
            exchanges=("results/chat/a/0",),
            applied=1,
            findings=(finding,),
        ),
        "",
    )


def printed(report):
    text = StringIO()
    print_report(report, Console(width=200, highlight=False, file=text), frozenset({Severity.MUST}))
    return text.getvalue()


@pytest.mark.parametrize("render", [markdown, html, printed])
@pytest.mark.parametrize("ruling", [QUOTED_RESULTS, ""])
def test_a_report_has_the_ruling_of_a_finding(render, ruling):
    shown = render(make_report({"target": {"engine": "vllm"}}, [line(ruling)])).replace("\\", "")
    assert (NOTE in shown) is bool(ruling)


def test_the_line_of_a_result_has_the_ruling_and_follows_the_schema():
    (found,) = line(QUOTED_RESULTS).findings
    assert (found["severity"], found["ruling"]) == ("should", RULINGS[QUOTED_RESULTS].subject)
    schema = loads((golden.root() / "schema" / "report.schema.json").read_text("utf-8"))
    jsonschema.validate(found, {**schema["$defs"]["finding"], "$defs": schema["$defs"]})
