"""The reverse proxy as an ASGI application: what comes in goes to one fixed upstream, and back, byte by byte as it comes. It knows nothing of guards.

A client that leaves ends the request to the upstream at once. An upstream that breaks off ends the client's connection without an end: a stream that was
cut must not look whole. How an answer ended is told to whoever asked for it in the scope (`ENDED`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from harmony_conformance.json_value import dumps
from harmony_proxy.recorder import End
from harmony_proxy.watching import ENDED, Message, Receive, Scope, Send

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
_SWITCHING = 101
_BUFFER = 64 * 1024

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is allowed. Sizes in bytes, times in seconds; `idle` is how long the upstream may say nothing."""

    body: int = 64 * 1024 * 1024
    body_seconds: float = 120.0
    connect_seconds: float = 10.0
    idle_seconds: float = 600.0
    keep_alive_seconds: float = (
        3.0  # less than any server's, so that no request meets a connection that is just being closed
    )


class Refused(Exception):  # noqa: N818 - it says what happened
    """A request that is not passed on; a status and one line."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class Upstream:
    """Passes requests on to `base` (scheme, host, port, and maybe a path that is put before each)."""

    tells_its_end = True

    def __init__(self, base: str, *, limits: Limits | None = None) -> None:
        self._base = base.rstrip("/")
        self._has_path = "/" in self._base.partition("://")[2]
        self._limits = limits or Limits()
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
            )
        return self._session

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == HEALTH:
            await _answer(send, 200, b'{"status":"ok"}')
            return
        ended: Callable[[End, str], None] = scope.get(ENDED, _nobody)
        try:
            url, headers = self._address(scope), _sent_on(scope["headers"])
            body = await self._body(receive)
        except Refused as refused:
            await _answer(send, refused.status, _told(str(refused)))
            return
        if body is not None:
            await _Passing(send, ended).run(self._open(), scope["method"], url, headers, body, receive)

    def _address(self, scope: Scope) -> URL:
        if scope["method"] in _REFUSED_METHODS:
            raise Refused(405, f"{scope['method']} is not passed on")
        path: str = scope["path"]
        if self._has_path and ".." in path.split("/"):
            raise Refused(400, "a path with .. in it is not passed on")
        raw: bytes = scope.get("raw_path") or path.encode()
        query: bytes = scope["query_string"]
        text = raw.decode("latin-1") + (f"?{query.decode('latin-1')}" if query else "")
        if not text.startswith("/"):
            raise Refused(400, "a path begins with /")
        return URL(self._base + text, encoded=True)

    async def _body(self, receive: Receive) -> bytes | None:
        """The request's body, whole; None where the client left."""
        parts: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    if size > self._limits.body:
                        raise Refused(413, f"a request's body of more than {self._limits.body} bytes is not passed on")
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError:
            raise Refused(408, "the request did not come in time") from None


class _Passing:
    """One request under way. State: whether the client has the head, whether the answer is complete, and whether the client has left."""

    def __init__(self, send: Send, ended: Callable[[End, str], None]) -> None:
        self._send = send
        self._ended = ended
        self._is_started = self._is_over = self._has_left = False

    async def run(  # noqa: PLR0913, PLR0917 - a request is all that
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: URL,
        headers: CIMultiDict[str],
        body: bytes,
        receive: Receive,
    ) -> None:
        """Pass it on, and its answer back; give up at once when the client leaves."""
        task = asyncio.current_task()
        leaving = asyncio.ensure_future(_until_gone(receive))

        def left(_: asyncio.Future[None]) -> None:
            if not self._is_over and not leaving.cancelled() and task is not None:
                self._has_left = True
                task.cancel()

        leaving.add_done_callback(left)
        try:
            await self._pass(session, method, url, headers, body)
        except asyncio.CancelledError:
            if not self._has_left:
                raise
            if task is not None:
                task.uncancel()
            self._ended(End.CLIENT_LEFT, "")
        finally:
            self._is_over = True
            leaving.cancel()

    async def _pass(
        self, session: aiohttp.ClientSession, method: str, url: URL, headers: CIMultiDict[str], body: bytes
    ) -> None:
        try:
            async with session.request(
                method, url, headers=headers, data=body or None, allow_redirects=False
            ) as response:
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
            await _answer(self._send, 400, _told("a header of the request cannot be passed on"))

    async def _back(self, response: aiohttp.ClientResponse) -> None:
        if response.status == _SWITCHING:
            raise aiohttp.ClientPayloadError("the upstream switches protocols unasked")
        headers = _without(response.raw_headers, _HOP_BY_HOP)
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
        self._ended(end, type(problem).__name__)
        if not self._is_started:
            self._is_over = True
            await _answer(self._send, status, _told(words))


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _answer(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    start: Message = {"type": "http.response.start", "status": status, "headers": headers}
    with suppress(OSError):
        await send(start)
        await send({"type": "http.response.body", "body": body})


def _told(words: str) -> bytes:
    return dumps({"error": {"message": words, "type": "proxy_error", "param": None, "code": None}}).encode()


def _sent_on(headers: Iterable[tuple[bytes, bytes]]) -> CIMultiDict[str]:
    return CIMultiDict(
        (name.decode("latin-1"), value.decode("utf-8", "surrogateescape"))
        for name, value in _without(headers, _NOT_SENT_ON)
    )


def _without(headers: Iterable[tuple[bytes, bytes]], names: frozenset[bytes]) -> Headers:
    """The headers without some, and without those that `Connection` names."""
    lowered = [(name.lower(), value) for name, value in headers]
    for name, value in lowered:
        if name == b"connection":
            names |= {word.strip().lower() for word in value.split(b",")}
    return [pair for pair in lowered if pair[0] not in names]


def _nobody(_: End, __: str) -> None:
    """Nobody wants to know how it ended."""
