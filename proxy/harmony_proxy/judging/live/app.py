"""The WSGI application of the live page: `/live`, its script and style, and its data `/live.json`.

It is served next to the metrics. A request needs a Host header with a name of the server: a web page under another name
could read the data otherwise (DNS rebinding). The page loads nothing from elsewhere, and shows texts as texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING

from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.runtime.own_hosts import host_name, is_own_host, own_hosts

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

DATA_PATH = "/live.json"
_FILES: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "/live": ("live.html", "text/html; charset=utf-8"),
        "/live/live.js": ("live.js", "text/javascript; charset=utf-8"),
        "/live/live.css": ("live.css", "text/css; charset=utf-8"),
    }
)
LIVE_PATHS = frozenset({DATA_PATH, *_FILES})
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
_TEXT = "text/plain; charset=utf-8"


def create_live_app(address: str, read_state: Callable[[], JsonObject], others: WSGIApplication) -> WSGIApplication:
    """Return an application that serves the live page, and passes every other path to `others`.

    Args:
        address: the address on which the server listens, for its names.
        read_state: returns the data, as `live_state` does.
        others: the application of the metrics.
    """
    hosts = own_hosts(address)
    package = files(__package__ or "")
    pages = {path: ((package / name).read_bytes(), kind) for path, (name, kind) in _FILES.items()}

    def app(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path not in LIVE_PATHS:
            return others(environ, start_response)
        host = environ.get("HTTP_HOST", "")
        if not is_own_host(host, hosts):
            expected = ", ".join(sorted(hosts))
            problem = f"invalid Host: expected {expected}, got {host_name(host)!r}\n"
            status, body, kind = "403 Forbidden", problem.encode(errors="replace"), _TEXT
        elif environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            status, body, kind = "405 Method Not Allowed", b"invalid method: expected GET or HEAD\n", _TEXT
        elif path == DATA_PATH:
            status, kind = "200 OK", "application/json"
            body = dumps(read_state()).encode("utf-8", "backslashreplace")
        else:
            status = "200 OK"
            body, kind = pages[path]
        start_response(status, [("Content-Type", kind), ("Content-Length", str(len(body))), *_HEADERS])
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]

    return app
