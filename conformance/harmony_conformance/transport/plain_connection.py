"""A transport of httpx for one plain HTTP/1.1 connection: httpcore's, without the pool of httpx's own transport."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, MutableMapping
from typing import Any, cast

import httpcore
import httpx

from harmony_conformance.transport.plain_network import PlainNetwork
from harmony_conformance.transport.protocol_errors import describe_first_bytes

_NETWORK = PlainNetwork()


class PlainConnection(httpx.AsyncBaseTransport):
    """Sends one request at a time. State: the connection, once there is one."""

    def __init__(self, keepalive_expiry: float | None) -> None:
        """`keepalive_expiry`: the seconds after which an idle connection is not used again."""
        self._keepalive_expiry = keepalive_expiry
        self._connection: httpcore.AsyncHTTPConnection | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request by the connection, or a new one if that has ended. Trace events are those of a new connection.

        Raises:
            httpx.TransportError: As httpx's own transport raises it.
        """
        assert isinstance(request.stream, httpx.AsyncByteStream)
        url = httpcore.URL(
            scheme=request.url.raw_scheme,
            host=request.url.raw_host,
            port=request.url.port,
            target=request.url.raw_path,
        )
        extensions: MutableMapping[str, Any] = request.extensions
        connection = self._connection
        try:
            if connection is not None and not connection.is_closed() and connection.has_expired():
                await connection.aclose()
            if connection is None or connection.is_closed():
                connection = self._connection = httpcore.AsyncHTTPConnection(
                    url.origin, keepalive_expiry=self._keepalive_expiry, network_backend=_NETWORK
                )
            else:
                extensions = {name: value for name, value in extensions.items() if name != "trace"}
            response = await connection.handle_async_request(
                httpcore.Request(
                    request.method, url, headers=request.headers.raw, content=request.stream, extensions=extensions
                )
            )
        except httpcore.RemoteProtocolError as error:
            raise httpx.RemoteProtocolError(describe_first_bytes(str(error), _unread_data(connection))) from error
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise _as_httpx(error) from error
        assert isinstance(response.stream, AsyncIterable)
        return httpx.Response(
            response.status,
            headers=response.headers,
            stream=PlainBody(response.stream),
            extensions=response.extensions,  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType] # a dict of any values
        )

    async def aclose(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.aclose()


class PlainBody(httpx.AsyncByteStream):
    """The body of a response, `inner`, whose errors are those of httpx."""

    def __init__(self, inner: AsyncIterable[bytes]) -> None:
        self.inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield each chunk as it arrives."""
        try:
            async for piece in self.inner:
                yield piece
        except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
            raise _as_httpx(error) from error

    async def aclose(self) -> None:
        """End the response. An incomplete one closes its connection."""
        await self.inner.aclose()  # type: ignore[attr-defined] # the stream of httpcore has it


def _unread_data(connection: httpcore.AsyncHTTPConnection | None) -> bytes:
    """Return what has arrived and was not read. httpcore has no public access to it: without the attributes the result is empty."""
    part: Any = connection
    for name in ("_connection", "_h11_state", "trailing_data"):
        part = getattr(part, name, None)
    found: Any = part
    return cast("bytes", found[0]) if found else b""


def _as_httpx(error: Exception) -> httpx.TransportError:
    """Return the exception of httpx with the name of one of httpcore: both have the same."""
    found: type[httpx.TransportError] = getattr(httpx, type(error).__name__)
    return found(str(error))
