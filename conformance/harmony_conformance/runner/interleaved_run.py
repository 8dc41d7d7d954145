"""A run against two endpoints at once, whose requests alternate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from harmony_conformance.engines.diagnosis import EndpointUnusableError
from harmony_conformance.engines.discovery import Capabilities
from harmony_conformance.engines.target import Target
from harmony_conformance.evidence.exchange import Series
from harmony_conformance.judge.judge import Result
from harmony_conformance.runner.judge_run import Plan, RunJudge, ScriptMethods
from harmony_conformance.runner.run import Options, Run, connect_client, run_with_client
from harmony_conformance.runner.sender import ExchangeCallback
from harmony_conformance.transport.interleaving import Alternation, InterleavedClient
from harmony_conformance.transport.waits import Notice


class _JudgeOfTwo(RunJudge):
    """Judges at the end, and lets neither endpoint go on to its latency probe while the other is being judged."""

    def __init__(self, plan: Plan, judged: asyncio.Barrier) -> None:
        super().__init__(plan)
        self._judged = judged

    async def results(self, series: Sequence[Series], ways: ScriptMethods, limit: int | None) -> tuple[Result, ...]:
        """Return all results once both endpoints have theirs."""
        found = await super().results(series, ways, limit)
        await self._judged.wait()
        return found


async def run_interleaved(
    endpoints: Sequence[tuple[Target, Options, str]],
    plan: Plan,
    keep: Sequence[ExchangeCallback],
    notify: Sequence[Callable[[Capabilities | Notice], None]],
) -> tuple[Run, ...]:
    """Run a plan against two endpoints. Their requests alternate, those of the latency probe too.

    Args:
        endpoints: Target, options and base URL of each.
        plan: Scenarios and checks of both.
        keep: A callback for the exchanges of each.
        notify: A callback for the waits and the capabilities of each.

    Raises:
        EndpointUnusableError: An endpoint cannot be tested.
    """
    alternation, judged = Alternation(), asyncio.Barrier(len(endpoints))

    async def run_endpoint(place: int) -> Run:
        target, options, base = endpoints[place]
        try:
            connect = partial(InterleavedClient, alternation=alternation, side=place)
            async with connect_client(target, options, base, connect) as client:
                return await run_with_client(
                    client, target, options, plan, keep[place], notify[place], _JudgeOfTwo(plan, judged)
                )
        except EndpointUnusableError as problem:
            await judged.abort()
            raise EndpointUnusableError(f"{target}: {problem}") from None
        except BaseException:
            await judged.abort()
            raise
        finally:
            await alternation.end(place)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run_endpoint(place)) for place in range(len(endpoints))]
    except* EndpointUnusableError as problems:
        raise next(one for one in problems.exceptions if isinstance(one, EndpointUnusableError)) from None
    return tuple(task.result() for task in tasks)
