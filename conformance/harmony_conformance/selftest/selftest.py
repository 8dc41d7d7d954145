"""Self-test of the suite: run it on the reference server with each defect, and compare the failed checks with a table.

A defect is caught if one of the checks that `golden/switches.json` lists for it fails.

- *unrelated*: a check that fails but is neither listed nor a known consequence. It is a false alarm.
- *silent*: a listed check that does not fail. It no longer works, or its entry is wrong and could hide a false alarm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from itertools import islice
from typing import NamedTuple

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS, RESPONSES
from harmony_conformance.checks import CHECKS
from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.exchange import Series
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.scenario import expand, has_only_rows, one_of_each_row
from harmony_conformance.json_value import JsonObject, items, loads, members, text, value_at
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import Result, is_comparison
from harmony_conformance.reference_server.defects import DEFECTS, find_defects
from harmony_conformance.reference_server.defects.stages import API_STAGES, OUTPUT_PARSING_STAGES, Changes, OnWebSocket
from harmony_conformance.runner.judge_run import Plan, judge_all
from harmony_conformance.runner.run import Options, Run, make_plan, run, run_with_client
from harmony_conformance.runner.websocket_use import WebSocketUse
from harmony_conformance.runtime.processes import process_context
from harmony_conformance.selftest import prompt_evidence
from harmony_conformance.selftest.in_memory_transport import reference_client, run_with_simulated_clock
from harmony_conformance.selftest.row_runner import send_scenario
from harmony_conformance.selftest.unchanged_answers import Digests, changed_series, digests
from harmony_conformance.transport.client import run_async


@dataclass(frozen=True, kw_only=True)
class ExpectedDetections:
    """Expected failures of checks for one defect.

    Attributes:
        caught_by: Checks that detect the defect.
        also: Other checks that fail as a consequence.
        by_wire: Checks that fail too if only the wire traffic is known.
    """

    caught_by: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    by_wire: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class DefectResult:
    """Checks that failed on one defect, compared with the expected ones. `missed` are the silent checks."""

    defect: str
    caught_by: tuple[str, ...]
    unrelated: tuple[str, ...]
    missed: tuple[str, ...] = ()

    @property
    def is_caught(self) -> bool:
        """True if a check that detects the defect failed."""
        return bool(self.caught_by)

    @property
    def is_as_expected(self) -> bool:
        """True if the failed checks are exactly those in the table."""
        return self.is_caught and not self.unrelated and not self.missed

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "defect": self.defect,
            "caught": self.is_caught,
            "caught_by": list(self.caught_by),
            "unrelated": list(self.unrelated),
            "silent": list(self.missed),
        }


def read_switches() -> Mapping[str, ExpectedDetections]:
    """Read the expected detections of each defect from `golden/switches.json`."""
    document = loads((golden.root() / "switches.json").read_text(encoding="utf-8"))
    return {
        name: ExpectedDetections(
            **{one.name: frozenset(map(text, items(value_at(row, one.name)))) for one in fields(ExpectedDetections)}
        )
        for name, row in members(value_at(document, "switches")).items()
    }


def read_checks_of_logs() -> Mapping[str, str]:
    """Read the checks that no defect of a server can fail in a run, each with the reason, from `golden/switches.json`."""
    document = loads((golden.root() / "switches.json").read_text(encoding="utf-8"))
    return {check: text(reason) for check, reason in members(value_at(document, "logs_only")).items()}


def failing_checks(results: Iterable[Result]) -> frozenset[str]:
    """Return the ids of the checks with a failure, whatever their severity."""
    return frozenset(result.check for result in results if result.outcome in (Outcome.FAIL, Outcome.ERROR))


def judge_defect(defect: str, failed: frozenset[str], catch: ExpectedDetections) -> DefectResult:
    """Compare the failed checks with the expected ones."""
    return DefectResult(
        defect=defect,
        caught_by=tuple(sorted(failed & catch.caught_by)),
        unrelated=tuple(sorted(failed - catch.caught_by - catch.also)),
        missed=tuple(sorted((catch.caught_by | catch.also) - failed)),
    )


def select_mutation_series(series: Iterable[Series], plan: Plan) -> tuple[Series, ...]:
    """Select the series for blind mutants: all scenarios, and the first row of each group, with and without streaming.

    Only Chat Completions is used. The responses of the other APIs have many more members,
    and no table of reasons exists for their surviving mutants.
    """
    of_rows = {scenario.name: one_of_each_row(scenario) for scenario in plan.scenarios if has_only_rows(scenario)}
    steps = {name: {step.name for step in islice(expand(scenario), 2)} for name, scenario in of_rows.items()}
    return tuple(
        replace(one, exchanges={step: x for step, x in one.exchanges.items() if step in steps.get(one.name, {step})})
        for one in series
        if one.api == CHAT_COMPLETIONS.name
    )


ALL_APIS_OPTIONS = Options(apis=tuple(APIS), websocket_use=WebSocketUse.SCENARIOS)
"""Options of the run on the correct server."""


def apis_of(*defects: str) -> tuple[str, ...]:
    """Return Chat Completions and the APIs whose JSON the defects change.

    A defect of the stages that all APIs share is run over Chat Completions only.
    """
    changes = (DEFECTS[defect].change for defect in defects)
    stages = [one for change in changes for one in (change if isinstance(change, tuple) else (change,))]
    families: set[str] = {one.api for one in stages if isinstance(one, API_STAGES)}
    families |= {RESPONSES.option_name} if any(isinstance(one, OnWebSocket) for one in stages) else set[str]()
    return tuple(name for name, api in APIS.items() if api is CHAT_COMPLETIONS or api.option_name in families)


def run_reference(defects: Sequence[str], plan: Plan, apis: tuple[str, ...] = (CHAT_COMPLETIONS.name,)) -> Run:
    """Run the suite on the reference server in memory, with any number of defects."""
    target = parse_target(":defect=".join(("reference", *defects)))

    options = Options(apis=apis, websocket_use=WebSocketUse.SCENARIOS)

    async def run_in_memory() -> Run:
        async with reference_client(target.defects) as client:
            return await run_with_client(client, target, options, plan, lambda _: None, lambda _: None)

    return run_with_simulated_clock(run_in_memory())


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """Result of the self-test.

    Attributes:
        correct_run: The run on the correct server.
        correct_run_problems: Problems of that run, and differences from `golden/evidence.json`.
        never_triggered: Ids of checks that caught no defect.
        evidence: Evidence for each defect of prompt construction.
    """

    correct_run: Run
    correct_run_problems: tuple[str, ...]
    defects: tuple[DefectResult, ...]
    never_triggered: tuple[str, ...]
    evidence: Mapping[str, prompt_evidence.DefectEvidence]

    @property
    def passed(self) -> bool:
        """True if every defect was caught without a false alarm and the correct server passed."""
        is_correct = not self.correct_run_problems and not self.never_triggered
        return is_correct and all(result.is_as_expected for result in self.defects)


def run_selftest(defects: Iterable[str], on_result: Callable[[DefectResult], None], workers: int) -> SelfTest:
    """Run the suite over HTTP on the correct server, and in memory on each defect, in `workers` processes.

    `on_result` gets each result as soon as it is known, in the order of the defects.
    """
    plan, switches = _plan(ALL_APIS_OPTIONS.apis), read_switches()
    correct = run_async(run(parse_target("reference"), ALL_APIS_OPTIONS, plan, lambda _: None, lambda _: None))
    in_memory, right = run_correct_server()
    ids = tuple(defects)
    results: list[DefectResult] = []
    shown: dict[str, prompt_evidence.DefectEvidence] = {}
    with ProcessPoolExecutor(workers, process_context(), initializer=remember_correct_run, initargs=(right,)) as pool:
        run_defect = partial(_run_defect, right=prompt_evidence.prompt_counts(correct.series))
        for defect, (failed, evidence) in zip(ids, pool.map(run_defect, ids), strict=True):
            results.append(judge_defect(defect, failed, switches.get(defect, ExpectedDetections())))
            on_result(results[-1])
            shown |= {defect: evidence} if evidence is not None else {}
    triggered = {check for result in results for check in result.caught_by}
    golden_file = golden_evidence()
    differences = [
        one for switch, new in shown.items() for one in prompt_evidence.disagreements(switch, golden_file[switch], new)
    ]
    return SelfTest(
        correct_run=correct,
        correct_run_problems=(
            *_faults(correct, plan),
            *_transport_differences(correct.series, in_memory),
            *differences,
        ),
        evidence=shown,
        defects=tuple(results),
        never_triggered=tuple(check.id for check in CHECKS if check.id not in triggered | read_checks_of_logs().keys()),
    )


def run_correct_server() -> tuple[tuple[Series, ...], Digests]:
    """Run the correct server in memory. Return its series without hand-written rows, and the digests of all exchanges."""
    plan = _plan(ALL_APIS_OPTIONS.apis)
    series = run_reference((), _without_rows(plan), ALL_APIS_OPTIONS.apis).series
    return series, digests((*series, *_run_rows(plan, Changes())), arrivals=True)


def judge_correct_run(series: Iterable[Series]) -> tuple[Result, ...]:
    """Return all results of the correct server, given its series without the hand-written rows."""
    plan = _plan(ALL_APIS_OPTIONS.apis)
    return tuple(judge_all((*series, *_run_rows(plan, Changes())), plan))


@cache
def _plan(apis: tuple[str, ...]) -> Plan:
    return make_plan(Options(apis=apis, websocket_use=WebSocketUse.SCENARIOS))


def failed_checks(defect: str) -> frozenset[str]:
    """Return the ids of the checks that fail on the reference server with a defect."""
    return failing_checks(judge_defect_run(defect).results)


class DefectRun(NamedTuple):
    """The changes of defects: the whole series with a changed exchange, their plan, their results, and the ids of the changed exchanges."""

    series: tuple[Series, ...]
    plan: Plan
    results: tuple[Result, ...]
    changed: frozenset[str]


def judge_defect_run(*defects: str) -> DefectRun:
    """Run the suite on the reference server with defects, and judge what they change.

    A check of single exchanges judges only changed exchanges. A comparison judges whole series with a changed exchange.
    The results of all others are the same as on the correct server.
    The hand-written rows are run only for defects of output parsing, and their prompts are not judged again.
    """
    apis = apis_of(*defects)
    plan = _plan(apis)
    sent_plan = _without_rows(plan)
    series = run_reference(defects, sent_plan, apis).series
    different = changed_series(series, _CORRECT)
    names = {one.name for one in different}
    whole = tuple(one for one in series if one.name in names)
    scenarios = tuple(one for one in sent_plan.scenarios if one.name in names)
    exchange_plan, comparison_plan = (
        Plan(scenarios=scenarios, checks=tuple(rule for rule in plan.checks if is_comparison(rule) is comparisons))
        for comparisons in (False, True)
    )
    results = [*judge_all(different, exchange_plan), *judge_all(whole, comparison_plan)]
    if any(isinstance(DEFECTS[defect].change, OUTPUT_PARSING_STAGES) for defect in defects):
        rows = changed_series(_run_rows(plan, Changes(find_defects(defects))), _CORRECT)
        results += _judge_rows(rows, plan)
        different = (*different, *rows)
    changed = frozenset(x.id for one in different for x in one.exchanges.values())
    return DefectRun(whole, replace(plan, scenarios=scenarios), tuple(results), changed)


def _without_rows(plan: Plan) -> Plan:
    """Return the plan without hand-written rows and without checks: its run is judged later."""
    return Plan(scenarios=tuple(scenario for scenario in plan.scenarios if not has_only_rows(scenario)), checks=())


def _run_rows(plan: Plan, changes: Changes) -> tuple[Series, ...]:
    chats = (scenario for scenario in plan.scenarios if scenario.api == CHAT_COMPLETIONS.name)
    rows = filter(has_only_rows, chats)
    return tuple(send_scenario(one_of_each_row(scenario), changes) for scenario in rows)


def _judge_rows(rows: Sequence[Series], plan: Plan) -> Iterable[Result]:
    """Judge series of hand-written rows, but not their prompts."""
    keys = {(one.name, one.api) for one in rows}
    output_checks = tuple(check for check in plan.checks if check.family not in _PROMPT_FAMILIES)
    scenarios = tuple(scenario for scenario in plan.scenarios if scenario.key in keys)
    return judge_all(rows, Plan(scenarios=scenarios, checks=output_checks))


def _transport_differences(over_http: Iterable[Series], in_memory: Iterable[Series]) -> Iterable[str]:
    """Yield differences of the correct server between HTTP and memory, which would invalidate the runs with defects."""
    http_digests = digests(over_http, arrivals=False)
    for (name, api), steps in digests(in_memory, arrivals=False).items():
        if steps != http_digests.get((name, api)):
            yield f"the correct server: responses to {name} over {api} differ between HTTP and the in-memory transport"


def _run_defect(defect: str, right: Mapping[str, int]) -> tuple[frozenset[str], prompt_evidence.DefectEvidence | None]:
    """Return the ids of the checks that fail on a defect and, for a defect of the prompt, its evidence."""
    series, plan, results, _ = judge_defect_run(defect)
    failed = failing_checks(results)
    if defect not in golden_evidence():
        return failed, None
    expected = read_switches().get(defect, ExpectedDetections())
    return failed, prompt_evidence.compute_evidence(series, plan, failed, expected.caught_by, right)


def golden_evidence() -> Mapping[str, prompt_evidence.DefectEvidence]:
    """Read the evidence for each defect of prompt construction from `golden/evidence.json`."""
    return prompt_evidence.read_evidence(loads((golden.root() / "evidence.json").read_text(encoding="utf-8")))


_PROMPT_FAMILIES = frozenset({"accounting", "client", "hierarchy", "multi_turn", "prompt", "tools"})
"""Families of checks that judge only the request and its prompt."""


_CORRECT: dict[tuple[str, str], Mapping[str, bytes]] = {}
"""Digests of the correct server's exchanges, in each worker process. Exchanges with the same digest are not judged again."""


def remember_correct_run(correct: Digests) -> None:
    """Initialize a worker process. A module-level function works with every start method of processes."""
    _CORRECT.update(correct)


def _faults(correct: Run, plan: Plan) -> Iterable[str]:
    """Yield problems of the run on the correct server: failures, inconclusive results, checks without a pass."""
    for result in correct.results:
        if result.outcome in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE):
            yield f"the correct server: {result.outcome.value} of {result.check} in {result.scenario}"
    passed = {result.check for result in correct.results if result.outcome is Outcome.PASS}
    for check in plan.checks:
        if check.id not in passed:
            yield f"the correct server: {check.id} never passed"
