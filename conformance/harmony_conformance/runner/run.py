"""The suite: discover an endpoint, send every scenario, keep each exchange before anything is judged, judge."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import TypeVar

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS
from harmony_conformance.checks import CHECKS
from harmony_conformance.engines.discovery import Capabilities, ProbeOptions, discover
from harmony_conformance.engines.target import Target
from harmony_conformance.evidence.exchange import Series
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.expected_rows import holds_rows, read_expectations
from harmony_conformance.golden.scenario import Scenario, for_api, read_scenario
from harmony_conformance.json_value import Json, JsonObject, loads
from harmony_conformance.judge.judge import Result
from harmony_conformance.reference_server.server.serving import running, running_beside
from harmony_conformance.runner.access import Access
from harmony_conformance.runner.judge_run import Plan, RunJudge, is_about, left_open
from harmony_conformance.runner.latency import most_requests, probe, summarise
from harmony_conformance.runner.request_builder import RequestProfile
from harmony_conformance.runner.sender import Keep, RateLimiter, Sender
from harmony_conformance.transport.client import Client, ConnectionSettings, SendRequest, SendResult, Wait, ignore_wait
from harmony_conformance.transport.http_transport import Network
from harmony_conformance.transport.messages import Request
from harmony_conformance.transport.redaction import secrets


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to run: each is an option of the command line, with its default."""

    model: str | None = None
    tries: int = 1
    concurrency: int | None = None
    select: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    script: str = "auto"
    timeout: float = 60.0
    seed: int | None = None
    key: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    extra_body: JsonObject = field(default_factory=dict[str, Json])
    max_requests: int | None = None
    max_rps: float | None = None
    latency_requests: int = 0
    apis: tuple[str, ...] = (CHAT_COMPLETIONS.name,)
    network: Network = field(default_factory=Network)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secrets among what is sent to the endpoint, or to the proxy before it."""
        return (*secrets(self.key, dict(self.headers)), *self.network.secrets)

    def at_once(self, target: Target) -> int:
        """Requests at a time: as asked, else eight on this machine and two elsewhere."""
        return self.concurrency or (8 if target.is_local else 2)

    def in_a_crowd(self, target: Target) -> int:
        """Requests at a time of a scenario that is about crowds, and has the server to itself: as asked, else sixteen on this machine and two elsewhere."""
        return self.concurrency or (16 if target.is_local else 2)


class NothingSelectedError(ValueError):
    """A pattern of --select or --skip that matches no check and no scenario."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run: what the endpoint is, all series by scenario, and all results. `recorded`: the header of a run that is judged again.

    `unmeasured` says why there is no latency although it was asked for.
    """

    capabilities: Capabilities | None
    series: tuple[Series, ...]
    results: tuple[Result, ...]
    latency: tuple[JsonObject, ...] = ()
    unmeasured: str = ""
    started: str = ""
    recorded: JsonObject = field(default_factory=dict[str, Json])


def load_scenarios() -> tuple[Scenario, ...]:
    """Every scenario of `golden/scenarios`, by name; the groups of hand-written rows among them."""
    files = ((file.name, loads(file.read_text(encoding="utf-8"))) for file in (golden.root() / "scenarios").iterdir())
    read = (
        read_expectations(value) if holds_rows(value) else (read_scenario(value, name.removesuffix(".json")),)
        for name, value in files
    )
    return tuple(sorted((scenario for some in read for scenario in some), key=lambda scenario: scenario.name))


def make_plan(options: Options) -> Plan:
    """The scenarios and checks that --select and --skip leave. A pattern matches check ids, or names of scenarios.

    Raises:
        NothingSelected: a pattern matches nothing.
    """
    apis = [APIS[name] for name in options.apis]
    loaded = load_scenarios()
    scenarios = tuple(found for one in loaded for api in apis if (found := for_api(one, api)) is not None)
    checks = CHECKS
    for pattern in (*options.select, *options.skip):
        if not any(
            fnmatchcase(name, pattern)
            for name in (*(check.id for check in checks), *(scenario.name for scenario in loaded))
        ):
            raise NothingSelectedError(f"{pattern!r} matches no check and no scenario (see --list)")
    checks = tuple(check for check in checks if is_about(check, options.apis))
    chosen_checks = _chosen(checks, options.select, lambda check: check.id)
    chosen_scenarios = _chosen(scenarios, options.select, lambda scenario: scenario.name)
    if len(chosen_checks) < len(checks) and len(chosen_scenarios) == len(scenarios):
        ids = {check.id for check in chosen_checks}
        chosen_scenarios = tuple(scenario for scenario in scenarios if scenario.exercises & ids)
    kept_checks = tuple(
        check for check in chosen_checks if not any(fnmatchcase(check.id, pattern) for pattern in options.skip)
    )
    kept = tuple(
        scenario
        for scenario in chosen_scenarios
        if not any(fnmatchcase(scenario.name, pattern) for pattern in options.skip)
    )
    return Plan(scenarios=kept, checks=kept_checks)


Named = TypeVar("Named")


def _chosen(named: tuple[Named, ...], patterns: Sequence[str], name: Callable[[Named], str]) -> tuple[Named, ...]:
    matching = tuple(one for one in named if any(fnmatchcase(name(one), pattern) for pattern in patterns))
    return matching or named


@contextmanager
def serve_target(target: Target, options: Options) -> Generator[str]:
    """Where a target is: the embedded server is started, and stopped afterwards."""
    if target.base is not None:
        yield target.base
        return
    serving = running_beside if is_beside(target, options) else running
    with serving(defects=target.defects) as base:
        yield base


def is_beside(target: Target, options: Options) -> bool:
    """Whether the target is the embedded server, and gets so many requests that it is worth a process of its own."""
    return target.base is None and len(options.apis) > 1


@asynccontextmanager
async def connected(target: Target, options: Options, base: str | None = None) -> AsyncGenerator[Client]:
    """A client for a target. `base`: where it is, if it is served already."""
    with nullcontext(base) if base is not None else serve_target(target, options) as at:
        settings = ConnectionSettings(
            base=at, key=options.key, headers=dict(options.headers), timeout=options.timeout, network=options.network
        )
        async with Client(settings) as client:
            yield client


async def discover_target(
    target: Target, options: Options, waiting: Callable[[Wait], None] = ignore_wait
) -> Capabilities:
    """What an endpoint is and shows; sends no scenario. `waiting` is told of each wait that the endpoint asks for.

    Raises:
        NothingThere: the endpoint can not be used.
    """
    async with connected(target, options) as client:
        return await discover(_in_time(client, options, waiting), _question(target, options))


async def send_scenarios(
    target: Target, options: Options, found: Capabilities, scenarios: Sequence[Scenario], keep: Keep
) -> tuple[Series, ...]:
    """The series of scenarios, sent to an endpoint that was looked at before."""
    async with connected(target, options) as client:
        return await _sender(client, target, options, found, keep).all(scenarios, options.tries)


async def run(  # noqa: PLR0913, PLR0917 - what the command has
    target: Target,
    options: Options,
    plan: Plan,
    keep: Keep,
    told: Callable[[Capabilities | Wait], None],
    judge: RunJudge | None = None,
    base: str | None = None,
) -> Run:
    """Discover, send, judge.

    `keep` gets every exchange as soon as it is over; `told` gets each wait that the endpoint asks for during discovery, and then what was found out
    about it. `judge`: where that is somebody else than whoever sends, when all is sent. `base`: where the target is, if it is served already.

    Raises:
        NothingThere: the endpoint can not be used.
    """
    async with connected(target, options, base) as client:
        return await run_with_client(client, target, options, plan, keep, told, judge)


async def run_with_client(  # noqa: PLR0913, PLR0917 - what `run` takes, and the client
    client: Client,
    target: Target,
    options: Options,
    plan: Plan,
    keep: Keep,
    told: Callable[[Capabilities | Wait], None],
    judge: RunJudge | None = None,
) -> Run:
    """The same, by a client that is connected."""
    judge = judge or RunJudge(plan)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    found = await discover(_in_time(client, options, told), _question(target, options))
    told(found)
    for x in found.exchanges:
        keep(x)

    def over(one: Series) -> None:
        judge.on_series(one, found.script_methods)

    sender = replace(_sender(client, target, options, found, keep), on_series=over)
    series = await sender.all(plan.scenarios, options.tries)
    # before the probe, which wants a quiet machine
    results = await judge.results(series, found.judged_apis, sender.rate_limiter.reached)
    why_not = _why_not_probed(target, options, found, sender)
    latency = await _latency(client, _asking(found, options), target, options, keep) if why_not is None else ()
    return Run(
        capabilities=found,
        series=series,
        results=tuple(left_open(results, found.script_methods, found.unknown)),
        latency=latency,
        unmeasured=why_not or "",
        started=started,
    )


def _in_time(client: Client, options: Options, waiting: Callable[[Wait], None] = lambda _: None) -> SendRequest:
    """Sends as the client does, no faster than is allowed; whoever waits beside it is told of every wait that the endpoint asks for."""
    gate = RateLimiter(1, 1, None, options.max_rps)

    async def send(request: Request) -> SendResult:
        await gate.keep_pace()
        return await client.send(request, waiting)

    return send


def _question(target: Target, options: Options) -> ProbeOptions:
    others = tuple(APIS[name] for name in options.apis if name != CHAT_COMPLETIONS.name)
    return ProbeOptions(
        engine=target.engine,
        model=options.model,
        script=options.script,
        extra=options.extra_body,
        apis=others,
        detect_engine=target.is_open,
    )


def _sender(client: Client, target: Target, options: Options, found: Capabilities, keep: Keep) -> Sender:
    gate = RateLimiter(options.at_once(target), options.in_a_crowd(target), options.max_requests, options.max_rps)
    plain = {x.api: x.request for x in reversed(found.exchanges) if x.turn is not None and x.script is None}
    return Sender(
        engine=found.engine,
        client=client,
        rate_limiter=gate,
        access=Access(plain),
        found=found,
        profiles=_askings(found, options),
        on_exchange=keep,
    )


def _askings(found: Capabilities, options: Options) -> dict[str, RequestProfile]:
    """How each API that is offered is asked, by its name."""
    chat = _asking(found, options)
    others = {
        offer.api.name: replace(
            chat,
            api=offer.api,
            path=offer.path,
            script_method=offer.script_method,
            ids_field=offer.ids_field,
            ids_in_streams=True,
            prompt_echo=None,
        )
        for offer in found.api_support
        if not offer.reason
    }
    return {CHAT_COMPLETIONS.name: chat, **others}


def _asking(found: Capabilities, options: Options) -> RequestProfile:
    return RequestProfile(
        model=found.model,
        script_method=found.script_method,
        script_capabilities=found.script_capabilities,
        reasoning_field=found.reasoning_field or found.engine.reasoning_field,
        ids_field=found.ids_field,
        ids_in_streams=found.engine.ids_in_streams,
        prompt_echo=found.prompt_echo,
        extra=options.extra_body,
        seed=options.seed,
        load_metric=found.engine.load_metric,
    )


def _why_not_probed(target: Target, options: Options, found: Capabilities, sender: Sender) -> str | None:
    """Empty where nobody asked for the latency probe, None where it is to be sent."""
    asked, left = options.latency_requests, sender.rate_limiter.left
    most = most_requests(asked, options.at_once(target))
    reasons = {
        "": asked < 1,
        "the endpoint generates nothing": not found.generates,
        "the run was cut short": sender.access.shut is not None,
        f"that takes up to {most} requests, and --max-requests leaves {left}": left is not None and left < most,
    }
    return next((why for why, holds in reasons.items() if holds), None)


async def _latency(
    client: Client, asking: RequestProfile, target: Target, options: Options, keep: Keep
) -> tuple[JsonObject, ...]:
    """The latency probe, after all checks: nothing else is sent meanwhile."""
    send, at_once = _in_time(client, options), options.at_once(target)
    exchanges = await probe(send, asking, target.engine, requests=options.latency_requests, concurrency=at_once)
    for x in exchanges:
        keep(x)
    return summarise(exchanges)
