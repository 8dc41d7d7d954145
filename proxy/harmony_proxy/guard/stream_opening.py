"""The handler of a stream, made for its request and the head of its response."""

from __future__ import annotations

from harmony_conformance.transport.messages import NO_HEADERS, Request, Response
from harmony_proxy.capture.recorder import Recorder
from harmony_proxy.guard.response_head import ResponseHead, values_of
from harmony_proxy.policy.policy import Route
from harmony_proxy.policy.repair_interface import Handlers, StreamRepair


def open_stream(  # noqa: PLR0913, PLR0917 - the exchange and its policy
    handlers: Handlers | None,
    recorder: Recorder,
    head: ResponseHead,
    api: str,
    route: Route,
    request_id: str,
    limit: int,
) -> StreamRepair | None:
    """Return a new handler of the stream, None without handlers."""
    if handlers is None:
        return None
    record = recorder.to_record(request_id, 0.0)
    return handlers.open_stream(
        Request(path=record.path, body=record.request_body, method=record.method),
        Response(status=head.status, chunks=(), headers=values_of(head) or NO_HEADERS),
        api,
        route.actions,
        fallback=route.fallback,
        request_id=request_id,
        limit=limit,
        fail=route.fail,
    )
