import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.formats.markdown import MOST_BYTES, fenced, inline, markdown

OWN_HTML = re.compile(r"<details><summary>[^<>]*</summary>\n*|</details>\n*")
TEXTS = st.text(st.characters(codec=None), max_size=200)
MARKED_UP = st.text("`|*_[]()<>#\\\n\r ~&;:/!-+=.1a\0\u202e", max_size=60)


def parsed(document):
    return MarkdownIt("commonmark").enable("table").enable("strikethrough").parse(document)


def inner(tokens):
    for token in tokens:
        yield token
        yield from inner(token.children or [])


def cells(tokens):
    rows, row = [], []
    for token in tokens:
        match token.type:
            case "tr_open":
                row = []
            case "inline":
                row.append(token.content)
            case "tr_close":
                rows.append(len(row))
    return rows


def test_no_text_becomes_markup(samples, hostile):
    tokens = list(inner(parsed(markdown(samples.all_outcomes(hostile)))))
    kinds = {token.type for token in tokens}
    assert kinds.isdisjoint({"html_inline", "link_open", "image", "code_block", "hr", "s_open"})
    assert all(OWN_HTML.fullmatch(token.content) for token in tokens if token.type == "html_block")
    headings = [token.tag for token in tokens if token.type == "heading_open"]
    assert headings == [
        token.tag for token in inner(parsed(markdown(samples.all_outcomes()))) if token.type == "heading_open"
    ]


def test_tables_keep_their_columns(samples, hostile):
    def widths(text):
        tokens = parsed(markdown(samples.all_outcomes(text)))
        inside, found, depth = [], [], 0
        for token in tokens:
            depth += {"table_open": 1, "table_close": -1}.get(token.type, 0)
            if depth:
                inside.append(token)
            elif inside:
                found.append(cells(inside))
                inside = []
        return found

    assert widths(hostile) == widths("plain")


@given(st.one_of(TEXTS, MARKED_UP))
def test_inline_text_stays_text(value):
    (paragraph, *_) = parsed("x " + inline(value) + " y")[1].children
    assert paragraph.type == "text"
    children = parsed("x " + inline(value) + " y")[1].children
    assert {child.type for child in children} == {"text"}


@given(st.one_of(TEXTS, MARKED_UP).map(lambda text: text.replace("\r", "")))
def test_a_block_can_not_be_left(value):
    shown = value.replace("\0", "")
    fence, after = parsed(fenced(shown) + "\n\nafter")[:2]
    assert fence.type == "fence"
    assert fence.content == shown + "\n"
    assert after.type == "paragraph_open"


def test_a_real_run_is_reported(real_report):
    document = markdown(real_report)
    assert document.startswith("## ❌ gpt\\-oss\\-reference on reference")
    for told in (
        "| passed | failed | variant |",
        "### ❌ MUST tool\\_calls\\.name\\_is\\_declared: failed in",
        "```diff\n- ",
        "A called function is one that the request declared",
        "harmony-conformance run reference",
        "TTFT, first token of any channel",
        "<details><summary>Checks: usage</summary>",
        "Checks that applied to nothing",
    ):
        assert told in document, told
    assert not document.endswith("\n\n")


def test_the_summary_stays_below_what_github_takes(samples):
    findings = tuple(samples.finding(f"{place}: " + "m" * 500, excerpt="€" * 5000) for place in range(5))
    lines = [samples.result(Outcome.FAIL, check=f"usage.check_{place}", findings=findings) for place in range(400)]
    document = markdown(samples.report(*lines))
    assert len(document.encode("utf-8")) < MOST_BYTES
    assert re.search(r"\*\d+ more failed checks do not fit here", document)
    assert "usage\\.check\\_399 | must |" in document


@pytest.mark.parametrize(
    ("severity", "fails_on", "mark"),
    [
        pytest.param(Severity.MUST, {Severity.MUST}, "❌", id="counts"),
        pytest.param(Severity.SHOULD, {Severity.MUST}, "✅", id="does not count"),
        pytest.param(Severity.SHOULD, set(Severity), "❌", id="counts as asked"),
    ],
)
def test_the_verdict_follows_what_counts(samples, severity, fails_on, mark):
    failed = samples.result(Outcome.FAIL, check="usage.x", severity=severity, findings=(samples.finding(),))
    document = markdown(samples.report(samples.result(), failed), frozenset(fails_on))
    assert document.startswith(f"## {mark} ")
    assert "failed" in document


def test_a_run_that_left_results_open_does_not_conform_by_name(samples):
    open_one = samples.result(Outcome.INCONCLUSIVE, check="usage.x", reason="rate limited")
    head = markdown(samples.report(samples.result(), open_one)).splitlines()[0]
    assert head.startswith("## ❔ ")
    assert head.endswith(": no failure found, 1 result inconclusive")


def test_two_renderings_are_equal(real_report):
    assert markdown(real_report) == markdown(real_report)


def test_no_line_is_a_command_for_a_ci_system(samples):
    commands = re.compile(r"^\s*::", re.MULTILINE)
    assert not commands.findall(markdown(samples.all_outcomes("a\n::error::b\n  ::add-mask::c")))
