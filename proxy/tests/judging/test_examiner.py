"""The process that examines large answers: results, errors, its ends, and the answers that it gets."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import replace
from types import MappingProxyType

import pytest

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import is_about_harmony
from harmony_conformance.transport import messages
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_proxy.configuration import load_rules
from harmony_proxy.guard.guard import Guard
from harmony_proxy.judging.examiner import Examiner, ExaminerError
from harmony_proxy.policy.repair_interface import VERY_LARGE_BYTES
from harmony_proxy.repair.answer import check_verdicts, whole_answer
from harmony_proxy.repair.answer.fixes import declared_functions
from harmony_proxy.repair.request_facts import with_last_request

LEAK = "<|channel|>analysis<|message|>The user wants a secret.<|end|><|start|>assistant<|channel|>final<|message|>No."


def until(condition, seconds=20):
    stop = time.monotonic() + seconds
    while not condition() and time.monotonic() < stop:
        time.sleep(0.02)
    return condition()


def is_running(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_call_has_the_result_of_the_function_in_another_process():
    examine = Examiner()
    assert examine.process_id is None
    assert examine(sorted, [3, 1, 2], reverse=True) == [3, 2, 1]
    assert examine(os.getpid) == examine.process_id != os.getpid()
    assert examine(dict, MappingProxyType({"a": b"x" * 5_000_000})) == {"a": b"x" * 5_000_000}


def test_a_proxy_of_a_mapping_passes_in_both_directions():
    value = Response(status=200, chunks=(Chunk(arrival_time=0.1, data=b"x"),))
    assert Examiner()(max, [value], key=None) == value


def test_an_error_of_the_function_is_raised_and_the_process_stays():
    examine = Examiner()
    with pytest.raises(ExaminerError, match="ZeroDivisionError"):
        examine(divmod, 1, 0)
    number = examine.process_id
    assert (examine(abs, -1), examine.process_id) == (1, number)


def test_what_cannot_be_passed_is_raised_and_the_next_call_has_its_own_result():
    examine = Examiner()
    with pytest.raises((AttributeError, TypeError, pickle.PicklingError)):
        examine(str, lambda: 0)
    assert examine(abs, -2) == 2


def test_a_killed_process_is_started_again():
    examine = Examiner()
    number = examine(os.getpid)
    os.kill(number, signal.SIGKILL)
    assert until(lambda: examine._process.poll() is not None)
    assert examine(os.getpid) != number


def test_a_call_that_ends_the_process_or_takes_too_long_raises():
    examine = Examiner(seconds=1.0)
    with pytest.raises(ExaminerError, match="ended"):
        examine(os._exit, 1)
    begin = time.monotonic()
    with pytest.raises(ExaminerError, match="too long"):
        examine(time.sleep, 60)
    assert time.monotonic() - begin < 30
    assert examine(abs, -3) == 3


def test_the_process_ends_without_calls():
    examine = Examiner(idle_seconds=0.2)
    number = examine(os.getpid)
    assert until(lambda: examine.process_id is None)
    assert until(lambda: not is_running(number))
    assert examine(abs, -4) == 4


def test_the_process_ends_with_a_killed_parent():
    program = "import os, sys; from harmony_proxy.judging.examiner import Examiner; e = Examiner(); print(e(os.getpid), flush=True); sys.stdin.read()"
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    number = int(parent.stdout.readline())
    assert is_running(number)
    parent.kill()
    parent.wait()
    assert until(lambda: not is_running(number))


def answer(content, size):
    """A guard that has got an answer of this size, whose content ends with a text."""
    rules = load_rules(block=["channels.no_marker_leak"], fail="closed")
    guard = Guard(rules.policy, request_id="1", handlers=rules.handlers)
    guard.request_head("POST", "/v1/chat/completions", [])
    guard.request_body(b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}')
    message = {"role": "assistant", "content": "word " * (size // 5) + content}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    guard.response_head(200, [(b"content-type", b"application/json")])
    guard.feed(json.dumps({"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}).encode(), 0.1)
    return guard.close(0.2)


@pytest.mark.parametrize(("size", "code"), [(1000, "not_examined"), (VERY_LARGE_BYTES, "blocked_by_policy")])
def test_only_a_very_large_answer_is_examined_in_the_process(size, code, monkeypatch):
    def fail(*_):
        raise AssertionError("in this process")

    monkeypatch.setattr(whole_answer, "run_checks", fail)
    assert json.loads(answer(LEAK, size).body[0])["error"]["code"] == code


def test_the_process_passes_an_innocent_answer_unchanged():
    out = answer("The end.", VERY_LARGE_BYTES)
    assert out.head.status == 200
    assert json.loads(out.body[0])["choices"][0]["message"]["content"].endswith("word The end.")


@pytest.mark.parametrize(("size", "is_found"), [(1000, False), (VERY_LARGE_BYTES, True)])
def test_only_a_very_large_stream_is_judged_in_the_process(size, is_found, monkeypatch):
    rules = load_rules(block=["channels.no_marker_leak"], fail="closed")
    route = rules.policy.routes[-1]
    stream = rules.handlers.open_stream(
        Request(path="/v1/chat/completions", body=b'{"model": "m", "stream": true}'),
        Response(status=200, headers={"content-type": "text/event-stream"}, chunks=()),
        "chat",
        route.actions,
        fallback=route.fallback,
        request_id="1",
        limit=2**24,
        fail=route.fail,
    )
    for name in ("_failures", "find_unexplained_leaks"):
        monkeypatch.setattr(check_verdicts, name, lambda *_, **__: ())
    texts = ["word " * 1000 for _ in range(size // 5000)] + [LEAK]
    for text in texts:
        stream.feed(b"data: " + json.dumps({"choices": [{"index": 0, "delta": {"content": text}}]}).encode() + b"\n\n")
    stream.feed(b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n')
    stream.close()
    assert bool(stream.actions.blocked_checks) is is_found


LARGE_REQUEST = json.dumps(
    {
        "model": "m",
        "messages": [{"role": "user", "content": f"quote <|channel|>, please. {'word ' * (VERY_LARGE_BYTES // 5)}"}],
        "tools": [{"type": "function", "function": {"name": "launch", "parameters": {"type": "object"}}}],
    }
).encode()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/api/generate", "/generate"])
@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
def test_a_very_large_request_is_read_in_the_process(kind, path, monkeypatch):
    read = messages.loads
    monkeypatch.setattr(messages, "loads", lambda document: read(document) if len(document) < 10_000 else 1 / 0)
    rules = load_rules(block=["channels.*"], repair=["tool_calls.*"])
    guard = Guard(rules.policy, request_id="1", handlers=rules.handlers)
    guard.request_head("POST", path, [])
    guard.request_body(LARGE_REQUEST)
    guard.response_head(200, [(b"content-type", kind.encode())])
    value = {"index": 0, "message": {"content": LEAK}, "delta": {"content": LEAK}, "finish_reason": "stop"}
    body = json.dumps({"choices": [value]}).encode()
    out = b"".join(guard.feed(body if kind == "application/json" else b"data: %b\n\n" % body, 0.1))
    out += b"" if guard.must_stop else b"".join(guard.close(0.2).body)
    assert guard.problems == 0
    assert "*" not in guard.recorder.unrepaired_reasons
    assert b"secret" not in out or path != "/v1/chat/completions"


def test_a_request_that_was_read_in_the_last_call_is_not_read_again(monkeypatch):
    request = Request(path="/v1/chat/completions", body=LARGE_REQUEST)
    x = Exchange(id="1", request=request, response=Response(status=200, chunks=()))
    with_last_request(is_about_harmony, x)
    monkeypatch.setattr(messages, "loads", lambda _: 1 / 0)
    same = replace(x, request=Request(path="/v1/chat/completions", body=bytes(bytearray(LARGE_REQUEST))))
    assert with_last_request(is_about_harmony, same)
    assert with_last_request(declared_functions, same) == {"launch"}
    with pytest.raises(ZeroDivisionError):
        with_last_request(is_about_harmony, replace(x, request=Request(path="/", body=b"{}")))
