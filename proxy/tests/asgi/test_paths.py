"""The table of paths in docs/proxy-policies.md holds: guarded, harmless, passed and counted, or refused."""

import asyncio
import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest

from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.capture.routes import HARMLESS_PATHS, PathKind, classify_path
from harmony_proxy.configuration import load_rules
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.judging.queue_codec import decode_frame

PAGE = Path(__file__).parents[3].joinpath("docs/proxy-policies.md").read_text("utf-8")
ROWS = re.findall(r"^\| `([A-Z]+) (/[^`]*)` \| (\w+) \| (\w+) \|$", PAGE, re.MULTILINE)
LEAK = {"role": "assistant", "content": "<|channel|>analysis<|message|>Secret<|end|>"}
RULES = {fail: load_rules(block=["channels.no_marker_leak"], fail=fail) for fail in ("open", "closed")}


async def leaking(scope, receive, send):
    body = json.dumps({"choices": [{"index": 0, "message": LEAK, "finish_reason": "stop"}]}).encode()
    if scope["method"] == "POST":
        await receive()
    head = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
    await send(head)
    await send({"type": "http.response.body", "body": body})


def served(rules, method, path):
    """The status, the body, and the guard."""
    queue = JudgeQueue(JudgeSettings())
    queue.start = lambda: None
    guard, sent = HarmonyGuard(leaking, policy=rules, queue=queue), []

    async def receive():
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": unquote(path), "query_string": b"", "headers": []}
    asyncio.run(guard(scope, receive, send))
    return sent[0]["status"], b"".join(one.get("body", b"") for one in sent), guard


@pytest.mark.parametrize("fail", ["open", "closed"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_the_table_holds(row, fail):
    method, path, *expected = row
    status, body, guard = served(RULES[fail], method, path)
    counts = guard.gauges.unknown_passed, guard.gauges.unknown_refused
    actual = {
        (502, (0, 0)): "guarded",
        (200, (0, 0)): "harmless",
        (200, (1, 0)): "passed",
        (403, (0, 1)): "refused",
    }[status, counts]
    assert actual == expected[fail == "closed"]
    if actual == "refused":
        assert json.loads(body)["error"]["code"] == "path_not_guarded"
        guard.queue.pack()
        ((frame, _),) = guard.queue._dequeue_batches()
        assert [(one.end, one.status) for one in decode_frame(frame)] == [("refused", 403)]


def test_the_table_has_each_treatment():
    assert {one for row in ROWS for one in row[2:]} == {"guarded", "harmless", "passed", "refused"}


@pytest.mark.parametrize("path", sorted({path for paths in HARMLESS_PATHS.values() for path in paths}))
def test_each_harmless_path_is_documented(path):
    assert f"`{path}`" in PAGE


@pytest.mark.parametrize("path", ["/health/", "//health", "/health%20", "/v1/models/..", "/v1/models/a\n", "/slots"])
def test_another_spelling_of_a_harmless_path_is_unknown(path):
    assert classify_path("GET", unquote(path)) is PathKind.UNKNOWN


def test_a_route_of_its_own_lets_a_path_pass(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_text(
        'fail = "closed"\nchecks = {"channels.no_marker_leak" = "block"}\n[[route]]\npath = "/v1/messages"\nfail = "open"\n'
    )
    rules = load_rules(file)
    assert served(rules, "POST", "/v1/messages")[0] == 200
    assert served(rules, "POST", "/v1/messages%20")[0] == 403


def test_nothing_is_refused_if_no_route_acts():
    closed = replace(RULES["open"], policy=replace(RULES["open"].policy, routes=()))
    assert served(closed, "POST", "/v1/messages")[0] == 200


def test_a_web_socket_is_refused_by_a_closed_policy():
    sent = []

    async def send(message):
        sent.append(message)

    queue = JudgeQueue(JudgeSettings())
    guard = HarmonyGuard(leaking, policy=RULES["closed"], queue=queue)
    asyncio.run(guard({"type": "websocket", "path": "/v1/realtime"}, None, send))
    assert sent == [{"type": "websocket.close", "code": 1008}]
