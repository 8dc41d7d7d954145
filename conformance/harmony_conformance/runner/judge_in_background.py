"""Judging in a separate process while the client sends: each scenario after its last request, from its recording.

Results and their order equal those of a run that is judged at the end. If the process ends early, `results` raises JudgeProcessError; all exchanges are
recorded by then and can be replayed.
"""

from __future__ import annotations

import asyncio
import signal
from collections import defaultdict, deque
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.scripting import drop_unproven_stream_scripts
from harmony_conformance.evidence.dead_engine import mark_dead_engine
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.exchange_json import exchange_line, read_exchange
from harmony_conformance.golden.scenario import Scenario, expand
from harmony_conformance.json_value import MAX_LINE_DEPTH, loads
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import Result
from harmony_conformance.plugins.loading import restore_plugins
from harmony_conformance.plugins.registry import PluginSource, plugin_sources
from harmony_conformance.runner.judge_run import (
    Observations,
    Plan,
    RunJudge,
    ScenarioKey,
    ScriptMethods,
    attempt_number,
    judge_api_comparisons,
    judge_scenario,
    observe,
)
from harmony_conformance.runner.run import Options, make_plan
from harmony_conformance.runner.sender import sendable_scenarios
from harmony_conformance.runner.websocket_use import WebSocketUse
from harmony_conformance.runtime.processes import (
    block_interrupts,
    cores,
    follow_parent,
    lower_priority,
    process_context,
    reduce_garbage_collection,
)

_WORTH_A_PROCESS = 300
"""Number of requests: judging takes 3 ms for each, and starting a process without fork takes a second."""
_Judged = Future[list[Result]]


class JudgeProcessError(RuntimeError):
    """The judging process ended early."""


@contextmanager
def open_judge(plan: Plan, options: Options) -> Generator[RunJudge]:
    """Yield the judge of a run: in a separate process for many requests, else in this one at the end.

    Enter it before threads start: on Linux the process is forked.
    """
    requests = options.tries * sum(len(tuple(expand(scenario))) for scenario in plan.scenarios)
    # results name the limit on requests, which is known only at the end
    if requests < _WORTH_A_PROCESS or options.max_requests is not None or cores() == 1:
        yield RunJudge(plan)
        return
    pool = ProcessPoolExecutor(
        1, process_context(), _initialize, (options.select, options.skip, options.apis, plugin_sources())
    )
    try:
        with block_interrupts():
            pool.submit(_start_process)
        yield _BackgroundJudge(plan, options.tries, pool)
    finally:
        pool.shutdown(cancel_futures=True)


class _BackgroundJudge(RunJudge):
    """Judge that submits series to the process and collects their results."""

    def __init__(self, plan: Plan, tries: int, pool: ProcessPoolExecutor) -> None:
        super().__init__(plan)
        self._plan, self._tries, self._pool = plan, tries, pool
        self._lines: dict[str, bytes] = {}
        self._sent: dict[ScenarioKey, list[Series]] = {}
        self._judge_futures: dict[ScenarioKey, tuple[int, _Judged]] = {}  # with the number of series
        self._comparison_futures: dict[str, tuple[list[ScenarioKey], _Judged]] = {}
        self._sendable: dict[tuple[tuple[str, ScriptMethod], ...], Mapping[str, list[ScenarioKey]]] = {}
        self._uncounted: deque[tuple[ScenarioKey, _Judged]] = deque()
        self._failures: dict[ScenarioKey, int] = {}
        self._all_failures = 0
        self._observations: Observations | None = None

    def on_exchange(self, x: Exchange, line: bytes) -> None:
        self._lines[x.id] = line

    def on_series(self, one: Series, ways: ScriptMethods) -> None:
        sent = self._sent.setdefault((one.name, one.api), [])
        sent.append(one)
        if len(sent) == self._tries:
            with suppress(BrokenProcessPool):  # the other scenarios are still sent and recorded
                self._submit_judge((one.name, one.api), ways)
                keys = self._sendable_keys(ways)[one.name]
                if self._judge_futures.keys() >= set(keys):
                    self._submit_compare(one.name, keys)

    def _sendable_keys(self, ways: ScriptMethods) -> Mapping[str, list[ScenarioKey]]:
        """Return the keys of sendable scenarios by scenario name; computed once, as it takes a while."""
        cache_key = tuple(sorted(ways.items()))
        if cache_key not in self._sendable:
            by_name: defaultdict[str, list[ScenarioKey]] = defaultdict(list)
            for scenario in sendable_scenarios(self._plan.scenarios, ways):
                by_name[scenario.name].append(scenario.key)
            self._sendable = {cache_key: by_name}
        return self._sendable[cache_key]

    def count_failures(self) -> int | None:
        # the process judges in order, and the progress bar asks after every exchange
        while self._uncounted and self._uncounted[0][1].done():
            key, future = self._uncounted.popleft()
            if not future.cancelled() and future.exception() is None:
                failures = sum(result.outcome is Outcome.FAIL for result in future.result())
                self._all_failures += failures - self._failures.get(key, 0)
                self._failures[key] = failures
        return self._all_failures

    async def results(self, series: Sequence[Series], ways: ScriptMethods, limit: int | None) -> tuple[Result, ...]:
        if mark_dead_engine(series) != tuple(mark_dead_engine([one])[0] for one in series):
            self._observations = observe(series)
            return await super().results(series, ways, limit)  # a request of one series killed the engine of others
        keys = [scenario.key for scenario in self._plan.scenarios if scenario.api in ways]
        by_name: dict[str, dict[ScenarioKey, None]] = {}
        for one in series:
            by_name.setdefault(one.name, {})[one.name, one.api] = None
        try:
            for key in {**dict.fromkeys(keys), **dict.fromkeys((one.name, one.api) for one in series)}:
                self._submit_judge(key, ways)
            for name, sent in by_name.items():
                self._submit_compare(name, list(sent))
            futures = [self._judge_futures[key][1] for key in keys] + [
                self._comparison_futures[name][1] for name in by_name
            ]
            observed = self._pool.submit(_observe, [((one.name, one.api), attempt_number(one)) for one in series])
            results = tuple([result for future in futures for result in await asyncio.wrap_future(future)])
            self._observations = await asyncio.wrap_future(observed)
        except BrokenProcessPool:
            raise JudgeProcessError(
                "the judging process ended early; all exchanges are recorded and can be replayed"
            ) from None
        return results

    def observations(self, series: Sequence[Series]) -> Observations:
        return self._observations or observe(series)  # the judging process has made them

    def _submit_judge(self, key: ScenarioKey, ways: ScriptMethods) -> None:
        """Submit the series of a scenario over an API, unless all of them are submitted."""
        sent = sorted(self._sent.get(key, ()), key=attempt_number)
        if key not in self._judge_futures or self._judge_futures[key][0] != len(sent):
            lines = [[self._lines.get(x.id) or exchange_line(x) for x in one.exchanges.values()] for one in sent]
            future = self._pool.submit(_judge, key, lines, dict(ways))
            self._judge_futures[key] = len(sent), future
            self._uncounted.append((key, future))

    def _submit_compare(self, name: str, keys: list[ScenarioKey]) -> None:
        """Submit the comparison of a scenario over these APIs, unless it is submitted."""
        if name not in self._comparison_futures or self._comparison_futures[name][0] != keys:
            self._comparison_futures[name] = keys, self._pool.submit(_compare, keys)


@dataclass(frozen=True, kw_only=True)
class _ProcessState:
    """State of the judging process: the plan, and the series by key."""

    plan: Plan
    scenarios: Mapping[ScenarioKey, Scenario]
    series: dict[ScenarioKey, list[Series]] = field(default_factory=dict[ScenarioKey, list[Series]])


_STATE: list[_ProcessState] = []


def _initialize(
    select: tuple[str, ...], skip: tuple[str, ...], apis: tuple[str, ...], plugins: tuple[PluginSource, ...]
) -> None:
    """Initialize the judging process. Checks cannot be pickled, so the process makes the plan again."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles the interrupt and stops this process
    follow_parent()
    lower_priority()
    reduce_garbage_collection()
    restore_plugins(plugins)
    # the scenarios that the run leaves out are never submitted
    plan = make_plan(Options(select=select, skip=skip, apis=apis, websocket_use=WebSocketUse.SCENARIOS))
    _STATE.append(_ProcessState(plan=plan, scenarios={scenario.key: scenario for scenario in plan.scenarios}))


def _start_process() -> None:
    """Make the pool start its process."""


def _judge(key: ScenarioKey, tries: list[list[bytes]], ways: ScriptMethods) -> list[Result]:
    (state,) = _STATE
    recorded = ([read_exchange(loads(line, max_depth=MAX_LINE_DEPTH)) for line in lines] for lines in tries)
    series = [
        drop_unproven_stream_scripts(Series(name=key[0], exchanges={x.step: x for x in exchanges}), ways.get(key[1]))
        for exchanges in recorded
    ]
    state.series[key] = series
    scenario = state.scenarios.get(key)
    return list(judge_scenario(scenario, series, state.plan, ways)) if scenario is not None else []


def _compare(keys: list[ScenarioKey]) -> list[Result]:
    (state,) = _STATE
    return list(judge_api_comparisons({key: state.series[key] for key in keys}, state.plan))


def _observe(sent: list[tuple[ScenarioKey, int]]) -> Observations:
    """Return the observations in these series, given by key and try."""
    (state,) = _STATE
    series = {(key, attempt_number(one)): one for key, tries in state.series.items() for one in tries}
    return observe([series[each] for each in sent if each in series])
