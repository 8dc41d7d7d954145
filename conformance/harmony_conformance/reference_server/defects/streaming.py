"""Defects of streams only: the same request without streaming gets a correct response."""

from collections.abc import Callable, Iterator
from hashlib import sha256

from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_conformance.reference_server.defects.changes.body import drop_done, drop_members, is_json
from harmony_conformance.reference_server.defects.stages import Defect, OnRequest, OnStream
from harmony_conformance.reference_server.model.output_deltas import DONE


def _delta(data: Json) -> JsonObject:
    return members(value_at(data, "choices", 0, "delta"))


def _calls(data: Json) -> list[JsonObject]:
    return [members(call) for call in items(_delta(data).get("tool_calls"))]


def _finish(data: Json) -> str:
    return text(value_at(data, "choices", 0, "finish_reason"))


def _with_delta(data: Json, delta: JsonObject) -> Json:
    return {**members(data), "choices": [{**members(value_at(data, "choices", 0)), "delta": delta}]}


def _with_finish(data: Json, reason: Json) -> Json:
    return {**members(data), "choices": [{**members(value_at(data, "choices", 0)), "finish_reason": reason}]}


def _each(change: Callable[[Json], Json]) -> OnStream:
    return OnStream(lambda stream: map(change, stream))


def _without(unwanted: Callable[[Json], bool]) -> OnStream:
    return OnStream(lambda stream: (data for data in stream if not unwanted(data)))


def _in_calls(change: Callable[[JsonObject], JsonObject]) -> Callable[[Json], Json]:
    def changed(data: Json) -> Json:
        calls = _calls(data)
        return _with_delta(data, {**_delta(data), "tool_calls": [change(call) for call in calls]}) if calls else data

    return changed


def _fresh_ids(stream: Iterator[Json]) -> Iterator[Json]:
    for count, data in enumerate(stream):
        fresh = sha256(f"{value_at(data, 'id')}/{count}".encode()).hexdigest()[:24]
        calls: list[Json] = [{**call, "id": f"call_{fresh}"} for call in _calls(data)]
        yield _with_delta(data, {**_delta(data), "tool_calls": calls}) if calls else data


def _reasoning_tail_in_content(stream: Iterator[Json]) -> Iterator[Json]:
    last: Json = None
    for data in stream:
        reasoning = _delta(data).get("reasoning")
        if last is not None:
            yield last if reasoning is not None else _with_delta(last, {"content": _delta(last)["reasoning"]})
        last = data if reasoning is not None else None
        if last is None:
            yield data


def _empty_arguments(stream: Iterator[Json]) -> Iterator[Json]:
    indexes: set[Json] = set()
    for data in stream:
        calls = _calls(data)
        if not calls or "id" in calls[0]:
            yield data
        elif calls[0].get("index") not in indexes:
            indexes.add(calls[0].get("index"))
            yield _in_calls(lambda call: {**call, "function": {"arguments": "{}"}})(data)


def _first_arguments_lost(stream: Iterator[Json]) -> Iterator[Json]:
    indexes: set[Json] = set()
    for data in stream:
        calls = _calls(data)
        index = calls[0].get("index") if calls and "id" not in calls[0] else None
        if index is None or index in indexes:
            yield data
        else:
            indexes.add(index)


def _error_swallowed(stream: Iterator[Json]) -> Iterator[Json]:
    """If the arguments of a call are not JSON, end the stream with an empty chunk instead of an error."""
    arguments: dict[Json, str] = {}
    for data in stream:
        for call in _calls(data):
            index = call.get("index")
            arguments[index] = arguments.get(index, "") + text(value_at(call, "function", "arguments"))
        if _finish(data) and not all(map(is_json, arguments.values())):
            yield _with_finish(_with_delta(data, {"role": "assistant", "content": ""}), None)
            return
        yield data


def _calls_as_text(stream: Iterator[Json]) -> Iterator[Json]:
    for data in stream:
        calls = _calls(data)
        if calls:
            function = members(calls[0].get("function"))
            opening = f"commentary to=functions.{text(function['name'])} json" if "name" in function else ""
            yield _with_delta(data, {"content": opening + text(function.get("arguments"))})
        else:
            yield _with_finish(data, "stop") if _finish(data) == "tool_calls" else data


def _chunk_after_done(stream: Iterator[Json]) -> Iterator[Json]:
    last: Json = None
    for data in stream:
        if _finish(data):
            last = data
        yield data
        if data == DONE and last is not None:
            yield _with_finish(_with_delta(last, {"content": ""}), None)


def _second_delta(times: int) -> OnStream:
    """Send the second delta of the content `times` times."""

    def changed(stream: Iterator[Json]) -> Iterator[Json]:
        count = 0
        for data in stream:
            has_content = bool(_delta(data).get("content"))
            count += has_content
            yield from [data] * (times if has_content and count == 2 else 1)  # noqa: PLR2004 - the second of them

    return OnStream(changed)


DEFECTS = (
    Defect(
        "stream-call-id-changes",
        "Each delta of a call has an id, and each time a different one.",
        OnStream(_fresh_ids),
        ("V13",),
    ),
    Defect(
        "stream-call-index-zero",
        "The index of every call is 0: clients merge several calls into one.",
        _each(_in_calls(lambda call: {**call, "index": 0})),
        ("V13",),
    ),
    Defect(
        "stream-call-index-missing", "Deltas of calls have no index.", _each(_in_calls(drop_members("index"))), ("V13",)
    ),
    Defect(
        "stream-reasoning-tail-in-content",
        "The last tokens of the reasoning arrive as content.",
        OnStream(_reasoning_tail_in_content),
        ("V14",),
    ),
    Defect("stream-arguments-empty", "The arguments of every call are `{}`.", OnStream(_empty_arguments), ("V15",)),
    Defect(
        "stream-arguments-beheaded",
        "The first delta of the arguments is lost.",
        OnStream(_first_arguments_lost),
        ("V14",),
    ),
    Defect(
        "stream-calls-missing",
        "Calls are missing from the stream, but its finish reason is `tool_calls`.",
        _without(lambda data: bool(_calls(data))),
        ("V12", "V11"),
    ),
    Defect(
        "stream-calls-as-text",
        "A call is returned as content, `commentary to=functions.NAME json{…}`.",
        OnStream(_calls_as_text),
        ("M08",),
    ),
    Defect(
        "stream-error-swallowed",
        "If arguments are not JSON, the stream ends without a finish reason, an error or `[DONE]`.",
        OnStream(_error_swallowed),
        ("O04",),
    ),
    Defect(
        "stream-without-role",
        "No delta has a role.",
        _each(lambda data: _with_delta(data, drop_members("role")(_delta(data))) if _delta(data) else data),
    ),
    Defect(
        "stream-without-usage",
        "`stream_options.include_usage` is ignored.",
        _without(lambda data: value_at(data, "usage") is not None),
        ("V27",),
    ),
    Defect("stream-without-done", "The stream ends without `[DONE]`.", OnStream(drop_done), ("O04",)),
    Defect(
        "stream-without-finish", "No chunk has a finish reason.", _without(lambda data: bool(_finish(data))), ("O04",)
    ),
    Defect(
        "stream-finish-twice",
        "Two chunks have a finish reason.",
        OnStream(lambda stream: (data for data in stream for _ in range(2 if _finish(data) else 1))),
    ),
    Defect(
        "stream-id-changes",
        "Each chunk has a different id.",
        OnStream(
            lambda stream: (
                {**data, "id": f"{text(data.get('id'))}-{count}"} if isinstance(data, dict) and "id" in data else data
                for count, data in enumerate(stream)
            )
        ),
    ),
    Defect("stream-chunk-after-done", "A chunk follows `[DONE]`.", OnStream(_chunk_after_done)),
    Defect("stream-delta-lost", "One delta of the content is lost.", _second_delta(0)),
    Defect("stream-delta-doubled", "One delta of the content is sent twice.", _second_delta(2)),
    Defect(
        "stream-all-at-once",
        "All events are sent together after the last token.",
        OnStream(lambda stream: iter(tuple(stream))),
    ),
    Defect(
        "stream-answered-whole",
        "`stream: true` is answered with one JSON body.",
        OnRequest(drop_members("stream", "stream_options")),
        ("P06",),
    ),
)
