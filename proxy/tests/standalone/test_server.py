"""The standalone proxy on real sockets: what a client may send, what an upstream may do, and what becomes of it."""

import asyncio
import json
import socket
import time
from contextlib import suppress
from threading import Event, Thread

import pytest

pytest.importorskip("aiohttp")

from yarl import URL

from harmony_proxy.capture.recorder import End
from harmony_proxy.standalone import http_protocol
from harmony_proxy.standalone import server as standalone
from harmony_proxy.standalone.upstream import Upstream, _rewrite_location

CHAT = "/v1/chat/completions"
WAIT = 20
EVENT = b'data: {"choices": []}\n\n'
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = b'{"model": "m"}'


def chunked(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


class Server:
    """An upstream that is told what to do; `heard` are the requests as they came, `left` how often its client went away."""

    def __init__(self):
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.plan, self.heard, self.left = ((), False), [], 0
        Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with connection:
            while (head := self._request(connection)) is not None:
                pieces, waits = self.plan
                self.heard.append(head)
                for piece in pieces:
                    if piece is None:
                        return
                    if isinstance(piece, Event):
                        piece.wait(WAIT)
                        continue
                    connection.sendall(piece)
                if waits:
                    connection.settimeout(WAIT)
                    self.left += connection.recv(1) == b""
                    return

    def _request(self, connection):
        data = b""
        while b"\r\n\r\n" not in data:
            if not (more := connection.recv(65536)):
                return None
            data += more
        head, _, body = data.partition(b"\r\n\r\n")
        length = next(
            (int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), 0
        )
        while len(body) < length:
            body += connection.recv(65536)
        return head + b"\r\n\r\n" + body

    def does(self, *pieces, waits=False):
        self.heard.clear()
        self.left = 0
        self.plan = pieces, waits

    def answers(self, body=b"{}", head=b"content-type: application/json\r\n", status=b"200 OK"):
        self.does(b"HTTP/1.1 %b\r\n%bcontent-length: %d\r\n\r\n%b" % (status, head, len(body), body))


def until(condition):
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture(scope="module")
def upstream():
    server = Server()
    yield server
    server.listening.close()


@pytest.fixture(scope="module")
def running(upstream, serving):
    with serving(f"http://127.0.0.1:{upstream.port}", body=100_000) as hands:
        yield hands


@pytest.fixture(scope="module")
def running_briefly(upstream, serving):
    with serving(f"http://127.0.0.1:{upstream.port}", idle_seconds=0.5) as hands:
        yield hands


@pytest.fixture
def proxy(running, upstream):
    running.handed.clear()
    upstream.answers()
    return running


@pytest.fixture
def impatient(running_briefly, upstream):
    """One that waits half a second for an upstream; the other waits longer than any machine is slow."""
    running_briefly.handed.clear()
    upstream.answers()
    return running_briefly


def connected(port):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.settimeout(WAIT)
    return connection


def rest(connection):
    data = b""
    with connection:
        try:
            while more := connection.recv(65536):
                data += more
        except ConnectionResetError:
            pass
    return data


def request(path=CHAT, *, body=BODY, method="POST", headers=(), version="1.1", close=True):
    lines = [f"{method} {path} HTTP/{version}", "Host: proxy", *headers]
    lines += [f"Content-Length: {len(body)}"] if body or method == "POST" else []
    lines += ["Connection: close"] if close else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def sent(proxy, data):
    connection = connected(proxy.port)
    connection.sendall(data)
    return rest(connection)


def parts(answer):
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = [tuple(line.split(": ", 1)) for line in lines[1:]]
    return int(lines[0].split()[1]), headers, body


def heard(upstream):
    """Of the only request that the upstream got: its first line, its headers, its body."""
    (whole,) = upstream.heard
    head, _, body = whole.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    return first, {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in lines}, body


def test_a_request_and_its_answer_pass_as_they_are(proxy, upstream):
    upstream.answers(
        b'{"a": 1}', b"Content-Type: application/json\r\nX-A: 1\r\nX-A: 2\r\nserver: s\r\n", b"418 I'm a teapot"
    )
    status, headers, body = parts(
        sent(proxy, request(f"{CHAT}?a=%2F&b", headers=["X-B: c", "authorization: Bearer k"]))
    )
    assert (status, body) == (418, b'{"a": 1}')
    assert headers == [
        ("content-type", "application/json"),
        ("x-a", "1"),
        ("x-a", "2"),
        ("server", "s"),
        ("content-length", "8"),
        ("connection", "close"),
    ]
    first, asked, sent_body = heard(upstream)
    assert (first, sent_body) == (f"POST {CHAT}?a=%2F&b HTTP/1.1", BODY)
    assert asked == {
        "host": f"127.0.0.1:{upstream.port}",
        "x-b": "c",
        "authorization": "Bearer k",
        "content-length": str(len(BODY)),
    }
    assert proxy.next().end is End.COMPLETE


def test_headers_of_one_hop_are_dropped_both_ways_also_those_that_connection_names(proxy, upstream):
    hop = b"connection: keep-alive, x-mine\r\nkeep-alive: 5\r\nx-mine: 1\r\nproxy-authenticate: x\r\nupgrade: h2c\r\n"
    upstream.answers(head=hop)
    mine = ["Connection: X-Mine, close", "X-Mine: 1", "TE: trailers", "Proxy-Authorization: x", "Keep-Alive: 5"]
    _, headers, _ = parts(sent(proxy, request(headers=mine, close=False)))
    assert dict(headers) == {"content-length": "2", "connection": "close"}
    assert set(heard(upstream)[1]) == {"host", "content-length"}


@pytest.mark.parametrize(
    ("method", "target", "status"),
    [
        ("POST", f"http://127.0.0.1:1{CHAT}", 200),
        ("CONNECT", "127.0.0.1:1", 400),
        ("TRACE", "/", 405),
        ("OPTIONS", "*", 400),
        ("POST", "//127.0.0.1:1/x", 200),
        ("POST", "/@127.0.0.1:1/x", 200),
    ],
)
def test_nothing_that_is_asked_leads_anywhere_but_to_the_upstream(proxy, upstream, method, target, status):
    answer = sent(proxy, request(target, method=method, headers=["X-Mine: here"], body=b""))
    assert parts(answer)[0] == status
    heard = [
        one for one in map(bytes.lower, upstream.heard) if b"x-mine: here" in one
    ]  # not what another test left on its way
    assert len(heard) == (status == 200)
    assert all(f"host: 127.0.0.1:{upstream.port}".encode() in one for one in heard)


SMUGGLED = [
    pytest.param(b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", id="two lengths of two kinds"),
    pytest.param(b"Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", id="two lengths"),
    pytest.param(b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", id="a coding that is none"),
    pytest.param(b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", id="a space before the colon"),
    pytest.param(b"Content-Length: +4\r\n\r\nabcd", id="a length with a sign"),
    pytest.param(b"Content-Length: 4\r\nX: a\rY: b\r\n\r\nabcd", id="a bare carriage return"),
    pytest.param(b"X-Request-Id: a\x00b\r\nContent-Length: 0\r\n\r\n", id="a zero byte"),
    pytest.param(b"X: a\r\n folded: b\r\nContent-Length: 0\r\n\r\n", id="a folded header"),
    pytest.param(
        b"Transfer-Encoding: chunked\r\n\r\n5;x\r\nabc\r\n0\r\n\r\n", id="a chunk that is shorter than it says"
    ),
]


@pytest.mark.parametrize("tail", SMUGGLED)
def test_what_two_servers_could_read_as_two_things_is_refused(proxy, upstream, tail):
    smuggled = f"POST {CHAT} HTTP/1.1\r\nHost: proxy\r\n".encode() + tail + b"GET /admin HTTP/1.1\r\nHost: x\r\n\r\n"
    connection = connected(proxy.port)
    connection.sendall(smuggled)
    connection.shutdown(socket.SHUT_WR)
    status, _, _ = parts(rest(connection))
    assert status == 400
    assert not [one for one in upstream.heard if b"/admin" in one]
    told = proxy.next()
    if b"xchunked" in tail:
        assert told.unjudged_reason.endswith(": unsupported transfer coding: expected chunked")
    else:
        assert told.end is End.MALFORMED
        assert told.unjudged_reason.startswith("the request is malformed: ")


@pytest.mark.parametrize(
    ("behind", "status"),
    [(b"no HTTP\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000, 431)],
    ids=["no request", "one that is too large"],
)
def test_what_cannot_be_read_behind_a_request_leaves_its_answer_whole(proxy, upstream, behind, status):
    go_on = Event()
    upstream.does(STREAM, chunked(EVENT), go_on, chunked(EVENT), b"0\r\n\r\n")
    connection = connected(proxy.port)
    connection.sendall(request(close=False))
    until(lambda: upstream.heard)
    connection.sendall(behind)
    time.sleep(0.3)
    go_on.set()
    first, _, second = rest(connection).partition(b"0\r\n\r\n")
    assert first.count(EVENT) == 2
    assert b"HTTP" not in first[8:]
    assert parts(second)[0] == status
    ends = {told.record.status: told.end for told in (proxy.next(), proxy.next())}
    assert ends == {200: End.COMPLETE, status: End.MALFORMED if status == 400 else End.REFUSED}


UPGRADE = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__"


@pytest.mark.parametrize("pause", [0, 0.05])
@pytest.mark.parametrize(
    ("framing", "body"),
    [(f"Content-Length: {len(BODY)}", BODY), ("Transfer-Encoding: chunked", chunked(BODY) + b"0\r\nX-T: 1\r\n\r\n")],
    ids=["a length", "chunks"],
)
def test_the_body_of_a_request_that_asks_for_another_protocol_is_not_lost(proxy, upstream, framing, body, pause):
    head = f"POST {CHAT} HTTP/1.1\r\nHost: proxy\r\n{UPGRADE}\r\n{framing}\r\n\r\n".encode()
    connection = connected(proxy.port)
    connection.sendall(head)
    time.sleep(pause)
    connection.sendall(body + head + body + request("/last"))
    answers = rest(connection)
    assert answers.count(b"HTTP/1.1 200 OK") == 3
    first, second, last = upstream.heard
    assert all(BODY in one and b"upgrade" not in one.lower() for one in (first, second))
    assert last.startswith(b"POST /last ")
    assert {kept.request_body for kept in proxy.handed} == {BODY}


@pytest.mark.parametrize(
    ("headers", "status"),
    [(["X-Name: caf\xe9"], 400), (["X-Name: caf\xc3\xa9"], 200), (["Transfer-Encoding: gzip, chunked"], 501)],
    ids=["a value that is no UTF-8", "one that is", "a coding that nobody undoes"],
)
def test_what_cannot_be_passed_on_as_it_is_is_refused(proxy, upstream, headers, status):
    data = request(headers=headers, body=b"", method="GET")
    assert parts(sent(proxy, data + b"0\r\n\r\n" * (status == 501)))[0] == status
    assert len(upstream.heard) == (status == 200)
    if upstream.heard:
        assert b"x-name: caf\xc3\xa9" in upstream.heard[0]


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"200 OK\r\nX: " + b"a" * 20_000, 200),
        (b"200 OK\r\n" + b"\r\n".join(b"X-%d: a" % number for number in range(300)), 200),
        (b"200 OK\r\n" + b"\r\n".join(b"X-%d: a" % number for number in range(2000)), 502),
        (b"999 Odd\r\nX: a", 502),
        (b"200 OK\r\nTransfer-Encoding: gzip, chunked", 502),
    ],
    ids=["a long header", "many headers", "too many", "a status that there is not", "a coding that nobody asked for"],
)
def test_what_an_upstream_may_answer(proxy, upstream, head, status):
    framing = b"" if b"Transfer" in head else b"Content-Length: 0\r\n"
    upstream.does(b"HTTP/1.1 " + head + b"\r\n" + framing + b"\r\n" + (b"" if framing else b"0\r\n\r\n"))
    assert parts(sent(proxy, request()))[0] == status


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ("http://127.0.0.1:{port}/prefix/v1/x?a=%2F#f", "/v1/x?a=%2F#f"),
        ("http://127.0.0.1:{port}/prefix", "/"),
        ("http://127.0.0.1:{port}/prefixed", None),
        ("http://127.0.0.1:1{port}/prefix/v1/x", None),
        ("https://elsewhere/prefix/x", None),
        ("/v1/x", None),
        ("http://[", None),
    ],
)
def test_a_redirect_to_the_upstream_leads_through_the_proxy_and_any_other_where_it_led(upstream, there, told):
    there = there.format(port=upstream.port)
    base = URL(f"http://127.0.0.1:{upstream.port}/prefix")
    assert _rewrite_location(there.encode(), base) == (told or there).encode()


def test_a_redirect_is_told_to_the_client(proxy, upstream):
    location = f"location: http://127.0.0.1:{upstream.port}{CHAT}\r\n"
    upstream.answers(head=location.encode(), status=b"307 Temporary Redirect")
    assert dict(parts(sent(proxy, request(CHAT + "/")))[1])["location"] == CHAT


def test_line_breaks_in_a_path_cannot_make_headers(proxy, upstream):
    sent(proxy, request(f"{CHAT}%0d%0aX-Evil:1"))
    first, headers, _ = heard(upstream)
    assert "%0d%0a" in first
    assert "x-evil" not in headers


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request(headers=[f"X: {'a' * 70_000}"]), 431),
        (request(headers=[f"X-{number}: {'a' * 1000}" for number in range(70)]), 431),
        (request(body=b"a" * 100_001), 413),
        (f"POST /{'a' * 70_000}".encode(), 431),
    ],
    ids=["a header", "many headers", "a body", "a path"],
)
def test_what_is_too_large_is_refused(proxy, upstream, data, status):
    connection = connected(proxy.port)
    with suppress(OSError):
        connection.sendall(data)
    answer = rest(connection)
    assert not upstream.heard
    assert not answer or parts(answer)[0] in (status, 400)
    told = proxy.next()
    assert (told.end, told.exchange) == (End.REFUSED, None)
    assert "larger than" in told.unjudged_reason or "more than" in told.unjudged_reason


def test_a_head_that_does_not_come_to_its_end_is_not_waited_for(proxy, monkeypatch):
    monkeypatch.setattr(http_protocol, "HEAD_SECONDS", 0.1)
    connection = connected(proxy.port)
    connection.sendall(b"POST /v1")
    assert parts(rest(connection))[0] == 408
    told = proxy.next()
    assert (told.end, told.record.status) == (End.REFUSED, 408)
    assert (
        told.unjudged_reason == "the proxy did not pass all of the request on: the request head did not arrive in time"
    )


def test_more_connections_than_are_taken_are_refused_and_told_of(upstream, serving, monkeypatch):
    monkeypatch.setattr(standalone, "_CONNECTIONS", 1)
    with serving(f"http://127.0.0.1:{upstream.port}") as proxy:
        assert parts(sent(proxy, request()))[0] == 503
        told = proxy.next()
        assert (told.end, told.record.status) == (End.REFUSED, 503)
        assert told.unjudged_reason.endswith(": too many connections")


def test_requests_that_are_sent_at_once_are_answered_one_after_another(proxy, upstream):
    upstream.answers(b"{}")
    one, two = request("/v1/one", close=False), request("/v1/two")
    answers = sent(proxy, one + two)
    assert answers.count(b"HTTP/1.1 200") == 2
    assert [head.split(b" ")[1] for head in upstream.heard] == [b"/v1/one", b"/v1/two"]


def test_a_client_that_waits_to_be_told_to_continue_is_told_so(proxy, upstream):
    connection = connected(proxy.port)
    connection.sendall(request(headers=["Expect: 100-continue"], body=BODY)[: -len(BODY)])
    assert connection.recv(100).startswith(b"HTTP/1.1 100 Continue")
    connection.sendall(BODY)
    assert parts(rest(connection))[0] == 200
    assert "expect" not in heard(upstream)[1]


def test_trailers_are_no_headers(proxy, upstream):
    head = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n"
    sent(proxy, head.encode() + chunked(BODY) + b"0\r\nAuthorization: Bearer evil\r\n\r\n")
    _, headers, body = heard(upstream)
    assert set(headers) == {"host", "content-length"}
    assert body == BODY
    upstream.does(STREAM, chunked(EVENT), b"0\r\nX-Trailer: 1\r\n\r\n")
    assert parts(sent(proxy, request()))[2].endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"),
        ("OPTIONS", b"HTTP/1.1 204 No Content\r\nallow: POST\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\netag: x\r\n\r\n"),
    ],
)
def test_answers_without_a_body_have_none(proxy, upstream, method, answer):
    upstream.does(answer)
    told = sent(proxy, request("/v1/models", method=method, body=b""))
    status, headers, body = parts(told)
    assert body == b""
    assert "transfer-encoding" not in dict(headers)
    assert status == int(answer.split()[1])


WEBSOCKET = [
    "Connection: keep-alive, Upgrade",
    "Upgrade: WebSocket",
    "Sec-WebSocket-Key: x",
    "Sec-WebSocket-Version: 13",
]
NO_WEBSOCKETS = "invalid request: expected HTTP, got a WebSocket, which the proxy does not examine"


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/realtime", "/healthz"])
def test_a_websocket_is_refused_in_one_line_and_counted(proxy, upstream, path):
    connection = connected(proxy.port)
    connection.sendall(request(path, method="GET", body=b"", headers=WEBSOCKET, close=False) + b"\x81\x02hi")
    status, headers, body = parts(rest(connection))
    assert (status, body.decode()) == (426, NO_WEBSOCKETS)
    assert {**dict(headers), "upgrade": "HTTP/1.1", "connection": "upgrade, close"} == dict(headers)
    assert upstream.heard == []
    told = proxy.next()
    assert (told.end, told.record.status) == (End.REFUSED, 426)
    assert told.unjudged_reason.endswith(f": {NO_WEBSOCKETS}")


def test_a_websocket_after_a_request_is_refused_after_its_answer(proxy, upstream):
    upgrade = request("/v1/responses", method="GET", body=b"", headers=WEBSOCKET, close=False)
    first, _, second = sent(proxy, request(close=False) + upgrade).partition(b"HTTP/1.1 426 ")
    assert parts(first)[0] == 200
    assert second.endswith(NO_WEBSOCKETS.encode())
    assert len(upstream.heard) == 1


@pytest.mark.parametrize("headers", [WEBSOCKET[1:], [*WEBSOCKET[:1], "Upgrade: websockets"]])
def test_what_is_no_websocket_is_forwarded_without_upgrade(proxy, upstream, headers):
    assert parts(sent(proxy, request("/v1/models", method="GET", body=b"", headers=headers)))[0] == 200
    assert "upgrade" not in heard(upstream)[1]


def test_an_upstream_never_switches_the_protocol(proxy, upstream):
    upstream.does(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", waits=True)
    assert parts(sent(proxy, request()))[0] == 502


def test_an_event_is_passed_on_when_it_comes(proxy, upstream):
    go_on = Event()
    upstream.does(STREAM, chunked(EVENT), go_on, chunked(EVENT), b"0\r\n\r\n")
    connection = connected(proxy.port)
    connection.sendall(request())
    data = b""
    while EVENT not in data:
        data += connection.recv(65536)
    go_on.set()
    assert rest(connection).endswith(chunked(EVENT) + b"0\r\n\r\n")
    assert proxy.next().record.chunks == 2


@pytest.mark.parametrize("begun", [[], [STREAM, chunked(EVENT)]], ids=["before the answer", "in a stream"])
def test_a_client_that_leaves_ends_the_request_to_the_upstream_at_once(proxy, upstream, begun):
    upstream.does(*begun, waits=True)
    connection = connected(proxy.port)
    connection.sendall(request())
    until(lambda: upstream.heard)
    if begun:
        connection.recv(65536)
    connection.close()
    until(lambda: upstream.left == 1)
    assert proxy.next().end is End.CLIENT_LEFT


@pytest.mark.parametrize(
    ("pieces", "ends"),
    [
        ([STREAM, chunked(EVENT), b"ff\r\ndata: {", None], b"data: {\r\n"),
        ([STREAM, chunked(EVENT), None], b"}\n\n\r\n"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", None], b"{"),
    ],
    ids=["within a chunk", "between chunks", "short of its length"],
)
def test_an_upstream_that_dies_leaves_no_answer_that_looks_whole(proxy, upstream, pieces, ends):
    upstream.does(*pieces)
    _, _, body = parts(sent(proxy, request()))
    assert body.endswith(ends)
    assert not body.endswith(b"0\r\n\r\n")
    assert proxy.next().end is End.CUT


NO_HTTP = "the upstream's answer is no valid HTTP/1.1"
SWITCHES = "the upstream switches protocols without a request"


@pytest.mark.parametrize(
    ("pieces", "outcome", "message"),
    [
        ([None], (502, End.RESET), "the upstream broke off"),
        ([b"nonsense\r\n\r\n", None], (502, End.RESET), NO_HTTP),
        ([b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", None], (502, End.RESET), NO_HTTP),
        ([b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", None], (502, End.RESET), SWITCHES),
        ([b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n"], (502, End.RESET), "the upstream sends an invalid status"),
        ([Event()], (504, End.TIMEOUT), "the upstream did not answer in time"),
    ],
    ids=["hangs up", "speaks no HTTP", "a length that is none", "switches", "odd status", "says nothing"],
)
def test_an_upstream_without_an_answer_is_an_error_in_one_line(impatient, upstream, pieces, outcome, message):
    upstream.does(*pieces)
    status, _, body = parts(sent(impatient, request()))
    assert json.loads(body)["error"]["message"] == message
    told = impatient.next()
    assert ((status, told.end), told.record.status) == (outcome, None)
    assert "_InvalidAnswerError" not in told.record.detail


def test_an_upstream_that_falls_silent_in_a_stream_is_broken_off(impatient, upstream):
    upstream.does(STREAM, chunked(EVENT), waits=True)
    _, _, body = parts(sent(impatient, request()))
    assert body == chunked(EVENT)
    assert impatient.next().end is End.TIMEOUT


def test_an_upstream_that_is_not_there_is_a_502(serving):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with serving(f"http://127.0.0.1:{port}/prefix") as hands:
        status, _, body = parts(sent(hands, request()))
        assert (status, json.loads(body)["error"]["message"]) == (502, "the upstream cannot be reached")
        assert hands.next().end is End.NO_CONNECTION
        assert parts(sent(hands, request("/%2e%2e/admin")))[0] == 400
        assert parts(sent(hands, request("/healthz", method="GET", body=b"")))[0] == 200


@pytest.mark.parametrize(("is_judging", "status"), [(True, "ok"), (False, "degraded")])
def test_its_health_says_when_judging_is_off(is_judging, status):
    app = Upstream("http://127.0.0.1:1", is_judging=lambda: is_judging)
    sent_messages = []

    async def ask():
        async def send(message):
            sent_messages.append(message)

        await app({"type": "http", "method": "GET", "path": "/healthz", "headers": []}, None, send)

    asyncio.run(ask())
    head, body = sent_messages
    assert (head["status"], json.loads(body["body"])["status"]) == (200, status)


@pytest.mark.parametrize("ends", [b"0\r\n\r\n", None], ids=["whole", "cut"])
def test_old_clients_get_no_chunks(proxy, upstream, ends):
    upstream.does(STREAM, chunked(EVENT), chunked(EVENT), ends)
    _, headers, body = parts(sent(proxy, request(version="1.0", close=False)))
    assert body == EVENT * 2
    assert dict(headers) == {"content-type": "text/event-stream", "connection": "close"}
    assert proxy.next().end is (End.COMPLETE if ends else End.CUT)


def test_old_clients_are_served(proxy, upstream):
    status, headers, body = parts(sent(proxy, request(version="1.0")))
    assert (status, body) == (200, b"{}")
    assert "transfer-encoding" not in dict(headers)
