"""A run of tasks against one endpoint or two, round by round: each round sends every open task once to each endpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from harmony_conformance.engines.discovery import Capabilities
from harmony_conformance.engines.target import Target
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import JsonObject
from harmony_conformance.runner.limits.rate_limiter import RateLimiter
from harmony_conformance.runner.limits.run_limits import RunLimits, count_output_tokens
from harmony_conformance.runner.run import Options, connect_client, discover_target, mask_requests
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.sampling.rates import all_rates
from harmony_conformance.sampling.sampler import Sampler, TaskTry
from harmony_conformance.sampling.task import Task
from harmony_conformance.transport.client import SendResult
from harmony_conformance.transport.messages import Request
from harmony_conformance.transport.waits import Notice, ignore_wait


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An endpoint, the options of its requests, and the callback for its exchanges."""

    target: Target
    options: Options
    keep: Callable[[Exchange], object]
    members: JsonObject
    """Members of each request besides those of the task: temperature, effort."""


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """The tries of an endpoint. `stopped`: the reason why some are missing, empty for a complete run."""

    capabilities: Capabilities
    samples: tuple[TaskTry, ...]
    stopped: str = ""


async def sample_endpoints(
    endpoints: Sequence[Endpoint],
    tasks: Sequence[Task],
    tries: int,
    minima: Mapping[str, float],
    waiting: Callable[[Notice], None] = ignore_wait,
) -> tuple[Sampled, ...]:
    """Return the tries of each endpoint. A set of tasks ends early once its rate is certainly above or below its minimum everywhere.

    `waiting`: callback for waits and slow answers of the discovery.

    Raises:
        EndpointUnusableError: An endpoint cannot be tested.
    """
    async with AsyncExitStack() as stack:
        samplings = [await _open(endpoint, stack, len(tasks) * tries, waiting) for endpoint in endpoints]
        for attempt in range(tries):
            decided = [_decided(sampling.samples, minima) for sampling in samplings]
            open_tasks = [task for task in tasks if not all(task.set in one for one in decided)]
            if not open_tasks:
                break
            rounds = await asyncio.gather(*(sampling.sampler.try_all(open_tasks, attempt) for sampling in samplings))
            for sampling, samples in zip(samplings, rounds, strict=True):
                sampling.samples += samples
        return tuple(sampling.sampled() for sampling in samplings)


@dataclass(kw_only=True)
class _EndpointSampling:
    """An endpoint that is being sampled. State: its tries so far."""

    capabilities: Capabilities
    limiter: RateLimiter
    limits: RunLimits
    sampler: Sampler
    samples: tuple[TaskTry, ...] = ()

    def sampled(self) -> Sampled:
        """Return what was sampled."""
        stopped = self.limits.stop_reason.detail if self.limits.stop_reason is not None else ""
        if self.limiter.reached_limit is not None:
            stopped = f"the limit of {number_of(self.limiter.reached_limit, 'request')} was reached"
        return Sampled(capabilities=self.capabilities, samples=self.samples, stopped=stopped)


async def _open(
    endpoint: Endpoint, stack: AsyncExitStack, conversations: int, waiting: Callable[[Notice], None]
) -> _EndpointSampling:
    target, options = endpoint.target, endpoint.options
    found = await discover_target(target, options, waiting)
    client = await stack.enter_async_context(connect_client(target, options))
    limits = RunLimits(options.max_time, options.timeout, options.max_tokens, conversations=conversations)
    concurrency = options.max_concurrency(target)
    limiter = RateLimiter(concurrency, concurrency, options.max_requests, options.max_rps, limits)

    def count_and_keep(x: Exchange) -> None:
        limits.count_tokens(count_output_tokens(x))
        limits.count_refusals(x)
        endpoint.keep(x)

    async def send(request: Request) -> SendResult | None:
        return await limiter.send(client, request)

    seed: JsonObject = {"seed": options.seed} if options.seed is not None else {}
    sampler = Sampler(
        send=send,
        members={"model": found.model, **endpoint.members, **seed, **options.extra_body},
        reasoning_field=found.reasoning_field or found.engine.reasoning_field,
        engine=found.engine.name,
        keep=mask_requests(options, count_and_keep),
    )
    return _EndpointSampling(capabilities=found, limiter=limiter, limits=limits, sampler=sampler)


def _decided(samples: Sequence[TaskTry], minima: Mapping[str, float]) -> frozenset[str]:
    """Return the sets of tasks whose rate is certainly above or below its minimum."""
    rates = {rate.name: rate.interval for rate in all_rates(samples)}
    return frozenset(
        name for name, minimum in minima.items() if name in rates and not rates[name][0] < minimum <= rates[name][1]
    )
