"""A large answer is examined in a thread, so that others do not wait for it; a small one on the spot."""

import asyncio
import json
import threading

import pytest

from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.configuration import load_rules
from harmony_proxy.guard.guard import Guard
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings


@pytest.mark.parametrize(("size", "is_apart"), [(1000, False), (1_000_000, True)])
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

    async def receive():
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message):
        sent.append(message)

    queue = JudgeQueue(JudgeSettings())
    queue.start = lambda: None
    guard = HarmonyGuard(app, policy=load_rules(block=["channels.no_marker_leak"]), queue=queue)
    scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"", "headers": []}
    asyncio.run(guard(scope, receive, send))
    assert b"".join(message.get("body", b"") for message in sent) == body
    assert [thread is not threading.main_thread() for thread in threads] == [is_apart]
