"""Measure how long a browser takes to open and filter report.html: 10,000 judged results, a tenth of them failures.

    make test-browser          # once: installs playwright
    .venv/bin/python benchmarks/report_page.py [--results 10000] [--failed 1000] [--out FILE]

The page is opened five times in the system's Chromium. `open` ends when its script has run and the first screen is painted.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from argparse import ArgumentParser
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from harmony_conformance.checks import CHECKS
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.model import Report, ResultLine, make_report
from harmony_conformance.report.pages.html import html

TIMES = 5
HEADER = {"version": "0.1.0", "target": {"engine": "vllm", "model": "gpt-oss-20b"}, "tries": 1, "seed": None}
PROMPT = "<|start|>system<|message|>You are ChatGPT.<|end|><|start|>user<|message|>Question {number}<|end|><|start|>assistant"
OPENED = """() => new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))"""
FILTERED = """() => new Promise(done => {
  const box = document.querySelector("input[type=search]"), start = performance.now();
  box.value = "question 17"; box.dispatchEvent(new Event("input"));
  const wait = () => location.hash ? requestAnimationFrame(() => done(performance.now() - start)) : setTimeout(wait, 1);
  wait();
})"""


def make_sample(results: int, failed: int) -> Report:
    """Return a report of so many results, evenly spread over the checks."""
    lines = []
    for number in range(results):
        check = CHECKS[number % len(CHECKS)].id
        fails = number * failed // results != (number + 1) * failed // results
        expected = PROMPT.format(number=number)
        finding = {
            "verdict": "fail",
            "message": f"the prompt of question {number} differs",
            "exchange": f"s{number // len(CHECKS)}/chat/answer/0",
            "at": "/messages/0",
            "expected": expected,
            "actual": expected.replace("<|end|>", ""),
        }
        lines.append(
            ResultLine(
                check=check,
                severity=Severity.MUST,
                outcome=Outcome.FAIL if fails else Outcome.PASS,
                scenario=f"s{number // len(CHECKS)}",
                api="chat",
                spec="harmony#final",
                quotation="Messages tagged in the final channel …",
                passed=int(not fails),
                applied=1,
                findings=(finding,) if fails else (),
                reproduce="curl -sS http://127.0.0.1:8000/v1/chat/completions" if fails else "",
            )
        )
    return make_report(HEADER, lines)


def main() -> int:
    """Measure, print and write the figures."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=int, default=10_000)
    parser.add_argument("--failed", type=int, default=1_000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        sys.exit("no chromium on this machine")
    document = html(make_sample(arguments.results, arguments.failed))
    opened, filtered = [], []
    with TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder) / "report.html"
        page_file.write_text(document, "utf-8")
        launched = playwright.chromium.launch(
            executable_path=browser, args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        version = launched.version
        for _ in range(TIMES):
            page = launched.new_page()
            page.goto(page_file.as_uri())
            opened.append(page.evaluate(OPENED) / 1000)
            filtered.append(page.evaluate(FILTERED) / 1000)
            page.close()
        launched.close()
    figures = {
        "results": arguments.results,
        "failed": arguments.failed,
        "megabytes": round(len(document.encode()) / 1e6, 2),
        "browser": f"Chromium {version}",
        "open_seconds": {"median": round(median(opened), 3), "max": round(max(opened), 3)},
        "filter_seconds": {"median": round(median(filtered), 3), "max": round(max(filtered), 3)},
    }
    print(json.dumps(figures, indent=1))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
