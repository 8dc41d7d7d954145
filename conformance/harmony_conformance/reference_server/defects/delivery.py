"""Defects of how an answer is delivered: its stream says other things than the whole answer, or goes on when nobody listens."""

from collections.abc import Iterator
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, at, items, members
from harmony_conformance.reference_server.defects.stages import (
    Defect,
    DisconnectBehaviour,
    OnCrowd,
    OnDeparture,
    OnJson,
    OnStream,
)


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


def _content_first(stream: Iterator[Json]) -> Iterator[Json]:
    """Reasoning is held back until the content is over."""
    held: list[Json] = []
    for data in stream:
        if at(data, "choices", 0, "delta", "reasoning"):
            held.append(data)
            continue
        if at(data, "choices", 0, "finish_reason") is not None:
            yield from held
            held = []
        yield data
    yield from held


def _without_index(body: JsonObject) -> JsonObject:
    choices: list[Json] = [
        {name: value for name, value in members(choice).items() if name != "index" or "delta" not in members(choice)}
        for choice in items(body.get("choices"))
    ]
    return {**body, "choices": choices} if "choices" in body else body


def _goes_on_after_error(stream: Iterator[Json]) -> Iterator[Json]:
    """An error in the middle, of a filter, say; and then the rest of the answer."""
    error: Json = {"error": {"message": "The filter timed out.", "type": "internal_server_error", "code": 500}}
    for data in stream:
        yield data
        if at(data, "choices", 0, "delta", "role") is not None:
            yield error


def _goes_on(departure: DisconnectBehaviour) -> DisconnectBehaviour:
    return replace(departure, stops=False)


def _dies(departure: DisconnectBehaviour) -> DisconnectBehaviour:
    return replace(departure, survives=False)


def _short(body: JsonObject) -> JsonObject:
    return {**body, "max_tokens": 5, "max_completion_tokens": 5}


DEFECTS = (
    Defect(
        id="cut-short-in-a-crowd",
        catalogue=(),
        summary="When the server is busy, answers end after five tokens.",
        change=OnCrowd(_short),
    ),
    Defect(
        id="stream-content-first",
        catalogue=(),
        summary="The reasoning arrives when the content is over.",
        change=OnStream(_content_first),
    ),
    Defect(
        id="stream-choice-index-missing",
        catalogue=(),
        summary="The choices of chunks have no index.",
        change=OnJson(_without_index),
    ),
    Defect(
        id="stream-goes-on-after-error",
        catalogue=(),
        summary="The stream reports an error of the server, and goes on as if there were none.",
        change=OnStream(_goes_on_after_error),
    ),
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
