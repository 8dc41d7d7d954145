"""The memory of all exchanges in flight is bounded; beyond it exchanges pass without a record, or are refused."""

import asyncio
import json
from collections import Counter

import pytest

from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.capture.build_exchange import build_exchange
from harmony_proxy.capture.memory_budget import SMALLEST_LIMIT, MemoryBudget
from harmony_proxy.capture.recorder import OVER_MEMORY, Recorder
from harmony_proxy.configuration import InvalidSettingError, Rules, from_environment, load_rules, parse_size
from harmony_proxy.judging.counters import count_exchange
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.judging.model_names import ModelNames
from harmony_proxy.judging.queue_codec import decode_frame

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"%s"}}]}\n\n' % (b"word " * 800)
EACH = 2_000_000
OPEN = 24  # of 2 MB each: four times the room of the smallest limit
CHECK = "channels.no_marker_leak"


def streaming(release, sent):
    """An application whose answers of 2 MB end when they are released."""

    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        for _ in range(EACH // len(EVENT)):
            await send({"type": "http.response.body", "body": bytes(EVENT), "more_body": True})
        sent.append(scope)
        await release.wait()
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    return app


async def held(rules, exchanges=OPEN):
    """Hold exchanges open; return the queue, the answers, and the memory that was used."""
    release, sent = asyncio.Event(), []
    queue = JudgeQueue(JudgeSettings(), memory_limit=SMALLEST_LIMIT)
    queue.start = lambda: None
    guard = HarmonyGuard(streaming(release, sent), policy=rules, queue=queue)
    answers = [[] for _ in range(exchanges)]

    async def ask(answer):
        async def receive():
            return {"type": "http.request", "body": b'{"stream":true}', "more_body": False}

        async def send(message):
            answer.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"", "headers": []}
        await guard(scope, receive, send)

    tasks = [asyncio.ensure_future(ask(answer)) for answer in answers]
    while len(sent) + sum(task.done() for task in tasks) < exchanges:  # noqa: ASYNC110 - some end without an event
        await asyncio.sleep(0)
    used = queue.memory.used_bytes
    release.set()
    await asyncio.gather(*tasks)
    return queue, answers, used


def body(answer):
    return b"".join(message.get("body", b"") for message in answer)


def taken_out(queue):
    while batches := queue._dequeue_batches():
        for frame, _ in batches:
            yield from decode_frame(frame)


@pytest.mark.parametrize("fail", ["observe", "open", "closed"])
def test_exchanges_beyond_the_memory_are_not_recorded_and_the_memory_comes_back(fail):
    rules = Rules() if fail == "observe" else load_rules(block=[CHECK], fail=fail)
    queue, answers, used = asyncio.run(held(rules))
    room = queue.memory.limit - queue.memory.queue_limit
    assert 0.5 * room < used <= room
    assert queue.memory.used_bytes == 0
    whole = EVENT * (EACH // len(EVENT)) + b"data: [DONE]\n\n"
    passed = sum(body(answer) == whole for answer in answers)
    if fail == "closed":
        assert 0 < passed < OPEN
        others = [answer for answer in answers if body(answer) != whole]
        assert all(answer[0]["status"] == 503 or b'"code":"not_examined"' in body(answer) for answer in others)
    else:
        assert passed == OPEN
    unrecorded = [one for one in taken_out(queue) if one.limit == OVER_MEMORY]
    if fail == "observe":
        assert unrecorded
        assert all(one.response_bytes == len(whole) for one in unrecorded)
    for one in unrecorded[:1]:
        built, counts = build_exchange(one), Counter()
        assert built.unjudged_reason == "the memory limit of all exchanges was reached"
        count_exchange(counts, built, (), 0, ModelNames())
        assert counts["unrecorded", "memory"] == 1


def test_with_no_memory_left_a_closed_policy_refuses_further_exchanges():
    async def ask():
        queue = JudgeQueue(JudgeSettings(), memory_limit=SMALLEST_LIMIT)
        queue.start = lambda: None
        queue.memory.take(queue.memory.limit - queue.memory.queue_limit - 1000)
        guard = HarmonyGuard(streaming(None, None), policy=load_rules(block=[CHECK], fail="closed"), queue=queue)
        sent = []

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"", "headers": []}
        await guard(scope, None, send)
        return sent, guard

    sent, guard = asyncio.run(ask())
    assert sent[0]["status"] == 503
    assert (b"retry-after", b"5") in sent[0]["headers"]
    assert json.loads(body(sent))["error"]["code"] == "memory_limit"
    assert guard.gauges.exchanges_open == 0


def test_a_recorder_takes_blocks_and_gives_them_back():
    memory = MemoryBudget(SMALLEST_LIMIT)
    recorder = Recorder(memory=memory)
    recorder.feed(b"x" * 10_000, 0.1)
    assert memory.used_bytes == 0, "small exchanges are not counted"
    recorder.feed(b"x" * 1_000_000, 0.2)
    assert memory.used_bytes >= 990_000
    other = Recorder(memory=memory)
    for _ in range(20):
        other.feed(b"x" * 1_000_000, 0.3)
    assert (other.is_over_memory, other.is_whole, recorder.is_whole) == (True, False, True)
    assert other.to_record("a", 0.0).response_bytes == 20_000_000
    recorder.release()
    assert memory.used_bytes == 0
    recorder.release()
    assert memory.used_bytes == 0


@pytest.mark.parametrize(
    ("value", "size"), [("256M", 1 << 28), ("1g", 1 << 30), (1 << 25, 1 << 25), ("33554432", 1 << 25), (None, None)]
)
def test_a_size_is_read(value, size):
    assert parse_size(value) == size


@pytest.mark.parametrize("value", ["", "1M", "lots", "-1", "1.5G", True, "9" * 15 + "G", [1]])
def test_an_invalid_size_is_refused_in_one_line(value):
    with pytest.raises(InvalidSettingError, match=r"invalid memory_limit: expected at least 16M"):
        parse_size(value)


def test_the_limit_comes_from_file_flag_or_environment(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text('memory_limit = "64M"\n')
    assert load_rules(file).memory_limit == 64 << 20
    assert load_rules(file, memory_limit="32M").memory_limit == 32 << 20
    rules = from_environment({"HARMONY_GUARD_MEMORY_LIMIT": "128M"}).rules
    assert rules.memory_limit == 128 << 20
    assert JudgeQueue(JudgeSettings(), memory_limit=rules.memory_limit).memory.limit == 128 << 20
