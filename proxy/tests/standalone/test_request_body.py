"""Bodies of requests through the standalone proxy, on real sockets: each piece goes on when it comes, and none that broke off looks whole."""

import json
import select
import socket
import struct
import time
from contextlib import suppress
from threading import Thread

import pytest

pytest.importorskip("aiohttp")


from harmony_proxy.capture.recorder import End
from harmony_proxy.configuration import load_rules
from harmony_proxy.standalone import http_protocol
from harmony_proxy.standalone.request_body import Reserve

WAIT = 10
LIMIT = 16_000_000
OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
TOO_LARGE = (
    b"HTTP/1.1 413 Content Too Large\r\ncontent-type: text/plain\r\ncontent-length: 3\r\nconnection: close\r\n\r\nno!"
)
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b"c\r\ndata: {}\r\n\r\n\r\n"
HEAD = "POST /v1/chat/completions HTTP/1.1\r\nHost: proxy\r\n"
IN_CHUNKS = f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()
ENDS = {"content-length": b"", "chunked": b"0\r\n\r\n"}


def head(kind, size, *more):
    said = f"Content-Length: {size}" if kind == "content-length" else "Transfer-Encoding: chunked"
    return (HEAD + "\r\n".join([said, *more]) + "\r\n\r\n").encode()


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def piece(kind, data):
    return data if kind == "content-length" else chunk(data)


def until(condition):
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Server:
    """An upstream. Of what it was sent since it began: `heard`, the bytes as they came, and `is_left`, whether who sent them went away."""

    def __init__(self):
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        self.base = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self.heard, self.is_left, self.reads, self.connection = bytearray(), False, True, None
        Thread(target=self._accept, daemon=True).start()

    def says(self, data):
        self.connection.sendall(data)

    def _accept(self):
        with suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection):
        with connection, suppress(OSError):
            while more := connection.recv(1 << 16):
                self.heard += more
                self.connection = connection
                while not self.reads:
                    time.sleep(0.01)
        self.is_left = True


@pytest.fixture
def upstream():
    server = Server()
    yield server
    server.reads = True
    server.listening.close()


@pytest.fixture
def proxy(upstream, serving):
    with serving(upstream.base, body=LIMIT) as hands:
        yield hands


@pytest.fixture
def impatient(upstream, serving):
    """One that waits for a second; the other waits longer than any machine is slow."""
    with serving(upstream.base, body=LIMIT, body_seconds=1.0, idle_seconds=1.0) as hands:
        yield hands


@pytest.fixture
def client(request):
    proxy = request.getfixturevalue("impatient" if "impatient" in request.fixturenames else "proxy")
    with socket.create_connection(("127.0.0.1", proxy.port)) as connection:
        connection.settimeout(WAIT)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def received(client):
    data = client.recv(65536)
    assert data, "it hung up"
    return data


def answer(client):
    """One answer with a content-length: its status and its body."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += received(client)
    told, _, body = data.partition(b"\r\n\r\n")
    length = next(int(line[15:]) for line in told.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    while len(body) < length:
        body += received(client)
    return int(told.split()[1]), body


def rest(client):
    data = b""
    with suppress(ConnectionResetError):
        while more := client.recv(65536):
            data += more
    return data


@pytest.mark.parametrize("kind", ENDS)
def test_each_piece_goes_on_when_it_comes_under_the_framing_of_the_client(proxy, upstream, client, kind):
    pieces = [b'{"model":', b' "m", "a": "', b"x" * 30_000, b'"}']
    client.sendall(head(kind, sum(map(len, pieces))))
    for one in pieces:
        client.sendall(piece(kind, one))
        until(lambda one=one: upstream.heard.endswith(piece(kind, one)))
    client.sendall(ENDS[kind])
    until(lambda: upstream.heard.endswith(ENDS[kind]))
    asked, _, body = upstream.heard.partition(b"\r\n\r\n")
    assert body == b"".join(piece(kind, one) for one in pieces) + ENDS[kind]
    assert (b"content-length:" in asked.lower()) is (kind == "content-length")
    upstream.says(OK)
    assert answer(client) == (200, b"{}")
    told = proxy.next()
    assert (told.end, told.record.request_body) == (End.COMPLETE, b"".join(pieces))
    assert told.exchange.request.json == {"model": "m", "a": "x" * 30_000}


def test_a_connection_header_cannot_take_the_length_away(upstream, client):
    client.sendall(head("content-length", 4, "Connection: content-length, transfer-encoding") + b"{")
    until(lambda: upstream.heard.endswith(b"{"))
    assert b"content-length: 4" in upstream.heard.lower()
    assert b"transfer-encoding" not in upstream.heard.lower()


def test_who_waits_to_be_told_to_continue_is_told_so_and_streams(proxy, upstream, client):
    client.sendall(head("content-length", 4, "Expect: 100-continue"))
    assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.sendall(b"{")
    until(lambda: upstream.heard.endswith(b"{"))
    client.sendall(b"  }")
    until(lambda: upstream.heard.endswith(b"{  }"))
    assert b"expect" not in upstream.heard.lower()
    upstream.says(OK)
    assert answer(client) == (200, b"{}")


def test_who_would_send_too_much_is_told_so_instead_of_to_continue(proxy, upstream, client):
    client.sendall(head("content-length", LIMIT + 1, "Expect: 100-continue"))
    assert answer(client)[0] == 413
    assert not upstream.heard
    assert (proxy.next().end, proxy.handed) == (End.REFUSED, [])


@pytest.mark.parametrize("kind", ENDS)
def test_a_client_that_leaves_within_its_request_ends_it_at_once(proxy, upstream, client, kind):
    client.sendall(head(kind, 100) + piece(kind, b"{"))
    until(lambda: upstream.heard.endswith(piece(kind, b"{")))
    client.close()
    until(lambda: upstream.is_left)
    assert upstream.heard.endswith(piece(kind, b"{")), "nothing that looks like an end"
    told = proxy.next()
    assert (told.end, told.exchange) == (End.CLIENT_LEFT, None)


BROKEN = {
    b"zz\r\n": "Invalid character in chunk size",
    b"5\r\nabcdefgh\r\n": "Expected LF after chunk data",
    b"-1\r\na\r\n": "Invalid character in chunk size",
}


@pytest.mark.parametrize("bad", BROKEN)
def test_framing_that_breaks_later_is_refused_and_never_ends_the_request(proxy, upstream, client, bad):
    client.sendall(IN_CHUNKS + chunk(b"{"))
    until(lambda: upstream.heard.endswith(chunk(b"{")))
    client.sendall(bad + b"0\r\n\r\nGET /admin HTTP/1.1\r\nHost: x\r\n\r\n")
    assert rest(client).startswith(b"HTTP/1.1 400 ")
    until(lambda: upstream.is_left)
    assert b"0\r\n\r\n" not in upstream.heard
    assert b"/admin" not in upstream.heard
    told = proxy.next()
    assert (told.end, told.exchange) == (End.MALFORMED, None)
    assert told.unjudged_reason == f"the request is malformed: {BROKEN[bad]}"


def test_framing_that_breaks_while_the_answer_comes_puts_nothing_into_it(proxy, upstream, client):
    client.sendall(IN_CHUNKS + chunk(b"{"))
    until(lambda: upstream.heard.endswith(chunk(b"{")))
    upstream.says(STREAM + EVENT)
    begun = b""
    while b"{}" not in begun:
        begun += client.recv(1 << 16)
    client.sendall(b"zz\r\n")
    assert b"HTTP" not in rest(client)
    assert proxy.next().end is End.MALFORMED


def test_an_answer_before_the_end_of_the_request_is_passed_on_and_not_judged(proxy, upstream, client):
    client.sendall(IN_CHUNKS + chunk(b"{" * 1000))
    until(lambda: len(upstream.heard) > 1000)
    upstream.says(TOO_LARGE)
    for _ in range(20):
        client.sendall(chunk(b"x" * 10_000))  # still sending, the answer is not lost
    assert answer(client) == (413, b"no!")
    told = proxy.next()
    assert (told.end, told.record.status, told.exchange) == (End.EARLY, 413, None)
    assert told.unjudged_reason == "the server answered, or broke off, before it had all of the request"
    client.sendall(b"0\r\n\r\n" + head("content-length", 2) + b"{}")
    until(lambda: upstream.heard.endswith(b"\r\n\r\n{}"))
    upstream.says(OK)
    assert answer(client) == (200, b"{}"), "the connection goes on"


def test_who_never_ends_a_request_that_was_answered_is_not_read_for_ever(upstream, client, monkeypatch):
    monkeypatch.setattr(http_protocol, "LINGER_SECONDS", 0.2)
    client.sendall(IN_CHUNKS + chunk(b"{"))
    until(lambda: upstream.heard.endswith(chunk(b"{")))
    upstream.says(TOO_LARGE)
    assert answer(client)[0] == 413
    begun = time.monotonic()
    with suppress(OSError):
        while time.monotonic() - begun < WAIT:
            client.sendall(chunk(b"x"))
            time.sleep(0.02)
    assert time.monotonic() - begun < WAIT / 2


def test_an_answer_streams_while_the_request_does(proxy, upstream, client):
    client.sendall(IN_CHUNKS + chunk(b'{"a":'))
    until(lambda: b'{"a":' in upstream.heard)
    upstream.says(STREAM + EVENT)
    data = b""
    while EVENT not in data:
        data += received(client)
    client.sendall(chunk(b"1}") + b"0\r\n\r\n")
    until(lambda: upstream.heard.endswith(chunk(b"1}") + b"0\r\n\r\n"))
    upstream.says(EVENT + b"0\r\n\r\n")
    while not data.endswith(EVENT + b"0\r\n\r\n"):
        data += received(client)
    told = proxy.next()
    assert (told.end, told.exchange.request.json) == (End.COMPLETE, {"a": 1})


def test_more_than_the_limit_in_chunks_breaks_off_both_sides(proxy, upstream, client):
    client.sendall(IN_CHUNKS)
    with suppress(OSError):
        for _ in range(LIMIT // 500_000 + 1):
            client.sendall(chunk(b"x" * 500_000))
    assert answer(client)[0] == 413
    until(lambda: upstream.is_left)
    assert not upstream.heard.endswith(b"0\r\n\r\n")
    assert proxy.next().end is End.REFUSED


def test_a_client_that_sends_too_slowly_is_not_waited_for(impatient, upstream, client):
    client.sendall(IN_CHUNKS + chunk(b"{"))
    begun = time.monotonic()
    while not upstream.is_left and time.monotonic() - begun < WAIT:
        with suppress(OSError):
            client.sendall(chunk(b" "))
        time.sleep(0.05)
    assert time.monotonic() - begun > 0.9
    assert answer(client)[0] == 408
    assert impatient.next().end is End.REFUSED


def test_an_upstream_that_takes_nothing_holds_the_client_back_and_is_given_up(upstream, serving):
    upstream.reads = False
    large, most = 400_000_000, 200_000_000  # more than every system on the way keeps
    with (
        serving(upstream.base, body=large, idle_seconds=1.0) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as client,
    ):
        client.settimeout(WAIT)
        client.sendall(head("content-length", large))
        sent = 0
        while sent < large and not select.select([client], [], [], 0)[0]:
            sent += client.send(b"x" * 100_000)
        assert sent < most, "what it does not take waits with the client"
        assert json.loads(answer(client)[1])["error"]["message"] == "the upstream did not take the request in time"
        told = proxy.next()
    assert (told.end, told.record.detail) == (End.EARLY, "timeout TimeoutError")


def leaves(client, how):
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def is_left(connection):
    """Whether the other side has ended it, seen without reading."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    return bool(poll.poll(0))


linux = pytest.mark.skipif(not hasattr(select, "POLLRDHUP"), reason="only Linux tells it to who does not read")


@linux
@pytest.mark.parametrize("how", ["end", "reset"])
@pytest.mark.parametrize("size", [2_000_000, LIMIT - 1])
def test_a_client_that_leaves_while_it_is_held_back_ends_the_request_soon(upstream, serving, how, size):
    """What the upstream does not take waits with the client, who is not read meanwhile; of the larger body most is still in the client's own system."""
    upstream.reads = False
    with serving(upstream.base, body=LIMIT) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall(head("content-length", LIMIT) + b"x")
        until(lambda: upstream.connection is not None)
        client.settimeout(0.2)
        with suppress(TimeoutError):
            client.sendall(b"x" * size)
        left = time.monotonic()
        leaves(client, how)
        until(lambda: is_left(upstream.connection))
        assert time.monotonic() - left < WAIT / 2
        assert proxy.next().end is End.CLIENT_LEFT


def test_the_reserve_is_shared_and_given_back():
    reserve = Reserve(10)
    assert [reserve.reserve(8), reserve.reserve(8), reserve.reserve(8)] == [8, 2, 0]
    reserve.release(8)
    assert reserve.reserve(9) == 8


@linux
@pytest.mark.parametrize("how", ["end", "reset"])
@pytest.mark.parametrize("waiting", [1, 2])
def test_a_client_that_leaves_with_more_requests_in_the_line_ends_the_first_soon(upstream, serving, how, waiting):
    with serving(upstream.base, body=LIMIT) as proxy, socket.create_connection(("127.0.0.1", proxy.port)) as client:
        client.sendall((head("content-length", 2) + b"{}") * (1 + waiting))
        until(lambda: upstream.heard.endswith(b"{}"))
        left = time.monotonic()
        leaves(client, how)
        until(lambda: upstream.is_left)
        assert time.monotonic() - left < WAIT / 2
        assert proxy.next().end is End.CLIENT_LEFT


def test_an_upstream_that_dies_within_the_request_is_a_502(proxy, upstream, client):
    client.sendall(IN_CHUNKS + chunk(b"{"))
    until(lambda: upstream.heard.endswith(chunk(b"{")))
    upstream.connection.shutdown(socket.SHUT_RDWR)
    assert answer(client)[0] == 502
    told = proxy.next()
    assert (told.end, told.record.detail, told.exchange) == (End.EARLY, "reset ServerDisconnectedError", None)


def test_where_answers_are_repaired_requests_stream_too_and_early_answers_pass_as_they_are(upstream, serving):
    with (
        serving(upstream.base, load_rules(None, repair=["channels.no_marker_leak"]), body=LIMIT) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as client,
    ):
        client.settimeout(WAIT)
        client.sendall(IN_CHUNKS + chunk(b'{"a":'))
        until(lambda: upstream.heard.endswith(chunk(b'{"a":')))
        upstream.says(STREAM + EVENT + b"0\r\n\r\n")
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += received(client)
        assert b"data: {}" in data
        told = proxy.next()
        assert (told.end, told.record.unrepaired_reasons) == (
            End.EARLY,
            {"*": "the server answered before it had all of the request"},
        )
