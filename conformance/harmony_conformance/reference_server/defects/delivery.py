"""Defects of delivery: a stream that differs from the response without streaming, load, and disconnected clients."""

from collections.abc import Iterator
from dataclasses import replace

from harmony_conformance.json_value import Json, members, value_at
from harmony_conformance.reference_server.defects.changes.body import drop_members, in_list
from harmony_conformance.reference_server.defects.stages import Defect, OnDisconnect, OnJson, OnOverload, OnStream


def _finish_is_stop(stream: Iterator[Json]) -> Iterator[Json]:
    for data in stream:
        choice = members(value_at(data, "choices", 0))
        is_called = choice.get("finish_reason") == "tool_calls"
        yield {**members(data), "choices": [{**choice, "finish_reason": "stop"}]} if is_called else data


def _usage_counts_chunks(stream: Iterator[Json]) -> Iterator[Json]:
    """Report the number of chunks so far as `completion_tokens`; `total_tokens` matches."""
    for count, data in enumerate(stream):
        usage = members(value_at(data, "usage"))
        prompt = usage.get("prompt_tokens")
        if isinstance(prompt, int):
            yield {**members(data), "usage": {**usage, "completion_tokens": count, "total_tokens": prompt + count}}
        else:
            yield data


def _content_first(stream: Iterator[Json]) -> Iterator[Json]:
    """Buffer the reasoning until the content is complete."""
    buffer: list[Json] = []
    for data in stream:
        if value_at(data, "choices", 0, "delta", "reasoning"):
            buffer.append(data)
            continue
        if value_at(data, "choices", 0, "finish_reason") is not None:
            yield from buffer
            buffer = []
        yield data
    yield from buffer


def _with_error_inside(stream: Iterator[Json]) -> Iterator[Json]:
    """Insert an error, as of a content filter, after the first chunk."""
    error: Json = {"error": {"message": "The filter timed out.", "type": "internal_server_error", "code": 500}}
    for data in stream:
        yield data
        if value_at(data, "choices", 0, "delta", "role") is not None:
            yield error


DEFECTS = (
    Defect(
        "cut-short-in-a-crowd",
        "When the server is busy, answers end after five tokens.",
        OnOverload(lambda body: {**body, "max_tokens": 5, "max_completion_tokens": 5}),
    ),
    Defect("stream-content-first", "The reasoning arrives after the content.", OnStream(_content_first)),
    Defect(
        "stream-choice-index-missing",
        "The choices of chunks have no index.",
        OnJson(in_list("choices", lambda choice: drop_members("index")(choice) if "delta" in choice else choice)),
    ),
    Defect(
        "stream-goes-on-after-error",
        "The stream reports a server error and then continues with the answer.",
        OnStream(_with_error_inside),
    ),
    Defect(
        "generation-goes-on-without-client",
        "Generation continues after the client of a stream has disconnected.",
        OnDisconnect(lambda behaviour: replace(behaviour, stops=False)),
    ),
    Defect(
        "engine-down-when-client-leaves",
        "The engine crashes when the client of a stream disconnects: every later request gets a 500.",
        OnDisconnect(lambda behaviour: replace(behaviour, survives=False)),
    ),
    Defect(
        "stream-finish-stop-with-calls",
        "A stream with calls ends with the finish reason `stop`; without streaming it is `tool_calls`.",
        OnStream(_finish_is_stop),
    ),
    Defect(
        "stream-usage-counts-chunks",
        "The `completion_tokens` of a stream is the number of its chunks.",
        OnStream(_usage_counts_chunks),
    ),
)
