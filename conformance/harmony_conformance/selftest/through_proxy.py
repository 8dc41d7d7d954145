"""The selftest with a proxy in between: what somebody sees of each defect who only sees the traffic.

Each defect is asked for as the selftest asks, without a wire, but through an application that watches. What its guard kept of every exchange is judged
alone. A defect is seen when one of the checks that are there for it fails on an exchange. Where it is not, the reason is computed: the check compares several
exchanges, or it rests on what never crossed the wire (`KNOWLEDGE`). No reason, no excuse: a check that the bytes suffice for, and that does not fail
on what the proxy kept, is a fault of the proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields, replace
from functools import cache, partial
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import Protocol

from starlette.types import ASGIApp

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS
from harmony_conformance.checks import CHECKS
from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.exchange import AnsweredBy, Exchange, Series, Validity
from harmony_conformance.golden.scenario import is_of_rows, one_of_each_row
from harmony_conformance.json_value import JsonObject
from harmony_conformance.judge.check import Check, Comparison, Outcome
from harmony_conformance.judge.judge import is_comparison, judge_alone
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.reference_server.defects.stages import READING
from harmony_conformance.reference_server.server.app import create_app
from harmony_conformance.runner.judge_run import Plan
from harmony_conformance.runner.run import Options, make_plan, run_with_client
from harmony_conformance.runtime.processes import forking_if_whole
from harmony_conformance.selftest.in_memory_transport import at_once, client_to
from harmony_conformance.selftest.selftest import ExpectedDetections, apis_of, read_switches
from harmony_conformance.selftest.unchanged_answers import Digests, changed, digests

_GROUP = "harmony_conformance.through"
_COMPARES = "several exchanges to compare"
_MISSED = "nothing but the wire"
_NOT_SENT = "an API that its bytes do not tell from another"
_CLIENTS = "client"
"""The family that looks at requests: scenarios send wrong ones on purpose."""
_FORCED = frozenset({"structured.answer_is_json", "tool_calls.arguments_fit_the_schema"})
"""What a server promised and its model broke: the suite knows that no grammar held the script back, and a proxy is right to tell."""
_NOTHING = ExpectedDetections(caught_by=frozenset(), also=frozenset())


class Between(Protocol):
    """Something between a client and an application that keeps what goes by."""

    @property
    def app(self) -> ASGIApp:
        """What the client asks instead."""
        ...

    def exchanges(self) -> Sequence[Exchange]:
        """What has gone by, in the order in which it ended, as the proxy judges it."""
        ...


Through = Callable[[ASGIApp], Between]


class UnknownThroughError(LookupError):
    """Nothing of that name can be put in between."""


def way_named(name: str) -> Through:
    """What other packages offer to put in between.

    Raises:
        NoSuchWay: none of that name is installed.
    """
    points = {point.name: point for point in entry_points(group=_GROUP)}
    if name not in points:
        raise UnknownThroughError(f"{name!r} is not installed; there is: {', '.join(sorted(points)) or 'nothing'}")
    way: Through = points[name].load()
    return way


@dataclass(frozen=True, kw_only=True)
class ScenarioSubset:
    """What is asked: the scenarios of these names (none: all), over these APIs."""

    scenarios: tuple[str, ...]
    apis: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What was seen of a defect: the checks for it that failed, why others of them did not, and what should not be so.

    `missed`: the bytes suffice, and it did not fail on what the proxy kept. `unrelated`: failed, and is not there for the defect.
    """

    defect: str
    seen: tuple[str, ...] = ()
    unseen: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    missed: tuple[str, ...] = ()
    unrelated: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        """Whether the proxy saw what can be seen, and nothing else."""
        return not self.missed and not self.unrelated

    def line(self) -> JsonObject:
        """The JSON form."""
        return {
            "defect": self.defect,
            "seen": list(self.seen),
            "unseen": {check: list(reasons) for check, reasons in self.unseen.items()},
            "missed": list(self.missed),
            "unrelated": list(self.unrelated),
        }


@dataclass(frozen=True, kw_only=True)
class ThroughTest:
    """The outcome: how many exchanges of the correct server went through, what went wrong with them, and what was seen of each defect."""

    exchanges: int
    faults: tuple[str, ...]
    watched: tuple[Watched, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing was missed and nothing was alarmed falsely."""
        return not self.faults and all(one.is_right for one in self.watched)


def run_through(
    through: Through,
    defects: Iterable[str],
    told: Callable[[Watched], None],
    *,
    workers: int,
    part: ScenarioSubset | None = None,
) -> ThroughTest:
    """Ask the correct server over every API, and the server with each defect, in `workers` processes. `told` gets each result as it comes, in order.

    With `part` only some is asked, which proves nothing of the rest.
    """
    series, passed = _ask(None, through, part or ScenarioSubset(scenarios=(), apis=tuple(APIS)))
    right = _Right(sent=digests(series, arrivals=True), passed=frozenset(map(_digest, passed)))
    failing = {check for check in _failing(passed) if _family(check) != _CLIENTS} - _FORCED
    watch = partial(_watch, through=through, part=part)
    with ProcessPoolExecutor(workers, forking_if_whole(), initializer=_inherit, initargs=(right,)) as pool:
        watched: list[Watched] = []
        for one in pool.map(watch, defects):
            watched.append(one)
            told(one)
    return ThroughTest(
        exchanges=len(passed),
        faults=tuple(f"the correct server: {check} fails on what went by" for check in sorted(failing)),
        watched=tuple(watched),
    )


@dataclass(frozen=True, kw_only=True)
class _Right:
    """What the correct server answers, as the client and as the proxy have it: what a defect leaves as it is need not be judged again."""

    sent: Digests
    passed: frozenset[bytes]


_RIGHT: list[_Right] = []


def _inherit(right: _Right) -> None:
    """In a process that watches; by name, so that it finds this module's list where the process was not forked."""
    _RIGHT.append(right)


def _ask(defect: str | None, through: Through, part: ScenarioSubset) -> tuple[tuple[Series, ...], Sequence[Exchange]]:
    target = parse_target("reference" if defect is None else f"reference:defect={defect}")
    between = through(create_app(defects=target.defects))
    plan = _plan(part, with_rows=defect is None or isinstance(DEFECTS[defect].change, READING))

    async def sent() -> tuple[Series, ...]:
        async with client_to(between.app) as client:
            return (
                await run_with_client(client, target, Options(apis=part.apis), plan, lambda _: None, lambda _: None)
            ).series

    return at_once(sent()), between.exchanges()


@cache
def _plan(part: ScenarioSubset, *, with_rows: bool) -> Plan:
    """What is sent; the hand-written rows only to a server that reads the output otherwise, each once, whole and streamed. It is judged later."""
    scenarios = (
        one_of_each_row(scenario) if is_of_rows(scenario) else scenario
        for scenario in make_plan(Options(apis=part.apis, select=part.scenarios)).scenarios
        if not is_of_rows(scenario) or (with_rows and scenario.api == CHAT_COMPLETIONS.name)
    )
    return Plan(scenarios=tuple(scenarios), checks=())


def _watch(defect: str, *, through: Through, part: ScenarioSubset | None) -> Watched:
    right, catch = _RIGHT[0], read_switches().get(defect, _NOTHING)
    series, passed = _ask(defect, through, part or ScenarioSubset(scenarios=(), apis=apis_of(defect)))
    failing = _failing(x for x in passed if _digest(x) not in right.passed)
    changed_ones = [x for one in changed(series, right.sent) for x in one.exchanges.values()]
    unseen = {
        rule.id: reasons
        for rule in CHECKS
        if rule.id in catch.caught_by - failing and (reasons := tuple(_why_not(rule, changed_ones)))
    }
    seen = failing & catch.caught_by
    strange = failing - catch.caught_by - catch.also - catch.by_wire - _FORCED
    if not seen and not unseen:
        unseen = dict.fromkeys(sorted(catch.caught_by), (_NOT_SENT,))
    return Watched(
        defect=defect,
        seen=tuple(sorted(seen)),
        unseen={check: reasons for check, reasons in unseen.items() if _MISSED not in reasons},
        missed=tuple(check for check, reasons in unseen.items() if _MISSED in reasons),
        unrelated=tuple(sorted(check for check in strange if _family(check) != _CLIENTS)),
    )


def _family(check: str) -> str:
    return check.partition(".")[0]


def _failing(exchanges: Iterable[Exchange]) -> frozenset[str]:
    """The checks of single exchanges that fail on one of these."""
    rules = tuple(rule for rule in CHECKS if not is_comparison(rule))
    return frozenset(
        result.check
        for x in exchanges
        for result in judge_alone(x, rules)
        if result.outcome in (Outcome.FAIL, Outcome.ERROR)
    )


def _why_not(rule: Check | Comparison, exchanges: Sequence[Exchange]) -> Iterator[str]:
    """Why a check that is there for a defect does not fail on what went by; nothing, where it does not fail in the suite either."""
    if is_comparison(rule):
        yield _COMPARES
        return
    reasons: dict[str, None] = {}
    for x in exchanges:
        if fails(rule, x):
            reasons |= dict.fromkeys(rests_on(rule, x) or (_MISSED,))
    yield from reasons


def _digest(x: Exchange) -> bytes:
    """What tells an exchange from others, ids and times of the moment left out."""
    (steps,) = digests((Series(name="", exchanges={"": x}),), arrivals=True).values()
    return steps[""]


_CROSSED = frozenset({"id", "request", "response", "failure", "api", "started"})
_UNKNOWN: Mapping[str, object] = MappingProxyType(
    {
        "scenario": "traffic",
        "step": "",
        "attempt": 0,
        "engine": "openai",
        "validity": Validity.UNKNOWN,
        "script": None,
        "expected": None,
        "unplayed": "",
        "rendered": None,
        "counted": None,
        "waited": (),
        "rebuilt": False,
        "together": None,
        "answered_by": AnsweredBy.API,
        "choice": 0,
    }
)

KNOWLEDGE: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "what the model was made to say": ("script", "expected", "unplayed"),
        "the prompt as a side endpoint shows it": ("rendered", "counted"),
        "that the request is a valid one, or is not": ("validity",),
        "which engine it is": ("engine",),
        "how many requests were under way, and for the how manieth time": ("together", "waited", "attempt"),
        "which part of a scenario it is": ("scenario", "step"),
    }
)
"""What only the suite knows, in words, and the members of an exchange that hold it."""


def wire_only(x: Exchange) -> Exchange:
    """The exchange as somebody knows it who saw it go by."""
    return _without(x, tuple(_UNKNOWN))


def fails(rule: Check | Comparison, x: Exchange) -> bool:
    """Whether a check fails on an exchange by itself."""
    return judge_alone(x, (rule,))[0].outcome is Outcome.FAIL


def rests_on(rule: Check | Comparison, x: Exchange) -> tuple[str, ...]:
    """What, beyond the wire, a failure of the check rests on; nothing, where the wire alone shows it.

    Each part is what the check does not fail without. Where no part alone is so, it takes one of several, and all are named that are known.
    """
    if fails(rule, wire_only(x)):
        return ()
    known = {about: members for about, members in KNOWLEDGE.items() if _without(x, members) != x}
    needed = tuple(about for about, members in known.items() if not fails(rule, _without(x, members)))
    return needed or tuple(known)


def _without(x: Exchange, members: tuple[str, ...]) -> Exchange:
    return replace(x, **{member: _UNKNOWN[member] for member in members})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def unaccounted() -> frozenset[str]:
    """Members of an exchange that are neither bytes nor listed here: a new one has to be given its place."""
    return frozenset(member.name for member in fields(Exchange)) - _CROSSED - _UNKNOWN.keys()
