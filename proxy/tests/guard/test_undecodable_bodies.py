"""A block reads what clients and servers read that ignore a wrong content coding or content type."""

import gzip
import json

import pytest

from harmony_proxy.configuration import load_rules
from harmony_proxy.guard.guard import Guard
from harmony_proxy.guard.response_head import HeadTiming

PATH = "/v1/chat/completions"
REQUEST = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode()
SECRET = "Thisisreasoning"
LEAK = f"<|channel|>analysis<|message|>{SECRET}<|end|>"
JSON, EVENTS = (b"content-type", b"application/json"), (b"content-type", b"text/event-stream")
CODINGS = ("gzip", "deflate", "none", "utf-8", "*", "gzip;q=1", "gzip, gzip, gzip")


def answer(content: str) -> bytes:
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps(
        {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    ).encode()


def stream(content: str) -> bytes:
    events = []
    for start in range(0, len(content), 9):
        choice = {"index": 0, "delta": {"content": content[start : start + 9]}, "finish_reason": None}
        value = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        events.append(f"data: {json.dumps(value)}\n\n")
    return ("".join(events) + "data: [DONE]\n\n").encode()


def sent(headers, body, *, fail, request_headers=(), request=REQUEST, timing=HeadTiming.WITH_BYTES) -> bytes:
    """What the client gets, with the texts of a stream joined."""
    rules = load_rules(block=["*"], fail=fail)
    guard = Guard(rules.policy, request_id="r", handlers=rules.handlers, head_timing=timing)
    guard.request_head("POST", PATH, list(request_headers))
    guard.request_body(request)
    guard.response_head(200, headers)
    out = []
    for at, start in enumerate(range(0, len(body), 1000)):
        out += guard.feed(body[start : start + 1000], float(at))
        if guard.must_stop:
            break
    else:
        out += guard.close(9.0).body
    assert guard.problems == 0
    data = b"".join(out)
    lines = (line.partition(b"data: ")[2] for line in data.split(b"\n"))
    deltas = (json.loads(line) for line in lines if line.startswith(b'{"id"'))
    return data + "".join(one["choices"][0]["delta"].get("content", "") for one in deltas).encode()


@pytest.mark.parametrize("fail", ["open", "closed"])
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_request_whose_coding_is_wrong_does_not_switch_a_block_off(is_stream, coding, fail):
    """Servers such as uvicorn ignore the header, and read the JSON."""
    head, body = ([EVENTS], stream(LEAK)) if is_stream else ([JSON], answer(LEAK))
    got = sent(head, body, fail=fail, request_headers=[(b"content-encoding", coding.encode())])
    assert SECRET.encode() not in got


@pytest.mark.parametrize("timing", list(HeadTiming))
@pytest.mark.parametrize("fail", ["open", "closed"])
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_an_answer_whose_coding_is_wrong_does_not_switch_a_block_off(is_stream, coding, fail, timing):
    """Clients that do not decode, or do not know the coding, show the body."""
    head, body = (EVENTS, stream(LEAK)) if is_stream else (JSON, answer(LEAK))
    got = sent([head, (b"content-encoding", coding.encode())], body, fail=fail, timing=timing)
    assert SECRET.encode() not in got


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_body_of_an_unknown_coding_passes_with_its_header_if_it_shows_no_leak(is_stream):
    body = gzip.compress(stream("Hello") if is_stream else answer("Hello"))
    rules = load_rules(block=["*"])
    guard = Guard(rules.policy, request_id="r", handlers=rules.handlers, head_timing=HeadTiming.WITH_BYTES)
    guard.request_head("POST", PATH, [])
    guard.request_body(REQUEST)
    guard.response_head(200, [EVENTS if is_stream else JSON, (b"content-encoding", b"odd")])
    out = [*guard.feed(body, 0.0), *guard.close(1.0).body]
    assert guard.head is not None
    assert (b"content-encoding", b"odd") in guard.head.headers
    assert (guard.head.status, b"".join(out)) == (200, body)


def test_a_stream_that_turns_out_not_to_be_compressed_is_read_from_its_beginning():
    """The part that could be decoded is not sent a second time."""
    body = gzip.compress(stream("Hello")[:-20]) + b"\x1f\x8b\x08broken" + stream(LEAK)
    assert SECRET.encode() not in sent([EVENTS, (b"content-encoding", b"gzip")], body, fail="open")


@pytest.mark.parametrize("fail", ["open", "closed"])
@pytest.mark.parametrize("media_type", ["application/x-ndjson", "application/ndjson", "application/jsonl"])
def test_events_under_the_name_of_json_lines_are_read(media_type, fail):
    """OpenAI's client reads events whatever the content type is."""
    assert SECRET.encode() not in sent([(b"content-type", media_type.encode())], stream(LEAK), fail=fail)
    harmless = stream("Hello")
    is_passed = sent([(b"content-type", media_type.encode())], harmless, fail=fail).startswith(harmless)
    assert is_passed is (fail == "open")


@pytest.mark.parametrize("timing", list(HeadTiming))
def test_a_leak_in_a_compressed_stream_without_its_end_is_blocked(timing):
    """Browsers show what they could decode."""
    held = f"assistant<|channel|>analysis {SECRET}"
    for leak in (LEAK, held):
        body = gzip.compress(stream(leak))[:-8]
        rules = load_rules(block=["*"])
        guard = Guard(rules.policy, request_id="r", handlers=rules.handlers, head_timing=timing)
        guard.request_head("POST", PATH, [])
        guard.request_body(REQUEST)
        guard.response_head(200, [EVENTS, (b"content-encoding", b"gzip")])
        out = [*guard.feed(body, 0.0)]
        out += [] if guard.must_stop else guard.close(1.0).body
        assert body not in out
        assert guard.must_stop
