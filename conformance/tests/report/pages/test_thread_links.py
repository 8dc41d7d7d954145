"""Threads of causes are links in every page and in Markdown, and only plain addresses of the web are."""

import json
import re

import pytest

from harmony_conformance.audit.results.audit_page import audit_html
from harmony_conformance.audit.results.stored_audit import read_audit
from harmony_conformance.report.comparison.matrix import make_matrix
from harmony_conformance.report.formats.markdown import markdown
from harmony_conformance.report.model import make_report
from harmony_conformance.report.pages.html import html, matrix_html
from harmony_conformance.report.pages.markup import thread_link

ISSUE = "https://github.com/vllm-project/vllm/issues/48253"
HOSTILE = ["javascript:alert(1)", 'https://a.example/"onclick="x', "https://a.example/<b>", "https://a.example/ b"]
CAUSE = {
    "kind": "cause",
    "id": "leak",
    "severity": "must",
    "sentence": "It leaks.",
    "results": 1,
    "checks": ["channels.no_marker_leak"],
    "scenarios": ["s"],
    "threads": [ISSUE, *HOSTILE],
}
LINK = f'<a class="thread" href="{ISSUE}" rel="noopener noreferrer">vllm#48253</a>'


def report():
    return make_report({"target": {"model": "m", "engine": "e"}}, [], causes=[CAUSE])


def audit():
    header = {"kind": "header", "source": "audit", "files": ["log"], "exchanges": 1}
    return read_audit([json.dumps(line) for line in (header, CAUSE, {"kind": "footer"})], "log")


PAGES = {
    "report.html": lambda: html(report()),
    "matrix.html": lambda: matrix_html(make_matrix([report()])),
    "report.html of an audit": lambda: audit_html(audit()),
}


@pytest.mark.parametrize("name", PAGES)
def test_threads_are_links_and_nothing_else_becomes_one(name):
    page = PAGES[name]()
    assert LINK in page
    outward = re.findall(r'href="([^"#][^"]*)"', page)
    assert outward == [ISSUE]
    assert "default-src 'none'" in page
    assert "<b>" not in page.partition("<main>")[2]


def test_markdown_links_threads_too():
    text = markdown(report())
    assert f"Reported as <{ISSUE}>, `javascript:alert(1)`" in text
    assert "<b>" not in text.partition("Reported as")[2].partition("\n")[0].replace("`https://a.example/<b>`", "")


@pytest.mark.parametrize(
    ("address", "label"),
    [
        ("https://github.com/ggml-org/llama.cpp/pull/19553", "llama.cpp#19553"),
        ("https://docs.example/page", "docs.example/page"),
        ("https://docs.example/a?b=1&c=2", "docs.example/a?b=1&amp;c=2"),
    ],
)
def test_the_text_of_a_link_is_short(address, label):
    assert thread_link(address).endswith(f">{label}</a>")
