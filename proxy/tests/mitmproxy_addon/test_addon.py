"""The pitfalls of mitmproxy, one by one, without a socket. What only a running proxy shows is in `test_live_proxy`."""

import asyncio
import json
import logging
import re
import runpy
import socket
import sys
import threading
import time
import urllib.request
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

pytest.importorskip("mitmproxy")

from mitmproxy import exceptions
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.flow import Error
from mitmproxy.http import Response
from mitmproxy.test import taddons, tflow, tutils

from harmony_proxy import addon as module
from harmony_proxy.addon import Configured
from harmony_proxy.capture.build_exchange import build_exchange
from harmony_proxy.capture.memory_budget import MemoryBudget
from harmony_proxy.capture.recorder import End, RecordedExchange, Recorder
from harmony_proxy.configuration import Rules, load_rules
from harmony_proxy.guard.guard import Guard
from harmony_proxy.judging.queue_codec import decode_exchange
from harmony_proxy.mitmproxy_addon import hooks
from harmony_proxy.mitmproxy_addon.hooks import ConformanceAddon
from harmony_proxy.policy.policy import Action, FailMode, Policy, Route
from harmony_proxy.policy.repair_interface import LARGE_BYTES, Actions, Handlers, RepairedAnswer
from harmony_ref.extras import install_command

CHECK = "channels.no_marker_leak"


class Hands:
    """Stands for the judging: keeps what it is handed."""

    memory, captures = MemoryBudget(), False

    def __init__(self):
        self.handed: list[RecordedExchange] = []
        self.problems = 0

    def enqueue(self, exchange, size):
        self.handed.append(decode_exchange(exchange))

    def count_problem(self):
        self.problems += 1

    @property
    def passages(self):
        return [build_exchange(handed) for handed in self.handed]


class Shouting:
    """Acts on a stream: what arrives is held until a line is whole, and then in capitals; `BAD` blocks."""

    def __init__(self, *_, **__):
        self.held = b""
        self.is_terminated = False

    @property
    def actions(self):
        return Actions(blocked_checks=(CHECK,)) if self.is_terminated else Actions(repair_counts={CHECK: 1})

    def feed(self, data):
        if self.is_terminated:
            return []
        self.held += data
        whole, line, self.held = self.held.rpartition(b"\n")
        if b"BAD" in whole:
            self.is_terminated = True
            return [b"data: blocked\n"]
        return [(whole + line).upper()] if line else []

    def close(self):
        return [self.held.upper()]

    def abort(self):
        return [self.held, b"data: broken off\n"]


def shout(x, actions, *, fallback):
    if b"SLOW" in x.response.body:
        time.sleep(0.3)
    if b"BAD" in x.response.body:
        return RepairedAnswer(actions=Actions(blocked_checks=(CHECK,)))
    return RepairedAnswer(body=x.response.body.upper() + b"!", actions=Actions(repair_counts={CHECK: 1}))


def rules(fail=FailMode.OPEN):
    route = Route(path="*/chat/completions", actions={CHECK: Action.REPAIR}, fail=fail)
    return Rules(
        policy=Policy(routes=(route,)),
        handlers=Handlers(open_stream=Shouting, repair_answer=shout, repairable_checks=frozenset({CHECK})),
    )


@pytest.fixture
def hands():
    return Hands()


@pytest.fixture(autouse=True)
def context():
    with taddons.context(Proxyserver()) as told:
        yield told


@pytest.fixture
def addon(hands):
    return ConformanceAddon(hands)


@pytest.fixture
def acting(hands):
    return ConformanceAddon(hands, rules=rules())


def flow(kind=b"text/event-stream", *further, path=b"/v1/chat/completions?key=k", content=None):
    """As it is when the response begins: without a body yet."""
    made = tflow.tflow(
        req=tutils.treq(
            method=b"POST",
            path=path,
            content=json.dumps({"messages": []}).encode(),
            headers=((b"authorization", b"Bearer sk-123456"), (b"accept-encoding", b"gzip")),
        )
    )
    made.response = tutils.tresp(headers=((b"content-type", kind), *further), content=content)
    return made


def without_response():
    made = flow()
    made.response = None
    return made


def begin(addon, watched):
    addon.requestheaders(watched)
    addon.request(watched)
    addon.responseheaders(watched)
    return watched.response.stream


def passed_on(stream, *chunks):
    """What the client gets: what the callable returns, as mitmproxy sends it."""
    sent = []
    for chunk in chunks:
        returned = stream(chunk)
        if chunk == b"" and returned == b"":
            continue  # as mitmproxy does at the end of the message, and only there
        sent += [returned] if isinstance(returned, bytes) else list(returned)
    return sent


def held(addon, watched, body):
    """What mitmproxy does with a response that does not stream."""
    assert begin(addon, watched) is False
    watched.response.raw_content = body
    asyncio.run(waited(addon.response(watched)))
    return watched.response


async def waited(release):
    await release


def test_a_response_streams_because_it_is_told_to_when_its_head_is_there(addon):
    watched = flow()
    assert watched.response.stream is False
    assert callable(begin(addon, watched))


def test_every_chunk_is_passed_on_at_once_and_unchanged(addon, hands):
    watched = flow()
    stream = begin(addon, watched)
    chunks = [b"data: 1\n", b"\ndata: [DO", b"NE]\n\n"]
    assert passed_on(stream, *chunks) == chunks
    addon.response(watched)
    (told,) = hands.passages
    assert told.exchange.response.body == b"".join(chunks)
    assert (told.record.path, told.end) == ("/v1/chat/completions", End.COMPLETE)


@pytest.mark.parametrize("acts", [False, True], ids=["observing", "acting"])
def test_an_empty_chunk_is_never_passed_on_since_it_would_end_the_stream(hands, acts):
    watched = flow()
    stream = begin(ConformanceAddon(hands, rules=rules() if acts else None), watched)
    assert b"" not in passed_on(stream, b"a\n", b"b", b"c", b"\n", b"")
    assert stream(b"") == []


def test_headers_are_the_same_where_it_observes(addon):
    watched = flow(b"application/json", (b"content-length", b"2"), (b"x-mine", b"1"))
    asked, answered = watched.request.headers.fields, watched.response.headers.fields
    begin(addon, watched)
    assert (watched.request.headers.fields, watched.response.headers.fields) == (asked, answered)


def test_only_where_it_acts_the_server_is_asked_for_plain_bodies(acting, hands):
    watched = flow()
    begin(acting, watched)
    assert watched.request.headers.get_all("accept-encoding") == ["identity"]
    elsewhere = flow(path=b"/v1/models")
    begin(acting, elsewhere)
    assert elsewhere.request.headers["accept-encoding"] == "gzip"


def test_a_stream_that_is_acted_on_goes_in_chunks_under_our_id(acting):
    watched = flow(b"text/event-stream", (b"content-length", b"12"))
    begin(acting, watched)
    assert "content-length" not in watched.response.headers
    assert watched.response.headers["transfer-encoding"] == "chunked"
    assert watched.response.headers["x-harmony-request-id"].endswith("-1")


def test_a_client_is_told_that_its_connection_ends_with_a_stream_that_may_be_blocked(acting, addon):
    """It is closed behind a block; one that was not told may send its next request there, and never get an answer."""
    for shell, version, told in (
        (acting, "HTTP/1.1", "close"),
        (acting, "HTTP/2.0", None),
        (addon, "HTTP/1.1", None),
    ):
        watched = flow(b"text/event-stream")
        watched.request.http_version = version
        begin(shell, watched)
        assert watched.response.headers.get("connection") == told


def test_a_client_of_http_1_0_or_2_is_told_of_no_chunks(acting):
    for version in ("HTTP/1.0", "HTTP/2.0"):
        watched = flow(b"text/event-stream", (b"content-length", b"12"))
        watched.request.http_version = version
        begin(acting, watched)
        assert "transfer-encoding" not in watched.response.headers


def test_what_was_held_is_given_out_at_the_last_call(acting, hands):
    watched = flow()
    stream = begin(acting, watched)
    assert passed_on(stream, b"one\ntw", b"o") == [b"ONE\n"]
    assert stream(b"") == [b"TWO"]
    acting.response(watched)
    (told,) = hands.passages
    assert told.exchange.response.body == b"one\ntwo"  # what the server sent
    assert told.record.repair_counts == {CHECK: 1}


@pytest.mark.parametrize("broken", ["feed", "response_head", "request_head", "request_body", "end"])
def test_an_error_of_ours_never_touches_the_traffic(addon, hands, monkeypatch, broken):
    def fail(*_):
        raise RuntimeError("ours")

    monkeypatch.setattr(Recorder, broken, fail)
    watched = flow()
    stream = begin(addon, watched)
    assert passed_on(stream, b"a", b"b", b"") == [b"a", b"b"]
    addon.response(watched)
    assert hands.problems >= 1
    assert len(addon) == 0


@pytest.mark.parametrize("broken", ["feed", "response_head", "request_head", "close"])
def test_not_even_one_that_the_guard_lets_out(acting, hands, monkeypatch, broken):
    def fail(*_):
        raise RuntimeError("ours")

    monkeypatch.setattr(Guard, broken, fail)
    watched = flow()
    stream = begin(acting, watched)
    sent = b"".join(passed_on(stream, b"a\n", b"b\n", b"")) if callable(stream) else b"a\nb\n"
    assert sent.lower() == b"a\nb\n"
    assert hands.problems >= 1


@pytest.mark.parametrize("fail", FailMode)
def test_one_who_acts_and_fails_in_a_stream_lets_it_pass_or_ends_it(hands, monkeypatch, fail):
    addon = ConformanceAddon(hands, rules=rules(fail))
    watched = flow()
    stream = begin(addon, watched)
    assert passed_on(stream, b"ONE\n") == [b"ONE\n"]
    monkeypatch.setattr(Shouting, "feed", lambda *_: 1 / 0)
    monkeypatch.setattr(hooks, "abort_server", lambda _: True)
    sent = passed_on(stream, b"TWO", b"\n", b"THREE", b"")
    if fail is FailMode.OPEN:
        assert sent == [b"TWO", b"\n", b"THREE"]
    else:
        assert b"not_examined" in sent[0]
        assert sent[1:] == [b""]
    assert hands.handed == []


def test_an_answer_in_one_piece_that_is_acted_on_is_held_and_has_its_new_length(acting, hands):
    answered = held(acting, flow(b"application/json", (b"content-length", b"2")), b"{}")
    assert (answered.raw_content, answered.headers["content-length"]) == (b"{}!", "3")
    assert answered.headers["x-harmony-verdict"].startswith("repaired; ")
    assert (len(acting), hands.problems) == (0, 0)
    assert hands.passages[0].exchange.response.body == b"{}"


def test_one_that_is_blocked_is_a_502_without_a_word_of_it(acting, hands):
    answered = held(acting, flow(b"application/json"), b'{"secret": "BAD"}')
    assert (answered.status_code, answered.reason) == (502, "Bad Gateway")
    assert CHECK.encode() in answered.raw_content
    assert b"secret" not in answered.raw_content
    assert hands.passages[0].record.blocked_checks == (CHECK,)


def test_one_in_an_unknown_encoding_is_examined_or_refused(hands):
    for fail, status in ((FailMode.OPEN, 200), (FailMode.CLOSED, 502)):
        addon = ConformanceAddon(hands, rules=rules(fail))
        watched = flow(b"application/json", (b"content-encoding", b"snappy"))
        if fail is FailMode.OPEN:
            assert held(addon, watched, b"abc").raw_content == b"ABC!"  # examined undecoded, so the repair applies
        else:
            held(addon, watched, b"abc")
        assert watched.response.status_code == status


def test_a_packed_body_is_observed_as_it_is(addon, hands):
    import gzip

    packed = gzip.compress(b"data: [DONE]\n\n")
    watched = flow(b"text/event-stream", (b"content-encoding", b"gzip"))
    assert b"".join(passed_on(begin(addon, watched), packed[:9], packed[9:], b"")) == packed
    addon.response(watched)
    assert hands.passages[0].exchange.response.body == b"data: [DONE]\n\n"


def test_while_one_answer_is_acted_on_the_loop_goes_on(acting):
    async def measured():
        watched = flow(b"application/json")
        begin(acting, watched)
        watched.response.raw_content = b"SLOW"
        release = asyncio.ensure_future(waited(acting.response(watched)))
        longest = 0.0
        while not release.done():
            begun = time.perf_counter()
            await asyncio.sleep(0.005)
            longest = max(longest, time.perf_counter() - begun)
        return longest

    assert asyncio.run(measured()) < 0.25


def test_nothing_is_judged_in_the_loop(addon, hands, monkeypatch):
    def judged(*_):
        raise AssertionError("judged in the data path")

    monkeypatch.setattr("harmony_conformance.judge.judge.judge", judged)
    monkeypatch.setattr("harmony_proxy.guard.guard.build_exchange", judged)
    watched = flow()
    passed_on(begin(addon, watched), b"data: x\n\n", b"")
    addon.response(watched)
    assert (len(hands.handed), hands.problems) == (1, 0)


class Task(asyncio.Task):
    """Stands for the one that reads what a server sends."""

    def __init__(self):
        self.cancelled = []

    def cancel(self, msg=None):
        self.cancelled.append(msg)
        return True


class Connections:
    """Stands for mitmproxy's proxyserver, as far as breaking off a server goes."""

    def __init__(self, watched):
        self.task = Task()
        transports = {watched.server_conn: SimpleNamespace(handler=self.task)}
        self.connections = {1: SimpleNamespace(transports={}), 2: SimpleNamespace(transports=transports)}


@dataclass
class Blocked:
    """A stream that was blocked in its middle."""

    watched: object
    stream: object
    sent: list


@pytest.fixture
def blocked(acting):
    def block(server):
        watched = flow()
        if server is not None:
            server(watched)
        stream = begin(acting, watched)
        return Blocked(watched, stream, passed_on(stream, b"one\n", b"BAD\n"))

    return block


def test_a_block_in_the_middle_aborts_the_server_and_ends_the_answer(blocked, acting, hands, monkeypatch):
    told = []

    def server(watched):
        told.append(Connections(watched))
        monkeypatch.setattr(hooks, "Proxyserver", Connections)
        monkeypatch.setattr(hooks.ctx.master.addons, "get", lambda name: told[0])

    one = blocked(server)
    assert one.sent == [b"ONE\n", b"data: blocked\n", b""]  # the last ends the chunks: nothing comes after it
    assert len(told[0].task.cancelled) == 1
    one.watched.error = Error("peer closed connection")
    acting.error(one.watched)
    assert [passage.end for passage in hands.passages] == [End.BLOCKED]
    assert hands.passages[0].record.blocked_checks == (CHECK,)


def test_a_block_whose_server_has_already_said_all_ends_the_chunks_once(blocked, acting, hands, monkeypatch):
    def server(watched):
        there = Connections(watched)
        watched.live = True
        monkeypatch.setattr(hooks, "Proxyserver", Connections)
        monkeypatch.setattr(hooks.ctx.master.addons, "get", lambda name: there)

    one = blocked(server)
    assert one.sent[-1] == b""
    assert passed_on(one.stream, b"more\n", b"") == []
    acting.response(one.watched)
    assert one.watched.error.msg == Error.KILLED_MESSAGE  # or mitmproxy would end them again, and keep the connection
    assert [passage.end for passage in hands.passages] == [End.BLOCKED]


@pytest.mark.parametrize("missing", ["not there", "of another form"])
def test_where_the_server_cannot_be_aborted_the_rest_is_swallowed(blocked, acting, hands, monkeypatch, missing):
    if missing == "of another form":
        monkeypatch.setattr(hooks, "Proxyserver", object)
        monkeypatch.setattr(hooks.ctx.master.addons, "get", lambda name: SimpleNamespace(connections=None))
    one = blocked(None)
    assert one.sent == [b"ONE\n", b"data: blocked\n"]
    assert passed_on(one.stream, b"more\n", b"and more\n", b"") == []
    acting.response(one.watched)
    assert [passage.end for passage in hands.passages] == [End.BLOCKED]
    assert len(acting) == 0


def test_a_server_over_http_2_is_not_aborted_since_others_share_the_connection(blocked):
    def server(watched):
        watched.response.http_version = "HTTP/2.0"

    assert blocked(server).sent == [b"ONE\n", b"data: blocked\n"]


def test_a_stream_that_is_not_watched_still_streams(addon):
    watched = flow()
    addon.responseheaders(watched)
    assert watched.response.stream is True
    addon.response(watched)


@pytest.mark.parametrize("acts", [False, True], ids=["observing", "acting"])
@pytest.mark.parametrize(
    ("message", "has_response", "end"),
    [
        ("Client disconnected.", True, End.CLIENT_LEFT),
        ("Client disconnected.", False, End.CLIENT_LEFT),
        ("HTTP/1 protocol error: peer closed connection", True, End.CUT),
        ("server closed connection", False, End.RESET),
    ],
)
def test_how_a_flow_broke_off_is_told_and_it_is_forgotten(hands, message, has_response, end, acts):
    addon = ConformanceAddon(hands, rules=rules() if acts else None)
    watched = flow() if has_response else without_response()
    begin(addon, watched) if has_response else addon.requestheaders(watched)
    assert len(addon) == 1
    watched.error = Error(message)
    addon.error(watched)
    assert [passage.end for passage in hands.passages] == [end]
    assert len(addon) == 0


def test_a_server_that_was_never_reached_is_no_connection(addon, hands):
    watched = without_response()
    watched.server_conn.timestamp_tcp_setup = None
    addon.requestheaders(watched)
    addon.request(watched)
    watched.error = Error("[Errno 111] Connect call failed")
    addon.error(watched)
    (told,) = hands.passages
    assert (told.end, told.record.status) == (End.NO_CONNECTION, None)


def test_hooks_without_a_response_or_a_request_of_ours_do_nothing(addon, hands):
    for hook in (addon.responseheaders, addon.response, addon.error, addon.request):
        hook(without_response())
    assert (hands.handed, hands.problems) == ([], 0)


def test_an_answer_that_an_addon_made_is_no_server_s(addon, hands):
    watched = without_response()
    addon.requestheaders(watched)
    watched.response = Response.make(200, b"from an addon", {"content-type": "text/plain"})
    addon.responseheaders(watched)
    addon.response(watched)
    assert (watched.response.stream, watched.response.content, hands.handed) == (False, b"from an addon", [])
    assert len(addon) == 0


def test_a_websocket_is_left_alone_and_forgotten(acting, hands):
    watched = flow()
    watched.request.method = "GET"
    watched.response = Response(b"HTTP/1.1", 101, b"", tutils.tresp().headers, None, None, 0, None)
    assert begin(acting, watched) is False
    assert acting.response(watched) is None
    assert len(acting) == 0


def test_nothing_is_retained_of_many_flows(addon, hands):
    for number in range(30):
        watched = flow()
        passed_on(begin(addon, watched), b"data: x\n\n")
        assert len(addon) == 1
        if number % 2:
            addon.response(watched)
        else:
            watched.error = Error("Client disconnected.")
            addon.error(watched)
        addon.response(watched)  # whatever comes after the end
        addon.error(watched)
        assert len(addon) == 0
    assert len(hands.handed) == 30
    assert len({handed.id for handed in hands.handed}) == 30


def test_what_is_still_going_on_is_handed_over_in_the_end(addon, hands):
    watched = flow()
    passed_on(begin(addon, watched), b"a")
    addon.shut_down()
    assert [passage.end for passage in hands.passages] == [End.SHUT_DOWN]
    assert len(addon) == 0


def test_an_upstream_whose_api_is_not_at_its_root_gets_its_prefix(hands):
    addon = ConformanceAddon(hands, prefix="/api")
    watched = flow()
    begin(addon, watched)
    assert watched.request.path == "/api/v1/chat/completions?key=k"
    addon.response(watched)
    assert hands.passages[0].record.path == "/v1/chat/completions"


def test_a_request_that_mitmproxy_streams_is_noted_as_it_goes_by(addon, hands, context):
    context.options.update(stream_large_bodies="1")
    watched = flow()
    addon.requestheaders(watched)
    assert passed_on(watched.request.stream, b'{"messages', b'": []}', b"") == [b'{"messages', b'": []}']
    addon.request(watched)
    addon.responseheaders(watched)
    addon.response(watched)
    assert hands.passages[0].exchange.request.body == b'{"messages": []}'


@pytest.fixture
def configured(context):
    one = Configured()
    context.master.addons.add(one)
    return one


def test_options_of_mitmproxy_s_own_set_it(configured, context, tmp_path):
    context.configure(configured, harmony_log=str(tmp_path / "log.jsonl"), harmony_excerpts="redacted")
    assert configured.addons[0].rules.policy.observes
    with pytest.raises(exceptions.OptionsError, match="read at the start"):
        context.configure(configured, harmony_excerpts="full")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"harmony_policy": "/no/such/file"}, "No such file"),
        ({"harmony_log": "/no/such/folder/log"}, "harmony_log: /no/such/folder/log: No such file"),
        ({"harmony_fail": "perhaps"}, "harmony_fail"),
        ({"harmony_excerpts": "some"}, "harmony_excerpts"),
        ({"harmony_metrics": "9464"}, "harmony_metrics: invalid address: expected HOST:PORT"),
        ({"harmony_reasoning_field": "reasoning"}, "harmony_reasoning_field requires harmony_repair"),
        ({"harmony_reasoning_field": "thought", "harmony_repair": ["*"]}, "invalid reasoning_field"),
    ],
)
def test_what_cannot_be_set_is_said(configured, context, options, said):
    with pytest.raises(exceptions.OptionsError, match=said):
        context.configure(configured, **options)


def test_no_answer_may_pass_a_policy_because_it_is_large(configured, context, monkeypatch):
    monkeypatch.setattr(module, "load_rules", lambda *_, **__: rules())
    with pytest.raises(exceptions.OptionsError, match="stream_large_bodies"):
        context.configure(configured, stream_large_bodies="1m", harmony_repair=[CHECK])


def test_http_2_is_warned_of_since_one_client_gets_five_connections(configured, context, caplog, monkeypatch):
    monkeypatch.setattr(module, "JudgeQueue", lambda *_, **__: SimpleNamespace(start=lambda: None))
    for is_on, times in ((False, 0), (True, 1)):
        configured.addons = []
        context.options.update(http2=is_on)
        with caplog.at_level(logging.WARNING):
            configured.running()
        assert caplog.text.count("--set http2=false") == times


def test_where_mitmproxy_is_not_installed_the_path_is_refused_in_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mitmproxy", None)
    with pytest.raises(
        SystemExit, match=re.escape(f"mitmproxy is not installed: {install_command('mitmproxy')}") + "$"
    ):
        runpy.run_module("harmony_proxy.addon", run_name="__main__")
    assert capsys.readouterr().out == ""


def test_the_path_for_mitmdump_is_printed_and_can_be_loaded(context, capsys):
    runpy.run_module("harmony_proxy.addon", run_name="__main__")
    printed = capsys.readouterr().out.strip()
    assert printed == str(module.__file__)
    (configured,) = context.script(printed).addons
    assert type(configured).__name__ == "Configured"


BLOCKING = {"block": ["channels.no_marker_leak"]}


def asked(addon, path=b"/v1/chat/completions"):
    """A request that was sent through the addon, with the response that this made."""
    one = flow(path=path)
    one.response = None
    addon.requestheaders(one)
    return one


@pytest.mark.parametrize(("fail", "status"), [("open", None), ("closed", 403)])
def test_an_unknown_path_is_counted_and_refused_by_a_policy_that_fails_closed(hands, fail, status):
    addon = ConformanceAddon(hands, rules=load_rules(**BLOCKING, fail=fail))
    one = asked(addon, b"/v1/chat/completions%20")
    gauges = addon.gauges
    assert (one.response.status_code if one.response is not None else None) == status
    assert len(addon) == (status is None)
    assert (gauges.unknown_passed, gauges.unknown_refused) == ((1, 0) if fail == "open" else (0, 1))
    assert [(one.end, one.status) for one in hands.handed] == ([] if fail == "open" else [(End.REFUSED, 403)])
    asked(addon, b"/v1/chat/completions")
    assert (gauges.unknown_passed, gauges.unknown_refused) == ((1, 0) if fail == "open" else (0, 1))
    assert gauges.exchanges_open == len(addon)


@pytest.mark.parametrize(("fail", "status"), [("open", None), ("closed", 503)])
def test_with_no_memory_left_a_policy_that_fails_closed_refuses_requests(hands, fail, status):
    hands.memory = MemoryBudget(2**24)
    while hands.memory.take(2**20):
        pass
    addon = ConformanceAddon(hands, rules=load_rules(**BLOCKING, fail=fail))
    one = asked(addon)
    assert (one.response.status_code if one.response is not None else None) == status
    assert [(one.end, one.status) for one in hands.handed] == ([] if fail == "open" else [(End.REFUSED, 503)])
    assert len(addon) == addon.gauges.exchanges_open == (fail == "open")
    if status is not None:
        assert json.loads(one.response.content)["error"]["code"] == "memory_limit"


def test_the_memory_of_a_request_that_another_addon_answers_is_given_back(hands):
    hands.memory = MemoryBudget()
    addon = ConformanceAddon(hands)
    one = asked(addon)
    one.request.raw_content = b"x" * 2**20
    addon.request(one)
    assert hands.memory.used_bytes
    one.response = Response.make(200, b"mine")
    addon.responseheaders(one)
    assert (hands.memory.used_bytes, addon.gauges.exchanges_open) == (0, 0)


def test_an_answer_counts_as_held_while_it_is_complete_for_a_repair(acting):
    one = flow(b"application/json")
    begin(acting, one)
    one.response.raw_content = b"{}"
    assert (acting.gauges.responses_buffered, acting.gauges.exchanges_open) == (1, 1)
    asyncio.run(acting.response(one))
    assert (acting.gauges.responses_buffered, acting.gauges.exchanges_open) == (0, 0)


def test_the_reasoning_field_is_named_as_the_client_does(configured, context, hands):
    context.configure(configured, harmony_repair=["*"], harmony_reasoning_field="reasoning_content")
    rules = configured.addons[0].rules
    guard = Guard(rules.policy, request_id="1", handlers=rules.handlers)
    guard.request_head("POST", "/v1/chat/completions", [])
    guard.request_body(b'{"messages": []}')
    message = {"role": "assistant", "content": "Hello.", "reasoning": "They greet."}
    guard.response_head(200, [(b"content-type", b"application/json")])
    guard.feed(json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}).encode(), 0.1)
    (body,) = guard.close(0.2).body
    assert json.loads(body)["choices"][0]["message"]["reasoning_content"] == "They greet."


def test_metrics_are_served_with_what_was_refused(configured, context):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    context.configure(configured, harmony_block=[CHECK], harmony_fail="closed", harmony_metrics=f"127.0.0.1:{port}")
    configured.running()
    try:
        asked(configured.addons[0], b"/v1/other")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
    finally:
        configured.done()
    assert 'harmony_guard_unknown_paths_total{action="refused"} 1.0' in text
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)


def test_an_address_of_metrics_that_is_in_use_is_logged(configured, context, caplog, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as used:
        context.configure(configured, harmony_metrics=f"127.0.0.1:{used.getsockname()[1]}")
        configured.running()
        configured.done()
    assert "harmony_metrics: metrics at 127.0.0.1:" in caplog.text


def test_a_response_to_a_large_request_begins_in_a_thread(acting, monkeypatch):
    threads, begin = [], Guard.response_head

    def noted(self, *head):
        threads.append(threading.current_thread() is threading.main_thread())
        return begin(self, *head)

    monkeypatch.setattr(Guard, "response_head", noted)
    for size in (10, LARGE_BYTES):
        watched = flow()
        watched.request.content = json.dumps({"messages": [{"role": "user", "content": "x" * size}]}).encode()
        acting.requestheaders(watched)
        acting.request(watched)
        begun = acting.responseheaders(watched)
        if begun is not None:
            asyncio.run(begun)
        assert callable(watched.response.stream)
    assert threads == [True, False]


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_client_got_instead_is_recorded_if_asked(acting, hands, stream):
    for captures in (True, False):
        hands.captures = captures
        watched = flow(b"text/event-stream" if stream else b"application/json")
        if stream:
            got = b"".join(passed_on(begin(acting, watched), b'data: {"a"', b": 1}\n", b""))
            acting.response(watched)
        else:
            got = held(acting, watched, b'{"a": 1}').raw_content
        record = hands.handed[-1]
        assert record.repair_counts == {CHECK: 1}
        if captures:
            assert (record.sent.status, record.sent.body, sum(record.sent.sizes)) == (200, got, len(got))
            assert hands.passages[-1].before.body != hands.passages[-1].after.body == got
        else:
            assert record.sent is None


def test_what_mitmproxy_does_not_send_is_not_what_the_client_got(acting, hands):
    hands.captures = True
    watched = flow()
    got = b"".join(passed_on(begin(acting, watched), b'data: {"a": 1}\n', b"data: 2"))
    watched.error = Error("the server left")
    acting.error(watched)
    (record,) = hands.handed
    assert (record.end, record.sent.body) == (End.CUT, got)
