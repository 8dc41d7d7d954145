"""The guard of one exchange: the same bytes out, or what those who act make of them, whatever they or we do wrong."""

import gzip
import json
import zlib
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_conformance.apis.registry import refine_api
from harmony_proxy.capture.recorder import End
from harmony_proxy.capture.routes import api_of
from harmony_proxy.configuration import load_rules
from harmony_proxy.guard.guard import Guard
from harmony_proxy.guard.response_head import HeadTiming
from harmony_proxy.policy.policy import OBSERVE_POLICY, Action, FailMode, Policy, Route
from harmony_proxy.policy.repair_interface import Actions, Handlers, RepairedAnswer

PATH = "/v1/chat/completions"
CHECK = "channels.no_marker_leak"
SSE = (b"content-type", b"text/event-stream")
JSON = (b"content-type", b"application/json")
EVENTS = b'data: {"choices":[{"index":0,"delta":{"content":"Gr\xc3\xbc\xc3\x9fe"}}]}\n\ndata: [DONE]\n\n'


class Shouting:
    """Acts on a stream: holds a piece, writes it in capitals, blocks at a word, fails at another."""

    def __init__(self, *_, **how):
        self.how = how
        self.held = b""
        self.is_terminated = False
        self.actions = Actions()

    def feed(self, data):
        if b"panic" in data:
            raise BaseException("of a tokenizer")  # noqa: TRY002
        if b"leak" in data:
            self.is_terminated, self.actions = True, Actions(blocked_checks=(CHECK,))
            return [b"error\n\n"]
        out, self.held = self.held, data
        return [out.upper()] if out else []

    def close(self):
        return [self.held.upper()]

    def abort(self):
        return [self.held.upper(), b"aborted"]


class Keeping(Shouting):
    """The same, and changes nothing."""

    def feed(self, data):
        if b"panic" in data:
            raise ZeroDivisionError
        out, self.held = self.held, data
        return [out] if out else []


class Waiting(Shouting):
    """Holds everything until the end, and changes nothing."""

    def feed(self, data):
        self.held += data
        return []

    def close(self):
        return [self.held]


class Accounting(Shouting):
    """The same, and says what it did when the stream is over."""

    def abort(self):
        self.actions = Actions(repair_counts={CHECK: 1})
        return super().abort()


def whole(x, actions, *, fallback):
    body = x.response.body
    if b"panic" in body:
        raise BaseException("of a tokenizer")  # noqa: TRY002
    if b"leak" in body:
        return RepairedAnswer(actions=Actions(blocked_checks=(CHECK,)))
    if b"mend" in body:
        return RepairedAnswer(body=b'{"mended": true}', actions=Actions(repair_counts={CHECK: 1}))
    return RepairedAnswer()


def acting(stream=Shouting, fail=FailMode.OPEN, limit=100_000, heads=HeadTiming.AT_ONCE):
    route = Route(actions=MappingProxyType({CHECK: Action.REPAIR}), fail=fail)
    actors = Handlers(open_stream=stream, repair_answer=whole, repairable_checks=frozenset({CHECK}))
    guard = Guard(Policy(routes=(route,)), request_id="run-1", limit=limit, handlers=actors, head_timing=heads)
    guard.request_head("POST", PATH, [(b"accept-encoding", b"gzip")])
    guard.request_body(b"{}")
    return guard


def through(guard, chunks, headers=(SSE,), status=200):
    """What the client gets: the head, the body, and whether it was stopped."""
    guard.response_head(status, list(headers))
    body = []
    for at, chunk in enumerate(chunks):
        body += guard.feed(chunk, float(at))
        if guard.must_stop:
            break
    else:
        body += guard.close(9.0).body
    return guard.head, b"".join(body)


def test_a_repair_keeps_what_the_server_wrote_and_masks_nothing(monkeypatch):
    """The search for secrets may take longer than the event loop may wait."""
    searched = []
    monkeypatch.setattr("harmony_conformance.transport.redaction.SecretFinder.find", lambda *_: searched.append(1))
    rules, key = load_rules(repair=["*"]), f"sk-{'aB1' * 20_000}"
    guard = Guard(rules.policy, request_id="run-1", handlers=rules.handlers)
    guard.request_head("POST", PATH, [(b"authorization", b"Bearer " + key.encode())])
    guard.request_body(b'{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}')
    message = {"role": "assistant", "content": f"<|channel|>final<|message|>You sent {key}, ok"}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    value = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    _, body = through(guard, [json.dumps(value).encode()], [JSON])
    assert json.loads(body)["choices"][0]["message"]["content"] == f"You sent {key}, ok"
    assert (searched, guard.problems) == ([], 0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_observed_every_byte_passes_at_once_at_every_split_whatever_it_is(data):
    body = data.draw(st.sampled_from([EVENTS, gzip.compress(EVENTS), b"{}"]) | st.binary(max_size=300))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=6)))
    chunks = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    headers = tuple(data.draw(st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=9)), max_size=3)))
    guard = Guard(OBSERVE_POLICY, request_id="x")
    assert guard.request_head("POST", PATH, headers) is headers
    guard.request_body(b"{}")
    head = guard.response_head(200, headers)
    assert (head.status, head.headers) == (200, headers)
    assert [guard.feed(chunk, 0.0) for chunk in chunks] == [[chunk] for chunk in chunks]
    closing = guard.close(1.0)
    assert (closing.body, guard.must_stop, guard.problems) == ([], False, 0)
    assert guard.recorder.response_body == body


CALLS = st.one_of(
    st.tuples(st.just("request_head"), st.text(max_size=5), st.text(max_size=5) | st.just(PATH), st.just([SSE])),
    st.tuples(st.just("request_body"), st.binary(max_size=20)),
    st.tuples(
        st.just("response_head"),
        st.integers(100, 599),
        st.lists(
            st.sampled_from(
                [SSE, JSON, (b"content-encoding", b"gzip"), (b"content-encoding", b"odd"), (b"\xff", b"\xff")]
            )
        ),
    ),
    st.tuples(
        st.just("feed"), st.binary(max_size=20) | st.sampled_from([EVENTS, b"panic", b"leak", b"mend"]), st.floats(0, 9)
    ),
    st.tuples(st.just("close"), st.floats(0, 9)),
    st.tuples(st.just("abort"), st.sampled_from(End), st.text(), st.floats()),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(CALLS, max_size=10), st.sampled_from(FailMode), st.integers(2048, 6000), st.sampled_from(HeadTiming))
def test_it_never_raises_whatever_it_is_told(calls, fail, limit, heads):
    guard = acting(fail=fail, limit=limit, heads=heads)
    for name, *arguments in calls:
        getattr(guard, name)(*arguments)
    guard.recorder.to_record("x", 0.0)


def test_acting_it_asks_for_plain_bodies_and_names_the_request():
    guard = acting()
    assert guard.request_head("POST", PATH, [(b"Accept-Encoding", b"br"), (b"a", b"b")]) == [
        (b"a", b"b"),
        (b"accept-encoding", b"identity"),
    ]
    head, body = through(guard, [b"abc", b"def"], [SSE, (b"Content-Length", b"6"), (b"x-harmony-request-id", b"no")])
    assert head.headers == (SSE, (b"x-harmony-request-id", b"run-1"))
    assert body == b"ABCDEF"
    assert guard.recorder.response_body == b"abcdef", "what is judged is what the server sent"


@pytest.mark.parametrize(
    ("body", "status", "verdict", "sent"),
    [
        (b'{"a": 1}', 200, b"pass", b'{"a": 1}'),
        (b'{"mend": 1}', 200, b"repaired; " + CHECK.encode(), b'{"mended": true}'),
    ],
)
def test_an_answer_in_one_piece_is_held_and_its_verdict_told(body, status, verdict, sent):
    guard = acting()
    assert guard.response_head(status, [JSON, (b"content-length", b"%d" % len(body))]) is None
    assert guard.feed(body[:3], 0.1) + guard.feed(body[3:], 0.2) == []
    closing = guard.close(0.3)
    headers = dict(closing.head.headers)
    assert (closing.head.status, b"".join(closing.body)) == (status, sent)
    assert headers[b"content-length"] == b"%d" % len(sent)
    assert (headers[b"x-harmony-verdict"], headers[b"x-harmony-request-id"]) == (verdict, b"run-1")


def test_a_blocked_answer_is_a_502_that_names_checks_and_quotes_nothing():
    head, body = through(acting(), [b'{"leak": "of Sue"}'], [JSON])
    assert head.status == 502
    assert json.loads(body)["error"]["message"] == f"The answer was blocked: {CHECK} (request run-1)"
    assert b"Sue" not in body + repr(head).encode()


def test_a_stream_that_is_blocked_stops_both_sides():
    guard = acting()
    _, body = through(guard, [b"abc", b"def", b"leak", b"never"])
    assert (body, guard.must_stop) == (b"ABCerror\n\n", True)
    assert guard.recorder.blocked_checks == (CHECK,)
    assert guard.feed(b"more", 1.0) == []


def test_a_stream_that_is_blocked_before_its_first_byte_can_still_be_a_502():
    guard = acting(heads=HeadTiming.WITH_BYTES)
    head, body = through(guard, [b"leak", b"never"])
    assert (head.status, guard.must_stop) == (502, True)
    assert json.loads(body)["error"]["code"] == "blocked_by_policy"
    guard = acting(heads=HeadTiming.WITH_BYTES)
    assert guard.response_head(200, [SSE]) is None
    assert (guard.feed(b"abc", 0.1), guard.head) == ([], None)
    assert guard.feed(b"def", 0.2) == [b"ABC"]
    assert guard.head.status == 200


@pytest.mark.parametrize("heads", HeadTiming)
def test_every_stream_has_a_head_at_its_end(heads):
    for end in (lambda guard: guard.close(1.0), lambda guard: guard.abort(End.CUT, "", 1.0)):
        guard = acting(heads=heads)
        guard.response_head(200, [SSE])
        end(guard)
        assert guard.head.status == 200


FAILING = [
    pytest.param(Keeping, FailMode.OPEN, b"abcdpanic!", False, id="open and unchanged: it passes as it came"),
    pytest.param(Keeping, FailMode.CLOSED, b'abdata: {"error"', True, id="closed: it ends with an error"),
    pytest.param(
        Shouting, FailMode.OPEN, b'ABdata: {"error"', True, id="open and changed: what is held is lost, and said"
    ),
]


@pytest.mark.parametrize(("stream", "fail", "sent", "stopped"), FAILING)
def test_an_error_of_ours_in_a_stream_goes_by_the_policy(stream, fail, sent, stopped):
    guard = acting(stream, fail)
    _, body = through(guard, [b"ab", b"cd", b"panic", b"!"])
    assert (body[: len(sent)], guard.must_stop, guard.problems) == (sent, stopped, 1)
    assert guard.recorder.unrepaired_reasons == {"*": "an internal error"}


@pytest.mark.parametrize(("fail", "status"), [(FailMode.OPEN, 200), (FailMode.CLOSED, 502)])
@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'{"panic": 1}', [JSON]),
        (b"x" * 6000, [JSON]),
        (b"no gzip", [JSON, (b"content-encoding", b"gzip")]),
        (b"x", [SSE, (b"content-encoding", b"odd")]),
        (gzip.compress(b"x"), [SSE, (b"content-encoding", b"gzip"), (b"content-encoding", b"br")]),
        (b"no gzip", [SSE, (b"content-encoding", b"gzip")]),
        (gzip.compress(b"x" * 6000), [SSE, (b"content-encoding", b"gzip")]),
        (gzip.compress(b"x")[:-1], [SSE, (b"content-encoding", b"gzip")]),
    ],
    ids=[
        *("an internal error", "too large", "not what it says it is", "packed as nobody knows", "packed twice"),
        *("a stream that is not what it says it is", "a stream too large", "a stream that ends within its encoding"),
    ],
)
def test_what_cannot_be_examined_passes_or_is_blocked_and_is_logged(body, headers, fail, status):
    guard = acting(Waiting, fail=fail, limit=5000, heads=HeadTiming.WITH_BYTES)
    head, sent = through(guard, [body], headers)
    assert head.status == status
    assert (sent == body) is (fail is FailMode.OPEN)
    assert guard.recorder.unrepaired_reasons["*"]


def test_a_packed_stream_that_comes_all_the_same_is_unpacked():
    packed = gzip.compress(b"abcdef")
    head, body = through(acting(), [packed[:9], packed[9:]], [SSE, (b"content-encoding", b"gzip")])
    assert body == b"ABCDEF"
    assert b"content-encoding" not in dict(head.headers)


def test_a_packed_stream_of_which_the_client_has_had_something_ends_with_an_error_where_it_is_cut():
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    packed = packer.compress(b"ab") + packer.flush(zlib.Z_SYNC_FLUSH)
    guard = acting()
    _, body = through(
        guard, [packed, packer.compress(b"cd") + packer.flush()[:-1]], [SSE, (b"content-encoding", b"gzip")]
    )
    assert body.startswith(b'ABdata: {"error"')
    assert (guard.must_stop, guard.problems) == (True, 0)
    assert guard.recorder.unrepaired_reasons == {"*": "truncated gzip body"}


def test_a_stream_that_breaks_off_is_told_with_what_was_held():
    guard = acting()
    guard.response_head(200, [SSE])
    guard.feed(b"abc", 0.1)
    assert b"".join(guard.abort(End.CUT, "", 0.2).body) == b"ABCaborted"


@pytest.mark.parametrize("end", [End.CLIENT_LEFT, End.SHUT_DOWN])
def test_what_was_done_to_a_stream_is_known_although_nobody_waited_for_its_end(end):
    """The official client closes on `[DONE]`: the end of the body is not seen, and what was done is found out at the end."""
    guard = acting(stream=Accounting)
    guard.response_head(200, [SSE])
    guard.feed(EVENTS, 0.1)
    assert guard.abort(end, "", 0.2).body == []
    assert guard.recorder.repair_counts == {CHECK: 1}


def test_a_held_answer_that_breaks_off_is_a_502():
    guard = acting()
    guard.response_head(200, [JSON])
    guard.feed(b"{", 0.1)
    closing = guard.abort(End.CUT, "", 0.2)
    assert (closing.head.status, b"broke off" in closing.body[0]) == (502, True)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/embeddings", "/"])
def test_what_is_no_api_of_ours_is_observed(path):
    guard = acting()
    observed = Guard(guard._policy, request_id="x", handlers=guard._handlers)
    headers = [(b"accept-encoding", b"gzip")]
    assert observed.request_head("POST", path, headers) is headers
    assert observed.observes


def test_a_path_that_servers_read_as_another_has_the_rules_of_that():
    route = Route(path="/v1/chat/completions", actions=MappingProxyType({CHECK: Action.BLOCK}))
    actors = Handlers(open_stream=Shouting, repair_answer=whole, repairable_checks=frozenset())
    for path in ("/v1/chat/completions", "/v1/x/../chat//completions", "/v1/%63hat/completions/"):
        guard = Guard(Policy(routes=(route,)), request_id="1", handlers=actors)
        guard.request_head("POST", path, [])
        assert not guard.observes


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/completion", "llamacpp-completion"),
        ("/v1/completions", "completions"),
        ("/v1/completion", ""),
        ("/sglang/generate", "sglang-generate"),
        ("/separate_reasoning", "sglang-generate"),
        ("/sglang/parse_function_call", "sglang-generate"),
        ("/v1/tokenize", ""),
        ("/v1/chat/x/../completions", "chat"),
        ("//v1/./chat//completions", "chat"),
        ("/v1/chat/completions/../models", ""),
        ("/v1/chat/completions/", "chat"),
        ("/v1/chat/completion%73", "chat"),
        ("/v1/chat%2Fx/%2e%2E/completions/", "chat"),
    ],
)
def test_the_end_of_a_path_tells_its_api(path, api):
    assert api_of(path) == api


@pytest.mark.parametrize(
    ("body", "api"),
    [({"inputs": "Hi"}, "tgi-generate"), ({"text": "Hi"}, "sglang-generate"), ({"input_ids": [1]}, "sglang-generate")],
)
def test_the_name_of_the_prompt_tells_whose_generate_it_is(body, api):
    assert refine_api(api_of("/generate"), body) == api


WORD = b'data: {"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n'
JUDGED = {
    "a marker": WORD % b"<|",
    "an escape": WORD % b"\\u0061ssistant",
    "a word of a header": WORD % b"analysis",
    "a finish reason": WORD.replace(b"null", b'"stop"') % b"Hi",
    "the end": b"data: [DONE]\n\n",
    "a name": b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"f"}}]}}]}\n\n',
    "the end of a response": b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
    "the last line": b'{"done": true}\n',
}


@pytest.mark.parametrize("name", JUDGED)
def test_an_event_that_may_be_judged_is_told_from_one_that_is_not(name):
    rules = load_rules(block=["channels.*"], fail="closed")
    guard = Guard(rules.policy, request_id="run-1", handlers=rules.handlers)
    guard.request_head("POST", PATH, [])
    guard.request_body(b"{}")
    assert guard.may_be_judged(WORD % b" Hello"), "there is no stream yet"
    guard.response_head(200, [SSE])
    assert guard.feed(WORD % b" Hello", 0.0)
    for data in (
        WORD % b" there",
        b'data: {"type":"response.output_text.delta","delta":"Hi"}\n\n',
        b'{"done": false}\n',
    ):
        assert not guard.may_be_judged(data)
    assert guard.may_be_judged(JUDGED[name])
    assert guard.feed(WORD % b" you.<|", 0.0) == []
    assert guard.may_be_judged(WORD % b" there"), "an event waits for a verdict"


@pytest.mark.parametrize("rest", [b"", b"<|channel|>analysis<|message|>A secret.", gzip.compress(b" ", mtime=0)])
def test_of_a_compressed_answer_the_client_gets_what_was_examined(rest):
    rules = load_rules(block=["channels.*"], fail="closed")
    guard = Guard(rules.policy, request_id="run-1", handlers=rules.handlers)
    guard.request_head("POST", PATH, [])
    guard.request_body(b'{"messages": [{"role": "user", "content": "Hi"}]}')
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hello!"}, "finish_reason": "stop"}
    value = {"id": "c", "choices": [choice]}
    head, body = through(
        guard, [gzip.compress(json.dumps(value).encode()) + rest], [JSON, (b"content-encoding", b"gzip")]
    )
    assert (head.status, json.loads(body)) == (200, value)
    assert b"content-encoding" not in dict(head.headers)
    assert dict(head.headers)[b"content-length"] == b"%d" % len(body)
