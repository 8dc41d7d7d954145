"""A run of the suite: discover an endpoint, send every scenario, record each exchange, judge."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from harmony_conformance.apis.messages.client_headers import client_headers
from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS
from harmony_conformance.engines.diagnosis import EndpointUnusableError
from harmony_conformance.engines.discovery import Capabilities, ProbeOptions, discover
from harmony_conformance.engines.startup import wait_for_start
from harmony_conformance.engines.target import Target
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.golden.scenario import Scenario
from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.judge.judge import Result
from harmony_conformance.reference_server.server.serving import running, running_in_process
from harmony_conformance.runner.judge_run import Plan, RunJudge, explain_incomplete_probes
from harmony_conformance.runner.latency.latency_probe import max_probe_requests, max_probe_tokens, probe, summarise
from harmony_conformance.runner.limits.access_loss import Access
from harmony_conformance.runner.limits.rate_limiter import RateLimiter, rate_limited_send
from harmony_conformance.runner.limits.run_limits import RunLimits
from harmony_conformance.runner.limits.server_loss import ServerLoss
from harmony_conformance.runner.public_text import is_public
from harmony_conformance.runner.request_builder import RequestProfile
from harmony_conformance.runner.selection import select_plan
from harmony_conformance.runner.sender import ExchangeCallback, Progress, Sender
from harmony_conformance.runner.websocket_use import WebSocketUse
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.transport.client import Client, ConnectionSettings, SendRequest, SendResult
from harmony_conformance.transport.http_transport import Network
from harmony_conformance.transport.messages import Request
from harmony_conformance.transport.redaction import Mask, custom_header_secrets, header_secrets, request_secrets
from harmony_conformance.transport.waits import Notice, ignore_wait
from harmony_conformance.transport.websocket_client import WebSocketClient


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a run: those of the command line, with their defaults."""

    model: str | None = None
    tries: int = 1
    concurrency: int | None = None
    select: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    script: str = "auto"
    timeout: float = 60.0
    seed: int | None = None
    key: str | None = None
    key_env: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    extra_body: JsonObject = field(default_factory=dict[str, Json])
    max_requests: int | None = None
    max_rps: float | None = None
    max_time: float | None = None
    startup_time: float | None = None
    max_tokens: int | None = None
    latency_requests: int = 0
    apis: tuple[str, ...] = (CHAT_COMPLETIONS.name,)
    network: Network = field(default_factory=Network)
    websocket_use: WebSocketUse = WebSocketUse.NONE

    @property
    def secrets(self) -> tuple[str, ...]:
        """Secrets in requests to the endpoint or to an HTTP proxy."""
        custom = [word for word in custom_header_secrets(dict(self.headers)) if not is_public(word)]
        words = (*header_secrets(self.key, dict(self.headers)), *custom, *request_secrets(self.extra_body))
        return tuple(dict.fromkeys((*words, *self.network.secrets)))

    def max_concurrency(self, target: Target) -> int:
        """Return the maximum number of concurrent requests: --concurrency, else 8 for localhost and 2 elsewhere."""
        return self.concurrency or (8 if target.is_local else 2)

    def burst_concurrency(self, target: Target) -> int:
        """Return the concurrency of an exclusive scenario about load: --concurrency, else 16 for localhost and 2 elsewhere."""
        return self.concurrency or (16 if target.is_local else 2)

    def run_limits(self, scenarios: int | None = None) -> RunLimits:
        """Return new limits for a number of scenarios whose answers are kept; None if none is kept."""
        kept = None if scenarios is None else scenarios * self.tries
        return RunLimits(self.max_time, self.timeout, self.max_tokens, conversations=kept)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished run.

    Attributes:
        capabilities: Detected capabilities, None for a recording.
        latency: Latency lines of the report, one per load.
        latency_skip_reason: Reason why the requested latency probe was not sent; empty otherwise.
        start_time: Time of the start, ISO 8601.
        recorded_header: Header of the report of a run that is judged again.
        missing_part: Reason why a recording is incomplete, in one line; empty for a complete one.
        unsent_part: Reason why a part of the requests was not sent, although the endpoint could be asked; empty if all were sent.
    """

    capabilities: Capabilities | None
    series: tuple[Series, ...]
    results: tuple[Result, ...]
    latency: tuple[JsonObject, ...] = ()
    latency_skip_reason: str = ""
    start_time: str = ""
    recorded_header: JsonObject = field(default_factory=dict[str, Json])
    missing_part: str = ""
    unsent_part: str = ""


def make_plan(options: Options) -> Plan:
    """Return the scenarios and checks selected by --select and --skip. See `select_plan`.

    Raises:
        NothingSelectedError: A pattern matches nothing, or no pattern of --select matches anything of the APIs.
    """
    return select_plan(options.apis, options.select, options.skip, options.websocket_use)


def mask_requests(options: Options, keep: ExchangeCallback) -> ExchangeCallback:
    """Return a callback that passes exchanges on to `keep` without the secrets that their requests have."""
    mask = Mask(options.secrets)
    if mask.is_empty:
        return keep

    def keep_masked(x: Exchange) -> None:
        body = mask.mask_body(x.request.body)
        headers = {name: mask.mask_text(value) for name, value in x.request.headers.items()}
        is_equal = body == x.request.body and headers == x.request.headers
        keep(x if is_equal else replace(x, request=replace(x.request, body=body, headers=headers)))

    return keep_masked


@contextmanager
def serve_target(target: Target, options: Options) -> Generator[str]:
    """Yield the base URL of a target; the embedded server runs for as long."""
    if target.base_url is not None:
        yield target.base_url
        return
    serving = running_in_process if needs_server_process(target, options) else running
    with serving(defects=target.defects) as base:
        yield base


def needs_server_process(target: Target, options: Options) -> bool:
    """Return True if the embedded server gets enough requests for a separate process."""
    return target.base_url is None and len(options.apis) > 1


@asynccontextmanager
async def connect_client(
    target: Target,
    options: Options,
    base: str | None = None,
    connect: Callable[[ConnectionSettings], Client] = WebSocketClient,
) -> AsyncGenerator[Client]:
    """Yield a client for a target. `base`: URL of an embedded server that is already running. `connect`: the kind of client."""
    with nullcontext(base) if base is not None else serve_target(target, options) as at:
        settings = ConnectionSettings(
            base_url=at,
            api_key=options.key,
            headers={**client_headers(options.apis, options.key), **dict(options.headers)},
            timeout=options.timeout,
            network=options.network,
            secrets=options.secrets,
        )
        async with connect(settings) as client:
            yield client


async def discover_target(
    target: Target, options: Options, waiting: Callable[[Notice], None] = ignore_wait
) -> Capabilities:
    """Return the capabilities of an endpoint. `waiting`: callback for each wait that the endpoint requests, and for slow answers.

    Raises:
        EndpointUnusableError: The endpoint cannot be tested.
    """
    async with connect_client(target, options) as client:
        return await _discover(client, target, options, options.run_limits(), waiting)


async def send_scenarios(
    target: Target, options: Options, found: Capabilities, scenarios: Sequence[Scenario], keep: ExchangeCallback
) -> tuple[Series, ...]:
    """Send scenarios to an endpoint with known capabilities; return their series."""
    keep = mask_requests(options, keep)
    async with connect_client(target, options) as client:
        limits = options.run_limits(len(scenarios))
        return await _sender(client, target, options, found, keep, limits).send_all(scenarios, options.tries)


async def send_latency_probe(
    target: Target, options: Options, found: Capabilities, keep: ExchangeCallback
) -> tuple[Exchange, ...]:
    """Send the latency probe to an endpoint with known capabilities; return its exchanges."""
    async with connect_client(target, options) as client:
        send = rate_limited_send(client, options.max_rps, options.run_limits())
        return await _probe(send, _chat_profile(found, options), target, options, mask_requests(options, keep))


async def run(  # noqa: PLR0913, PLR0917 - the inputs of the command
    target: Target,
    options: Options,
    plan: Plan,
    keep: ExchangeCallback,
    told: Callable[[Capabilities | Notice], None],
    judge: RunJudge | None = None,
    base: str | None = None,
    progress: Progress | None = None,
) -> Run:
    """Discover an endpoint, send the plan and judge it.

    `keep` receives each finished exchange. `told` receives each wait and slow answer, then the detected capabilities. Without `judge`, this process
    judges at the end. `base` is the URL of an embedded server that is already running. `progress` continues an earlier run.

    Raises:
        EndpointUnusableError: The endpoint cannot be tested.
    """
    async with connect_client(target, options, base) as client:
        return await run_with_client(client, target, options, plan, keep, told, judge, progress)


async def run_with_client(  # noqa: PLR0913, PLR0917 - those of `run`, and the client
    client: Client,
    target: Target,
    options: Options,
    plan: Plan,
    keep: ExchangeCallback,
    told: Callable[[Capabilities | Notice], None],
    judge: RunJudge | None = None,
    progress: Progress | None = None,
) -> Run:
    """Run with a connected client; see `run`."""
    keep = mask_requests(options, keep)
    judge, progress = judge or RunJudge(plan), progress or Progress()
    started = datetime.now(UTC).isoformat(timespec="seconds")
    limits = options.run_limits(len(plan.scenarios))
    found = await _discover(client, target, options, limits, told)
    told(found)
    for x in found.exchanges:
        keep(x)

    def on_series(one: Series) -> None:
        judge.on_series(one, found.script_methods)
        if sender.rate_limiter.reached_limit is None:
            progress.on_finished(one)

    sender = _sender(client, target, options, found, keep, limits)
    sender = replace(sender, on_series=on_series, recorded=progress.recorded)
    series = await sender.send_all(plan.scenarios, options.tries)
    # before the latency probe, which needs an idle machine
    reached = sender.rate_limiter.reached_limit
    results = await judge.results(series, found.judged_apis, reached)
    unmeasured = _why_unmeasured(target, options, found, sender)
    send = rate_limited_send(client, options.max_rps, limits)
    latency = await _latency(send, _chat_profile(found, options), target, options, keep) if unmeasured is None else ()
    if unmeasured is None and limits.stop_reason is not None:
        unmeasured = limits.stop_reason.detail
    return Run(
        capabilities=found,
        series=series,
        results=tuple(explain_incomplete_probes(results, found.script_methods, found.incomplete_probes)),
        latency=latency,
        latency_skip_reason=unmeasured or "",
        start_time=started,
        unsent_part=f"--max-requests {reached} was reached" if reached is not None else "",
    )


async def _discover(
    client: Client, target: Target, options: Options, limits: RunLimits, waiting: Callable[[Notice], None]
) -> Capabilities:
    """Return the capabilities of an endpoint.

    Raises:
        EndpointUnusableError: The endpoint cannot be tested, or a limit of the run was reached.
    """
    send = rate_limited_send(client, options.max_rps, limits, waiting)

    async def send_or_raise(request: Request) -> SendResult:
        result = await send(request)
        if limits.stop_reason is not None:
            raise EndpointUnusableError(f"stopped before the first scenario: {limits.stop_reason.detail}")
        return result

    return await discover(wait_for_start(send_or_raise, options.startup_time, waiting), _probe_options(target, options))


def _probe_options(target: Target, options: Options) -> ProbeOptions:
    return ProbeOptions(
        engine=target.engine,
        model=options.model,
        script=options.script,
        extra=options.extra_body,
        apis=tuple(APIS[name] for name in options.apis if name != CHAT_COMPLETIONS.name),
        detect_engine=target.is_engine_unknown,
    )


def _sender(  # noqa: PLR0913, PLR0917 - all that a sender needs
    client: Client, target: Target, options: Options, found: Capabilities, keep: ExchangeCallback, limits: RunLimits
) -> Sender:
    at_once, burst = options.max_concurrency(target), options.burst_concurrency(target)
    limiter = RateLimiter(at_once, burst, options.max_requests, options.max_rps, limits)
    plain = {x.api: x.request for x in reversed(found.exchanges) if x.turn is not None and x.script is None}
    return Sender(
        engine=found.engine,
        client=client,
        rate_limiter=limiter,
        access=Access(plain, limits),
        server_loss=ServerLoss(plain, limits),
        limits=limits,
        capabilities=found,
        profiles=_profiles(found, options),
        on_exchange=keep,
        websocket_use=options.websocket_use,
    )


def _profiles(found: Capabilities, options: Options) -> dict[str, RequestProfile]:
    """Return the request profiles of the offered APIs, by name."""
    chat = _chat_profile(found, options)
    others = {
        one.api.name: replace(
            chat,
            api=one.api,
            path=one.path,
            script_method=one.script_method,
            ids_field=one.ids_field,
            ids_in_streams=True,
            prompt_echo=None,
        )
        for one in found.api_support
        if not one.unsupported_reason
    }
    return {CHAT_COMPLETIONS.name: chat, **others}


def _chat_profile(found: Capabilities, options: Options) -> RequestProfile:
    return RequestProfile(
        model=found.model,
        script_method=found.script_method,
        endpoint_scripting=found.scripting,
        reasoning_field=found.reasoning_field or found.engine.reasoning_field,
        ids_field=found.ids_field,
        ids_in_streams=found.engine.ids_in_streams,
        prompt_echo=found.prompt_echo,
        extra_body=options.extra_body,
        seed=options.seed,
        load_metric=found.engine.load_metric,
    )


def _why_unmeasured(target: Target, options: Options, found: Capabilities, sender: Sender) -> str | None:
    """Return the reason to skip the latency probe; empty if it was not requested, None to send it."""
    requests, left = options.latency_requests, sender.rate_limiter.requests_left
    most = max_probe_requests(requests, options.max_concurrency(target))
    tokens, tokens_left = max_probe_tokens(requests, options.max_concurrency(target)), sender.limits.tokens_left
    reasons = {
        "": requests < 1,
        "the endpoint generates no output": not found.generates,
        "the run was stopped": sender.access.access_loss is not None,
        f"it takes up to {number_of(most, 'request')}, but --max-requests leaves {left}": left is not None
        and left < most,
        f"it takes up to {tokens} output tokens, but --max-tokens leaves {tokens_left}": tokens_left is not None
        and tokens_left < tokens,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


async def _latency(
    send: SendRequest, profile: RequestProfile, target: Target, options: Options, keep: ExchangeCallback
) -> tuple[JsonObject, ...]:
    """Send the latency probe, after all checks and without concurrent requests; return the lines of the report."""
    return summarise(await _probe(send, profile, target, options, keep))


async def _probe(
    send: SendRequest, profile: RequestProfile, target: Target, options: Options, keep: ExchangeCallback
) -> tuple[Exchange, ...]:
    at_once = options.max_concurrency(target)
    exchanges = await probe(send, profile, target.engine, requests=options.latency_requests, concurrency=at_once)
    for x in exchanges:
        keep(x)
    return exchanges
