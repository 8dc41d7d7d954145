"""An error that quotes what the model wrote is a leak as well: it is blocked before any of it goes out, at every split. Any other error passes as it came."""

import json

import pytest

from harmony_conformance.transport.messages import Request, Response
from harmony_proxy.configuration import load_rules
from harmony_proxy.guard.guard import Guard
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair import REPAIRS, StreamRepairer

LEAK = "channels.no_marker_leak"
BODY = b'{"messages": [{"role": "user", "content": "Hi"}], "input": "Hi", "stream": true}'
QUOTING = "Failed to parse input at pos 0: <|channel|>analysis<|message|>A secret.<|start|>assistant"


def event(value):
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chat(said):
    return event({"id": "c", "choices": [{"index": 0, "delta": {"content": said}, "finish_reason": None}]})


def streams(message):
    """A stream of each API that ends with an error."""
    error = {"code": 500, "message": message, "type": "server_error"}
    number = {"sequence_number": 1}
    failed = {"type": "response.failed", **number, "response": {"status": "failed", "error": error, "output": []}}
    return {
        "chat": chat("Hello!") + event({"error": error}),
        "chat, repaired before": chat("<|channel|>final<|message|>Hello!")
        + event({"error": error})
        + b"data: [DONE]\n\n",
        "ollama": b'{"message": {"content": "Hello!"}}\n' + json.dumps({"error": message}).encode() + b"\n",
        "responses": event({**number, **error, "type": "error"}),
        "responses, failed": event(failed),
    }


def acted_on(name, data, actions, split, fallback=Action.OBSERVE):
    api = name.partition(",")[0]
    kind = "application/x-ndjson" if api == "ollama" else "text/event-stream"
    response = Response(status=200, chunks=(), headers={"content-type": kind})
    one = StreamRepairer(
        Request(path="/", body=BODY), response, api, actions, fallback=fallback, request_id="r-1", limit=1 << 24
    )
    out = [*one.feed(data[:split]), *one.feed(data[split:]), *one.close()]
    return b"".join(out), one


@pytest.mark.parametrize("action", ["block", "fallback"])
@pytest.mark.parametrize("name", streams(""))
def test_an_error_that_quotes_the_model_is_blocked_before_it_goes_out(name, action):
    data = streams(QUOTING)[name]
    for split in range(0, len(data), 5):
        if action == "block":
            out, one = acted_on(name, data, {LEAK: Action.BLOCK}, split)
        else:
            out, one = acted_on(name, data, dict.fromkeys(REPAIRS, Action.REPAIR), split, Action.BLOCK)
        assert one.actions.blocked_checks == (LEAK,)
        assert b"secret" not in out


@pytest.mark.parametrize("name", streams(""))
def test_it_passes_where_that_is_the_fallback_and_any_other_error_always(name):
    for message in (QUOTING, "The <|channel|> token is missing"):
        data = streams(message)[name]
        for split in range(0, len(data), 5):
            out, one = acted_on(name, data, {LEAK: Action.REPAIR}, split)
            assert message.encode() in out
            assert LEAK not in one.actions.unrepaired_reasons  # a ruling makes markup in an error a SHOULD
            assert out == data or "repaired" in name


def whole(message, **how):
    rules = load_rules(repair=["*"], **how)
    one = Guard(rules.policy, request_id="r-1", handlers=rules.handlers)
    one.request_head("POST", "/v1/chat/completions", ())
    one.request_body(BODY)
    one.response_head(500, ((b"content-type", b"application/json"),))
    body = json.dumps({"error": {"code": 500, "message": message}}).encode()
    out = b"".join((*one.feed(body, 0.1), *one.close(0.2).body))
    return one.head.status, out, body


def test_a_whole_error_that_quotes_the_model_is_blocked_where_that_is_the_fallback():
    status, out, _ = whole(QUOTING, fallback="block")
    assert (status, b"secret" in out) == (502, False)
    for message, how in ((QUOTING, {}), ("no", {"fallback": "block", "fail": "closed"})):
        status, out, body = whole(message, **how)
        assert (status, out) == (500, body)


LEAKED = "<|channel|>analysis<|message|>A secret.<|end|><|start|>assistant<|channel|>final<|message|>Hello!"
ANSWER = {"choices": [{"index": 0, "message": {"role": "assistant", "content": LEAKED}, "finish_reason": "stop"}]}
STATUSES = pytest.mark.parametrize("status", [300, 302, 308, 400, 404, 500, 503])


def guarded(status, kind, body, *, is_partial=False, **rules):
    rules = load_rules(**rules)
    one = Guard(rules.policy, request_id="r-1", handlers=rules.handlers)
    one.request_head("POST", "/v1/chat/completions", ())
    one.recorder.is_partial = is_partial
    one.request_body(BODY)
    one.response_head(status, ((b"content-type", kind),))
    out = b"".join((*one.feed(body, 0.1), *([] if one.must_stop else one.close(0.2).body)))
    return one, out


@STATUSES
@pytest.mark.parametrize("fail", ["open", "closed"])
@pytest.mark.parametrize("kind", [b"application/json", b"text/plain", b"text/event-stream"])
def test_an_answer_that_leaks_is_blocked_whatever_its_status(status, kind, fail):
    body = chat(LEAKED) + b"data: [DONE]\n\n" if b"stream" in kind else json.dumps(ANSWER).encode()
    one, out = guarded(status, kind, body, block=["*"], fail=fail)
    assert one.recorder.blocked_checks == (LEAK,)
    assert b"secret" not in out
    assert b"blocked_by_policy" in out


@STATUSES
def test_an_answer_that_leaks_is_repaired_whatever_its_status(status):
    one, out = guarded(status, b"application/json", json.dumps(ANSWER).encode(), repair=["*"])
    assert one.head.status == status
    assert json.loads(out)["choices"][0]["message"]["content"] == "Hello!"
    one, out = guarded(status, b"text/event-stream", chat(LEAKED) + b"data: [DONE]\n\n", repair=["*"])
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in out.splitlines() if line.startswith(b"data: {")]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Hello!"


@STATUSES
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"application/json", b'{"error": {"message": "no such model", "code": null}, "choices": []}'),
        (b"application/json", b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello!"}}]}'),
        (b"text/html", b"<p>Moved</p>"),
        (b"text/event-stream", event({"error": {"message": "overloaded"}})),
        (b"text/event-stream", b"event: error\ndata: it is overloaded\n\n"),
    ],
)
def test_another_answer_with_such_a_status_passes_unchanged(status, kind, body):
    one, out = guarded(status, kind, body, block=["channels.*"], fail="closed")
    assert (out, one.head.status) == (body, status)


def test_an_error_before_the_end_of_the_request_is_read_too():
    one, out = guarded(
        413, b"application/json", json.dumps(ANSWER).encode(), is_partial=True, block=["*"], fail="closed"
    )
    assert (one.recorder.blocked_checks, b"secret" in out) == ((LEAK,), False)
    body = b'{"error": {"message": "too large"}}'
    one, out = guarded(413, b"application/json", body, is_partial=True, block=["*"], fail="closed")
    assert (out, one.head.status) == (body, 413)
