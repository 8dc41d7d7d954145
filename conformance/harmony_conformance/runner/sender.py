"""Sending scenarios: steps in their order, groups side by side, no more at a time than allowed; an exchange for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from harmony_conformance.apis.api import CHAT
from harmony_conformance.apis.registry import CHAT_COMPLETIONS, UnsupportedByApiError
from harmony_conformance.engines.discovery import Capabilities
from harmony_conformance.engines.load_metric import requests_running
from harmony_conformance.engines.profiles import Engine, ScriptMethod
from harmony_conformance.engines.prompt_endpoint import asks_for_prompt, counted_prompt, revealed_prompt, shown_prompt
from harmony_conformance.engines.render_derender import answer_in_halves, with_response
from harmony_conformance.engines.scripting import (
    Scripting,
    ScriptUnsupportedError,
    as_played,
    as_proven,
    in_chat,
    is_unproven,
    settled,
)
from harmony_conformance.evidence.exchange import ODD, Exchange, Series
from harmony_conformance.evidence.levels import METRICS_API
from harmony_conformance.golden.scenario import Scenario, Step, expand, grouped, why_not_sent
from harmony_conformance.json_value import Json
from harmony_conformance.runner.access import Access, is_doubtful
from harmony_conformance.runner.request_builder import RequestProfile, StepSkippedError, build_request
from harmony_conformance.transport.client import Client, SendResult, now
from harmony_conformance.transport.messages import Failure, FailureKind, Request

_EVENT = 1  # tokens in an event of a stream
_LOOKING_AGAIN = 0.1  # seconds

Keep = Callable[[Exchange], None]
"""Takes an exchange that is over."""
Over = Callable[[Series], None]
"""Takes a series that is."""


def sendable(scenarios: Iterable[Scenario], ways: Mapping[str, ScriptMethod]) -> list[Scenario]:
    """The scenarios that can be sent to an endpoint that offers these APIs, and in each of them is scripted so."""
    return [
        scenario
        for scenario in scenarios
        if scenario.api in ways and why_not_sent(scenario, ways[scenario.api]) is None
    ]


def _in_turn(scenarios: Iterable[Scenario]) -> tuple[list[Scenario], list[Scenario]]:
    """Those that are sent beside each other, and those that follow one by one: wrong ones at the end, demands for a grammar last, which end servers."""
    beside: list[Scenario] = []
    alone: list[Scenario] = []
    wrong: list[Scenario] = []
    for scenario in scenarios:
        is_wrong = any(step.validity in ODD for step in scenario.steps)
        (wrong if is_wrong else alone if scenario.exclusive else beside).append(scenario)
    return beside, alone + sorted(wrong, key=lambda scenario: not scenario.exclusive)


def _unheard(series: Series) -> None:
    """For those who wait for all."""


class RateLimiter:
    """Holds requests to the concurrency, the rate and the number allowed. `crowd` is the concurrency within a scenario that is sent alone."""

    def __init__(self, concurrency: int, crowd: int, most: int | None, rate: float | None) -> None:
        self._usual, self._crowd = concurrency, crowd
        self._slots = asyncio.Semaphore(concurrency)
        self._crowded = asyncio.Semaphore(crowd)
        self._pause = 1 / rate if rate else 0.0
        self._left = most
        self.reached: int | None = None
        """The number of requests that was allowed, once one more was asked for."""
        self._next = 0.0
        self._order = asyncio.Lock()
        self._most = most
        self._holders = 0
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._is_closed = False

    @contextmanager
    def pause_others(self) -> Generator[None]:
        """Meanwhile only what is urgent is sent."""
        self._holders += 1
        self._is_free.clear()
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._is_free.set()

    @property
    def left(self) -> int | None:
        """How many more requests may be sent; None where that is not limited."""
        return self._left

    def close(self) -> None:
        """Nothing more is sent."""
        self._is_closed = True

    def at_once(self, scenario: Scenario, group: Sequence[Step]) -> int:
        """How many requests of a group are under way at the same time."""
        return min(len(group), self._crowd if scenario.exclusive else self._usual)

    async def send(
        self, client: Client, request: Request, leave_after: int | None = None, together: int = 1
    ) -> SendResult | None:
        """What came of the request, None where no more may be sent. `together`: of how many that are to be under way at the same time it is one."""
        async with self._crowded if together > self._usual else self._slots:
            await self._is_free.wait()
            return await self._pass(client, request, leave_after) if not self._is_closed else None

    async def send_urgently(self, client: Client, request: Request) -> SendResult | None:
        """The same, at once and in the place of a request that is over: for whoever holds the others."""
        return await self._pass(client, request, None)

    async def _pass(self, client: Client, request: Request, leave_after: int | None) -> SendResult | None:
        async with self._order:
            if self._left is not None:
                if self._left <= 0:
                    self.reached = self._most
                    return None
                self._left -= 1
            await self.keep_pace()
        return await client.send(request, leave_after=leave_after)

    async def keep_pace(self) -> None:
        """Wait until one more request may be sent."""
        begun = now()
        due, self._next = self._next, max(self._next, begun) + self._pause  # before the wait: others come meanwhile
        if due > begun:
            await asyncio.sleep(due - begun)


@dataclass(frozen=True, kw_only=True)
class Sender:
    """Sends the scenarios of a run to one endpoint, and keeps every exchange as soon as it is over."""

    engine: Engine
    client: Client
    rate_limiter: RateLimiter
    access: Access
    found: Capabilities
    profiles: Mapping[str, RequestProfile]
    on_exchange: Keep
    on_series: Over = _unheard

    async def all(self, scenarios: Sequence[Scenario], tries: int) -> tuple[Series, ...]:
        """The series of every scenario and try; those that need a script only where one can be played, those that need quiet after the others.

        Wrong requests come last of all, one scenario at a time: where one of them ends the server (a response format without a schema does so to vLLM
        0.11.0), all else has been seen.
        """
        sent = sendable(scenarios, self.found.script_methods)
        beside, one_by_one = _in_turn(sent)
        done = list(
            await asyncio.gather(*(self.series(scenario, attempt) for attempt in range(tries) for scenario in beside))
        )
        for scenario in one_by_one:
            done += [await self.series(scenario, attempt) for attempt in range(tries)]
        return tuple(done)

    async def series(self, scenario: Scenario, attempt: int) -> Series:
        """Send the steps of a scenario in order, groups side by side."""
        exchanges: dict[str, Exchange] = {}
        answers: dict[str, Json] = {}
        groups = tuple(grouped(tuple(expand(scenario))))
        for place, group in enumerate(groups, start=1):
            together = self.rate_limiter.at_once(scenario, group)
            done = await asyncio.gather(
                *(self._step(scenario, step, attempt, dict(answers), together) for step in group)
            )
            for x in filter(None, done):
                exchanges[x.step] = x
                if place == len(groups):  # nobody asks for the answers of the last
                    continue
                told = (
                    x.chat_completion
                    if scenario.api == CHAT_COMPLETIONS.name or not group[0].is_native
                    else x.response_json
                )
                if told is not None:
                    answers[x.step] = told
        series = settled(Series(name=scenario.name, exchanges=exchanges))
        self.on_series(series)
        return series

    async def _step(
        self, scenario: Scenario, step: Step, attempt: int, answers: dict[str, Json], together: int
    ) -> Exchange | None:
        asking = self.profiles[scenario.api]
        try:
            request = build_request(step, asking, answers)
        except StepSkippedError:
            return None
        except ScriptUnsupportedError as reason:
            return self._left_out(scenario, step, attempt, build_request(step, asking.unscripted, answers), str(reason))
        except UnsupportedByApiError as member:
            unsaid = Request(path=asking.path, body=b"{}")
            return self._left_out(scenario, step, attempt, unsaid, f"{asking.api.title} has no {member}")
        scripted = asking.script_method is not ScriptMethod.NONE
        asked = Exchange(
            id=f"{scenario.name}/{scenario.api}/{step.name}/{attempt}",
            scenario=scenario.name,
            step=step.name,
            api=scenario.api if step.wait_until_idle is None else METRICS_API,
            attempt=attempt,
            engine=self.engine.name,
            started=datetime.now(UTC).isoformat(timespec="milliseconds"),
            request=request,
            validity=step.validity,
            script=step.script if scripted else None,
            expected=step.expected if scripted else None,
            concurrency=together if step.parallel_group is not None else None,
        )
        give_up = now() + (step.wait_until_idle or 0.0)
        x = await self._once(step, asked) if self.access.shut is None else None
        while x is not None and requests_running(x) and now() < give_up:
            await asyncio.sleep(_LOOKING_AGAIN)
            x = await self._once(step, asked)
        if x is None:
            x = self.access.skipped_exchange(asked)
        else:
            x = await self._verify_script(as_played(await self._check_access(x), asking.scripting), asking.scripting)
        if x is not None:
            self.on_exchange(x)
        return x

    async def _check_access(self, x: Exchange) -> Exchange:
        """The exchange; where it may be that nobody is let in any more, nothing else is sent until that is known."""
        if not is_doubtful(x):
            return x
        with self.rate_limiter.pause_others():
            x = await self.access.settled(x, lambda request: self.rate_limiter.send_urgently(self.client, request))
            if self.access.shut is not None:
                self.rate_limiter.close()
        return x

    async def _verify_script(self, x: Exchange, way: Scripting) -> Exchange:
        """The exchange, without a script that nothing shows to have been played: where its API shows no ids, the same request over Chat Completions may."""
        asks_for_ids = self.found.prompt_echo.members if self.found.prompt_echo is not None else ()
        if not asks_for_ids or not is_unproven(x, way):
            return x
        asked = in_chat(x, asks_for_ids)
        sent = await self._send(asked.request)
        return x if sent is None else as_proven(x, with_response(asked, sent), way)

    async def _once(self, step: Step, asked: Exchange) -> Exchange | None:
        is_derendered = step.script is not None and self.found.script_methods[asked.api] is ScriptMethod.DERENDER
        if step.path == CHAT and step.wait_until_idle is None and (is_derendered or not self.found.generates):
            return await answer_in_halves(self._send, asked, step.event_tokens or _EVENT)
        sent = await self.rate_limiter.send(self.client, asked.request, step.leave_after, asked.concurrency or 1)
        if sent is None:
            return None
        x = with_response(asked, sent)
        return await self._with_counted(await self._with_rendered(x))

    def _left_out(self, scenario: Scenario, step: Step, attempt: int, request: Request, reason: str) -> Exchange:
        """What stands for a request that is not sent, so that the recording says why."""
        x = Exchange(
            id=f"{scenario.name}/{scenario.api}/{step.name}/{attempt}",
            scenario=scenario.name,
            step=step.name,
            api=scenario.api,
            attempt=attempt,
            engine=self.engine.name,
            request=request,
            failure=Failure(kind=FailureKind.NOT_SENT, detail=reason),
            validity=step.validity,
        )
        self.on_exchange(x)
        return x

    async def _with_rendered(self, x: Exchange) -> Exchange:
        """The exchange with the prompt that a side endpoint shows, where that is the best there is."""
        reveals = self.found.prompt_echo if x.api == CHAT_COMPLETIONS.name else None
        if reveals is not None and (shown := revealed_prompt(reveals, x)) is not None:
            return replace(x, rendered_prompt=shown)
        side = self.found.prompt_endpoints.get(x.api)
        if side is None or x.turn is None or x.turn.prompt_ids is not None or x.validity in ODD:
            return x
        if (request := asks_for_prompt(side, x.request)) is None:
            return x
        sent = await self._send(request)
        if sent is None or sent.response is None:
            return x
        told = replace(x, api=CHAT_COMPLETIONS.name, response=sent.response, failure=None).chat_completion
        return replace(x, rendered_prompt=shown_prompt(side, told))

    async def _with_counted(self, x: Exchange) -> Exchange:
        """The exchange with the number of tokens that a side endpoint tells."""
        path = self.found.count_endpoints.get(x.api)
        if path is None or x.turn is None or x.validity in ODD:
            return x
        sent = await self._send(replace(x.request, path=path))
        if sent is None or sent.response is None:
            return x
        told = replace(x, api=CHAT_COMPLETIONS.name, response=sent.response, failure=None).chat_completion
        return replace(x, counted_prompt=counted_prompt(path, told))

    async def _send(self, request: Request) -> SendResult | None:
        return await self.rate_limiter.send(self.client, request)
