"""Slots for requests: how many at a time, and which goes next."""

import asyncio

import pytest

from harmony_conformance.runner.limits.rate_limiter import RateLimiter, slot_rank
from harmony_conformance.runner.limits.run_limits import RunLimits
from harmony_conformance.runner.selection import load_scenarios
from harmony_conformance.transport.client import SendResult
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_conformance.transport.waits import Wait


class Recorder:
    """A client that notes which requests begin, and answers with their paths when a test opens their gates."""

    def __init__(self, status=200):
        self.begun, self.gates, self.status = [], {}, status

    async def send(self, request, on_wait=None, leave_after=None):
        self.begun.append(request.path)
        if request.path == "busy":
            on_wait(Wait(requested_seconds=1.0, seconds=1.0, attempt=1))
        self.gates[request.path] = gate = asyncio.Event()
        await gate.wait()
        chunk = Chunk(arrival_time=0.0, data=request.path.encode())
        return SendResult(response=Response(status=self.status, chunks=(chunk,)))


async def settle():
    for _ in range(10):
        await asyncio.sleep(0)


def ranked(limiter, client, rank, path):
    async def send():
        slot_rank.set(rank)
        result = await limiter.send(client, Request(path=path, body=b""))
        return result.response.body.decode()

    return asyncio.create_task(send())


def test_a_free_slot_goes_to_the_lowest_rank_and_to_the_first_of_several():
    async def run():
        limiter, client = RateLimiter(2, 2, None, None), Recorder()
        tasks = [
            ranked(limiter, client, rank, path) for rank, path in ((3, "a"), (3, "b"), (2, "c"), (1, "d"), (2, "e"))
        ]
        await settle()
        assert client.begun == ["a", "b"]
        for path in ("a", "d", "c", "e", "b"):
            client.gates[path].set()
            await settle()
        assert await asyncio.gather(*tasks) == ["a", "b", "c", "d", "e"]
        return client.begun

    assert asyncio.run(run()) == ["a", "b", "d", "c", "e"]


@pytest.mark.parametrize(
    ("status", "max_tokens", "order"),
    [
        (200, None, ["a", "b", "a is processed"]),
        (401, None, ["a", "a is processed", "b"]),
        (200, 9, ["a", "a is processed", "b"]),
    ],
)
def test_the_next_request_goes_before_the_processing_of_an_answer_that_cannot_end_the_run(status, max_tokens, order):
    async def run():
        limiter, client = RateLimiter(1, 1, None, None, RunLimits(None, 60.0, max_tokens)), Recorder(status)

        async def send_and_process():
            await limiter.send(client, Request(path="a", body=b""))
            client.begun.append("a is processed")

        tasks = [asyncio.create_task(send_and_process()), ranked(limiter, client, 0, "b")]
        await settle()
        client.gates["a"].set()
        await settle()
        client.gates["b"].set()
        await asyncio.gather(*tasks)
        return client.begun

    assert asyncio.run(run()) == order


def test_no_request_begins_while_another_waits_as_the_server_asks():
    async def run():
        limiter, client = RateLimiter(2, 2, None, None), Recorder()
        first = ranked(limiter, client, 0, "busy")
        await settle()
        second = ranked(limiter, client, 1, "a")
        await settle()
        during = [*client.begun]
        client.gates["busy"].set()
        await first
        await settle()
        client.gates["a"].set()
        await second
        return during, client.begun

    assert asyncio.run(run()) == (["busy"], ["busy", "a"])


def test_a_request_that_is_cancelled_loses_no_slot():
    async def run():
        limiter, client = RateLimiter(1, 1, None, None), Recorder()
        first, waiting, second = (ranked(limiter, client, rank, path) for rank, path in enumerate("abc"))
        await settle()
        waiting.cancel()
        await settle()
        client.gates["a"].set()
        await settle()
        second.cancel()  # it has a slot, and its request is sent
        await settle()
        last = ranked(limiter, client, 0, "d")
        await settle()
        client.gates["d"].set()
        assert await first == "a"
        assert await last == "d"
        return client.begun

    assert asyncio.run(run()) == ["a", "c", "d"]


def test_a_slot_given_to_a_request_that_is_cancelled_at_that_moment_goes_on():
    async def run():
        limiter, client = RateLimiter(1, 1, None, None), Recorder()
        _first, given, next_one = (ranked(limiter, client, rank, path) for rank, path in enumerate("abc"))
        await settle()
        client.gates["a"].set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the slot is free, and the task that waits for it has not run yet
        given.cancel()
        await settle()
        client.gates.get("c", asyncio.Event()).set()
        await settle()
        return next_one.done()

    assert asyncio.run(run())


def test_only_scenarios_that_run_alone_are_sent_over_all_apis_at_once():
    scenarios = load_scenarios()
    assert [one.name for one in scenarios if one.apis_at_once] == ["slow_stream"]
    assert all(one.exclusive for one in scenarios if one.apis_at_once)
