"""Sending of a load. Each time counts from the moment at which the request had to be sent, so that a server that stalls cannot hide it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from harmony_conformance.apis.api import CHAT_PATH
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import Validity
from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.load.arrivals import Arrivals, arrival_times, make_prompt
from harmony_conformance.runner.latency.latency_probe import Timing, UnmeasuredResponse, measure
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.transport.client import SendResult, now
from harmony_conformance.transport.messages import FailureKind, Request

Send = Callable[[Request], Awaitable[SendResult]]
"""Sends a request and returns its result."""


@dataclass(frozen=True, kw_only=True)
class OfferedLoad:
    """A load: requests per second, or clients that wait for their answer before the next request; lengths in tokens."""

    requests: int
    rate: float | None = None
    clients: int | None = None
    input_tokens: int
    output_tokens: int
    law: Arrivals = Arrivals.POISSON
    seed: int = 0

    @property
    def name(self) -> str:
        """The load in words."""
        pace = number_of(self.clients or 0, "client")
        if self.rate is not None:
            pace = f"{self.rate:g} {'request' if self.rate == 1 else 'requests'}/s"
        return f"{pace}, {self.input_tokens} to {number_of(self.output_tokens, 'token')}"


@dataclass(frozen=True, kw_only=True)
class LoadedRequest:
    """A request of a load. Times are in seconds.

    Attributes:
        late: Delay of the client itself: it sent the request so much after it was due.
        timing: Times after the request was due, or the reason for missing times.
        due: Time at which the request was due, after the start of the load.
        done: Time at which its answer was complete.
        is_unsent: True if a limit of the run ended it: it says nothing about the server.
        reasoning: Share of the reasoning in all characters of the answer, None without a text.
    """

    late: float
    timing: Timing | UnmeasuredResponse
    due: float
    done: float
    reasoning: float | None
    is_unsent: bool = False


@dataclass(frozen=True, kw_only=True)
class LoadSender:
    """Sends loads to one endpoint. `members` are those of each request, such as the model."""

    send: Send
    members: JsonObject
    engine: str
    keep: Callable[[Exchange], object]

    async def warm_up(self, load: OfferedLoad, requests: int) -> None:
        """Send requests whose times are not counted, one after the other."""
        for number in range(requests):
            await self._one(load, -1 - number, now(), now())

    async def run(self, load: OfferedLoad) -> tuple[LoadedRequest, ...]:
        """Send a load and return its requests in the order in which they were due."""
        start = now()
        if load.rate is None:
            return await self._run_closed(load, start)
        times = arrival_times(load.rate, load.requests, load.law, load.seed)
        return tuple(await asyncio.gather(*(self._at(load, number, start, due) for number, due in enumerate(times))))

    async def _at(self, load: OfferedLoad, number: int, start: float, due: float) -> LoadedRequest:
        await asyncio.sleep(max(0.0, start + due - now()))
        return await self._one(load, number, start, start + due)

    async def _run_closed(self, load: OfferedLoad, start: float) -> tuple[LoadedRequest, ...]:
        numbers = iter(range(load.requests))
        done: list[LoadedRequest] = []

        async def client() -> None:
            for number in numbers:
                done.append(await self._one(load, number, start, now()))  # noqa: PERF401 - each waits for the one before

        await asyncio.gather(*(client() for _ in range(load.clients or 1)))
        return tuple(sorted(done, key=lambda one: one.due))

    async def _one(self, load: OfferedLoad, number: int, start: float, due: float) -> LoadedRequest:
        body: JsonObject = {
            "messages": [{"role": "user", "content": make_prompt(load.input_tokens, number, load.seed)}],
            "max_tokens": load.output_tokens,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.members,
        }
        request = Request(path=CHAT_PATH, body=dumps(body).encode())
        sent_at = now()
        sent = await self.send(request)
        done_at = now()
        x = Exchange(
            id=f"load/chat/{load.name}/{number}",
            request=request,
            response=sent.response,
            failure=sent.failure,
            scenario="load",
            step=load.name,
            engine=self.engine,
            validity=Validity.VALID,
            retry_waits=sent.retry_waits,
        )
        if x.failure is None or x.failure.kind is not FailureKind.RUN_STOPPED:
            self.keep(x)
        chunks = x.response.chunks if x.response is not None else ()
        waited = sent_at - due + sum(sent.retry_waits)  # before the request that was answered
        return LoadedRequest(
            late=sent_at - due,
            timing=after_due(measure(x), waited),
            due=due - start,
            done=(sent_at + sum(sent.retry_waits) + chunks[-1].arrival_time if chunks else done_at) - start,
            reasoning=_reasoning_share(x),
            is_unsent=x.failure is not None and x.failure.kind is FailureKind.RUN_STOPPED,
        )


def after_due(timing: Timing | UnmeasuredResponse, waited: float) -> Timing | UnmeasuredResponse:
    """Return the times after the request was due, for times after it was sent."""
    if isinstance(timing, UnmeasuredResponse):
        return timing
    answer = timing.first_answer
    return replace(
        timing,
        first_token=timing.first_token + waited,
        first_answer=None if answer is None else answer + waited,
        end=timing.end + waited,
    )


def _reasoning_share(x: Exchange) -> float | None:
    if (turn := x.turn) is None:
        return None
    reasoning = len(turn.reasoning or "")
    answer = len(turn.content or "") + sum(len(call.arguments) for call in turn.tool_calls)
    return reasoning / (reasoning + answer) if reasoning + answer else None


def timings(requests: Sequence[LoadedRequest]) -> list[Timing]:
    """Return the times of the requests that have some."""
    return [one.timing for one in requests if isinstance(one.timing, Timing)]
