"""Run hand-written rows on the reference server without HTTP, fast enough for every output defect of the selftest."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from harmony_conformance.engines.profiles import ENGINES, ScriptMethod
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.golden.scenario import Scenario, expand
from harmony_conformance.json_value import dumps, members
from harmony_conformance.reference_server.chat.completion import accept_request
from harmony_conformance.reference_server.defects.stages import Changes
from harmony_conformance.reference_server.pipeline.http import format_events
from harmony_conformance.reference_server.requests.errors import ApiError, Reply
from harmony_conformance.reference_server.requests.fields import MODEL
from harmony_conformance.reference_server.server.app import DATE
from harmony_conformance.runner.request_builder import RequestProfile, build_request
from harmony_conformance.transport.messages import Chunk, Request, Response

_REFERENCE = ENGINES["reference"]
_PROFILE = RequestProfile(
    model=MODEL, script_method=ScriptMethod.REFERENCE, ids_field=_REFERENCE.ids_field, extra_body={}
)


def send_scenario(scenario: Scenario, changes: Changes) -> Series:
    """Send every step of a scenario to the reference server with these defects."""
    exchanges: dict[str, Exchange] = {}
    for serial, step in enumerate(expand(scenario), start=1):
        request = build_request(step, _PROFILE, {})
        exchanges[step.name] = Exchange(
            id=f"{scenario.name}/chat/{step.name}/0",
            scenario=scenario.name,
            step=step.name,
            engine=_REFERENCE.name,
            request=request,
            response=_respond(request, changes, serial),
            validity=step.validity,
            script=step.script,
            expected=step.expected,
        )
    return Series(name=scenario.name, exchanges=exchanges)


def _respond(request: Request, changes: Changes, serial: int) -> Response:
    try:
        body = members(request.json)
        request_body, own = changes.request(body, None), changes.for_body(body)
        completion = accept_request(request_body, serial=serial, created=0, date=DATE, changes=own)
        if completion.request.is_streamed:
            return _response(HTTPStatus.OK, "text/event-stream", format_events(completion.stream()))
        reply = Reply(status=HTTPStatus.OK, body=completion.complete_response())
    except ApiError as error:
        reply = Reply(status=error.status, body=error.body)
    reply = changes.reply(reply)
    return _response(reply.status, "application/json", iter([dumps(reply.body)]))


def _response(status: int, kind: str, pieces: Iterator[str]) -> Response:
    encoded = (data.encode("utf-8", "replace") for data in pieces)
    chunks = tuple(Chunk(arrival_time=place / 1000, data=data) for place, data in enumerate(encoded))
    return Response(status=status, chunks=chunks, headers={"content-type": kind})
