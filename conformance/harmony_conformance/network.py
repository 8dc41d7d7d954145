"""The network as what carries requests: connections to one server, kept open for a while from one request to the next."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Mapping
from types import MappingProxyType
from typing import TypedDict
from urllib.parse import quote, urlsplit

import certifi

from harmony_conformance.carrier import Answer, BrokenOff, Carrier, Headers, in_words
from harmony_conformance.command import UsageError
from harmony_conformance.connection import Connection
from harmony_conformance.wire import FailureKind

CA_FILE, CA_DIR = "SSL_CERT_FILE", "SSL_CERT_DIR"
"""The variables that name the certificates to trust in place of the usual ones."""
_IDLE = 2.0  # seconds after which a connection is not used again; servers close theirs after 5 or more, and a request must not meet that
_MOST_KEPT = 64
_NEXT_ADDRESS = 0.25  # seconds until the next address of a host is tried as well (RFC 8305)
_SENT_AS_THEY_ARE = "".join(map(chr, range(0x21, 0x7F))).translate(dict.fromkeys(map(ord, '"#<>`{}')))
_PORTS: Mapping[str, int] = MappingProxyType({"http": 80, "https": 443})
_CERTIFICATE = "certificate verify failed"
_RIGHT_CERTIFICATE: Mapping[str, str] = MappingProxyType(
    {
        "Hostname mismatch": "use the name that the certificate was issued for",
        "IP address mismatch": "use the name that the certificate was issued for",
        "expired": "the server needs a certificate that is still valid",
    }
)


class Network(Carrier):
    """State: the connections to one server that wait for a request, the latest last. No variable names a proxy, and no redirect is followed."""

    def __init__(self, base: str, timeout: float) -> None:
        """`base`: a URL; `timeout`: the longest wait for a connection, and the longest silence on it, in seconds.

        Raises:
            UsageError: the certificates that a variable names can not be read.
        """
        split = urlsplit(base)
        self._host, self._port = split.hostname or "", split.port or _PORTS[split.scheme]
        self._path = split.path.rstrip("/")
        self._named = (b"Host", _authority(self._host, split.port, _PORTS[split.scheme]).encode("ascii"))
        self._timeout = timeout
        self._tls: _Tls = {}
        if split.scheme == "https":
            self._tls = {"ssl": _trusted(), "ssl_handshake_timeout": 2 * timeout}  # ours is the one that ends it
        self._targets: dict[str, str] = {}
        self._kept: list[tuple[float, Connection]] = []
        self._in_use: set[Connection] = set()

    async def ask(self, method: str, path: str, headers: Headers, body: bytes) -> Answer:
        """Send a request on a connection that waits for one, else on a new one. A header `Host` replaces ours."""
        if path not in self._targets:
            self._targets[path] = quote(f"{self._path}/{path.lstrip('/')}".partition("#")[0], safe=_SENT_AS_THEY_ARE)
        if not any(name.lower() == b"host" for name, _ in headers):
            headers = (self._named, *headers)
        connection = self._waiting() or await self._connected()
        self._in_use.add(connection)
        try:
            await connection.ask(method, self._targets[path], headers, body)
        except BaseException:
            connection.leave()
            raise
        return connection

    async def close(self) -> None:
        """Close every connection."""
        for connection in (*self._in_use, *(connection for _, connection in self._kept)):
            connection.close()
        self._kept.clear()
        await asyncio.sleep(0)  # what was closed is told so by the loop

    def _waiting(self) -> Connection | None:
        """A connection that waits for a request. The latest comes first: where it has waited too long, so have all."""
        while self._kept:
            since, connection = self._kept.pop()
            if connection.is_free and self._now() - since < _IDLE:
                return connection
            connection.close()
        return None

    def _left(self, connection: Connection) -> None:
        """An exchange on a connection is over."""
        self._in_use.discard(connection)
        if connection.is_free and len(self._kept) < _MOST_KEPT:
            self._kept.append((self._now(), connection))
        else:
            connection.close()

    async def _connected(self) -> Connection:
        """A new connection.

        Raises:
            BrokenOff: there is none.
        """
        try:
            async with asyncio.timeout(self._timeout):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._timeout, self._left),
                    self._host,
                    self._port,
                    happy_eyeballs_delay=_NEXT_ADDRESS,
                    **self._tls,
                )
        except TimeoutError:
            raise BrokenOff(FailureKind.NO_CONNECTION, f"no connection within {self._timeout:g} s") from None
        except (OSError, UnicodeError) as problem:
            raise BrokenOff(FailureKind.NO_CONNECTION, _no_connection(problem)) from None
        return connection

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


class _Tls(TypedDict, total=False):
    ssl: ssl.SSLContext
    ssl_handshake_timeout: float


def _trusted() -> ssl.SSLContext:
    """What trusts the certificates that the environment names, else those of Mozilla's list.

    Raises:
        UsageError: they can not be read.
    """
    file, folder = os.environ.get(CA_FILE) or None, os.environ.get(CA_DIR) or None
    named = file is not None or folder is not None
    try:
        context = ssl.create_default_context(cafile=file if named else certifi.where(), capath=folder)
    except OSError as problem:
        raise UsageError(f"{CA_FILE} {file}: {problem.strerror or problem}") from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def _authority(host: str, port: int | None, usual: int) -> str:
    """Host and port as the header `Host` has them."""
    bracketed = f"[{host}]" if ":" in host else host
    return bracketed if port is None or port == usual else f"{bracketed}:{port}"


def _no_connection(problem: Exception) -> str:
    """Why there is no connection, and what would be right where that is known."""
    told = " ".join(str(problem).split())
    match problem:
        case socket.gaierror() | UnicodeError():
            return "no such host"
        # where a host has several addresses, asyncio joins what was said of each
        case OSError() if isinstance(problem, ConnectionRefusedError) or f"[Errno {errno.ECONNREFUSED}]" in told:
            return "connection refused"
        case ssl.SSLError() if "WRONG_VERSION_NUMBER" in told:
            return "this port speaks plain http: use http://"
        case ssl.SSLError() if _CERTIFICATE in told:
            reason = told[told.index(_CERTIFICATE) :].partition(" (_ssl")[0]
            private = f"name the file of the authority that issued it by the variable {CA_FILE} (a folder: {CA_DIR})"
            right = next((right for said, right in _RIGHT_CERTIFICATE.items() if said in reason), private)
            return f"{reason}: {right}"
        case _:
            return in_words(problem)
