"""Sending of scenarios: steps in order, parallel groups concurrently, within the limits of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby, product

from harmony_conformance.apis.api import CHAT_PATH
from harmony_conformance.apis.registry import CHAT_COMPLETIONS, UnsupportedByApiError
from harmony_conformance.apis.returned_reasoning import keep_returned_reasoning
from harmony_conformance.engines.discovery import Capabilities
from harmony_conformance.engines.load_metric import requests_running
from harmony_conformance.engines.profiles import Engine, ScriptMethod
from harmony_conformance.engines.prompt_endpoint import (
    build_prompt_request,
    read_echoed_prompt,
    read_prompt_count,
    read_rendered_prompt,
)
from harmony_conformance.engines.render_derender import render_and_derender, with_response
from harmony_conformance.engines.scripting import (
    Scripting,
    ScriptUnsupportedError,
    as_chat_completions,
    drop_refuted_script,
    drop_unplayed_script,
    drop_unproven_stream_scripts,
    is_unproven,
)
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.levels import METRICS_API, REFUSABLE_VALIDITIES
from harmony_conformance.evidence.recording_file import SeriesKey
from harmony_conformance.golden.scenario import Scenario, Step, expand, group_parallel_steps, skip_reason
from harmony_conformance.json_value import Json, value_at
from harmony_conformance.runner.limits.access_loss import Access, is_doubtful
from harmony_conformance.runner.limits.rate_limiter import RateLimiter, slot_rank
from harmony_conformance.runner.limits.run_limits import RunLimits, count_output_tokens
from harmony_conformance.runner.limits.server_loss import ServerLoss, is_connection_lost
from harmony_conformance.runner.request_builder import RequestProfile, StepSkippedError, build_request
from harmony_conformance.runner.websocket_use import WebSocketUse
from harmony_conformance.transport.client import Client, SendResult, now
from harmony_conformance.transport.messages import Failure, FailureKind, Request
from harmony_conformance.transport.websocket_client import series_connections

_EVENT = 1  # tokens in an event of a stream
_POLL_INTERVAL = 0.1  # seconds between two requests for the load metric

ExchangeCallback = Callable[[Exchange], None]
"""Callback for a finished exchange."""
SeriesCallback = Callable[[Series], None]
"""Callback for a finished series."""


def sendable_scenarios(scenarios: Iterable[Scenario], ways: Mapping[str, ScriptMethod]) -> list[Scenario]:
    """Return the scenarios that can be sent over the APIs in `ways`, with their script methods."""
    return [
        scenario for scenario in scenarios if scenario.api in ways and skip_reason(scenario, ways[scenario.api]) is None
    ]


def _split(scenarios: Iterable[Scenario]) -> tuple[list[Scenario], list[Scenario]]:
    """Return the concurrent scenarios and the sequential ones; invalid requests come last, as they may end the server."""
    concurrent: list[Scenario] = []
    exclusive: list[Scenario] = []
    invalid: list[Scenario] = []
    for scenario in scenarios:
        is_invalid = any(step.validity in REFUSABLE_VALIDITIES for step in scenario.steps)
        (invalid if is_invalid else exclusive if scenario.exclusive else concurrent).append(scenario)
    # requests for a grammar, which are not exclusive, come after all others
    return concurrent, exclusive + sorted(invalid, key=lambda scenario: not scenario.exclusive)


def _steps_in_a_row(scenario: Scenario) -> int:
    """Return the number of steps of a scenario that wait for each other."""
    return sum(1 for _ in group_parallel_steps(tuple(expand(scenario))))


def ignore_series(series: Series) -> None:
    """Do nothing: the default callback for series."""


def _is_pending(step: Step, x: Exchange) -> bool:
    """Return True if the step waits for a response in the background that is not finished."""
    return step.wait_until_done is not None and value_at(x.response_json, "status") in ("queued", "in_progress")


def _streamed_response(x: Exchange) -> Json:
    """Return the last response object in the events of a stream. None without one."""
    events = [event.value for event in x.events.events] if x.events is not None else []
    return next(
        (value_at(event, "response") for event in events[::-1] if value_at(event, "response") is not None), None
    )


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of a run that may be continued: series recorded earlier, and the callback for each series whose last request was sent."""

    recorded: Mapping[SeriesKey, Series] = field(default_factory=dict[SeriesKey, Series])
    on_finished: SeriesCallback = ignore_series


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Sends the scenarios of a run to one endpoint and reports every finished exchange and series."""

    engine: Engine
    client: Client
    rate_limiter: RateLimiter
    access: Access
    server_loss: ServerLoss
    limits: RunLimits
    capabilities: Capabilities
    profiles: Mapping[str, RequestProfile]
    on_exchange: ExchangeCallback
    websocket_use: WebSocketUse = WebSocketUse.NONE
    on_series: SeriesCallback = ignore_series
    recorded: Mapping[SeriesKey, Series] = field(default_factory=dict[SeriesKey, Series])
    """Series that are not sent again."""

    async def send_all(self, scenarios: Sequence[Scenario], tries: int) -> tuple[Series, ...]:
        """Send every sendable scenario `tries` times and return the series.

        The scenarios with the most steps in a row go first, so that none of them remains at the end and leaves slots unused.
        Exclusive scenarios follow the concurrent ones, one at a time or over all their APIs at once.
        Invalid requests come last, one scenario at a time, because they may end the server.
        A response format without a schema does so to vLLM 0.11.0.
        """
        concurrent, sequential = _split(sendable_scenarios(scenarios, self.capabilities.script_methods))

        async def send_in_turn(rank: int, scenario: Scenario, attempt: int) -> Series:
            slot_rank.set(rank)
            return await self.send_series(scenario, attempt)

        longest_first = sorted(concurrent, key=_steps_in_a_row, reverse=True)
        each = product(longest_first, range(tries))
        done = list(await asyncio.gather(*(send_in_turn(rank, *one) for rank, one in enumerate(each))))
        for _, group in groupby(sequential, lambda scenario: scenario.name if scenario.apis_at_once else scenario.key):
            over_apis = tuple(group)
            for attempt in range(tries):
                done += await asyncio.gather(*(self.send_series(scenario, attempt) for scenario in over_apis))
        return tuple(done)

    async def send_series(self, scenario: Scenario, attempt: int) -> Series:
        """Send the steps of a scenario in order, parallel groups concurrently. A recorded series is returned as it is."""
        over_websocket = self.websocket_use.applies_to(scenario)
        async with series_connections(over_websocket=over_websocket, in_flight=scenario.over_websocket):
            return await self._send_series(scenario, attempt)

    async def _send_series(self, scenario: Scenario, attempt: int) -> Series:
        method = self.profiles[scenario.api].script_method
        if (recorded := self.recorded.get((scenario.name, scenario.api, attempt))) is not None:
            in_order = {
                step.name: x for step in expand(scenario) if (x := recorded.exchanges.get(step.name)) is not None
            }
            series = drop_unproven_stream_scripts(replace(recorded, exchanges=in_order), method)
            self.on_series(series)
            return series
        exchanges: dict[str, Exchange] = {}
        answers: dict[str, Json] = {}
        groups = tuple(group_parallel_steps(tuple(expand(scenario))))
        for place, group in enumerate(groups, start=1):
            together = self.rate_limiter.group_concurrency(scenario, group)
            done = await asyncio.gather(
                *(self._step(scenario, step, attempt, dict(answers), together) for step in group)
            )
            for x in filter(None, done):
                exchanges[x.step] = x
                if place == len(groups):  # no later step uses these responses
                    continue
                is_native = group[0].is_native and scenario.api != CHAT_COMPLETIONS.name
                answer = x.response_json or _streamed_response(x) if is_native else x.chat_completion
                if answer is not None:
                    answers[x.step] = answer if is_native else keep_returned_reasoning(answer, x.response_json)
        series = drop_unproven_stream_scripts(Series(name=scenario.name, exchanges=exchanges), method)
        self.on_series(series)
        return series

    async def _step(
        self, scenario: Scenario, step: Step, attempt: int, answers: dict[str, Json], together: int
    ) -> Exchange | None:
        profile = self.profiles[scenario.api]
        try:
            request = build_request(step, profile, answers)
        except StepSkippedError:
            return None
        except ScriptUnsupportedError as reason:
            request = build_request(step, profile.unscripted, answers)
            return self._record_unsent(scenario, step, attempt, request, str(reason))
        except UnsupportedByApiError as member:
            request = Request(path=profile.path, body=b"{}")
            return self._record_unsent(scenario, step, attempt, request, f"{profile.api.title} has no {member}")
        scripted = profile.script_method is not ScriptMethod.NONE
        unsent = replace(
            self._exchange(scenario, step, attempt, request),
            api=scenario.api if step.wait_until_idle is None else METRICS_API,
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            script=step.script if scripted else None,
            expected=step.expected if scripted else None,
            concurrency=together if step.parallel_group is not None else None,
        )
        deadline = now() + (step.wait_until_idle or step.wait_until_done or 0.0)
        x = await self._once(step, unsent) if self.access.access_loss is None else None
        while x is not None and (requests_running(x) or _is_pending(step, x)) and now() < deadline:
            await asyncio.sleep(_POLL_INTERVAL)
            x = await self._once(step, unsent)
        if x is None:
            x = self.access.skipped_exchange(unsent)
        else:
            x = await self._check_access(await self._check_server(x))
            x = await self._verify_script(drop_unplayed_script(x, profile.scripting), profile.scripting)
            if self.limits.tokens_left is not None:  # reading an answer costs more than sending its request
                self.limits.count_tokens(count_output_tokens(x))
        if x is not None:
            self.on_exchange(x)
        return x

    async def _check_server(self, x: Exchange) -> Exchange:
        """Return the exchange, with a failure if the server went away. Other requests wait until a lost connection is explained."""
        if not is_connection_lost(x):
            self.server_loss.note_answer(x)
            return x
        with self.rate_limiter.pause_others():
            return await self.server_loss.diagnose(x, self._send_urgently)

    async def _check_access(self, x: Exchange) -> Exchange:
        """Return the exchange, with a failure if access was lost. Other requests wait until a doubtful one is decided."""
        if not is_doubtful(x):
            return x
        with self.rate_limiter.pause_others():
            x = await self.access.diagnose(x, self._send_urgently)
            if self.access.access_loss is not None:
                self.rate_limiter.close()
        return x

    async def _verify_script(self, x: Exchange, way: Scripting) -> Exchange:
        """Return the exchange, without an unproven script. If its API shows no ids, the request is repeated over Chat Completions."""
        asks_for_ids = self.capabilities.prompt_echo.members if self.capabilities.prompt_echo is not None else ()
        if not asks_for_ids or not is_unproven(x, way):
            return x
        chat = as_chat_completions(x, asks_for_ids)
        sent = await self._send(chat.request)
        return x if sent is None else drop_refuted_script(x, with_response(chat, sent), way)

    async def _once(self, step: Step, asked: Exchange) -> Exchange | None:
        is_derendered = step.script is not None and self.capabilities.script_methods[asked.api] is ScriptMethod.DERENDER
        if (
            step.path == CHAT_PATH
            and step.wait_until_idle is None
            and (is_derendered or not self.capabilities.generates)
        ):
            return await render_and_derender(self._send, asked, step.stream_chunk_size or _EVENT)
        sent = await self.rate_limiter.send(
            self.client, asked.request, step.disconnect_after_events, asked.concurrency or 1
        )
        if sent is None:
            return None
        return await self._add_prompt_count(await self._add_rendered_prompt(with_response(asked, sent)))

    def _record_unsent(self, scenario: Scenario, step: Step, attempt: int, request: Request, reason: str) -> Exchange:
        """Record a placeholder for a request that cannot be sent, with the reason."""
        failure = Failure(kind=FailureKind.NOT_SENT, detail=reason)
        x = replace(self._exchange(scenario, step, attempt, request), failure=failure)
        self.on_exchange(x)
        return x

    def _exchange(self, scenario: Scenario, step: Step, attempt: int, request: Request) -> Exchange:
        return Exchange(
            id=f"{scenario.name}/{scenario.api}/{step.name}/{attempt}",
            scenario=scenario.name,
            step=step.name,
            api=scenario.api,
            attempt=attempt,
            engine=self.engine.name,
            request=request,
            validity=step.validity,
        )

    async def _add_rendered_prompt(self, x: Exchange) -> Exchange:
        """Return the exchange with the prompt of a prompt endpoint, unless the response shows prompt ids."""
        echo = self.capabilities.prompt_echo if x.api == CHAT_COMPLETIONS.name else None
        if echo is not None and (shown := read_echoed_prompt(echo, x)) is not None:
            return replace(x, rendered_prompt=shown)
        side = self.capabilities.prompt_endpoints.get(x.api)
        if side is None or x.turn is None or x.turn.prompt_ids is not None or x.validity in REFUSABLE_VALIDITIES:
            return x
        request = build_prompt_request(side, x.request)
        body = await self._fetch(x, request) if request is not None else None
        return replace(x, rendered_prompt=read_rendered_prompt(side, body)) if body is not None else x

    async def _add_prompt_count(self, x: Exchange) -> Exchange:
        """Return the exchange with the number of prompt tokens of a count endpoint."""
        path = self.capabilities.count_endpoints.get(x.api)
        if path is None or x.turn is None or x.validity in REFUSABLE_VALIDITIES:
            return x
        body = await self._fetch(x, replace(x.request, path=path))
        return replace(x, counted_prompt=read_prompt_count(path, body)) if body is not None else x

    async def _fetch(self, x: Exchange, request: Request) -> Json:
        """Return the JSON body of the response, None without one."""
        sent = await self._send(request)
        if sent is None or sent.response is None:
            return None
        return replace(x, api=CHAT_COMPLETIONS.name, response=sent.response, failure=None).chat_completion

    async def _send_urgently(self, request: Request) -> SendResult | None:
        return await self.rate_limiter.send_urgently(self.client, request)

    async def _send(self, request: Request) -> SendResult | None:
        return await self.rate_limiter.send(self.client, request)
