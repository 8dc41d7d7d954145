"""Protection from web pages: requests for another host, and what a page may send without permission.

A browser lets any page send a POST of a form or of plain text. The owner of a name can point it at a local server, so
that a page under that name reaches it (DNS rebinding). JSON needs the server's permission (CORS), which this server
never gives. A WebSocket needs no permission, so one that a page opens must come from this server's own origin.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from harmony_conformance.reference_server.pipeline.http import json_response
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_conformance.runtime.own_hosts import host_name, is_own_host

_FORM = "application/x-www-form-urlencoded"


class OwnHost:
    """ASGI middleware that refuses such requests; without `hosts` it answers every host."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        hosts: frozenset[str] | None,
        refuse: Callable[[Request, Exception], Awaitable[Response]],
    ) -> None:
        self._app = app
        self._hosts = hosts
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it to the application."""
        problem = self._problem(scope) if scope["type"] in ("http", "websocket") else None
        if problem is None:
            await self._app(scope, receive, send)
            return
        if scope["type"] == "websocket":
            await _refuse_handshake(WebSocket(scope, receive, send), problem)
            return
        response = await self._refuse(Request(scope, receive), problem)
        await response(scope, receive, send)

    def _problem(self, scope: Scope) -> ApiError | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._hosts is not None and not is_own_host(host, self._hosts):
            return ApiError(
                f"Invalid Host: expected {', '.join(sorted(self._hosts))}, got {host_name(host)!r}. "
                "Start the server with --allow-host NAME to add a name.",
                status=HTTPStatus.FORBIDDEN,
                code="host_not_allowed",
            )
        if scope["type"] == "websocket":
            return _origin_problem(headers.get("origin", ""), host)
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        if scope["method"] != "POST" or media_type == "application/json" or media_type.endswith("+json"):
            return None
        advice = " (the default of curl -d): add -H 'Content-Type: application/json'" if media_type == _FORM else ""
        return ApiError(
            f"Invalid Content-Type: expected application/json, got {media_type!r}{advice}.",
            status=HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            code="content_type_not_json",
        )


def _origin_problem(origin: str, host: str) -> ApiError | None:
    """Return the problem of a handshake from a page of another origin. Clients that are no browsers name none."""
    try:
        own = urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        own = False
    if not origin or own:
        return None
    return ApiError(
        f"Invalid Origin: expected none or the server's own, got {origin!r}.",
        status=HTTPStatus.FORBIDDEN,
        code="origin_not_allowed",
    )


async def _refuse_handshake(socket: WebSocket, problem: ApiError) -> None:
    if "websocket.http.response" in socket.scope.get("extensions", {}):
        await socket.send_denial_response(json_response(problem.status, problem.body))
    else:
        await socket.close()  # before it is accepted: HTTP 403
