"""The reverse proxy as an ASGI application: one fixed upstream, and bytes forwarded as they arrive. Independent of guards.

- A request body that has arrived completely is sent as one. Otherwise each part is sent as it arrives, with the length
  that the client declared, or else in chunks.
- A client that disconnects, even within its request, aborts the request to the upstream at once.
- If the upstream breaks off, the client's connection is aborted: a truncated stream must not look complete.
- The end of each response is reported to the callback in the scope (`ENDED`).
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
from harmony_proxy.capture.asgi_observer import CONNECTION_KEY, END_CALLBACK_KEY, Message, Receive, Scope, Send
from harmony_proxy.capture.recorder import End
from harmony_proxy.standalone.readiness import Readiness
from harmony_proxy.standalone.request_body import (
    ClientDisconnectError,
    Limits,
    Reserve,
    Upload,
    UploadRefusedError,
    too_large,
)

HEALTH, READY = "/healthz", "/readyz"
_HEALTHY = b'{"status":"ok"}'
_DEGRADED = b'{"status":"degraded","reason":"the judge process is down: exchanges pass and wait to be judged"}'
_READY = b'{"status":"ready"}'
_NOT_READY = b'{"status":"not ready","reason":"the upstream does not accept connections"}'
_HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
_NOT_FORWARDED = _HOP_BY_HOP | {b"host", b"content-length", b"expect", b"http2-settings"}
_AUTO_HEADERS = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_REFUSED_METHODS = frozenset({"CONNECT", "TRACE"})
_SWITCHING_PROTOCOLS = 101
_STATUSES = range(200, 600)
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
    """Forwards requests to `base`: scheme, host, port, and optionally a path that is put before each request's path.

    `is_judging` decides between the two answers of `HEALTH`.
    """

    reports_end = True

    def __init__(
        self, base: str, *, limits: Limits | None = None, is_judging: Callable[[], bool] = lambda: True
    ) -> None:
        self._is_judging = is_judging
        self._base, self._limits = base.rstrip("/"), limits or Limits()
        self._has_path = "/" in self._base.partition("://")[2]
        self._reserve = Reserve(self._limits.body)
        self._readiness = Readiness(base)
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        self._open()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._session is not None:
            await self._session.close()
        await send({"type": "lifespan.shutdown.complete"})

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connect, idle = self._limits.connect_seconds, self._limits.idle_seconds
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=self._limits.keep_alive_seconds),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=idle),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=_AUTO_HEADERS,
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
            await _answer(send, 200, _HEALTHY if self._is_judging() else _DEGRADED)
            return
        if scope["path"] == READY:
            is_ready = await self._readiness.is_ready()
            await _answer(send, 200 if is_ready else 503, _READY if is_ready else _NOT_READY)
            return
        ended: Callable[[End, str], None] = scope.get(END_CALLBACK_KEY) or (lambda _end, _detail: None)
        upload = Upload(receive, self._limits, client=scope.pop(CONNECTION_KEY, _UNKNOWN), reserve=self._reserve)
        try:
            url, headers = self._url(scope), _forwarded_headers(scope["headers"])
            declared = (value for name, value in scope["headers"] if name.lower() == b"content-length")
            length: str | None = next((value.decode("latin-1") for value in declared), None)
            if length is not None and int(length) > self._limits.body:
                raise too_large(self._limits.body)
            body = await upload.begin()
        except UploadRefusedError as refused:
            ended(End.REFUSED, str(refused))
            await _answer(send, refused.status, _error_body(str(refused)))
            return
        except ClientDisconnectError as left:
            ended(*_end_of(left))
            return
        if body is None and length is not None:
            headers["Content-Length"] = length
        await _Forwarding(send, ended, upload, URL(self._base)).run(self._open(), scope["method"], url, headers, body)

    def _url(self, scope: Scope) -> URL:
        if scope["method"] in _REFUSED_METHODS:
            raise UploadRefusedError(405, f"the method {scope['method']} is not supported")
        if _transfer_coding(scope["headers"]) not in _CODINGS:
            raise UploadRefusedError(501, "unsupported transfer coding: expected chunked")
        path: str = scope["path"]
        if self._has_path and ".." in path.split("/"):
            raise UploadRefusedError(400, "invalid path: expected no .. segment")
        raw: bytes = scope.get("raw_path") or path.encode()
        query: bytes = scope["query_string"]
        text = raw.decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
        if not text.startswith("/"):
            raise UploadRefusedError(400, "invalid path: expected / at its start")
        return URL(self._base + text, encoded=True)


class _Response(aiohttp.ClientResponse):
    """A response that is reset if it is abandoned early: a FIN would queue behind the unsent part of the request."""

    def close(self) -> None:
        transport = self.connection.transport if self.connection is not None else None
        if transport is not None and _unsent_bytes(transport):
            with suppress(OSError):
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            transport.abort()
        super().close()


def _unsent_bytes(transport: asyncio.Transport) -> int:
    """Return the bytes that the other side has not taken yet; those in system buffers only on Linux."""
    size = transport.get_write_buffer_size()
    if size or sys.platform != "linux":
        return size
    try:
        unsent = fcntl.ioctl(transport.get_extra_info("socket").fileno(), _SIOCOUTQNSD, bytes(4))
    except OSError:  # closed
        return 0
    return int.from_bytes(unsent, sys.byteorder)


class _InvalidAnswerError(aiohttp.ClientPayloadError):
    """An answer that cannot be passed on. The message has the reason."""


class _Forwarding:
    """One open request. State: whether the response has begun, whether it is complete, and the error of the client."""

    def __init__(self, send: Send, ended: Callable[[End, str], None], upload: Upload, base: URL) -> None:
        self._send, self._ended, self._upload, self._base = send, ended, upload, base
        self._is_started = self._is_over = False
        self._why: BaseException | None = None

    async def run(
        self, session: aiohttp.ClientSession, method: str, url: URL, headers: CIMultiDict[str], body: bytes | None
    ) -> None:
        """Forward the request, and the response back; stop at once if the client leaves. A `body` of None is incomplete."""
        task = asyncio.current_task()
        upload = asyncio.ensure_future(self._upload.run())

        def stop(_: asyncio.Future[None]) -> None:
            if not upload.cancelled():
                problem = upload.exception()
                if not self._is_over and task is not None:
                    self._why = problem
                    task.cancel()

        upload.add_done_callback(stop)
        try:
            await self._forward(session, method, url, headers, self._upload.parts() if body is None else body or None)
        except asyncio.CancelledError:
            if self._why is None:
                raise
            if task is not None:
                task.uncancel()
            match self._why:
                case ClientDisconnectError() as left:
                    self._ended(*_end_of(left))
                case UploadRefusedError() as why:
                    await self._break_off(End.REFUSED, why.status, str(why), why)
                case TimeoutError() as why:
                    await self._break_off(End.TIMEOUT, 504, "the upstream did not take the request in time", why)
                case why:
                    raise why from None
        finally:
            self._is_over = True
            upload.cancel()

    async def _forward(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: URL,
        headers: CIMultiDict[str],
        body: bytes | AsyncIterator[bytes] | None,
    ) -> None:
        try:
            async with session.request(method, url, headers=headers, data=body, allow_redirects=False) as response:
                await self._send_back(response)
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as problem:
            await self._break_off(End.NO_CONNECTION, 502, _connection_fault(problem), problem)
        except TimeoutError as problem:
            await self._break_off(End.TIMEOUT, 504, "the upstream did not answer in time", problem)
        except (aiohttp.ClientError, OSError) as problem:
            end = End.CUT if self._is_started else End.RESET
            await self._break_off(end, 502, _fault_of(problem), problem)
        except ValueError:  # a header with a line break
            self._is_over = True
            message = "a header of the request cannot be passed on"
            self._ended(End.REFUSED, message)
            await _answer(self._send, 400, _error_body(message))

    async def _send_back(self, response: aiohttp.ClientResponse) -> None:
        if response.status not in _STATUSES:
            switched = response.status == _SWITCHING_PROTOCOLS
            wrong = "switches protocols without a request" if switched else "sends an invalid status"
            raise _InvalidAnswerError(f"the upstream {wrong}")
        if _transfer_coding(response.raw_headers) not in _CODINGS:
            raise _InvalidAnswerError("the upstream uses an unsupported transfer coding")
        headers = _without(response.raw_headers, _HOP_BY_HOP)
        if response.status in _REDIRECTS:
            headers = [(name, _rewrite_location(it, self._base) if name == b"location" else it) for name, it in headers]
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

    async def _break_off(self, end: End, status: int, message: str, problem: BaseException) -> None:
        """Send an error if the response has not begun. Otherwise send nothing: the server then aborts the connection."""
        is_specific = end is End.REFUSED or isinstance(problem, _InvalidAnswerError | aiohttp.ClientResponseError)
        self._ended(end, message if is_specific else type(problem).__name__)
        if not self._is_started:
            self._is_over = True
            await _answer(self._send, status, _error_body(message))


def _connection_fault(problem: aiohttp.ClientError) -> str:
    """Return why there is no connection, without the host name of the upstream, which is not for clients."""
    match problem:
        case aiohttp.ClientConnectorCertificateError():
            return "the upstream's TLS certificate is not trusted, or has another name"
        case aiohttp.ClientConnectorSSLError():
            return "the upstream does not speak TLS"
        case aiohttp.ClientConnectorDNSError():
            return "the upstream's host name cannot be resolved"
        case _:
            return "the upstream cannot be reached"


def _fault_of(problem: aiohttp.ClientError | OSError) -> str:
    """Return what the upstream did wrong, without a quotation of its bytes."""
    match problem:
        case _InvalidAnswerError():
            return str(problem)
        case aiohttp.ClientResponseError():
            return "the upstream's answer is no valid HTTP/1.1"
        case _:
            return "the upstream broke off"


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    start: Message = {"type": "http.response.start", "status": status, "headers": headers}
    with suppress(OSError):
        await send(start)
        await send({"type": "http.response.body", "body": body})


def _error_body(message: str) -> bytes:
    return dumps({"error": {"message": message, "type": "proxy_error", "param": None, "code": None}}).encode()


def _forwarded_headers(headers: Iterable[tuple[bytes, bytes]]) -> CIMultiDict[str]:
    pairs = _without(headers, _NOT_FORWARDED)
    try:
        return CIMultiDict((name.decode("latin-1"), value.decode("utf-8")) for name, value in pairs)
    except UnicodeDecodeError:  # aiohttp would drop these bytes
        raise UploadRefusedError(400, "invalid header: expected UTF-8") from None


def _transfer_coding(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b",".join(value.strip().lower() for name, value in headers if name.lower() == b"transfer-encoding")


def _rewrite_location(location: bytes, base: URL) -> bytes:
    """Rewrite a redirect to the upstream as a path, so that the client does not bypass the proxy."""
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


def _without(headers: Iterable[tuple[bytes, bytes]], names: frozenset[bytes]) -> Headers:
    """Return lower-case headers without `names` and those that `Connection` names."""
    lowered = [(name.lower(), value) for name, value in headers]
    for name, value in lowered:
        if name == b"connection":
            names |= {word.strip().lower() for word in value.split(b",")}
    return [pair for pair in lowered if pair[0] not in names]


def _end_of(left: ClientDisconnectError) -> tuple[End, str]:
    return (End.MALFORMED if str(left) else End.CLIENT_LEFT), str(left)


class _UnknownConnection:
    """The connection of a client under a server that reports nothing of it."""

    fault = ""

    def has_left(self) -> bool:
        """Return False: unknown."""
        return False


_UNKNOWN = _UnknownConnection()
