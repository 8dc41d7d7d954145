"""Self-test through a proxy: the defects that a proxy detects in recorded traffic.

Each defect is run in memory as in the self-test, but through an application that records the traffic.
Every recorded exchange is judged on its own. A defect is seen if a check that is listed for it fails.
For other defects the reason is computed:

- The check compares several exchanges.
- The check needs facts that never cross the wire (`SUITE_ONLY_FACTS`).
- Otherwise the recorded bytes suffice, and the missing failure is an error of the proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Protocol, cast

from starlette.types import ASGIApp

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS
from harmony_conformance.checks import CHECKS
from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.levels import AnsweredBy, Validity
from harmony_conformance.golden.scenario import has_only_rows, one_of_each_row
from harmony_conformance.json_value import JsonObject
from harmony_conformance.judge.check import Check, Comparison, Outcome
from harmony_conformance.judge.judge import is_comparison, judge_exchange
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.reference_server.defects.stages import OUTPUT_PARSING_STAGES
from harmony_conformance.reference_server.server.app import create_app
from harmony_conformance.runner.judge_run import Plan
from harmony_conformance.runner.run import Options, make_plan, run_with_client
from harmony_conformance.runtime.processes import process_context
from harmony_conformance.selftest.in_memory_transport import application_client, run_with_simulated_clock
from harmony_conformance.selftest.selftest import ExpectedDetections, apis_of, failing_checks, read_switches
from harmony_conformance.selftest.unchanged_answers import Digests, changed_series, digests

_GROUP = "harmony_conformance.through"
_COMPARES = "several exchanges to compare"
_MISSED = "nothing but the wire"
_NOT_SENT = "an API that its bytes do not identify"
_CLIENTS = "client"
"""Family of checks of requests. Scenarios send wrong requests on purpose."""
_FORCED = frozenset({"structured.answer_is_json", "tool_calls.arguments_fit_the_schema"})
"""Checks that fail if a script violates the requested grammar. Only the suite knows about the script, so a proxy fails them."""


class RecordingProxy(Protocol):
    """A proxy between a client and an application that records the traffic."""

    @property
    def app(self) -> ASGIApp:
        """The application that the client calls instead."""
        ...

    def exchanges(self) -> Sequence[Exchange]:
        """Return the recorded exchanges as the proxy judges them, ordered by their end."""
        ...


ProxyFactory = Callable[[ASGIApp], RecordingProxy]


class UnknownProxyError(LookupError):
    """No installed package provides a proxy of that name."""


def load_proxy(name: str) -> ProxyFactory:
    """Load a proxy that an installed package provides by an entry point.

    Raises:
        UnknownThroughError: no package provides it.
    """
    points = {point.name: point for point in entry_points(group=_GROUP)}
    if name not in points:
        raise UnknownProxyError(f"{name!r} is not installed; available: {', '.join(sorted(points)) or 'none'}")
    return cast("ProxyFactory", points[name].load())


@dataclass(frozen=True, kw_only=True)
class ScenarioSubset:
    """Names of scenarios (empty: all) and of APIs to run."""

    scenarios: tuple[str, ...]
    apis: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ProxyDefectResult:
    """Checks that detected one defect in the recorded traffic, and those that did not.

    Attributes:
        detected_by: Checks for the defect that failed.
        undetectable_reasons: Reasons why other checks for the defect cannot fail on recorded traffic.
        missed: Checks that did not fail although the recorded bytes suffice.
        unrelated: Failed checks that the defect does not explain.
    """

    defect: str
    detected_by: tuple[str, ...] = ()
    undetectable_reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    missed: tuple[str, ...] = ()
    unrelated: tuple[str, ...] = ()

    @property
    def is_as_expected(self) -> bool:
        """True if the proxy detected all that it can detect, without a false alarm."""
        return not self.missed and not self.unrelated

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "defect": self.defect,
            "seen": list(self.detected_by),
            "unseen": {check: list(reasons) for check, reasons in self.undetectable_reasons.items()},
            "missed": list(self.missed),
            "unrelated": list(self.unrelated),
        }


@dataclass(frozen=True, kw_only=True)
class ProxySelfTest:
    """Result of the self-test through a proxy: the number of recorded exchanges with the correct server, failures on them, each defect."""

    exchange_count: int
    correct_run_problems: tuple[str, ...]
    defect_results: tuple[ProxyDefectResult, ...]

    @property
    def passed(self) -> bool:
        """True if nothing was missed and no false alarm was raised."""
        return not self.correct_run_problems and all(one.is_as_expected for one in self.defect_results)


def run_proxy_selftest(
    through: ProxyFactory,
    defects: Iterable[str],
    on_result: Callable[[ProxyDefectResult], None],
    *,
    workers: int,
    part: ScenarioSubset | None = None,
) -> ProxySelfTest:
    """Run the correct server over every API, and the server with each defect, in `workers` processes.

    `on_result` gets each result as soon as it is known, in the order of the defects.
    `part` limits the run to some scenarios and APIs.
    """
    series, recorded = _run(None, through, part or ScenarioSubset(scenarios=(), apis=tuple(APIS)))
    correct = _CorrectRun(sent=digests(series, arrivals=True), recorded=frozenset(map(_digest, recorded)))
    failed = {check for check in _failing(recorded) if _family(check) != _CLIENTS} - _FORCED
    watch = partial(_watch, through=through, part=part)
    with ProcessPoolExecutor(workers, process_context(), initializer=_inherit, initargs=(correct,)) as pool:
        watched: list[ProxyDefectResult] = []
        for one in pool.map(watch, defects):
            watched.append(one)
            on_result(one)
    problems = (f"the correct server: {check} fails on the recorded traffic" for check in sorted(failed))
    results = tuple(watched)
    return ProxySelfTest(exchange_count=len(recorded), correct_run_problems=tuple(problems), defect_results=results)


@dataclass(frozen=True, kw_only=True)
class _CorrectRun:
    """Digests of the correct server's exchanges, as sent by the client and as recorded. Equal ones are not judged again."""

    sent: Digests
    recorded: frozenset[bytes]


_CORRECT: list[_CorrectRun] = []


def _inherit(correct: _CorrectRun) -> None:
    """Initialize a worker process. A module-level function works with every start method of processes."""
    _CORRECT.append(correct)


def _run(
    defect: str | None, through: ProxyFactory, part: ScenarioSubset
) -> tuple[tuple[Series, ...], Sequence[Exchange]]:
    target = parse_target("reference" if defect is None else f"reference:defect={defect}")
    between = through(create_app(defects=target.defects))
    plan = _plan(part, with_rows=defect is None or isinstance(DEFECTS[defect].change, OUTPUT_PARSING_STAGES))
    options = Options(apis=part.apis)

    async def run_in_memory() -> tuple[Series, ...]:
        async with application_client(between.app) as client:
            return (await run_with_client(client, target, options, plan, lambda _: None, lambda _: None)).series

    return run_with_simulated_clock(run_in_memory()), between.exchanges()


@cache
def _plan(part: ScenarioSubset, *, with_rows: bool) -> Plan:
    """Return the scenarios to send, without checks. Rows are sent once, with and without streaming, if `with_rows` is set."""
    scenarios = (
        one_of_each_row(scenario) if has_only_rows(scenario) else scenario
        for scenario in make_plan(Options(apis=part.apis, select=part.scenarios)).scenarios
        if not has_only_rows(scenario) or (with_rows and scenario.api == CHAT_COMPLETIONS.name)
    )
    return Plan(scenarios=tuple(scenarios), checks=())


def _watch(defect: str, *, through: ProxyFactory, part: ScenarioSubset | None) -> ProxyDefectResult:
    correct, expected = _CORRECT[0], read_switches().get(defect, ExpectedDetections())
    series, recorded = _run(defect, through, part or ScenarioSubset(scenarios=(), apis=apis_of(defect)))
    failed = _failing(x for x in recorded if _digest(x) not in correct.recorded)
    different = [x for one in changed_series(series, correct.sent) for x in one.exchanges.values()]
    missed = (rule for rule in CHECKS if rule.id in expected.caught_by - failed)
    unseen = {rule.id: reasons for rule in missed if (reasons := tuple(_why_not(rule, different)))}
    seen = failed & expected.caught_by
    unrelated = failed - expected.caught_by - expected.also - expected.by_wire - _FORCED
    if not seen and not unseen:
        unseen = dict.fromkeys(sorted(expected.caught_by), (_NOT_SENT,))
    return ProxyDefectResult(
        defect=defect,
        detected_by=tuple(sorted(seen)),
        undetectable_reasons={check: reasons for check, reasons in unseen.items() if _MISSED not in reasons},
        missed=tuple(check for check, reasons in unseen.items() if _MISSED in reasons),
        unrelated=tuple(sorted(check for check in unrelated if _family(check) != _CLIENTS)),
    )


def _family(check: str) -> str:
    return check.partition(".")[0]


def _failing(exchanges: Iterable[Exchange]) -> frozenset[str]:
    """Return the ids of the checks of single exchanges that fail on one of these."""
    rules = tuple(rule for rule in CHECKS if not is_comparison(rule))
    return failing_checks(result for x in exchanges for result in judge_exchange(x, rules))


def _why_not(rule: Check | Comparison, exchanges: Sequence[Exchange]) -> Iterator[str]:
    """Yield the reasons why a check cannot fail on recorded traffic; none if it does not fail in the suite either."""
    if is_comparison(rule):
        yield _COMPARES
        return
    failing = (x for x in exchanges if fails(rule, x))
    yield from dict.fromkeys(fact for x in failing for fact in required_facts(rule, x) or (_MISSED,))


def _digest(x: Exchange) -> bytes:
    """Return the digest of an exchange, without its ids and times."""
    (steps,) = digests((Series(name="", exchanges={"": x}),), arrivals=True).values()
    return steps[""]


_ON_WIRE = frozenset({"id", "request", "response", "failure", "api", "started"})
_UNKNOWN: Mapping[str, object] = {
    "scenario": "traffic",
    "step": "",
    "attempt": 0,
    "engine": "openai",
    "validity": Validity.UNKNOWN,
    "script": None,
    "expected": None,
    "script_not_played": "",
    "may_be_random": False,
    "rendered_prompt": None,
    "counted_prompt": None,
    "retry_waits": (),
    "from_log": False,
    "concurrency": None,
    "answered_by": AnsweredBy.API,
    "choice": 0,
    "websocket": None,
}

SUITE_ONLY_FACTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "the script of the model": ("script", "expected", "script_not_played", "may_be_random"),
        "the prompt from a separate endpoint": ("rendered_prompt", "counted_prompt"),
        "the intended validity of the request": ("validity",),
        "the engine": ("engine",),
        "the number of concurrent requests and of attempts": ("concurrency", "retry_waits", "attempt"),
        "the scenario and its step": ("scenario", "step"),
        "the number of the WebSocket connection": ("websocket",),
    }
)
"""Facts that only the suite knows, and the members of an exchange that contain them."""


def wire_only(x: Exchange) -> Exchange:
    """Reduce an exchange to the facts that its traffic shows."""
    return _without(x, tuple(_UNKNOWN))


def fails(rule: Check | Comparison, x: Exchange) -> bool:
    """Return True if a check fails on a single exchange."""
    return judge_exchange(x, (rule,))[0].outcome is Outcome.FAIL


def required_facts(rule: Check | Comparison, x: Exchange) -> tuple[str, ...]:
    """Return the facts of `SUITE_ONLY_FACTS` that a failure of the check needs; empty if the traffic suffices.

    The check does not fail without any one of them. If no single fact is necessary, all available facts are returned.
    """
    if fails(rule, wire_only(x)):
        return ()
    facts = {fact: members for fact, members in SUITE_ONLY_FACTS.items() if _without(x, members) != x}
    return tuple(fact for fact, members in facts.items() if not fails(rule, _without(x, members))) or tuple(facts)


def _without(x: Exchange, members: tuple[str, ...]) -> Exchange:
    return replace(x, **{member: _UNKNOWN[member] for member in members})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def unclassified_members() -> frozenset[str]:
    """Return the members of an exchange that are in none of the lists of this module (for the test of new members)."""
    return frozenset(member.name for member in fields(Exchange)) - _ON_WIRE - _UNKNOWN.keys()
