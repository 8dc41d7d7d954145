"""Answers of APIs that return the arguments of calls as objects: their numbers keep the spelling of the server."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.apis.api import Api, Framing
from harmony_conformance.json_value import Json, loads_as_written
from harmony_conformance.transport.messages import Response
from harmony_conformance.transport.sse import EventStream


def body_as_written(api: Api, response: Response, parsed: Json) -> Json:
    """Return a body that is JSON, given as `parsed`. Where arguments are objects, `dumps_as_written` restores the numbers."""
    return parsed if api.has_text_arguments else loads_as_written(response.body)


def values_as_written(api: Api, stream: EventStream) -> Iterator[Json]:
    """Yield the values of a stream's events. In lines of JSON, which have arguments as objects, `dumps_as_written` restores the numbers."""
    for event in stream.events:
        is_parsed = api.framing is not Framing.LINES or event.value is None
        yield event.value if is_parsed else loads_as_written(event.data)
