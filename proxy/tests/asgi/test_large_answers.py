"""A large answer is examined in a thread, so that others do not wait for it; a small one on the spot."""

import asyncio
import json
import threading

import pytest

from harmony_proxy.asgi.acting_exchange import MANY_LINES
from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.configuration import load_rules
from harmony_proxy.guard.guard import Guard
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.policy.repair_interface import LARGE_BYTES

SCOPE = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"", "headers": []}


def guarded(app):
    queue = JudgeQueue(JudgeSettings())
    queue.start = lambda: None
    return HarmonyGuard(app, policy=load_rules(block=["channels.no_marker_leak"]), queue=queue)


async def receive():
    return {"type": "http.request", "body": b"{}", "more_body": False}


def collect(sent):
    async def send(message):
        sent.append(message)

    return send


@pytest.mark.parametrize(("size", "is_apart"), [(1000, False), (500_000, True)])
def test_a_large_answer_is_examined_in_a_thread(size, is_apart, monkeypatch):
    threads, close, sent = [], Guard.close, []
    body = json.dumps({"choices": [{"index": 0, "message": {"content": "x " * (size // 2)}}]}).encode()

    def noted(self, at):
        threads.append(threading.current_thread())
        return close(self, at)

    monkeypatch.setattr(Guard, "close", noted)

    async def app(scope, receive, send):
        await receive()
        head = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
        await send(head)
        await send({"type": "http.response.body", "body": body[:-1], "more_body": True})
        await send({"type": "http.response.body", "body": body[-1:]})

    asyncio.run(guarded(app)(SCOPE, receive, collect(sent)))
    assert b"".join(message.get("body", b"") for message in sent) == body
    assert [thread is not threading.main_thread() for thread in threads] == [is_apart]


@pytest.mark.parametrize(("texts", "in_thread"), [([" word"] * 6000, 0), ([" word", "<b"] * 3000, 1)])
def test_of_a_large_stream_only_events_that_may_need_a_check_go_to_the_thread(texts, in_thread, monkeypatch):
    threads, feed, sent = [], Guard.feed, []

    def noted(self, data, at):
        threads.append(threading.current_thread() is not threading.main_thread())
        return feed(self, data, at)

    monkeypatch.setattr(Guard, "feed", noted)
    pieces = [
        b"data: %b\n\n" % json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode() for text in texts
    ]
    assert sum(map(len, pieces)) > LARGE_BYTES

    async def app(scope, receive, send):
        await receive()
        head = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
        await send(head)
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    asyncio.run(guarded(app)(SCOPE, receive, collect(sent)))
    assert b"".join(message.get("body", b"") for message in sent) == b"".join(pieces) + b"data: [DONE]\n\n"
    assert (sum(threads) > 100) is bool(in_thread)
    assert threads[-1]


@pytest.mark.parametrize(("count", "is_apart"), [(10, False), (MANY_LINES, True)])
def test_a_chunk_of_very_many_events_is_examined_in_a_thread(count, is_apart, monkeypatch):
    threads, feed, sent = [], Guard.feed, []

    def noted(self, data, at):
        threads.append(threading.current_thread() is not threading.main_thread())
        return feed(self, data, at)

    monkeypatch.setattr(Guard, "feed", noted)

    async def app(scope, receive, send):
        await receive()
        head = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
        await send(head)
        await send({"type": "http.response.body", "body": b":<\n\n" * count})

    asyncio.run(guarded(app)(SCOPE, receive, collect(sent)))
    assert b"".join(message.get("body", b"") for message in sent) == b":<\n\n" * count
    assert threads == [is_apart]
