"""What the client makes of HTTP byte by byte: framing as it should not be, what it sends itself, and connections that are kept.

The client opens a connection before it refuses a header, so a server may see a connection without a request.
"""

import asyncio
import gzip
import socket
import struct
import tracemalloc
import zlib
from contextlib import ExitStack, suppress
from threading import Event, Thread

import brotli
import httpx
import pytest
import zstandard

try:
    import uvloop
except ImportError:  # on Windows
    uvloop = None

from harmony_conformance.transport import client
from harmony_conformance.transport.client import BODY_LIMIT, Client, ConnectionSettings
from harmony_conformance.transport.http_transport import Network, open_transport
from harmony_conformance.transport.messages import FailureKind, Request
from harmony_conformance.transport.single_connections import SingleConnections

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n"
ASK = Request(path="/v1/chat/completions", body=b"{}")
LOOPS = [
    None,
    pytest.param(getattr(uvloop, "new_event_loop", None), marks=pytest.mark.skipif(uvloop is None, reason="no uvloop")),
]
CUT, MALFORMED, RESET = FailureKind.CUT, FailureKind.MALFORMED_HTTP, FailureKind.RESET


def send(url, *requests, loop_factory=None, **settings):
    async def all_of_them():
        async with Client(
            ConnectionSettings(
                base_url=url, headers=settings.pop("headers", {}), timeout=settings.pop("timeout", 5.0), **settings
            )
        ) as client:
            return [await client.send(request) for request in requests or (ASK,)]

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        return runner.run(all_of_them())


def saying(*parts):
    def answer(connection, request):
        for part in parts:
            connection.sendall(part)

    return answer


def whole(body, *headers):
    return OK + b"".join(header + b"\r\n" for header in headers) + b"content-length: %d\r\n\r\n" % len(body) + body


# what arrived (status and pieces of the body, None: no head that can be read), and how it failed
TABLE = {
    "chunks in one packet": (CHUNKED + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n", (200, [b"ab", b"c"]), None),
    "a chunk with an extension": (CHUNKED + b"2;x=y\r\nab\r\n0\r\n\r\n", (200, [b"ab"]), None),
    "a length with zeros before it": (CHUNKED + b"0002\r\nab\r\n000\r\n\r\n", (200, [b"ab"]), None),
    "trailers": (CHUNKED + b"2\r\nab\r\n0\r\nx: y\r\n\r\n", (200, [b"ab"]), None),
    "trailers that are none": (CHUNKED + b"2\r\nab\r\n0\r\nno colon\r\n\r\n", (200, [b"ab"]), MALFORMED),
    "a broken chunk in one packet with a whole one": (CHUNKED + b"2\r\nab\r\nzz\r\n", (200, [b"ab"]), MALFORMED),
    "a chunk cut in one packet with a whole one": (CHUNKED + b"2\r\nab\r\n9\r\nc", (200, [b"ab", b"c"]), CUT),
    "a length with a sign": (CHUNKED + b"+2\r\nab\r\n0\r\n\r\n", (200, []), MALFORMED),
    "a length with 0x": (CHUNKED + b"0x2\r\nab\r\n0\r\n\r\n", (200, []), MALFORMED),
    "a length after a space": (CHUNKED + b" 2\r\nab\r\n0\r\n\r\n", (200, []), MALFORMED),
    "no length": (CHUNKED + b"\r\nab\r\n0\r\n\r\n", (200, []), MALFORMED),
    "a length beyond all numbers": (CHUNKED + b"f" * 30 + b"\r\nab", (200, []), MALFORMED),
    "no empty chunk": (CHUNKED + b"2\r\nab\r\n", (200, [b"ab"]), CUT),
    "no line after the empty chunk": (CHUNKED + b"2\r\nab\r\n0\r\n", (200, [b"ab"]), CUT),
    "chunked twice": (OK + b"transfer-encoding: chunked\r\n" * 2 + b"\r\n0\r\n\r\n", None, MALFORMED),
    "a transfer coding that is unknown": (OK + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", None, MALFORMED),
    "a body that is too short": (OK + b"content-length: 3\r\n\r\nab", (200, [b"ab"]), CUT),
    "two lengths": (OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nab", None, MALFORMED),
    "a negative length": (OK + b"content-length: -2\r\n\r\nab", None, MALFORMED),
    "an end by closing": (OK + b"\r\nab", (200, [b"ab"]), None),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nab", (200, [b"ab"]), None),
    "HTTP/0.9": (b"ab", None, MALFORMED),
    "no reason": (b"HTTP/1.1 200\r\ncontent-length: 2\r\n\r\nab", (200, [b"ab"]), None),
    "a status of four digits": (b"HTTP/1.1 2000 OK\r\n\r\n", None, MALFORMED),
    "a status that is early": (b"HTTP/1.1 103 Early Hints\r\n\r\n" + whole(b"ab"), (200, [b"ab"]), None),
    "a switch that nobody asked for": (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\nab", None, MALFORMED),
    "a head that breaks off": (b"HTTP/1.1 200 OK\r\ncontent-le", None, RESET),
    "a head without end": (OK + b"x: " + b"a" * 200_000, None, MALFORMED),
    "a folded header": (OK + b"x: a\r\n b\r\ncontent-length: 2\r\n\r\nab", (200, [b"ab"]), None),
    "NUL in a header": (OK + b"x: a\0b\r\ncontent-length: 2\r\n\r\nab", None, MALFORMED),
    "a space before the colon": (OK + b"x : a\r\ncontent-length: 2\r\n\r\nab", None, MALFORMED),
    "a header without a name": (OK + b": a\r\ncontent-length: 2\r\n\r\nab", None, MALFORMED),
    "204 with a body": (b"HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\nab", (204, []), None),
}


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("how", TABLE)
def test_what_is_said_is_kept_and_what_is_wrong_in_it_is_reported(raw_server, how, loop_factory):
    said, kept, kind = TABLE[how]
    server = raw_server(saying(said))
    (sent,) = send(server.url, loop_factory=loop_factory)
    assert (sent.failure and sent.failure.kind) == kind
    assert (sent.response and (sent.response.status, [chunk.data for chunk in sent.response.chunks])) == kept
    assert len(server.requests) == 1  # nothing is asked again behind our back


STATUS_LINE = "invalid answer: expected a status line of HTTP such as HTTP/1.1 200 OK, got "
SENTENCES = {
    b"": "the server closed the connection without an answer",
    b"HTTP/1.1 200 OK\r\ncontent-le": "the server closed the connection without an answer",
    b"SSH-2.0-OpenSSH_9.6\r\n": f"{STATUS_LINE}'SSH-2.0-OpenSSH_9.6'",
    b"SSH-2.0-OpenSSH_9.6\r\n\r\n": f"{STATUS_LINE}'SSH-2.0-OpenSSH_9.6'",
    b"\xff\xfe\r\nsecond line\r\n": f"{STATUS_LINE}'\\xff\\xfe'",
    b"\x00\x01": f"{STATUS_LINE}'\\x00\\x01'",
    b"x" * 1000: f"{STATUS_LINE}'{'x' * (299 - len(STATUS_LINE))}…",
    b"the key is MY-LONG-SECRET-KEY, echoed": f"{STATUS_LINE}'the key is ***, echoed'",
    b"\x15\x03\x01\x00\x02\x02\x46": "this port speaks TLS: use https://",
    b"HTTP/1.1 20 OK\r\n\r\n": f"{STATUS_LINE}'HTTP/1.1 20 OK'",
    b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n": "invalid status: expected an answer, got 101 (Switching Protocols), which the request did not ask for",
    OK + b"X Y: 3\r\n\r\n": "invalid header: expected NAME: VALUE, got 'X Y: 3'",
    OK + b" x: 3\r\n\r\n": "invalid header: expected NAME: VALUE, got a line that begins with a space",
    OK + b"content-length: abc\r\n\r\n": "invalid Content-Length: expected a number of bytes, got something else",
    OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\n": "invalid Content-Length: expected one number, got several",
    OK + b"transfer-encoding: gzip\r\n\r\n": "invalid Transfer-Encoding: expected chunked, got another coding",
    OK
    + b"transfer-encoding: chunked\r\n" * 2
    + b"\r\n": "invalid Transfer-Encoding: expected it once, got it several times",
    OK + b"x: " + b"a" * 200_000: "invalid headers: expected at most 100 KiB, got more",
    CHUNKED + b"zz\r\n": "invalid chunk: expected its length in hexadecimal digits, got 'zz'",
    CHUNKED + b"2\r\nabcd\r\n": "invalid chunk: expected the end of a line after its data, got 'cd'",
    CHUNKED + b"2\r\nab\r\n0\r\nno colon\r\n\r\n": "invalid header: expected NAME: VALUE, got 'no colon'",
}


@pytest.mark.parametrize("said", SENTENCES, ids=lambda said: repr(said[:60]))
def test_what_is_no_http_is_described_in_words_of_http(raw_server, said):
    """The errors of h11 name its own classes and states."""
    (sent,) = send(raw_server(saying(said)).url, api_key="MY-LONG-SECRET-KEY")
    assert sent.failure.detail == SENTENCES[said]


PACKED = b"a text " * 20
CODINGS = {
    "gzip": ([b"gzip"], gzip.compress(PACKED), PACKED),
    "gzip in capitals": ([b"GZIP"], gzip.compress(PACKED), PACKED),
    "deflate": ([b"deflate"], zlib.compress(PACKED), PACKED),
    "deflate without a wrapper": ([b"deflate"], zlib.compress(PACKED)[2:-4], PACKED),
    "br": ([b"br"], brotli.compress(PACKED), PACKED),
    "zstd, two frames": ([b"zstd"], zstandard.compress(PACKED[:9]) + zstandard.compress(PACKED[9:]), PACKED),
    "one on another": ([b"gzip, deflate"], zlib.compress(gzip.compress(PACKED)), PACKED),
    "one on another, in two headers": ([b"gzip", b"deflate"], zlib.compress(gzip.compress(PACKED)), PACKED),
    "one that is unknown": ([b"lzma"], PACKED, PACKED),
    "nothing at all": ([b"zstd"], b"", b""),
    "gzip that is none": ([b"gzip"], PACKED, None),
    "deflate that is none": ([b"deflate"], b"\xff" + PACKED, None),
    "br that is none": ([b"br"], PACKED, None),
    "zstd that is none": ([b"zstd"], PACKED, None),
    "zstd that breaks off": ([b"zstd"], zstandard.compress(PACKED)[:-3], None),
    "gzip that breaks off": ([b"gzip"], gzip.compress(PACKED)[:-3], None),
    "gzip, two members": ([b"gzip"], gzip.compress(PACKED[:9]) + gzip.compress(PACKED[9:]), PACKED),
    "three codings": ([b"gzip, gzip, gzip"], gzip.compress(gzip.compress(gzip.compress(PACKED))), None),
}


@pytest.mark.parametrize("coding", CODINGS)
def test_content_codings_are_undone(raw_server, coding):
    names, packed, body = CODINGS[coding]
    (sent,) = send(raw_server(saying(whole(packed, *(b"content-encoding: " + name for name in names)))).url)
    assert (sent.failure and sent.failure.kind) == (None if body is not None else MALFORMED)
    assert body is None or sent.response.body == body


HEADERS = {
    "several of a name": (b"X-A: 1\r\nx-b: 2\r\nx-a: 3", {"x-a": "1, 3", "x-b": "2"}),
    "UTF-8": ("x-a: grün\r\nx-b: 2".encode(), {"x-a": "grün", "x-b": "2"}),
    "Latin-1": ("x-a: grün\r\nx-b: 2".encode("latin-1"), {"x-a": "grün", "x-b": "2"}),
    "what is not kept": (b"set-cookie: a=b\r\nx-b: 2", {"x-b": "2"}),
}


@pytest.mark.parametrize("which", HEADERS)
def test_headers_are_reported_by_their_names_in_lower_case(raw_server, which):
    said, told = HEADERS[which]
    (sent,) = send(raw_server(saying(OK + said + b"\r\ncontent-length: 0\r\n\r\n")).url)
    assert sent.response.headers == {**told, "content-length": "0"}


HEAD = (
    b"%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAccept-Encoding: gzip, deflate, br, zstd\r\nConnection: keep-alive\r\n"
    b"user-agent: harmony-conformance\r\ncontent-type: application/json\r\naccept: %s\r\n"
)


def test_what_is_sent_byte_by_byte(raw_server):
    server = raw_server(saying(whole(b"{}")))
    send(server.url, ASK, Request(path="/v1/models", method="GET", body=b"", headers={"accept": "*/*"}))
    usual = b"application/json, text/event-stream"
    assert server.requests == [
        HEAD % (b"POST /v1/chat/completions", server.port, usual) + b"Content-Length: 2\r\n\r\n{}",
        HEAD % (b"GET /v1/models", server.port, b"*/*") + b"\r\n",
    ]


@pytest.mark.parametrize(
    ("base", "path", "target"),
    [
        ("/a/", "/v1/x", b"/a/v1/x"),
        ("//a//b", "/v1/x", b"//a//b/v1/x"),
        ("/a%2Fb:c;d@e,f[g]|~", "/v1/x?q=%20", b"/a%2Fb:c;d@e,f[g]|~/v1/x?q=%20"),
        ('/a{b}"<>`', "/v1/x y", b"/a%7Bb%7D%22%3C%3E%60/v1/x%20y"),
    ],
)
def test_paths_are_sent_as_they_are_where_they_can_be(raw_server, base, path, target):
    server = raw_server(saying(whole(b"{}")))
    send(server.url + base, Request(path=path, body=b"{}"))
    assert server.requests[0].split(b" ")[1] == target


def test_of_a_header_that_is_given_one_is_sent(raw_server):
    server = raw_server(saying(whole(b"{}")))
    send(server.url, headers={"User-Agent": "mine", "Host": "elsewhere"})
    lines = server.requests[0].lower().split(b"\r\n")
    assert sorted(line for line in lines if line.startswith((b"user-agent:", b"host:"))) == [
        b"host: elsewhere",
        b"user-agent: mine",
    ]


@pytest.mark.parametrize("headers", [{"x": "a\nb"}, {"x y": "z"}, {"content-length": "9"}])
def test_headers_that_can_not_be_sent_are_not(raw_server, headers):
    server = raw_server(saying(whole(b"{}")))
    (sent,) = send(server.url, headers=headers)
    assert (sent.response, sent.failure.kind, server.requests) == (None, MALFORMED, [])


class Keeping:
    """Answers every request on a connection in turn, with what `saying` gives, and counts connections."""

    def __init__(self, *saying, host="127.0.0.1"):
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._saying, self.requests, self.connections = saying, [], 0
        self._listening = socket.create_server((host, 0), family=family)
        self.port = self._listening.getsockname()[1]
        self._open = ExitStack()

    def __enter__(self):
        Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._open.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            self._open.enter_context(connection)
            Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with suppress(OSError):
            while request := connection.recv(65536):
                self.requests.append(request)
                connection.sendall(self._saying[(len(self.requests) - 1) % len(self._saying)])


def test_a_connection_serves_one_request_after_another():
    with Keeping(whole(b"{}"), CHUNKED + b"2\r\n{}\r\n0\r\n\r\n") as server:
        sent = send(f"http://127.0.0.1:{server.port}", ASK, ASK, ASK)
    assert [one.response.body for one in sent] == [b"{}"] * 3
    assert server.connections == 1


def test_what_is_said_after_the_end_is_no_answer_to_the_next_request():
    with Keeping(whole(b"{}") + whole(b"[]")) as server:
        sent = send(f"http://127.0.0.1:{server.port}", ASK, ASK)
    assert [(one.failure, one.response.body) for one in sent] == [(None, b"{}")] * 2
    assert server.connections == 2


@pytest.mark.parametrize("said", [b"connection: close\r\n", b""], ids=["it says so", "HTTP/1.0"])
def test_a_connection_that_the_server_ends_serves_no_other_request(said):
    version = b"HTTP/1.1" if said else b"HTTP/1.0"
    with Keeping(version + b" 200 OK\r\n" + said + b"content-length: 2\r\n\r\n{}") as server:
        sent = send(f"http://127.0.0.1:{server.port}", ASK, ASK)
    assert [one.failure for one in sent] == [None, None]
    assert server.connections == 2


def test_a_connection_that_the_server_ended_silently_serves_no_other_request():
    class Ending(Keeping):
        def _serve(self, connection):
            with suppress(OSError):
                request = connection.recv(65536)
                if not request.endswith(b"{}"):
                    request += connection.recv(65536)
                self.requests.append(request)
                connection.sendall(whole(b"{}"))
                connection.shutdown(socket.SHUT_RDWR)

    with Ending() as server:
        sent = send(f"http://127.0.0.1:{server.port}", ASK, ASK, ASK)
    assert [(one.failure, one.response.body) for one in sent] == [(None, b"{}")] * 3
    assert (server.connections, len(server.requests)) == (3, 3)


def test_as_many_connections_are_opened_as_requests_are_sent_at_once():
    async def together(url):
        async with Client(ConnectionSettings(base_url=url, headers={}, timeout=5.0)) as client:
            return [await asyncio.gather(*(client.send(ASK) for _ in range(3))) for _ in range(4)]

    with Keeping(whole(b"{}")) as server:
        sent = asyncio.run(together(f"http://127.0.0.1:{server.port}"))
    assert [one.failure for group in sent for one in group] == [None] * 12
    assert server.connections == 3


class Counted(httpx.AsyncBaseTransport):
    """A transport that notes how many requests it has at the same time, and whether it is closed."""

    def __init__(self, fails=False):
        self.at_once, self.most, self.is_closed, self.fails = 0, 0, False, fails

    async def handle_async_request(self, request):
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if self.fails:
            raise httpx.ReadError("")
        return httpx.Response(200, stream=httpx.ByteStream(b"{}"))

    async def aclose(self):
        self.is_closed = True


@pytest.mark.parametrize("fails", [False, True])
def test_each_connection_has_one_request_at_a_time_and_idle_ones_are_limited(fails):
    opened = []

    async def together():
        def open_one():
            opened.append(Counted(fails))
            return opened[-1]

        transport = SingleConnections(open_one, 2)

        async def ask():
            try:
                response = await transport.handle_async_request(httpx.Request("GET", "http://h/"))
            except httpx.ReadError:
                return
            await response.aread()
            await response.aclose()

        await asyncio.gather(*(ask() for _ in range(5)))
        idle = sum(not one.is_closed for one in opened)
        await asyncio.gather(ask(), ask())
        await transport.aclose()
        return idle

    assert asyncio.run(together()) == 2
    assert (len(opened), {one.most for one in opened}, all(one.is_closed for one in opened)) == (5, {1}, True)


def test_a_connection_that_waited_for_too_long_is_not_used_again(monkeypatch):
    monkeypatch.setattr("harmony_conformance.transport.http_transport._LIMITS", httpx.Limits(keepalive_expiry=0.0))
    with Keeping(whole(b"{}")) as server:
        send(f"http://127.0.0.1:{server.port}", ASK, ASK)
    assert server.connections == 2


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6")
def test_an_address_of_ipv6():
    with Keeping(whole(b"{}"), host="::1") as server:
        (sent,) = send(f"http://[::1]:{server.port}")
    assert sent.failure is None
    assert b"\r\nHost: [::1]:%d\r\n" % server.port in server.requests[0]


def test_a_refusal_by_every_address_of_a_host():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    (sent,) = send(f"http://localhost:{port}")
    assert (sent.failure.kind, sent.failure.detail) == (FailureKind.NO_CONNECTION, "connection refused")


def test_a_small_request_is_sent_in_one_piece():
    with Keeping(whole(b"{}")) as server:
        send(f"http://127.0.0.1:{server.port}", *[ASK] * 20)
    assert [one.endswith(b"\r\n\r\n{}") for one in server.requests] == [True] * 20


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_what_arrives_before_a_reset_is_kept(raw_server, loop_factory):
    told = Event()

    def answer(connection, request):
        connection.sendall(CHUNKED + b"2\r\nab\r\n")
        told.wait(10)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    async def read(url):
        async with open_transport(url, Network()) as transport:
            response = await transport.handle_async_request(httpx.Request("POST", url, content=b"{}"))
            told.set()
            await asyncio.sleep(0.2)  # the reset arrives before anything of the body is read
            stream = aiter(response.stream)
            first = await anext(stream)
            with pytest.raises(httpx.ReadError):
                await anext(stream)
            return first

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(read(raw_server(answer).url)) == b"ab"


def test_a_request_that_is_not_taken_ends_in_time():
    request = Request(path="/v1/chat/completions", body=bytes(50_000_000))
    with socket.create_server(("127.0.0.1", 0)) as listening:  # nobody accepts, so the system takes only a part
        (sent,) = send(f"http://127.0.0.1:{listening.getsockname()[1]}", request, timeout=0.5)
    assert (sent.failure.kind, sent.failure.detail) == (FailureKind.TIMEOUT, "no byte arrived for 0.5 s")


def test_no_more_is_taken_from_a_server_than_is_read(raw_server):
    block, count, taken = bytes(1_000_000), 80, []

    def answer(connection, request):
        connection.sendall(OK + b"content-length: %d\r\n\r\n" % (len(block) * count))
        for _ in range(count):
            connection.sendall(block)
            taken.append(len(block))

    async def slowly(url):
        async with open_transport(url, Network()) as transport:
            response = await transport.handle_async_request(httpx.Request("POST", url, content=b"{}"))
            await asyncio.sleep(0.3)
            held, pieces = sum(taken), [len(piece) async for piece in response.stream]
            await response.aclose()
            return held, pieces

    held, pieces = asyncio.run(slowly(raw_server(answer).url))
    assert held < len(block) * count / 4  # what the sockets of the system hold
    assert (sum(pieces), max(pieces) <= 65_536) == (len(block) * count, True)


def test_a_small_body_that_decodes_to_more_than_the_memory_is_dropped_at_the_limit(raw_server):
    packed = gzip.compress(gzip.compress(bytes(200_000_000)))
    assert len(packed) < 13_000
    tracemalloc.start()
    try:
        (sent,) = send(raw_server(saying(whole(packed, b"content-encoding: gzip, gzip"))).url)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sent.failure.kind is FailureKind.TOO_LARGE
    assert peak < 4 * BODY_LIMIT


def test_a_body_of_too_many_chunks_is_dropped(raw_server, monkeypatch):
    monkeypatch.setattr(client, "MOST_CHUNKS", 3)
    (sent,) = send(raw_server(saying(CHUNKED + b"1\r\na\r\n" * 4 + b"0\r\n\r\n")).url)
    assert (sent.failure.kind, sent.failure.detail) == (FailureKind.TOO_LARGE, "the body has more than 3 chunks")
    assert sent.response.body == b"aaa"
