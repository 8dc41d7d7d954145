"""The suite tested on itself: every switchable defect of the reference server, and blind mutants of correct exchanges.

A defect is caught when one of the checks that `golden/switches.json` names for it fails. A check that fails too, and is neither named nor a known
consequence, is *unrelated*: a false alarm; one that is named and does not fail is *silent*: it no longer sees what it was there for, or was named without
ground, which would hide a false alarm. No check is an undifferentiated comparison: each names the part that is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS
from harmony_conformance.checks import CHECKS
from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.exchange import Series
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.scenario import expand, is_of_rows, one_of_each_row
from harmony_conformance.json_value import JsonObject, at, items, loads, members, text
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import Result, is_comparison
from harmony_conformance.reference_server.defects import DEFECTS, defects_named
from harmony_conformance.reference_server.defects.stages import READING, WORDED, Changes
from harmony_conformance.runner.judge_run import Plan, judge_all
from harmony_conformance.runner.run import Options, Run, make_plan, run, run_with_client
from harmony_conformance.runtime.processes import forking_if_whole
from harmony_conformance.selftest.in_memory_transport import at_once, client_of
from harmony_conformance.selftest.prompt_evidence import Shown, disagreements, prompt_counts, read_evidence, shown_by
from harmony_conformance.selftest.row_runner import ask
from harmony_conformance.selftest.unchanged_answers import Digests, changed, digests
from harmony_conformance.transport.client import run_async


@dataclass(frozen=True, kw_only=True)
class ExpectedDetections:
    """Which checks are there for a defect, and which others fail as a consequence of it; `by_wire`: on what crossed the wire alone."""

    caught_by: frozenset[str]
    also: frozenset[str]
    by_wire: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class DefectResult:
    """What the suite said of one defect."""

    defect: str
    caught_by: tuple[str, ...]
    unrelated: tuple[str, ...]
    missed: tuple[str, ...] = ()

    @property
    def caught(self) -> bool:
        """Whether a check that is there for it failed."""
        return bool(self.caught_by)

    @property
    def as_expected(self) -> bool:
        """Whether it was caught, and what failed is what the table names."""
        return self.caught and not self.unrelated and not self.missed

    def line(self) -> JsonObject:
        """The JSON form."""
        return {
            "defect": self.defect,
            "caught": self.caught,
            "caught_by": list(self.caught_by),
            "unrelated": list(self.unrelated),
            "silent": list(self.missed),
        }


def read_switches() -> Mapping[str, ExpectedDetections]:
    """The table of `golden/switches.json`: what catches each defect."""
    document = loads((golden.root() / "switches.json").read_text(encoding="utf-8"))
    return {
        name: ExpectedDetections(
            caught_by=frozenset(text(check) for check in items(at(row, "caught_by"))),
            also=frozenset(text(check) for check in items(at(row, "also"))),
            by_wire=frozenset(text(check) for check in items(at(row, "by_wire"))),
        )
        for name, row in members(at(document, "switches")).items()
    }


def failing(results: Iterable[Result]) -> frozenset[str]:
    """The checks with a failure, whatever their severity."""
    return frozenset(result.check for result in results if result.outcome in (Outcome.FAIL, Outcome.ERROR))


def judge_defect(defect: str, failed: frozenset[str], catch: ExpectedDetections) -> DefectResult:
    """Compare what failed with what has to."""
    return DefectResult(
        defect=defect,
        caught_by=tuple(sorted(failed & catch.caught_by)),
        unrelated=tuple(sorted(failed - catch.caught_by - catch.also)),
        missed=tuple(sorted((catch.caught_by | catch.also) - failed)),
    )


def sample(series: Iterable[Series], plan: Plan) -> tuple[Series, ...]:
    """The series that blind mutants are made of: all of the scenarios, and of each group of rows the first one, whole and streamed.

    Those over Chat Completions alone: the answers of the other APIs have many times as many members, and no reasons are known for what survives of them.
    """
    of_rows = {scenario.name: one_of_each_row(scenario) for scenario in plan.scenarios if is_of_rows(scenario)}
    kept = {name: {step.name for step in islice(expand(scenario), 2)} for name, scenario in of_rows.items()}
    return tuple(
        replace(one, exchanges={step: x for step, x in one.exchanges.items() if step in kept.get(one.name, {step})})
        for one in series
        if one.api == CHAT_COMPLETIONS.name
    )


EVERY_API = Options(apis=tuple(APIS))
"""How the correct server is asked: over each API."""


def apis_of(defect: str) -> tuple[str, ...]:
    """The APIs whose words a defect changes, and Chat Completions, which they are compared with; that alone where it changes what all have in common."""
    changes = DEFECTS[defect].change
    words = {
        change.api for change in (changes if isinstance(changes, tuple) else (changes,)) if isinstance(change, WORDED)
    }
    return tuple(name for name, api in APIS.items() if api is CHAT_COMPLETIONS or api.option_name in words)


def run_reference(defect: str | None, plan: Plan, apis: tuple[str, ...] = (CHAT_COMPLETIONS.name,)) -> Run:
    """One run of the suite on the reference server, with or without a defect, and without a wire between."""
    target = parse_target("reference" if defect is None else f"reference:defect={defect}")

    async def sent() -> Run:
        async with client_of(target.defects) as client:
            return await run_with_client(client, target, Options(apis=apis), plan, lambda _: None, lambda _: None)

    return at_once(sent())


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """The outcome: the correct server's faults, each defect's, checks that never caught anything, and what shows the defects of prompts."""

    correct: Run
    faults: tuple[str, ...]
    defects: tuple[DefectResult, ...]
    never_triggered: tuple[str, ...]
    evidence: Mapping[str, Shown]

    @property
    def passed(self) -> bool:
        """Whether nothing was missed and nothing was alarmed falsely."""
        return not self.faults and not self.never_triggered and all(result.as_expected for result in self.defects)


def run_selftest(defects: Iterable[str], told: Callable[[DefectResult], None], workers: int) -> SelfTest:
    """Run the suite on the correct server, and without a wire on each defect, in `workers` processes. `told` gets each result as it comes, in order."""
    plan, switches = _plan(EVERY_API.apis), read_switches()
    correct = run_async(run(parse_target("reference"), EVERY_API, plan, lambda _: None, lambda _: None))
    served = run_reference(None, _served(plan), EVERY_API.apis).series
    right = digests((*served, *_rows(plan, Changes())), arrivals=True)
    named = tuple(defects)
    results: list[DefectResult] = []
    shown: dict[str, Shown] = {}
    with ProcessPoolExecutor(workers, forking_if_whole(), initializer=_inherit, initargs=(right,)) as pool:
        observe = partial(_observed, right=prompt_counts(correct.series))
        for defect, (failed, evidence) in zip(named, pool.map(observe, named), strict=True):
            results.append(judge_defect(defect, failed, switches.get(defect, _NOTHING)))
            told(results[-1])
            shown |= {defect: evidence} if evidence is not None else {}
    caught = {check for result in results for check in result.caught_by}
    golden_file = golden_evidence()
    doubted = [one for switch, found in shown.items() for one in disagreements(switch, golden_file[switch], found)]
    return SelfTest(
        correct=correct,
        faults=(*_faults(correct, plan), *_otherwise(correct.series, served), *doubted),
        evidence=shown,
        defects=tuple(results),
        never_triggered=tuple(check.id for check in CHECKS if check.id not in caught),
    )


_NOTHING = ExpectedDetections(caught_by=frozenset(), also=frozenset())


@cache
def _plan(apis: tuple[str, ...]) -> Plan:
    return make_plan(Options(apis=apis))


def failed_checks(defect: str) -> frozenset[str]:
    """The checks that fail on the reference server with a defect."""
    return _judged(defect)[2]


def _judged(defect: str) -> tuple[tuple[Series, ...], Plan, frozenset[str]]:
    """The series that a defect changes, what they were sent by, and the checks that fail.

    A check of an exchange judges those that the defect changed, a comparison whole series with such an exchange among them: of all others the correct
    server has shown what they say. The hand-written rows are asked only where the defect reads the output: elsewhere every row would show the same. Their
    prompts are those of the correct server, and are not judged again.
    """
    apis = apis_of(defect)
    plan = _plan(apis)
    served = _served(plan)
    series = run_reference(defect, served, apis).series
    told = changed(series, _CORRECT)
    names = {one.name for one in told}
    whole = tuple(one for one in series if one.name in names)
    sent = replace(plan, scenarios=tuple(one for one in served.scenarios if one.name in names))
    results = [*judge_all(told, _only(sent, comparisons=False)), *judge_all(whole, _only(sent, comparisons=True))]
    if isinstance(DEFECTS[defect].change, READING):
        results += _read(plan, Changes(defects_named([defect])))
    return whole, sent, failing(results)


def _served(plan: Plan) -> Plan:
    """What is sent to a server with a defect, and judged later."""
    return Plan(scenarios=tuple(scenario for scenario in plan.scenarios if not is_of_rows(scenario)), checks=())


def _only(plan: Plan, *, comparisons: bool) -> Plan:
    return replace(plan, checks=tuple(rule for rule in plan.checks if is_comparison(rule) is comparisons))


def _rows(plan: Plan, changes: Changes) -> tuple[Series, ...]:
    rows = (scenario for scenario in plan.scenarios if is_of_rows(scenario) and scenario.api == CHAT_COMPLETIONS.name)
    return tuple(ask(one_of_each_row(scenario), changes) for scenario in rows)


def _read(plan: Plan, changes: Changes) -> Iterable[Result]:
    """Results on the hand-written rows that are answered otherwise than by the correct server."""
    told = changed(_rows(plan, changes), _CORRECT)
    names = {(one.name, one.api) for one in told}
    of_output = tuple(check for check in plan.checks if check.family not in _OF_PROMPTS)
    scenarios = tuple(scenario for scenario in plan.scenarios if scenario.key in names)
    return judge_all(told, Plan(scenarios=scenarios, checks=of_output))


def _otherwise(wired: Iterable[Series], served: Iterable[Series]) -> Iterable[str]:
    """Where the correct server says without a wire between what it does not say on one: then the runs on defects prove nothing of the wire."""
    by_wire = digests(wired, arrivals=False)
    for (name, api), found in digests(served, arrivals=False).items():
        if found != by_wire.get((name, api)):
            yield f"the correct server: {name} over {api} is answered otherwise without a wire"


def _observed(defect: str, right: Mapping[str, int]) -> tuple[frozenset[str], Shown | None]:
    """The checks that fail on a defect; for one of the prompt, what shows it."""
    told, sent, failed = _judged(defect)
    if defect not in golden_evidence():
        return failed, None
    named = read_switches().get(defect, _NOTHING).caught_by
    return failed, shown_by(told, sent, failed, named, right)


def golden_evidence() -> Mapping[str, Shown]:
    """The table of `golden/evidence.json`: what shows each defect of the prompt."""
    return read_evidence(loads((golden.root() / "evidence.json").read_text(encoding="utf-8")))


_OF_PROMPTS = frozenset({"accounting", "client", "hierarchy", "multi_turn", "prompt", "tools"})
"""Families that judge a request and its prompt, and nothing of the answer."""


_CORRECT: dict[tuple[str, str], Mapping[str, bytes]] = {}
"""Digests of what the correct server answers, in each process. What a defect leaves as it is need not be judged again."""


def _inherit(correct: Digests) -> None:
    """In a process that judges; by name, so that it finds this module's table where the process was not forked."""
    _CORRECT.update(correct)


def _faults(correct: Run, plan: Plan) -> Iterable[str]:
    """What is wrong with a run on the correct server: failures, inconclusive results, checks that were never applied or never passed."""
    for result in correct.results:
        if result.outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE):
            yield f"the correct server: {result.outcome.value} of {result.check} in {result.scenario}"
    passed = {result.check for result in correct.results if result.outcome is Outcome.PASS}
    for check in plan.checks:
        if check.id not in passed:
            yield f"the correct server: {check.id} was never applied and passed"
