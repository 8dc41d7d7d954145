"""The mitmproxy addon: every byte passes unchanged and at once; a copy goes to a recorder, and the exchange is judged after it is over.

What mitmproxy does decides the form of this module:

- a response streams only if `flow.response.stream` is set in `responseheaders`;
- an exception within the stream's callable would drop that chunk silently, so nothing may escape from it;
- `b""` returned in the middle of a stream ends it for the client: nothing to send is `[]`;
- the callable is not called when the client leaves or the server dies: then there is the `error` hook, and no `response`;
- a flow may have no response at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mitmproxy.http import HTTPFlow

from harmony_proxy.handing import Handed, Handing
from harmony_proxy.recorder import End, Recorder

_CLIENT_LEFT = "Client disconnected"


class _Watched:
    """A flow's recorder, and when its request was sent."""

    def __init__(self, number: int) -> None:
        self.recorder = Recorder()
        self.number = number
        self.started = time.time()
        self.sent = time.monotonic()

    def now(self) -> float:
        """Seconds since the request was sent."""
        return time.monotonic() - self.sent


class ConformanceAddon:
    """Watches the flows of a reverse proxy. `prefix` is put before each path, for an upstream whose API does not begin at its root."""

    def __init__(self, handing: Handing, *, prefix: str = "") -> None:
        self._handing = handing
        self._prefix = prefix
        self._flows: dict[str, _Watched] = {}
        self._number = 0

    def request(self, flow: HTTPFlow) -> None:
        """The request is whole and about to be sent."""
        path = flow.request.path
        if self._prefix:
            flow.request.path = self._prefix + path
        try:
            self._number += 1
            watched = _Watched(self._number)
            self._flows[flow.id] = watched
            watched.recorder.request_head(flow.request.method, path, flow.request.headers.fields)
            watched.recorder.request_body(flow.request.raw_content or b"")
        except Exception:  # noqa: BLE001 - the traffic goes on whatever happens to us
            self._handing.problem()

    def responseheaders(self, flow: HTTPFlow) -> None:
        """The response begins: let it stream, unchanged, with a copy to the recorder."""
        if flow.response is None:
            return
        watched = self._flows.get(flow.id)
        flow.response.stream = self._tee(watched) if watched is not None else True
        try:
            if watched is not None:
                watched.recorder.response_head(flow.response.status_code, flow.response.headers.fields)
        except Exception:  # noqa: BLE001 - as above
            self._handing.problem()

    def response(self, flow: HTTPFlow) -> None:
        """The response is complete, and with the client."""
        self._over(flow, lambda watched: watched.recorder.end(watched.now()))

    def error(self, flow: HTTPFlow) -> None:
        """The client left, or the server died, or was never there."""
        end, detail = _how_it_ended(flow)
        self._over(flow, lambda watched: watched.recorder.abort(end, detail, watched.now()))

    def shut_down(self) -> None:
        """Hand over what was still going on."""
        for name in tuple(self._flows):
            watched = self._flows.pop(name)
            watched.recorder.abort(End.SHUT_DOWN, "", watched.now())
            self._hand_over(watched)

    def _tee(self, watched: _Watched) -> Callable[[bytes], bytes | list[bytes]]:
        def tee(data: bytes) -> bytes | list[bytes]:
            try:
                watched.recorder.feed(data, watched.now())
            except Exception:  # noqa: BLE001 - an exception here would cost the client this chunk
                self._handing.problem()
            return data or []

        return tee

    def _over(self, flow: HTTPFlow, finish: Callable[[_Watched], None]) -> None:
        watched = self._flows.pop(flow.id, None)
        if watched is None:
            return
        try:
            finish(watched)
            self._hand_over(watched)
        except Exception:  # noqa: BLE001 - as above
            self._handing.problem()

    def _hand_over(self, watched: _Watched) -> None:
        self._handing.hand_over(Handed(recorder=watched.recorder, id=str(watched.number), started=watched.started))


def _how_it_ended(flow: HTTPFlow) -> tuple[End, str]:
    detail = " ".join((flow.error.msg if flow.error is not None else "").split())
    if detail.startswith(_CLIENT_LEFT):
        return End.CLIENT_LEFT, detail
    if flow.response is not None:
        return End.CUT, detail
    connected = flow.server_conn.timestamp_tcp_setup is not None
    return (End.RESET if connected else End.NO_CONNECTION), detail
