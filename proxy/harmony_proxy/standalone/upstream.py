"""The reverse proxy as an ASGI application: what comes in goes to one fixed upstream, and back, byte by byte as it comes. It knows nothing of guards.

A body that has come as a whole is sent on as one; of any other each piece goes on as it comes, under the length that the client named, else in chunks.
A client that leaves, in the middle of its request too, ends the request to the upstream at once. An upstream that breaks off ends the client's connection
without an end: a stream that was cut must not look whole. How an answer ended is told to whoever asked for it in the scope (`ENDED`).
"""

from __future__ import annotations

import asyncio
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from harmony_conformance.json_value import dumps
from harmony_proxy.capture.observation import ENDED, LEFT, Message, Receive, Scope, Send
from harmony_proxy.capture.recorder import End
from harmony_proxy.standalone.request_body import (
    ClientDisconnectError,
    Limits,
    Reserve,
    Upload,
    UploadRefusedError,
    too_large,
)

HEALTH = "/healthz"
_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_SENT_ON = _HOP_BY_HOP | {b"host", b"content-length", b"expect", b"http2-settings"}
_OURS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_REFUSED_METHODS = frozenset({"CONNECT", "TRACE"})
_ANSWERS = range(200, 600)
_REDIRECTS = range(300, 400)
_CODINGS = frozenset({b"", b"chunked", b"identity"})
_HEADERS = 1000
_BUFFER = 64 * 1024
_SIOCOUTQNSD = 0x894B  # linux/sockios.h
_RESET = struct.pack("ii", 1, 0)

if sys.platform == "linux":
    import fcntl

Headers = list[tuple[bytes, bytes]]


class Upstream:
    """Passes requests on to `base` (scheme, host, port, and maybe a path that is put before each)."""

    tells_its_end = True

    def __init__(self, base: str, *, limits: Limits | None = None) -> None:
        self._base = base.rstrip("/")
        self._has_path = "/" in self._base.partition("://")[2]
        self._limits = limits or Limits()
        self._reserve = Reserve(self._limits.body)
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one scope."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        self._open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._session is not None:
            await self._session.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            limits = self._limits
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=limits.keep_alive_seconds),
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=limits.connect_seconds, sock_read=limits.idle_seconds
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=_OURS,
                trust_env=False,
                read_bufsize=_BUFFER,
                max_line_size=_BUFFER,
                max_field_size=_BUFFER,
                max_headers=_HEADERS,
                response_class=_Response,
            )
        return self._session

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == HEALTH:
            await _answer(send, 200, b'{"status":"ok"}')
            return
        ended: Callable[[End, str], None] = scope.get(ENDED, _nobody)
        upload = Upload(receive, self._limits, client=scope.pop(LEFT, _UNKNOWN), reserve=self._reserve)
        try:
            url, headers = self._address(scope), _sent_on(scope["headers"])
            length = _length(scope["headers"])
            if length is not None and int(length) > self._limits.body:
                raise too_large(self._limits.body)
            body = await upload.begin()
        except UploadRefusedError as refused:
            ended(End.REFUSED, str(refused))
            await _answer(send, refused.status, _told(str(refused)))
            return
        except ClientDisconnectError as left:
            ended(*_how(left))
            return
        if body is None and length is not None:
            headers["Content-Length"] = length
        await _Passing(send, ended, upload, URL(self._base)).run(self._open(), scope["method"], url, headers, body)

    def _address(self, scope: Scope) -> URL:
        if scope["method"] in _REFUSED_METHODS:
            raise UploadRefusedError(405, f"{scope['method']} is not passed on")
        if _coding(scope["headers"]) not in _CODINGS:
            raise UploadRefusedError(501, "a transfer coding other than chunked is not passed on")
        path: str = scope["path"]
        if self._has_path and ".." in path.split("/"):
            raise UploadRefusedError(400, "a path with .. in it is not passed on")
        raw: bytes = scope.get("raw_path") or path.encode()
        query: bytes = scope["query_string"]
        text = raw.decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
        if not text.startswith("/"):
            raise UploadRefusedError(400, "a path begins with /")
        return URL(self._base + text, encoded=True)


class _Response(aiohttp.ClientResponse):
    """One that, given up before its head came, is so at once: an end would stand behind all that the upstream has not taken of the request."""

    def close(self) -> None:
        transport = self.connection.transport if self.connection is not None else None
        if transport is not None and _untaken(transport):
            with suppress(OSError):
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()
        super().close()


def _untaken(transport: asyncio.Transport) -> int:
    """Bytes that were not sent yet, as the other side has no room for them. Only Linux tells how many its own buffers hold."""
    size = transport.get_write_buffer_size()
    if size or sys.platform != "linux":
        return size
    try:
        told = fcntl.ioctl(transport.get_extra_info("socket").fileno(), _SIOCOUTQNSD, bytes(4))
    except OSError:  # it is closed
        return 0
    return int.from_bytes(told, sys.byteorder)


class _Passing:
    """One request under way. State: whether the client has the head, whether the answer is complete, and what ended it from the client's side."""

    def __init__(self, send: Send, ended: Callable[[End, str], None], upload: Upload, base: URL) -> None:
        self._send = send
        self._ended = ended
        self._upload = upload
        self._base = base
        self._is_started = self._is_over = False
        self._why: BaseException | None = None

    async def run(
        self, session: aiohttp.ClientSession, method: str, url: URL, headers: CIMultiDict[str], body: bytes | None
    ) -> None:
        """Pass it on, and its answer back; give up at once when the client leaves. `body` is all of it, None where it is still coming."""
        task = asyncio.current_task()
        coming = asyncio.ensure_future(self._upload.run())

        def stop(_: asyncio.Future[None]) -> None:
            if not coming.cancelled():
                problem = coming.exception()
                if not self._is_over and task is not None:
                    self._why = problem
                    task.cancel()

        coming.add_done_callback(stop)
        try:
            await self._pass(session, method, url, headers, self._upload.parts() if body is None else body or None)
        except asyncio.CancelledError:
            if self._why is None:
                raise
            if task is not None:
                task.uncancel()
            await self._gave_up(self._why)
        finally:
            self._is_over = True
            coming.cancel()

    async def _gave_up(self, why: BaseException) -> None:
        match why:
            case ClientDisconnectError():
                self._ended(*_how(why))
            case UploadRefusedError():
                await self._broken(End.REFUSED, why.status, str(why), why)
            case TimeoutError():
                await self._broken(End.TIMEOUT, 504, "the upstream did not take the request in time", why)
            case _:
                raise why

    async def _pass(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: URL,
        headers: CIMultiDict[str],
        body: bytes | AsyncIterator[bytes] | None,
    ) -> None:
        try:
            async with session.request(method, url, headers=headers, data=body, allow_redirects=False) as response:
                await self._back(response)
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as problem:
            await self._broken(End.NO_CONNECTION, 502, "the upstream cannot be reached", problem)
        except TimeoutError as problem:
            await self._broken(End.TIMEOUT, 504, "the upstream did not answer in time", problem)
        except (aiohttp.ClientError, OSError) as problem:
            end = End.CUT if self._is_started else End.RESET
            await self._broken(end, 502, "the upstream broke off", problem)
        except ValueError:  # a header that would be two
            self._is_over = True
            words = "a header of the request cannot be passed on"
            self._ended(End.REFUSED, words)
            await _answer(self._send, 400, _told(words))

    async def _back(self, response: aiohttp.ClientResponse) -> None:
        if response.status not in _ANSWERS:
            raise aiohttp.ClientPayloadError(
                "the upstream switches protocols unasked, or has a status that there is not"
            )
        if _coding(response.raw_headers) not in _CODINGS:
            raise aiohttp.ClientPayloadError("the upstream uses a transfer coding that nobody asked for")
        headers = _without(response.raw_headers, _HOP_BY_HOP)
        if response.status in _REDIRECTS:
            headers = [(name, _through_us(it, self._base) if name == b"location" else it) for name, it in headers]
        self._is_started = True
        await self._send({"type": "http.response.start", "status": response.status, "headers": headers})
        content = response.content
        while True:
            data = await content.readany()
            if content.at_eof():
                self._is_over = True
                await self._send({"type": "http.response.body", "body": data, "more_body": False})
                return
            if data:
                await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def _broken(self, end: End, status: int, words: str, problem: BaseException) -> None:
        """Say so, where nothing was said yet. Otherwise nothing is: a server that is left without an end breaks the connection off."""
        self._ended(end, words if end is End.REFUSED else type(problem).__name__)
        if not self._is_started:
            self._is_over = True
            await _answer(self._send, status, _told(words))


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    start: Message = {"type": "http.response.start", "status": status, "headers": headers}
    with suppress(OSError):
        await send(start)
        await send({"type": "http.response.body", "body": body})


def _told(words: str) -> bytes:
    return dumps({"error": {"message": words, "type": "proxy_error", "param": None, "code": None}}).encode()


def _sent_on(headers: Iterable[tuple[bytes, bytes]]) -> CIMultiDict[str]:
    try:
        return CIMultiDict(
            (name.decode("latin-1"), value.decode("utf-8")) for name, value in _without(headers, _NOT_SENT_ON)
        )
    except UnicodeDecodeError:  # aiohttp would leave those bytes out
        raise UploadRefusedError(400, "a header that is no UTF-8 is not passed on") from None


def _coding(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """How the body is coded for its way."""
    return b",".join(value.strip().lower() for name, value in headers if name.lower() == b"transfer-encoding")


def _through_us(location: bytes, base: URL) -> bytes:
    """Where a redirect leads: what leads to the upstream itself would lead past us, so only its path is told."""
    try:
        there = URL(location.decode("ascii"), encoded=True)
        is_ours = there.absolute and there.origin() == base.origin()
    except ValueError:
        return location
    before = base.raw_path.rstrip("/")
    if not is_ours or not f"{there.raw_path}/".startswith(f"{before}/"):
        return location
    fragment = f"#{there.raw_fragment}" if there.raw_fragment else ""
    path = there.raw_path_qs.removeprefix(before)
    return ((path if path.startswith("/") else f"/{path}") + fragment).encode("ascii")


def _length(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The length that the client said its body has."""
    return next((value.decode("latin-1") for name, value in headers if name.lower() == b"content-length"), None)


def _without(headers: Iterable[tuple[bytes, bytes]], names: frozenset[bytes]) -> Headers:
    """The headers without some, and without those that `Connection` names."""
    lowered = [(name.lower(), value) for name, value in headers]
    for name, value in lowered:
        if name == b"connection":
            names |= {word.strip().lower() for word in value.split(b",")}
    return [pair for pair in lowered if pair[0] not in names]


def _nobody(_: End, __: str) -> None:
    """Nobody wants to know how it ended."""


def _how(left: ClientDisconnectError) -> tuple[End, str]:
    return (End.MALFORMED if str(left) else End.CLIENT_LEFT), str(left)


class _Unknown:
    """A client of whom the server tells nothing."""

    fault = ""

    def has_left(self) -> bool:
        """Nobody knows."""
        return False


_UNKNOWN = _Unknown()
