"""The connection to a server: an httpx transport with proxy, Unix socket and certificates, and readable connection errors."""

from __future__ import annotations

import os
import re
import socket
import ssl
from base64 import b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, cast
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import certifi
import httpx

from harmony_conformance.errors import UsageError
from harmony_conformance.transport.messages import Failure, FailureKind
from harmony_conformance.transport.plain_connection import PlainBody, PlainConnection
from harmony_conformance.transport.protocol_errors import describe_protocol_error
from harmony_conformance.transport.single_connections import ReleasingStream, SingleConnections
from harmony_ref.extras import install_command

CA_FILE, CA_DIR = "SSL_CERT_FILE", "SSL_CERT_DIR"
"""The environment variables with the trusted certificates that replace the default ones."""
_MOST_IDLE = 64
_LIMITS = httpx.Limits(
    max_connections=None,
    max_keepalive_connections=_MOST_IDLE,
    keepalive_expiry=2.0,  # seconds: servers close idle connections after 5 or more, which a request must not meet
)
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
_PROXY_URL = "http://[USER:PASSWORD@]HOST:PORT (or https, socks5, socks5h)"
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?")
STREAM_RESET = "StreamReset"
"""The error text for a reset HTTP/2 stream. Its connection stays open, so a retry would fail again, without end."""
_ENDS = ("disconnected", "ConnectionTerminated", STREAM_RESET)
_CERTIFICATE_REQUIRED = "alert certificate required"
_CERTIFICATE = "certificate verify failed"
_PRIVATE = f"name the file of the authority that issued it by --ca-file or the variable {CA_FILE} (a folder: {CA_DIR})"
_RIGHT_CERTIFICATE: Mapping[str, str] = {
    "Hostname mismatch": "use the name that the certificate was issued for",
    "IP address mismatch": "use the name that the certificate was issued for",
    "expired": "the server needs a certificate that is still valid",
}


@dataclass(frozen=True, kw_only=True)
class Network:
    """The connection options: proxy URL, path of a Unix socket, certificate files, and permission to negotiate HTTP/2."""

    proxy: str | None = field(default=None, repr=False)
    unix_socket: str | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    http2: bool = False

    @property
    def proxy_address(self) -> str:
        """The URL of the proxy without user and password; empty without a proxy."""
        split = urlsplit(self.proxy or "")
        return f"{split.scheme}://{split.netloc.rpartition('@')[2]}" if self.proxy else ""

    @property
    def secrets(self) -> tuple[str, ...]:
        """The proxy's password as written in its URL, decoded, and as sent in Proxy-Authorization."""
        split = urlsplit(self.proxy or "")
        if not split.password:
            return ()
        password = unquote(split.password)
        pair = f"{unquote(split.username or '')}:{password}"
        return tuple(dict.fromkeys((split.password, password, b64encode(pair.encode()).decode())))

    @property
    def command_line_options(self) -> tuple[str, ...]:
        """The equivalent command-line options, without secrets."""
        values = {
            "--proxy": self.proxy_address,
            "--unix-socket": self.unix_socket,
            "--ca-file": self.ca_file,
            "--client-cert": self.client_cert,
            "--client-key": self.client_key,
        }
        words = [word for name, value in values.items() if value for word in (name, value)]
        return (*words, "--http2") if self.http2 else tuple(words)


def read_proxy(text: str, source: str) -> str:
    """Return the URL of a proxy. `text` is the value of the option or variable `source`; its default scheme is `http`.

    Raises:
        UsageError: The URL is invalid, or its scheme needs a package that is not installed.
    """
    url = text.strip() if "://" in text else f"http://{text.strip()}"
    scheme = url.partition(":")[0]
    try:
        split = urlsplit(url)
        is_valid = (
            scheme in _PROXY_SCHEMES
            and _HOST.fullmatch(split.hostname or "") is not None
            and httpx.URL(url).host != ""
            and split.port != 0
            and not (split.path.strip("/") or split.query or split.fragment)
        )
    except (ValueError, httpx.InvalidURL):
        is_valid = False
    if not is_valid:
        shown = re.sub(r"^(\w+://)?.*@", r"\1***@", text.strip(), flags=re.DOTALL)
        shown = re.sub(r":(?!//)[^]:]*[^]:\d/][^]:]*$", ":***", shown)  # a password whose host is missing
        raise UsageError(f"invalid {source}: expected {_PROXY_URL}, got {shown!r}")
    if scheme.startswith("socks") and find_spec("socksio") is None:
        raise UsageError(
            f"invalid {source}: expected the extra `socks` for a {scheme} proxy, got no package socksio"
            f" ({install_command('socks')})"
        )
    return url


def proxy_from_environment(base: str) -> str | None:
    """Return the proxy in HTTP_PROXY, HTTPS_PROXY or ALL_PROXY for a URL, or None, also if NO_PROXY excludes its host.

    Raises:
        UsageError: The variable has no valid proxy URL.
    """
    split = urlsplit(base)
    name = next((name for name in (split.scheme, "all") if getproxies().get(name)), None)
    if name is None or proxy_bypass(split.netloc.lower()) or proxy_bypass(split.hostname or ""):
        return None
    return read_proxy(getproxies()[name], f"{name.upper()}_PROXY")


def open_transport(base: str, network: Network) -> httpx.AsyncBaseTransport:
    """Return an httpx transport to a server. Use it without `httpx.AsyncClient`, which rejects invalid redirects and stores cookies.

    Raises:
        UsageError: A certificate file is unreadable.
    """
    proxy = None
    if network.proxy is not None:
        is_tls_proxy = network.proxy.startswith("https:")
        proxy = httpx.Proxy(network.proxy, ssl_context=proxy_tls_context(network) if is_tls_proxy else None)
    context = client_tls_context(base, network)
    is_plain = base.startswith("http:") and network.proxy is None and network.unix_socket is None and not network.http2

    def open_one() -> httpx.AsyncBaseTransport:
        if is_plain:
            return PlainConnection(_LIMITS.keepalive_expiry)
        return httpx.AsyncHTTPTransport(
            verify=context, http2=network.http2, limits=_LIMITS, proxy=proxy, uds=network.unix_socket, trust_env=False
        )

    # a connection of HTTP/2 has many requests at the same time
    return open_one() if network.http2 else SingleConnections(open_one, _MOST_IDLE)


def proxy_tls_context(network: Network) -> ssl.SSLContext:
    """Return the context for the connection to an https proxy.

    Raises:
        UsageError: A certificate file is unreadable.
    """
    return _tls_context(network.ca_file)


def client_tls_context(base: str, network: Network) -> ssl.SSLContext:
    """Return the context for the connection to a server. For plain HTTP it trusts no certificate.

    Raises:
        UsageError: A certificate file is unreadable.
    """
    if not base.startswith("https:"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = _tls_context(network.ca_file)
    if network.client_cert is not None:
        _load_client_certificate(context, network.client_cert, network.client_key)
    return context


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return a context that trusts the authorities of `ca_file`, and Mozilla's list or its replacement by the environment."""
    file, folder = os.environ.get(CA_FILE) or None, os.environ.get(CA_DIR) or None
    is_named = file is not None or folder is not None
    try:
        context = ssl.create_default_context(cafile=file if is_named else certifi.where(), capath=folder)
    except OSError as problem:
        raise UsageError(f"{CA_FILE} {file}: {problem.strerror or problem}") from None
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as problem:
            raise UsageError(
                f"invalid --ca-file: expected a PEM file of certificates, got {ca_file} ({problem.strerror or problem})"
            ) from None
    return context


def _load_client_certificate(context: ssl.SSLContext, certificate: str, key: str | None) -> None:
    """Load a client certificate into a context."""
    try:
        # an encrypted key fails: nothing may ask for its password on the terminal
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) and problem.strerror else str(problem)
        files = certificate if key is None else f"{certificate} and {key}"
        raise UsageError(
            f"invalid --client-cert: expected a PEM certificate and its unencrypted key, got {files} ({reason})"
        ) from None


def trailing_data(response: httpx.Response) -> bytes:
    """Return the bytes after a complete HTTP/1.1 response, which httpx would read as the response to the next request.

    httpx has no public access to them, hence the private attributes. If these change, the result is empty; `test_connection.py` detects it.
    """
    part: Any = response.stream.inner if isinstance(response.stream, ReleasingStream) else response.stream
    pool = ("inner",) if isinstance(part, PlainBody) else ("_httpcore_stream", "_stream")
    for name in (*pool, "_connection", "_h11_state", "trailing_data"):
        part = getattr(part, name, None)
    found: Any = part
    return cast("bytes", found[0]) if found else b""


def failure_of(error: Exception, network: Network, timeout: float, last_event: str, *, has_begun: bool) -> Failure:
    """Translate an exception of httpx to a `Failure`.

    A connection that ends during a response is CUT, one that ends before it is RESET.

    Args:
        error: The exception.
        network: The connection options.
        timeout: The timeout in seconds.
        last_event: The last trace event of httpx.
        has_begun: True if the response's head has arrived.
    """
    kind, detail = FailureKind.MALFORMED_HTTP, _cause_of(error)
    is_ended = isinstance(error, httpx.NetworkError | ssl.SSLError) or any(word in detail for word in _ENDS)
    match error:
        case httpx.ConnectTimeout():
            proxy = f" to the proxy {network.proxy_address}" if network.proxy else ""
            kind, detail = FailureKind.NO_CONNECTION, f"no connection{proxy} within {timeout:g} s"
        case httpx.TimeoutException():
            kind, detail = FailureKind.TIMEOUT, f"no byte arrived for {timeout:g} s"
        case httpx.ProxyError():
            is_password = detail.startswith("407") or "auth" in detail.lower() or "username" in detail.lower()
            wanted = "invalid credentials: expected USER:PASSWORD in the proxy URL, got " if is_password else ""
            kind, detail = FailureKind.NO_CONNECTION, f"proxy {network.proxy_address}: {wanted}{detail}"
        case httpx.ConnectError() | httpx.InvalidURL() | UnicodeError():
            kind, detail = FailureKind.NO_CONNECTION, _describe_connect_error(error)
            if network.proxy is not None and last_event.startswith(("connection.", "socks.connect", "socks.setup")):
                detail = f"proxy {network.proxy_address}: {detail}"
            elif network.unix_socket is not None:
                detail = f"Unix socket {network.unix_socket}: {detail}"
        case _ if any(
            isinstance(cause, ssl.SSLError) and _CERTIFICATE_REQUIRED in str(cause) for cause in _causes(error)
        ):
            kind = FailureKind.NO_CONNECTION
            detail = "the server wants a client certificate: name its file by --client-cert"
        case _ if has_begun and (is_ended or "closed connection" in detail):
            kind = FailureKind.CUT
        case _ if is_ended:
            kind = FailureKind.RESET
        case _:
            pass
    return Failure(kind=kind, detail=describe_protocol_error(detail))


def _cause_of(error: BaseException) -> str:
    """Return the cause of an error in one line, for a system error its standard description."""
    for cause in _causes(error):
        if isinstance(cause, OSError) and cause.errno and not isinstance(cause, ssl.SSLError):
            return os.strerror(cause.errno)
    return next(filter(None, (" ".join(str(cause).split()) for cause in _causes(error))), type(error).__name__)


def _describe_connect_error(error: BaseException) -> str:
    causes = tuple(_causes(error))
    if any(isinstance(cause, socket.gaierror | UnicodeError | httpx.InvalidURL) for cause in causes):
        return "no such host"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "connection refused"
    tls = next((" ".join(str(cause).split()) for cause in causes if isinstance(cause, ssl.SSLError)), "")
    if "WRONG_VERSION_NUMBER" in tls:
        return "this port speaks plain http: use http://"
    if _CERTIFICATE in tls:
        reason = tls[tls.index(_CERTIFICATE) :].partition(" (_ssl")[0].rstrip(".")
        return f"{reason}: {next((right for part, right in _RIGHT_CERTIFICATE.items() if part in reason), _PRIVATE)}"
    return _cause_of(error)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, including the members of exception groups."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for part in cast("BaseExceptionGroup[BaseException]", error).exceptions:
                yield from _causes(part)
        error = error.__cause__ or error.__context__
