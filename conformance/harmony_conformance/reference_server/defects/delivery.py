"""Defects of how an answer is delivered: its stream says other things than the whole answer, or goes on when nobody listens."""

from collections.abc import Iterator
from dataclasses import replace

from harmony_conformance.json_value import Json, at, members
from harmony_conformance.reference_server.changes import Defect, Departure, OnDeparture, OnStream


def _finish_is_stop(stream: Iterator[Json]) -> Iterator[Json]:
    for data in stream:
        choice = members(at(data, "choices", 0))
        is_called = choice.get("finish_reason") == "tool_calls"
        yield {**members(data), "choices": [{**choice, "finish_reason": "stop"}]} if is_called else data


def _usage_counts_chunks(stream: Iterator[Json]) -> Iterator[Json]:
    """Usage with the number of chunks before it for that of tokens; the sum is right."""
    for count, data in enumerate(stream):
        usage = members(at(data, "usage"))
        prompt = usage.get("prompt_tokens")
        if isinstance(prompt, int):
            yield {**members(data), "usage": {**usage, "completion_tokens": count, "total_tokens": prompt + count}}
        else:
            yield data


def _goes_on(departure: Departure) -> Departure:
    return replace(departure, stops=False)


def _dies(departure: Departure) -> Departure:
    return replace(departure, survives=False)


DEFECTS = (
    Defect(
        id="generation-goes-on-without-client",
        catalogue=(),
        summary="When the client of a stream leaves, the rest is generated all the same.",
        change=OnDeparture(_goes_on),
    ),
    Defect(
        id="engine-down-when-client-leaves",
        catalogue=(),
        summary="When the client of a stream leaves, the engine dies: every later request is a 500.",
        change=OnDeparture(_dies),
    ),
    Defect(
        id="stream-finish-stop-with-calls",
        catalogue=(),
        summary="A stream with calls ends with the finish reason `stop`; the whole answer says `tool_calls`.",
        change=OnStream(_finish_is_stop),
    ),
    Defect(
        id="stream-usage-counts-chunks",
        catalogue=(),
        summary="The `completion_tokens` of a stream is the number of its chunks.",
        change=OnStream(_usage_counts_chunks),
    ),
)
