"""A judge in a process of its own says what the judge says in the end, in the same order, and its end is told."""

import asyncio
import os
import signal
import sys
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace

import pytest

from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.exchange_json import exchange_line
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.judge.judge import Result
from harmony_conformance.runner import judge_in_background
from harmony_conformance.runner.judge_in_background import JudgeProcessError, open_judge
from harmony_conformance.runner.judge_run import RunJudge, observe
from harmony_conformance.runner.run import Options, make_plan, run
from harmony_conformance.runtime import processes
from harmony_conformance.transport.messages import Chunk, Request

OPTIONS = Options(apis=("chat", "responses", "tgi"), select=("simple_answer", "preamble_and_call"), tries=2)
TARGET = parse_target("reference")
FAILED = Result("a.b", Severity.MUST, next(iter(CLAUSES.values())), "s", "chat", Outcome.FAIL)


@pytest.fixture(scope="module")
def plan():
    return make_plan(OPTIONS)


def finished(plan, judge, options=OPTIONS):
    def keep(x):
        judge.on_exchange(x, exchange_line(x))

    return asyncio.run(run(TARGET, options, plan, keep, lambda _: None, judge))


@pytest.fixture
def beside(monkeypatch):
    monkeypatch.setattr(judge_in_background, "_WORTH_A_PROCESS", 1)
    monkeypatch.setattr(judge_in_background, "cores", lambda: 2)


def test_it_says_the_same_in_the_same_order(plan, beside):
    with open_judge(plan, OPTIONS) as judge:
        assert type(judge) is not RunJudge
        told = finished(plan, judge)
    ways = told.capabilities.script_methods
    # what this process reads of answers would be read twice
    assert not any("turn" in vars(x) for one in told.series for x in one.exchanges.values())
    assert observe(told.series).renderer is not None
    assert judge.observations(()) == observe(told.series)
    assert told.results == asyncio.run(RunJudge(plan).results(told.series, ways, None))
    assert any(result.check.startswith("apis.") and result.applied for result in told.results)
    with open_judge(plan, OPTIONS) as judge:
        unsent = asyncio.run(judge.results((), ways, None))
    assert unsent == asyncio.run(RunJudge(plan).results((), ways, None))
    assert unsent


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no nice values")
def test_judging_has_a_lower_priority_than_sending(plan, beside):
    with open_judge(plan, OPTIONS) as judge:
        asyncio.run(judge.results((), {}, None))  # the process has started
        (process,) = judge._pool._processes.values()
        assert os.getpriority(os.PRIO_PROCESS, process.pid) > os.getpriority(os.PRIO_PROCESS, 0)


def test_a_dead_engine_is_known_across_scenarios(plan, beside):
    body = b'{"error": {"message": "EngineCore encountered an issue."}}'
    with open_judge(plan, OPTIONS) as judge:
        told = finished(plan, judge)
        latest = sorted((x.started, x.id) for one in told.series for x in one.exchanges.values())[-2:]
        ends = {name: f"2126-01-01T00:00:0{second}+00:00" for second, (_, name) in enumerate(latest)}
        died = tuple(
            replace(
                one,
                exchanges={
                    step: replace(
                        x,
                        started=ends[x.id],
                        response=replace(x.response, status=500, chunks=(Chunk(arrival_time=0.1, data=body),)),
                    )
                    if x.id in ends
                    else x
                    for step, x in one.exchanges.items()
                },
            )
            for one in told.series
        )
        ways = told.capabilities.script_methods
        results = asyncio.run(judge.results(died, ways, None))
    assert results == asyncio.run(RunJudge(plan).results(died, ways, None))
    failed = {
        finding.exchange
        for one in results
        for finding in one.findings
        if one.check == "errors.valid_request_is_answered" and one.outcome is Outcome.FAIL
    }
    assert failed == {latest[0][1]}


def test_it_says_the_same_where_nothing_can_be_forked(beside, monkeypatch):
    monkeypatch.setattr(processes, "may_fork", lambda: False)
    once = replace(OPTIONS, apis=("chat",), tries=1)
    plan = make_plan(once)
    with open_judge(plan, once) as judge:
        assert judge._pool._mp_context.get_start_method() == "spawn"
        told = finished(plan, judge, once)
    assert judge.observations(()) == observe(told.series)
    assert told.results == asyncio.run(RunJudge(plan).results(told.series, told.capabilities.script_methods, None))


def test_a_process_that_is_gone_is_reported_and_everything_is_sent(plan, beside, monkeypatch):
    pools = []

    class Pool(ProcessPoolExecutor):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            pools.append(self)

    monkeypatch.setattr(judge_in_background, "ProcessPoolExecutor", Pool)
    sent = []
    with open_judge(plan, OPTIONS) as judge:
        (process,) = pools[0]._processes.values()
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(JudgeProcessError, match="can be replayed"):
            asyncio.run(run(TARGET, OPTIONS, plan, sent.append, lambda _: None, judge))
    assert {x.scenario for x in sent} >= {scenario.name for scenario in plan.scenarios}


@pytest.mark.parametrize("options", [replace(OPTIONS, max_requests=5), replace(OPTIONS, tries=1)])
def test_a_small_run_and_a_limited_one_are_judged_in_the_end(plan, options):
    with open_judge(plan, options) as judge:
        assert type(judge) is RunJudge


class OnePlace(ProcessPoolExecutor):
    """A pool that runs nothing: its futures are for the test to finish."""

    class Asked(Future):
        times = 0

        def done(self):
            self.times += 1
            return super().done()

    def __init__(self):
        super().__init__(1)
        self.futures = []

    def submit(self, work, *_):
        future = self.Asked()
        if work is judge_in_background._judge:
            self.futures.append(future)
        return future


def test_counting_failures_looks_at_a_finished_scenario_once(plan):
    """A progress bar asks after every exchange: looking at all scenarios each time would be quadratic."""
    pool = OnePlace()
    once = judge_in_background._BackgroundJudge(plan, 1, pool)
    count = 0
    for number in range(40):
        x = Exchange(id=f"s{number}/chat/a/0", scenario=f"s{number}", step="a", request=Request(path="/", body=b"{}"))
        once.on_series(Series(name=x.scenario, exchanges={"a": x}), {})
        if number % 4 == 0:
            pool.futures[-1].set_exception(RuntimeError("one that is not judged"))
        else:
            pool.futures[-1].set_result([FAILED] * (number % 3))
            count += number % 3
        assert [once.count_failures() for _ in range(5)] == [count] * 5
    assert sum(future.times for future in pool.futures) <= 2 * len(pool.futures)


def test_scenarios_that_are_not_judged_yet_hold_back_the_count(plan):
    pool = OnePlace()
    judge = judge_in_background._BackgroundJudge(plan, 1, pool)
    for name in ("first", "second"):
        x = Exchange(id=f"{name}/chat/a/0", scenario=name, step="a", request=Request(path="/", body=b"{}"))
        judge.on_series(Series(name=name, exchanges={"a": x}), {})
    assert judge.count_failures() == 0
    pool.futures[0].set_result([FAILED])
    assert judge.count_failures() == 1
    pool.futures[1].set_result([FAILED, FAILED])
    assert judge.count_failures() == 3
