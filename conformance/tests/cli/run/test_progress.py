"""Progress of a run: a bar on a terminal, lines elsewhere, nothing if quiet."""

import io
import json
import re
import time

import pytest
from rich.console import Console

from harmony_conformance.cli.main import main
from harmony_conformance.cli.run import progress
from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.golden.scenario import expand
from harmony_conformance.judge.check import Outcome
from harmony_conformance.runner.judge_in_background import open_judge
from harmony_conformance.runner.run import Options, discover_target, make_plan, run
from harmony_conformance.transport.client import run_async
from harmony_conformance.transport.messages import Failure, FailureKind, Request

COMPLETION = {
    "object": "chat.completion",
    "data": [{"id": "m"}],
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}
LINE = re.compile(r"\d+ of 2 requests(, 1 without an answer)?(, about \d+ s left)?")


@pytest.fixture
def slow(raw_server, tmp_path, monkeypatch):
    """The words of a run against a server that takes its time."""
    monkeypatch.chdir(tmp_path)
    data = json.dumps(COMPLETION).encode()

    def answer(connection, request):
        if b"/v1/chat/completions" in request.split(b"\r\n", 1)[0]:
            time.sleep(0.2)
        connection.sendall(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(data) + data)

    return ["run", f"openai:{raw_server(answer).url}", "--select", "simple_answer", "--out", "run"]


def test_without_a_terminal_a_line_comes_now_and_then(slow, capsys, monkeypatch):
    monkeypatch.setattr(progress, "_INTERVAL", 0.05)
    main(slow)
    lines = [line for line in capsys.readouterr().err.splitlines() if " of 2 requests" in line]
    assert lines
    assert all(map(LINE.fullmatch, lines))
    assert any(line.endswith(" left") for line in lines)


def test_a_quiet_run_has_no_progress(slow, capsys, monkeypatch):
    monkeypatch.setattr(progress, "_INTERVAL", 0.05)
    main([*slow, "-q"])
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_a_bar_of_one_line_that_disappears(slow, capsys, monkeypatch):
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80)
    monkeypatch.setattr(progress, "report_console", lambda **_: console)
    main(slow)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.getvalue())
    frames = [frame for frame in re.split(r"[\r\n]", text) if "sending" in frame]
    assert any("1/2" in frame and "left" in frame for frame in frames)
    assert max(map(len, frames)) <= 80
    assert shown.getvalue().endswith(("\x1b[2K", "\x1b[?25h"))
    assert "requests" not in capsys.readouterr().err


def make_exchange(scenario, failure=None):
    return Exchange(id="x", scenario=scenario, request=Request(path="/", body=b"{}"), failure=failure)


@pytest.mark.parametrize(("script", "is_whole"), [("auto", True), ("none", False)])
def test_the_total_counts_what_is_sent(script, is_whole, url):
    target, options = parse_target(f"reference:{url}"), Options(script=script, tries=2)
    plan = make_plan(options)
    shown = progress.RunProgress(plan, options.tries, lambda: None)
    shown.begin(run_async(discover_target(target, options)))
    whole = 2 * sum(len(tuple(expand(scenario))) for scenario in plan.scenarios)
    assert (shown.total > 0.95 * whole) is is_whole
    assert shown.total <= whole


def test_progress_is_described_with_its_failures_and_the_time_left(monkeypatch):
    clock = iter([100.0, 100.0, 102.0, 105.0, 110.0, 110.0, 120.0, 120.0, 128.0, 1000.0])
    monkeypatch.setattr(progress, "monotonic", lambda: next(clock))
    shown = progress.RunProgress(make_plan(Options(select=("simple_answer",))), 1, lambda: 3)
    shown.total = 10
    assert shown.describe() == "0 of 10 requests, 3 failed"
    shown.add(make_exchange("discovery"))
    shown.add(make_exchange("simple_answer"))
    shown.add(make_exchange("simple_answer", Failure(kind=FailureKind.RESET, detail="x")))
    assert shown.describe() == "2 of 10 requests, 3 failed, 1 without an answer, about 40 s left"
    shown.add(make_exchange("simple_answer"))
    assert shown.describe().endswith("about 47 s left")
    assert shown.describe().endswith("about 65 s left, no answer for 8 s (--timeout 60)")
    assert shown.describe().endswith("about 35 min left, no answer for 880 s (--timeout 60)")


def test_requests_that_the_suite_does_not_send_are_not_called_unanswered():
    shown = progress.RunProgress(make_plan(Options(select=("simple_answer",))), 1, lambda: None)
    for kind in (FailureKind.NOT_SENT, FailureKind.NOT_SENT, FailureKind.TIMEOUT):
        shown.add(make_exchange("simple_answer", Failure(kind=kind, detail="x")))
    assert shown.problems == "1 without an answer, 2 not sent"


def test_failed_results_are_counted_while_requests_are_sent():
    options = Options(skip=("rows_*", "broken_*", "markers_*", "odd_texts", "questionable_*", "slow_stream"))
    plan, counts = make_plan(options), []
    with open_judge(plan, options) as judge:
        target = parse_target("reference:defect=stream-without-done")
        done = run_async(
            run(target, options, plan, lambda x: counts.append(judge.count_failures()), lambda _: None, judge)
        )
        counts.append(judge.count_failures())
    if counts[0] is None:  # one core: judged at the end
        return
    assert counts == sorted(counts)
    assert 0 < counts[-1] <= sum(result.outcome is Outcome.FAIL for result in done.results)
