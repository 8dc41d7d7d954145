import json

import pytest

pytest.importorskip("mitmproxy")

from mitmproxy.flow import Error
from mitmproxy.test import tflow, tutils

from harmony_proxy.addon import ConformanceAddon
from harmony_proxy.handing import Handed
from harmony_proxy.passage import passage
from harmony_proxy.recorder import End, Recorder


class Hands:
    """Stands for the judging: keeps what it is handed."""

    def __init__(self):
        self.handed: list[Handed] = []
        self.problems = 0

    def hand_over(self, handed):
        self.handed.append(handed)

    def problem(self):
        self.problems += 1

    @property
    def passages(self):
        return [passage(handed.recorder.kept("x", 0.0)) for handed in self.handed]


@pytest.fixture
def hands():
    return Hands()


@pytest.fixture
def addon(hands):
    return ConformanceAddon(hands)


def flow(response=True):
    made = tflow.tflow(
        req=tutils.treq(
            method=b"POST",
            path=b"/v1/chat/completions?key=k",
            content=json.dumps({"messages": []}).encode(),
            headers=((b"authorization", b"Bearer sk-123456"),),
        )
    )
    if response:
        made.response = tutils.tresp(headers=((b"content-type", b"text/event-stream"),), content=b"")
    return made


def passed_on(stream, *chunks):
    """What the client gets: what the callable returns, as mitmproxy sends it."""
    sent = []
    for chunk in chunks:
        returned = stream(chunk)
        sent += [returned] if isinstance(returned, bytes) else list(returned)
    return sent


def test_every_chunk_is_passed_on_at_once_and_unchanged(addon, hands):
    watched = flow()
    addon.request(watched)
    addon.responseheaders(watched)
    chunks = [b"data: 1\n", b"\ndata: [DO", b"NE]\n\n"]
    assert passed_on(watched.response.stream, *chunks) == chunks
    addon.response(watched)
    (passage,) = hands.passages
    assert passage.exchange.response.body == b"".join(chunks)
    assert (passage.kept.path, passage.end) == ("/v1/chat/completions", End.COMPLETE)


def test_an_empty_chunk_is_not_passed_on_since_it_would_end_the_stream(addon):
    watched = flow()
    addon.request(watched)
    addon.responseheaders(watched)
    assert passed_on(watched.response.stream, b"a", b"", b"b") == [b"a", b"b"]


def test_the_call_at_the_end_of_the_message_adds_nothing(addon, hands):
    watched = flow()
    addon.request(watched)
    addon.responseheaders(watched)
    assert passed_on(watched.response.stream, b"a", b"") == [b"a"]
    assert hands.handed == []
    addon.response(watched)
    assert len(hands.handed) == 1


@pytest.mark.parametrize("broken", ["feed", "response_head", "request_head", "request_body", "end"])
def test_an_error_of_ours_never_touches_the_traffic(addon, hands, monkeypatch, broken):
    def fail(*_):
        raise RuntimeError("ours")

    monkeypatch.setattr(Recorder, broken, fail)
    watched = flow()
    addon.request(watched)
    addon.responseheaders(watched)
    assert passed_on(watched.response.stream, b"a", b"b", b"") == [b"a", b"b"]
    addon.response(watched)
    assert hands.problems >= 1


def test_a_stream_that_is_not_watched_still_streams(addon):
    watched = flow()
    addon.responseheaders(watched)
    assert watched.response.stream is True
    addon.response(watched)


@pytest.mark.parametrize(
    ("message", "has_response", "end"),
    [
        ("Client disconnected.", True, End.CLIENT_LEFT),
        ("Client disconnected.", False, End.CLIENT_LEFT),
        ("HTTP/1 protocol error: peer closed connection", True, End.CUT),
        ("server closed connection", False, End.RESET),
    ],
)
def test_how_a_flow_broke_off_is_told(addon, hands, message, has_response, end):
    watched = flow(has_response)
    addon.request(watched)
    if has_response:
        addon.responseheaders(watched)
    watched.error = Error(message)
    addon.error(watched)
    assert [passage.end for passage in hands.passages] == [end]


def test_a_server_that_was_never_reached_is_no_connection(addon, hands):
    watched = flow(response=False)
    watched.server_conn.timestamp_tcp_setup = None
    addon.request(watched)
    watched.error = Error("[Errno 111] Connect call failed")
    addon.error(watched)
    (passage,) = hands.passages
    assert (passage.end, passage.kept.status) == (End.NO_CONNECTION, None)


def test_a_flow_that_was_refused_before_it_was_sent_is_none_of_ours(addon, hands):
    addon.error(flow(response=False))
    assert hands.handed == []


def test_hooks_without_a_response_do_nothing(addon, hands):
    addon.responseheaders(flow(response=False))
    addon.response(flow(response=False))
    assert (hands.handed, hands.problems) == ([], 0)


def test_what_is_still_going_on_is_handed_over_in_the_end(addon, hands):
    watched = flow()
    addon.request(watched)
    addon.responseheaders(watched)
    passed_on(watched.response.stream, b"a")
    addon.shut_down()
    assert [passage.end for passage in hands.passages] == [End.SHUT_DOWN]


def test_an_upstream_whose_api_is_not_at_its_root_gets_its_prefix(hands):
    addon = ConformanceAddon(hands, prefix="/api")
    watched = flow()
    addon.request(watched)
    assert watched.request.path == "/api/v1/chat/completions?key=k"
    addon.responseheaders(watched)
    addon.response(watched)
    assert hands.passages[0].path == "/v1/chat/completions"
