"""Raw requests that two servers could read differently, and the upstream that finds out what became of them."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread

import h11

PATH = b"/v1/chat/completions"
SECOND = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"


def post(*lines: bytes, body: bytes = b"", end: bytes = b"\r\n") -> bytes:
    return end.join((b"POST %b HTTP/1.1" % PATH, b"Host: proxy", *lines, b"", b"")) + body


def length(value: bytes, body: bytes = b"{}" + SECOND) -> bytes:
    return post(b"Content-Length: " + value, body=body)


def coded(value: bytes, body: bytes = CHUNKS + SECOND) -> bytes:
    return post(b"Transfer-Encoding:" + value, body=body)


def both(first: bytes, second: bytes) -> bytes:
    return post(first, second, body=CHUNKS + SECOND)


def chunk(size: bytes, tail: bytes = b"{}\r\n0\r\n\r\n") -> bytes:
    return coded(b" chunked", size + tail + SECOND)


def head(line: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join((line, *(lines or (b"Host: proxy",)), b"", b""))


CODED, TWO = b"Transfer-Encoding: chunked", b"Content-Length: 2"
REFUSED: Mapping[str, bytes] = {
    "CL.TE": both(TWO, CODED),
    "TE.CL": both(CODED, TWO),
    "CL.TE, lower case": both(b"content-length: 2", b"transfer-encoding: chunked"),
    "CL 0 with TE": both(b"Content-Length: 0", CODED),
    "two TE": both(CODED, CODED),
    "TE and TE identity": both(CODED, b"Transfer-Encoding: identity"),
    "TE xchunked": coded(b" xchunked"),
    "TE chunkedx": coded(b" chunkedx"),
    "TE identity": coded(b" identity"),
    "TE gzip": coded(b" gzip"),
    "TE gzip, chunked": coded(b" gzip, chunked"),
    "TE chunked, identity": coded(b" chunked, identity"),
    "TE chunked, chunked": coded(b" chunked, chunked"),
    "TE chunked;q=1": coded(b" chunked;q=1"),
    "TE quoted": coded(b' "chunked"'),
    "TE with vertical tab": coded(b" \x0bchunked"),
    "TE with NUL": coded(b" chunked\0"),
    "TE folded": post(b"Transfer-Encoding:", b" chunked", body=CHUNKS + SECOND),
    "TE empty": coded(b""),
    "space before colon": post(b"Transfer-Encoding : chunked", TWO, body=CHUNKS + SECOND),
    "space before name": post(b"X: y", b" Transfer-Encoding: chunked", TWO, body=CHUNKS + SECOND),
    "tab before colon": post(b"Content-Length\t: 2", body=b"{}" + SECOND),
    "two lengths": post(TWO, b"Content-Length: 40", body=b"{}" + SECOND),
    "length list, differing": length(b"2, 40"),
    "length plus": length(b"+2"),
    "length minus": length(b"-2"),
    "length hexadecimal": length(b"0x2"),
    "length with underscore": length(b"0_2"),
    "length with point": length(b"2.0"),
    "length with letter": length(b"2x"),
    "length with space inside": length(b"2 2"),
    "length overflow": length(b"18446744073709551618"),
    "length of 100 digits": length(b"1" * 100),
    "length empty": length(b""),
    "length with NUL": length(b"2\0"),
    "chunk size negative": chunk(b"-2\r\n"),
    "chunk size plus": chunk(b"+2\r\n"),
    "chunk size 0x": chunk(b"0x2\r\n"),
    "chunk size overflow": chunk(b"10000000000000002\r\n"),
    "chunk size empty": chunk(b"\r\n"),
    "chunk size letter": chunk(b"g\r\n"),
    "chunk size underscore": chunk(b"0_2\r\n"),
    "chunk longer than its size": coded(b" chunked", b"2\r\n{}xx\r\n0\r\n\r\n" + SECOND),
    "bare LF in head": post(CODED, TWO, body=CHUNKS + SECOND, end=b"\n"),
    "bare CR in value": post(b"X: a\rTransfer-Encoding: chunked", TWO, body=CHUNKS + SECOND),
    "NUL in value": post(b"X: a\0b", TWO, body=b"{}"),
    "NUL in name": post(b"X\0: a", TWO, body=b"{}"),
    "name with non-ASCII": post(b"X\xff: a", TWO, body=b"{}"),
    "header without colon": post(b"Hello", TWO, body=b"{}"),
    "header with empty name": post(b": a", TWO, body=b"{}"),
    "folded header": post(b"X: a", b" b", TWO, body=b"{}"),
    "HTTP/0.9": b"GET %b\r\n\r\n" % PATH,
    "HTTP/3.0": head(b"POST %b HTTP/3.0" % PATH),
    "HTTP/1.1x": head(b"POST %b HTTP/1.1x" % PATH),
    "two spaces in line": head(b"POST  %b  HTTP/1.1" % PATH),
    "no target": head(b"POST HTTP/1.1"),
    "NUL in target": head(b"POST /v1\0/chat HTTP/1.1"),
    "method with bracket": head(b"PO(ST %b HTTP/1.1" % PATH),
    "CONNECT": head(b"CONNECT 127.0.0.1:80 HTTP/1.1"),
    "TRACE": head(b"TRACE %b HTTP/1.1" % PATH),
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}
"""Refused: the upstream sees nothing of them."""

FORWARDED: Mapping[str, bytes] = {
    "plain": post(TWO, body=b"{}"),
    "plain chunks": post(CODED, body=CHUNKS),
    "chunk extension": post(CODED, body=b"2;a=b\r\n{}\r\n0\r\n\r\n"),
    "trailer": post(CODED, body=b"2\r\n{}\r\n0\r\nX-Api-Key: evil\r\n\r\n"),
    "lengths equal": post(b"Content-Length: 2, 2", body=b"{}"),
    "absolute URI": head(b"GET http://evil.example/v1/models HTTP/1.1"),
    "double slash": head(b"GET //evil.example/v1/models HTTP/1.1"),
    "user info": head(b"GET @evil.example/v1/models HTTP/1.1"),
    "two hosts": head(b"GET /v1/models HTTP/1.1", b"Host: a", b"Host: evil.example"),
    "Connection names a header": post(b"Connection: close, X-Api-Key", b"X-Api-Key: k", TWO, body=b"{}"),
    "Upgrade": head(b"GET /v1/models HTTP/1.1", b"Host: a", b"Connection: upgrade", b"Upgrade: websocket"),
    "short body, then gone": post(b"Content-Length: 50", body=b"{}"),
}
"""Forwarded as at most one well-formed request to the upstream alone, or refused."""


@dataclass
class RawUpstream:
    """Keeps all bytes of each connection and answers once."""

    listener: socket.socket
    connections: list[bytearray] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.listener.getsockname()[1])

    def accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        data = bytearray()
        self.connections.append(data)
        with connection, suppress(OSError):
            connection.settimeout(10)
            while not is_whole(bytes(data)) and (more := connection.recv(65536)):
                data += more
            connection.settimeout(0.05)
            with suppress(TimeoutError):
                data += connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")


@contextmanager
def raw_upstream() -> Iterator[RawUpstream]:
    upstream = RawUpstream(socket.create_server(("127.0.0.1", 0), backlog=64))
    Thread(target=upstream.accept, daemon=True).start()
    try:
        yield upstream
    finally:
        upstream.listener.close()


def is_whole(data: bytes) -> bool:
    return bool(requests(data)[1])


def requests(data: bytes) -> tuple[list[h11.Request], int, bytes]:
    """Read the bytes of a connection: the requests, how many are whole, and what follows the first."""
    parser, found = h11.Connection(h11.SERVER), []
    parser.receive_data(data)
    ended = 0
    with suppress(h11.RemoteProtocolError):
        while (event := parser.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Request):
                found.append(event)
            if isinstance(event, h11.EndOfMessage):
                ended += 1
    return found, ended, parser.trailing_data[0]


def misread(name: str, reply: bytes, connections: list[bytearray]) -> str:
    """Return the reason why a probe got through; empty if it did not."""
    seen = [data for data in connections if data]
    status = reply.split(b" ")[1] if reply.startswith(b"HTTP/1.") else b""
    if name in REFUSED:
        if any(is_whole(bytes(data)) for data in seen) or b"smuggled" in b"".join(seen):
            return "reached the upstream"
        return "" if status[:1] in (b"4", b"5", b"") else f"answered with {status.decode()}"
    if len(seen) > 1:
        return f"{len(seen)} requests"
    for data in seen:
        found, _, rest = requests(bytes(data))
        names = [key for request in found for key, _ in request.headers]
        if len(found) > 1 or rest:
            return "more than one request"
        if names.count(b"content-length") + names.count(b"transfer-encoding") > 1:
            return "two lengths"
        if b"evil" in dict(found[0].headers).get(b"host", b"") or b"x-api-key" in names or b"upgrade" in names:
            return "a header that belongs to this hop"
    return ""
