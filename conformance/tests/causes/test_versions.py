"""Versions of engines, and what a known cause reports about them."""

import re

import pytest

from harmony_conformance.causes.attribution import find_causes
from harmony_conformance.causes.explanation import explain
from harmony_conformance.causes.known import TIMING, FailurePattern, causes_of_version
from harmony_conformance.causes.versions import VersionRange
from harmony_conformance.judge.check import Finding, Outcome, Severity
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.judge.judge import Result
from harmony_conformance.report.formats.markdown import markdown
from harmony_conformance.report.model import make_report
from harmony_conformance.report.pages.html import html

CLOSED = VersionRange(after="0.11.0", below="0.33.0")


@pytest.mark.parametrize(
    ("versions", "version", "expected"),
    [
        (CLOSED, "0.11.0", False),
        (CLOSED, "0.11", False),
        (CLOSED, "0.11.1rc2.dev3+g12345", True),
        (CLOSED, "v0.32.1", True),
        (CLOSED, "0.33.0", False),
        (CLOSED, "0.100.0", False),
        (CLOSED, "", True),
        (CLOSED, "nightly", True),
        (VersionRange(below="b8929"), "b7551", True),
        (VersionRange(below="b8929"), "b11549", False),
        (VersionRange(), "0.0.1", True),
    ],
)
def test_a_range_contains_the_versions_between_its_bounds(versions, version, expected):
    assert versions.contains(version) is expected


def test_a_range_in_words():
    assert [str(one) for one in (CLOSED, VersionRange())] == ["after 0.11.0, below 0.33.0", ""]


def test_patterns_of_other_versions_are_left_out():
    (effort,) = [cause for cause in causes_of_version("llamacpp", "b7551") if cause.id == "llamacpp-effort-ignored"]
    assert FailurePattern(check="reasoning.unknown_effort_is_not_swallowed") in effort.patterns
    assert "llamacpp-effort-as-written" not in {cause.id for cause in causes_of_version("llamacpp", "b7551")}
    assert "llamacpp-effort-ignored" not in {cause.id for cause in causes_of_version("llamacpp", "b11549")}


@pytest.fixture
def words_lost():
    """A failure that is known from vLLM 0.11.0, and depends on timing."""
    exchange = "cut_in_answer/chat/answer+stream/0"
    finding = Finding(message="the content differs", exchange=exchange, location="content", actual="one")
    return Result(
        "channels.content_is_the_answer",
        Severity.MUST,
        CLAUSES["harmony#final"],
        "cut_in_answer",
        "chat",
        Outcome.FAIL,
        exchanges=(exchange,),
        applied=1,
        findings=(finding,),
    )


def test_a_known_cause_is_named_for_its_versions_alone(words_lost):
    ids = [find_causes([words_lost], {}, causes_of_version("vllm", version))[0].id for version in ("0.11.0", "0.32.0")]
    assert ids == ["vllm-words-lost-in-streams", "channels.content_is_the_answer"]


@pytest.mark.parametrize("render", [markdown, html])
def test_a_report_has_the_versions_and_the_timing_of_a_cause(render, words_lost):
    (cause,) = find_causes([words_lost], {}, causes_of_version("vllm", "0.11.0"))
    line = cause.to_json()
    assert (line["affected"], line["fixed_in"], line["timing"]) == ("0.11.0", "pull request 30437", TIMING)
    line["example"] = {**line["example"], "reproduce": ""}
    shown = render(make_report({"target": {"engine": "vllm"}}, (), causes=[line]))
    shown = re.sub(r"\\|</?strong>", "", shown)
    assert "Versions: 0.11.0; fixed in pull request 30437" in shown
    assert f"Timing: {TIMING}" in shown


def test_an_explanation_has_the_versions_and_the_timing_of_a_cause():
    shown = dict(explain("vllm-words-lost-in-streams", {}))
    assert shown["fixed in"] == ("pull request 30437",)
    assert shown["named for"] == ("below 0.32.0",)
    assert shown["timing"] == (TIMING,)
    assert "any check" in shown["recognized by failures of"]
    assert dict(explain("vllm-end-missing", {}))["timing"] == ()
