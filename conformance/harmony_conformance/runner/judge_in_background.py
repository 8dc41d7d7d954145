"""Judging in a process of its own while the client goes on sending: each scenario as soon as all of it was sent, as it was recorded.

Results are those of a run that is judged at the end, in the same order. A process that is gone is an error of ours, told when the results are wanted:
everything that was sent is recorded by then, and can be judged again.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from harmony_conformance.checks.rendering.renderer_fingerprint import Fingerprint, fingerprint
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.scripting import settled
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.recording import exchange_line, read_exchange
from harmony_conformance.golden.scenario import Scenario, expand
from harmony_conformance.json_value import ENVELOPED, loads
from harmony_conformance.judge.judge import Result
from harmony_conformance.runner.judge_run import Key, Plan, RunJudge, Ways, attempt, judge_across, judge_scenario
from harmony_conformance.runner.run import Options, make_plan
from harmony_conformance.runner.sender import sendable
from harmony_conformance.runtime.processes import cores, follow_parent, forking_if_whole, starting

_WORTH_A_PROCESS = 300
"""Requests: judging takes 3 ms for each, and where a process can not be forked, starting one takes a second."""
_Said = Future[list[Result]]


def few_collections() -> None:
    """Have Python look for cycles more rarely, and not among what is loaded: a run keeps what it makes, and looking through that takes a tenth of its time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


class JudgeProcessError(RuntimeError):
    """The process that judges ended before its time."""


@contextmanager
def judge_of(plan: Plan, options: Options) -> Generator[RunJudge]:
    """Who judges a run: somebody beside it, where that is worth it, else whoever runs it, in the end.

    To be entered before there are threads: on Linux the process is forked.
    """
    requests = options.tries * sum(len(tuple(expand(scenario))) for scenario in plan.scenarios)
    # a limit on requests is told in results, and known in the end
    if requests < _WORTH_A_PROCESS or options.max_requests is not None or cores() == 1:
        yield RunJudge(plan)
        return
    pool = ProcessPoolExecutor(1, forking_if_whole(), _begin, (options.select, options.skip, options.apis))
    try:
        with starting():
            pool.submit(_is_there)
        yield _BackgroundJudge(plan, options.tries, pool)
    finally:
        pool.shutdown(cancel_futures=True)


class _BackgroundJudge(RunJudge):
    """Hands over what was sent, and collects what is said of it."""

    def __init__(self, plan: Plan, tries: int, pool: ProcessPoolExecutor) -> None:
        super().__init__(plan)
        self._plan, self._tries, self._pool = plan, tries, pool
        self._lines: dict[str, bytes] = {}
        self._sent: dict[Key, list[Series]] = {}
        self._judged: dict[Key, tuple[int, _Said]] = {}  # and of how many series
        self._compared: dict[str, tuple[list[Key], _Said]] = {}
        self._sendable: dict[tuple[tuple[str, ScriptMethod], ...], Mapping[str, list[Key]]] = {}
        self._renderer: Fingerprint | None = None

    def on_exchange(self, x: Exchange, line: bytes) -> None:
        self._lines[x.id] = line

    def on_series(self, one: Series, ways: Ways) -> None:
        sent = self._sent.setdefault((one.name, one.api), [])
        sent.append(one)
        if len(sent) == self._tries:
            with suppress(BrokenProcessPool):  # the others are to be sent, and recorded, all the same
                self._hand_over((one.name, one.api), ways)
                keys = self._to_be_sent(ways)[one.name]
                if self._judged.keys() >= set(keys):
                    self._have_compared(one.name, keys)

    def _to_be_sent(self, ways: Ways) -> Mapping[str, list[Key]]:
        """The keys of the scenarios of each name that are sent to an endpoint that is scripted so, found out once: looking through all takes a while."""
        known = tuple(sorted(ways.items()))
        if known not in self._sendable:
            by_name: defaultdict[str, list[Key]] = defaultdict(list)
            for scenario in sendable(self._plan.scenarios, ways):
                by_name[scenario.name].append(scenario.key)
            self._sendable = {known: by_name}
        return self._sendable[known]

    async def results(self, series: Sequence[Series], ways: Ways, limit: int | None) -> tuple[Result, ...]:
        del limit  # a run that has one is judged in the end
        keys = [scenario.key for scenario in self._plan.scenarios if scenario.api in ways]
        by_name: dict[str, dict[Key, None]] = {}
        for one in series:
            by_name.setdefault(one.name, {})[one.name, one.api] = None
        try:
            for key in {**dict.fromkeys(keys), **dict.fromkeys((one.name, one.api) for one in series)}:
                self._hand_over(key, ways)
            for name, sent in by_name.items():
                self._have_compared(name, list(sent))
            said = [self._judged[key][1] for key in keys] + [self._compared[name][1] for name in by_name]
            renderer = self._pool.submit(_renderer, [((one.name, one.api), attempt(one)) for one in series])
            told = tuple([result for results in said for result in await asyncio.wrap_future(results)])
            self._renderer = await asyncio.wrap_future(renderer)
        except BrokenProcessPool:
            raise JudgeProcessError(
                "the process that judges was ended; what was sent is recorded, and can be replayed"
            ) from None
        return told

    def renderer(self, series: Sequence[Series]) -> Fingerprint | None:
        del series  # it has them
        return self._renderer

    def _hand_over(self, key: Key, ways: Ways) -> None:
        """Have all that was sent of a scenario over an API judged, if that is not under way."""
        sent = sorted(self._sent.get(key, ()), key=attempt)
        if key not in self._judged or self._judged[key][0] != len(sent):
            lines = [[self._lines.get(x.id) or exchange_line(x) for x in one.exchanges.values()] for one in sent]
            self._judged[key] = len(sent), self._pool.submit(_judge, key, lines, dict(ways))

    def _have_compared(self, name: str, keys: list[Key]) -> None:
        """Have what was judged of a scenario compared over these APIs, if that is not under way."""
        if name not in self._compared or self._compared[name][0] != keys:
            self._compared[name] = keys, self._pool.submit(_compare, keys)


@dataclass(frozen=True, kw_only=True)
class _Bench:
    """What the process that judges knows: the plan, and what it was given."""

    plan: Plan
    scenarios: Mapping[Key, Scenario]
    given: dict[Key, list[Series]] = field(default_factory=dict[Key, list[Series]])


_BENCH: list[_Bench] = []


def _begin(select: tuple[str, ...], skip: tuple[str, ...], apis: tuple[str, ...]) -> None:
    """In that process, before anything else: checks can not be handed over, so that the plan is made again."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who stops the run stops this process too
    follow_parent()
    few_collections()
    plan = make_plan(Options(select=select, skip=skip, apis=apis))
    _BENCH.append(_Bench(plan=plan, scenarios={scenario.key: scenario for scenario in plan.scenarios}))


def _is_there() -> None:
    """Make the pool start its process."""


def _judge(key: Key, tries: list[list[bytes]], ways: Ways) -> list[Result]:
    (bench,) = _BENCH
    read = ([read_exchange(loads(line, deepest=ENVELOPED)) for line in lines] for lines in tries)
    series = [settled(Series(name=key[0], exchanges={x.step: x for x in exchanges})) for exchanges in read]
    bench.given[key] = series
    scenario = bench.scenarios.get(key)
    return list(judge_scenario(scenario, series, bench.plan, ways)) if scenario is not None else []


def _compare(keys: list[Key]) -> list[Result]:
    (bench,) = _BENCH
    return list(judge_across({key: bench.given[key] for key in keys}, bench.plan))


def _renderer(sent: list[tuple[Key, int]]) -> Fingerprint | None:
    """The renderer behind all that was sent, told by key and try."""
    (bench,) = _BENCH
    given = {(key, attempt(one)): one for key, series in bench.given.items() for one in series}
    return fingerprint([given[each] for each in sent if each in given])
