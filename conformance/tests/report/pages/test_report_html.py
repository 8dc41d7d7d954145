import os
import re
import shutil
import subprocess
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError

from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.model import make_report
from harmony_conformance.report.pages.html import _template as template
from harmony_conformance.report.pages.html import html

ELEMENTS = frozenset(
    {
        "html", "head", "meta", "title", "style", "body", "header", "nav", "main", "section", "footer", "article", "div", "span", "p", "a",
        "h1", "h2", "h3", "ul", "li", "dl", "dt", "dd", "strong", "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "code",
        "pre", "mark", "blockquote", "cite", "i", "b", "script"
    }
)  # fmt: skip
ATTRIBUTES = frozenset(
    {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "style", "open", "tabindex", "colspan", "scope", "aria-hidden", "aria-label",
     "data-severity", "data-family", "data-api", "data-streamed", "data-cause"}
)  # fmt: skip
STYLE = re.compile(r"(flex:\d+|(left|width):\d+\.\d+%)(;(left|width):\d+\.\d+%)?")
CLASS = re.compile(r"[a-z0-9_ ]+")
ANCHOR = re.compile(r"#?[A-Za-z0-9_.-]+")
VOID = frozenset({"meta"})
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Page(HTMLParser):
    """What a browser would make of a page: its elements, their attributes and its text; the nesting has to be right."""

    def __init__(self, document):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.words, self.titles = [], [], [], []
        self.feed(document)
        self.close()
        assert self.open == []
        self.text = "".join(self.words)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "title":
            self.titles.append(data)
        elif self.open and self.open[-1] not in {"style", "script"}:
            self.words.append(data)

    def handle_comment(self, data):
        raise AssertionError(data)

    def handle_decl(self, decl):
        assert decl == "doctype html"

    def unknown_decl(self, data):
        raise AssertionError(data)

    def handle_pi(self, data):
        raise AssertionError(data)

    def having(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


def test_no_text_becomes_markup(samples, hostile):
    document = html(samples.all_outcomes(hostile))
    page = Page(document)
    assert {name for name, _ in page.elements} <= ELEMENTS
    assert {attribute for _, attributes in page.elements for attribute in attributes} <= ATTRIBUTES
    assert all(STYLE.fullmatch(held["style"]) for _, held in page.elements if "style" in held)
    assert len(page.having("style")) == len(page.having("title")) == len(page.titles) == 1
    assert [name for name, _ in page.elements] == [
        name for name, _ in Page(html(samples.all_outcomes(hostile))).elements
    ]
    assert all(char == "\n" or char.isprintable() for char in document)
    assert len(document.encode("utf-8")) < 400_000


MARKED_UP = st.one_of(
    st.text(st.characters(codec=None), max_size=80),
    st.text("<>&\"'`/=!-#{%}[] \n\r\0\x1b\x9b\u202e\u2066abx", max_size=80),
    st.sampled_from(
        ["<script>x</script>", '"><img src=x onerror=x>', "{{ 7 * 7 }}", "{% raw %}", "</title></style></pre>", "<!--", "' onload='"]
    ),
)  # fmt: skip
NUMBERS = st.one_of(st.none(), st.integers(-1, 10**6), st.floats(allow_nan=False, allow_infinity=False), MARKED_UP)


@st.composite
def reports(draw, samples):
    """A report of which every text, and every number of a latency line, is drawn."""
    words = lambda: draw(MARKED_UP)  # noqa: E731
    lines = [
        samples.result(
            outcome,
            check=draw(st.sampled_from(["channels.content_is_the_answer", "no.such_check"])) if known else words(),
            severity=draw(st.sampled_from(Severity)),
            scenario=words(), api=words(), spec=words(), quotation=words(), evidence=(words(), words()), reason=words(), reproduce=words(),
            findings=tuple(
                {"verdict": verdict, "message": words(), "exchange": words(), "at": words()}
                | {name: words() for name in ("expected", "actual", "excerpt") if draw(st.booleans())}
                for verdict in ("fail", "fail", "variant")
            ),
        )
        for outcome in Outcome
        for known in (True, False)
    ]  # fmt: skip
    names = ("unit", "n", "median", "min", "max", "p95", "p99")
    metrics = {metric: {name: draw(NUMBERS) for name in names} for metric in ("ttft", words())}
    load = {
        "load": words(),
        "requests": draw(NUMBERS),
        "failed": 1,
        "failures": {words(): 1},
        "metrics": metrics,
        "notes": [words()],
    }
    target = {name: words() for name in ("engine", "engine_version", "model", "url_host")}
    found = {"prompt": words(), "prompt_source": words(), "script": words(), "unknown": {words(): words()}}
    header = {
        **samples.header,
        "version": words(),
        "started": words(),
        "seed": words(),
        "target": target,
        "capabilities": found,
    }
    return make_report(header, lines, [load])


@given(st.data())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_no_field_of_a_report_becomes_markup(samples, data):
    document = html(data.draw(reports(samples)))
    page = Page(document)
    assert {name for name, _ in page.elements} <= ELEMENTS
    assert {attribute for _, attributes in page.elements for attribute in attributes} <= ATTRIBUTES
    assert all(CLASS.fullmatch(held["class"]) for _, held in page.elements if "class" in held)
    assert all(STYLE.fullmatch(held["style"]) for _, held in page.elements if "style" in held)
    assert all(ANCHOR.fullmatch(held[name]) for _, held in page.elements for name in ("id", "href") if name in held)
    assert len(page.having("style")) == len(page.having("title")) == len(page.titles) == 1
    assert all(char == "\n" or char.isprintable() for char in document)


def test_a_name_that_the_template_does_not_know_is_an_error():
    environment = template().environment
    assert environment.autoescape
    with pytest.raises(UndefinedError):
        environment.from_string("{{ unknown }}").render()
    assert environment.from_string("{{ '<b>' }}{{ text }}").render(text="\x1b<i>\u202e") == (
        '&lt;b&gt;<span class="ctl">\\x1b</span>&lt;i&gt;<span class="ctl">\\u202e</span>'
    )


def test_the_page_loads_nothing_and_runs_only_its_own_script(real_report):
    document = html(real_report)
    page = Page(document)
    (policy,) = [held["content"] for held in page.having("meta") if held.get("http-equiv") == "Content-Security-Policy"]
    (script,) = re.findall(r"<script>(.*?)</script>", document, re.DOTALL)
    assert script == (files("harmony_conformance.report.pages") / "page.js").read_text("utf-8")
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert (
        policy
        == f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
    )
    assert document.index("Content-Security-Policy") < document.index("<style>")
    assert "url(" not in document.partition("<style>")[2].partition("</style>")[0]
    assert "@import" not in document


def test_each_link_leads_somewhere(real_report):
    page = Page(html(real_report))
    targets = [held["id"] for _, held in page.elements if "id" in held]
    links = [held["href"] for held in page.having("a")]
    assert len(targets) == len(set(targets))
    assert links
    assert set(links) <= {"#" + target for target in targets}


def test_a_real_run_is_reported(real_report):
    text = Page(html(real_report)).text
    for told in (
        "gpt-oss-reference",
        "Does not conform",
        "token ids of the same generation (return_token_ids)",
        "scripted by the suite, token by token (reference)",
        *(line.check for line in real_report.results),
        "A called function is one that the request declared",
        "OpenAI cookbook",
        "harmony-conformance run reference",
        "TTFT, first token of any channel",
        "one at a time",
        "2 at a time",
    ):
        assert told in text, told
    for outcome, words in (
        (Outcome.PASS, "passed"),
        (Outcome.FAIL, "failed"),
        (Outcome.NOT_APPLICABLE, "not applicable"),
    ):
        assert f"{real_report.counts[outcome]} {words}" in text


def test_each_kind_of_result_is_reported_with_its_reason(samples):
    text = Page(html(samples.all_outcomes("so it is"))).text
    for told in (
        "as so it is was",
        "not done: so it is",
        "applies to so it is",
        "curl -d 'so it is'",
        "Variants",
        "1 time so it is",
    ):
        assert told in text, told


@pytest.mark.parametrize(
    ("lines", "fails_on", "verdict"),
    [
        pytest.param([(Outcome.PASS, "must")], {"must"}, "Conforms", id="all passed"),
        pytest.param([(Outcome.PASS, "must"), (Outcome.FAIL, "must")], {"must"}, "Does not conform", id="a MUST failed"),
        pytest.param([(Outcome.PASS, "must"), (Outcome.FAIL, "should")], {"must"}, "Conforms", id="a SHOULD failed, which does not count"),
        pytest.param([(Outcome.PASS, "must"), (Outcome.INCONCLUSIVE, "must")], {"must"}, "No failure found, 1 result inconclusive", id="one is open"),
        pytest.param([(Outcome.PASS, "must"), *[(Outcome.INCONCLUSIVE, "must")] * 2], {"must"}, "No failure found, 2 results inconclusive", id="two are open"),
        pytest.param(
            [(Outcome.PASS, "must"), (Outcome.FAIL, "should"), (Outcome.INCONCLUSIVE, "must")], {"must"},
            "No failure at the selected severity, 1 result inconclusive", id="one is open and a SHOULD failed"
        ),
        pytest.param(
            [(Outcome.PASS, "must"), (Outcome.FAIL, "must"), (Outcome.INCONCLUSIVE, "must")], {"must"},
            "Does not conform", id="one is open and a MUST failed"
        ),
        pytest.param([(Outcome.PASS, "must"), (Outcome.FAIL, "should")], {"must", "should"}, "Does not conform", id="a SHOULD failed, which counts"),
        pytest.param([(Outcome.NOT_APPLICABLE, "must")], {"must"}, "Nothing could be checked", id="nothing applied"),
        pytest.param([(Outcome.PASS, "should")], {"must"}, "Nothing could be checked", id="no MUST applied"),
        pytest.param([(Outcome.FAIL, "must"), (Outcome.ERROR, "must")], {"must"}, "Internal error of the suite", id="our error goes before all"),
    ],
)  # fmt: skip
def test_the_verdict_is_the_exit_codes(samples, lines, fails_on, verdict):
    made = [
        samples.result(
            outcome, check=f"usage.c{place}", severity=Severity(severity), findings=(samples.finding(),) * (outcome is Outcome.FAIL), reason="why"
        )
        for place, (outcome, severity) in enumerate(lines)
    ]  # fmt: skip
    page = Page(html(samples.report(*made), frozenset(map(Severity, fails_on))))
    assert verdict in page.text
    assert verdict.lower() in page.titles[0]


def test_what_differs_is_marked(samples):
    line = samples.result(
        Outcome.FAIL, findings=(samples.finding(expected="the answer is 42.", actual="the answer is 43."),)
    )
    document = html(samples.report(line))
    assert "the answer is 4<mark>2</mark>." in document
    assert "the answer is 4<mark>3</mark>." in document


def test_the_same_finding_is_reported_once_with_its_places(samples):
    places = [{**samples.finding("again and again"), "exchange": f"simple/chat/answer/{place}"} for place in range(9)]
    text = Page(html(samples.report(samples.result(Outcome.FAIL, findings=tuple(places))))).text
    assert text.count("again and again") == 1
    assert "simple/chat/answer/3" in text
    assert "and 5 more exchanges in report.jsonl" in text


def test_two_renderings_are_equal(real_report):
    assert html(real_report) == html(real_report)


def open_in_browser(page, place, tmp_path):
    """The page's elements after its script ran, at a place such as `#?q=word`."""
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    command = [
        BROWSER, "--headless=new", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=2000",
        "--enable-logging=stderr", *sandbox,
        "--dump-dom", f"{page.as_uri()}{place}",
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
@pytest.mark.parametrize(
    ("place", "shown"),
    [
        ("", ["calls", "leaks", "leaks+stream"]),
        ("#?q=LEAKED%20text", ["leaks", "leaks+stream"]),
        ("#?severity=SHOULD", ["calls"]),
        ("#?streamed=yes", ["leaks+stream"]),
        ("#?cause=words-lost", ["leaks"]),
        ("#?family=tool_calls&q=leaked", []),
        ("#?q=%3Cimg%20src%3Dx%3E", []),
    ],
)
def test_failures_are_filtered(samples, tmp_path, place, shown):
    def failed(check, scenario, severity, message):
        finding = {
            **samples.finding(message),
            "exchange": f"{scenario}/chat/answer{'+stream' * ('stream' in scenario)}/0",
        }
        return samples.result(Outcome.FAIL, check=check, scenario=scenario, severity=severity, findings=(finding,))

    report = samples.report(
        failed("channels.no_marker_leak", "leaks", Severity.MUST, "a leaked text"),
        failed("channels.no_marker_leak", "leaks+stream", Severity.MUST, "a leaked text of a stream"),
        failed("tool_calls.calls_arrive", "calls", Severity.SHOULD, "a call"),
    )
    cause = {
        "id": "words-lost",
        "severity": "must",
        "sentence": "Words.",
        "results": 1,
        "failed": ["channels.no_marker_leak@leaks"],
    }
    page = tmp_path / "report.html"
    page.write_text(html(replace(report, causes=(cause,))), encoding="utf-8")
    document = open_in_browser(page, place, tmp_path).stdout
    visible = re.findall(r'<details class="result"(?![^>]*hidden)[^>]*>\s*<summary>in <strong>([^<]*)', document)
    assert sorted(visible) == shown
    assert f"<output>{len(shown)} of 3 failed results</output>" in document
    assert document.count('class="copy"') == document.count("<pre")


@pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")
def test_a_browser_shows_the_page_and_runs_nothing_of_it(samples, tmp_path):
    attack = "<script>document.title='owned'</script><img src=https://127.0.0.1:9/x onerror=\"document.title='owned'\">"
    page = tmp_path / "report.html"
    page.write_text(html(samples.all_outcomes(attack)), encoding="utf-8")
    shown = open_in_browser(page, "", tmp_path)
    assert "<title>m&lt;script&gt;" in shown.stdout
    assert "<img" not in shown.stdout
    assert "does not conform" in shown.stdout
    assert "Content Security Policy" not in shown.stderr
