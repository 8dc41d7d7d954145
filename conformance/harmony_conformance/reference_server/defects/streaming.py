"""Defects of streaming alone: the same request answered in one piece is right."""

from collections.abc import Callable, Iterator
from hashlib import sha256

from harmony_conformance.json_value import InvalidJsonError, Json, JsonObject, at, items, loads, members, text
from harmony_conformance.reference_server.defects.stages import Defect, OnRequest, OnStream
from harmony_conformance.reference_server.model.output_events import DONE


def _delta(data: Json) -> JsonObject:
    return members(at(data, "choices", 0, "delta"))


def _calls(data: Json) -> list[JsonObject]:
    return [members(call) for call in items(_delta(data).get("tool_calls"))]


def _finish(data: Json) -> str:
    return text(at(data, "choices", 0, "finish_reason"))


def _with_delta(data: Json, delta: JsonObject) -> Json:
    choice = members(at(data, "choices", 0))
    return {**members(data), "choices": [{**choice, "delta": delta}]}


def _with_finish(data: Json, reason: Json) -> Json:
    choice = members(at(data, "choices", 0))
    return {**members(data), "choices": [{**choice, "finish_reason": reason}]}


def _each(change: Callable[[Json], Json]) -> Callable[[Iterator[Json]], Iterator[Json]]:
    return lambda stream: map(change, stream)


def _without(unwanted: Callable[[Json], bool]) -> Callable[[Iterator[Json]], Iterator[Json]]:
    return lambda stream: (data for data in stream if not unwanted(data))


def _in_calls(change: Callable[[JsonObject], JsonObject]) -> Callable[[Json], Json]:
    def changed(data: Json) -> Json:
        calls = _calls(data)
        return _with_delta(data, {**_delta(data), "tool_calls": [change(call) for call in calls]}) if calls else data

    return changed


def _fresh_ids(stream: Iterator[Json]) -> Iterator[Json]:
    for count, data in enumerate(stream):
        fresh = sha256(f"{at(data, 'id')}/{count}".encode()).hexdigest()[:24]
        calls: list[Json] = [{**call, "id": f"call_{fresh}"} for call in _calls(data)]
        yield _with_delta(data, {**_delta(data), "tool_calls": calls}) if calls else data


def _index_zero(call: JsonObject) -> JsonObject:
    return {**call, "index": 0}


def _no_index(call: JsonObject) -> JsonObject:
    return {name: value for name, value in call.items() if name != "index"}


def _reasoning_tail_in_content(stream: Iterator[Json]) -> Iterator[Json]:
    held: Json = None
    for data in stream:
        reasoning = _delta(data).get("reasoning")
        if held is not None:
            yield held if reasoning is not None else _with_delta(held, {"content": _delta(held)["reasoning"]})
        held = data if reasoning is not None else None
        if held is None:
            yield data


def _empty_arguments(stream: Iterator[Json]) -> Iterator[Json]:
    filled: set[Json] = set()
    for data in stream:
        calls = _calls(data)
        if not calls or "id" in calls[0]:
            yield data
        elif calls[0].get("index") not in filled:
            filled.add(calls[0].get("index"))
            yield _in_calls(lambda call: {**call, "function": {"arguments": "{}"}})(data)


def _arguments_in_first_delta_lost(stream: Iterator[Json]) -> Iterator[Json]:
    filled: set[Json] = set()
    for data in stream:
        calls = _calls(data)
        index = calls[0].get("index") if calls and "id" not in calls[0] else None
        if index is None or index in filled:
            yield data
        else:
            filled.add(index)


def _error_swallowed(stream: Iterator[Json]) -> Iterator[Json]:
    """Calls that are no JSON in the end: an empty chunk instead of an error, and nothing after it."""
    arguments: dict[Json, str] = {}
    for data in stream:
        for call in _calls(data):
            index = call.get("index")
            arguments[index] = arguments.get(index, "") + text(at(call, "function", "arguments"))
        if _finish(data) and not all(_is_json(written) for written in arguments.values()):
            yield _with_finish(_with_delta(data, {"role": "assistant", "content": ""}), None)
            return
        yield data


def _is_json(document: str) -> bool:
    try:
        loads(document)
    except InvalidJsonError:
        return False
    return True


def _calls_as_text(stream: Iterator[Json]) -> Iterator[Json]:
    for data in stream:
        calls = _calls(data)
        if calls:
            function = members(calls[0].get("function"))
            opening = f"commentary to=functions.{text(function['name'])} json" if "name" in function else ""
            yield _with_delta(data, {"content": opening + text(function.get("arguments"))})
        else:
            yield _with_finish(data, "stop") if _finish(data) == "tool_calls" else data


def _has_call(data: Json) -> bool:
    return bool(_calls(data))


def _without_role(data: Json) -> Json:
    delta = _delta(data)
    return _with_delta(data, {name: value for name, value in delta.items() if name != "role"}) if delta else data


def _is_usage(data: Json) -> bool:
    return at(data, "usage") is not None


def _is_done(data: Json) -> bool:
    return data == DONE


def _is_finish(data: Json) -> bool:
    return bool(_finish(data))


def _finish_twice(stream: Iterator[Json]) -> Iterator[Json]:
    for data in stream:
        yield data
        if _finish(data):
            yield data


def _changing_ids(stream: Iterator[Json]) -> Iterator[Json]:
    for count, data in enumerate(stream):
        yield {**data, "id": f"{text(data.get('id'))}-{count}"} if isinstance(data, dict) and "id" in data else data


def _chunk_after_done(stream: Iterator[Json]) -> Iterator[Json]:
    last: Json = None
    for data in stream:
        if _finish(data):
            last = data
        yield data
        if data == DONE and last is not None:
            yield _with_finish(_with_delta(last, {"content": ""}), None)


def _one_delta_lost(stream: Iterator[Json]) -> Iterator[Json]:
    count = 0
    for data in stream:
        count += bool(_delta(data).get("content"))
        if count == 2 and _delta(data).get("content"):  # noqa: PLR2004 - the second of them
            continue
        yield data


def _one_delta_doubled(stream: Iterator[Json]) -> Iterator[Json]:
    count = 0
    for data in stream:
        yield data
        count += bool(_delta(data).get("content"))
        if count == 2 and _delta(data).get("content"):  # noqa: PLR2004 - the second of them
            yield data


def _all_at_once(stream: Iterator[Json]) -> Iterator[Json]:
    yield from tuple(stream)


def _not_streamed(body: JsonObject) -> JsonObject:
    return {name: value for name, value in body.items() if name not in {"stream", "stream_options"}}


DEFECTS = (
    Defect(
        id="stream-call-id-changes",
        catalogue=("V13",),
        summary="Each delta of a call carries an id, and each time another one.",
        change=OnStream(_fresh_ids),
    ),
    Defect(
        id="stream-call-index-zero",
        catalogue=("V13",),
        summary="The index of every call is 0: several calls run into one.",
        change=OnStream(_each(_in_calls(_index_zero))),
    ),
    Defect(
        id="stream-call-index-missing",
        catalogue=("V13",),
        summary="Deltas of calls have no index.",
        change=OnStream(_each(_in_calls(_no_index))),
    ),
    Defect(
        id="stream-reasoning-tail-in-content",
        catalogue=("V14",),
        summary="The last tokens of the reasoning arrive as content.",
        change=OnStream(_reasoning_tail_in_content),
    ),
    Defect(
        id="stream-arguments-empty",
        catalogue=("V15",),
        summary="The arguments of every call are `{}`.",
        change=OnStream(_empty_arguments),
    ),
    Defect(
        id="stream-arguments-beheaded",
        catalogue=("V14",),
        summary="The first piece of the arguments is lost when the call is announced.",
        change=OnStream(_arguments_in_first_delta_lost),
    ),
    Defect(
        id="stream-calls-missing",
        catalogue=("V12", "V11"),
        summary="Calls are missing from the stream; its finish reason says there were some.",
        change=OnStream(_without(_has_call)),
    ),
    Defect(
        id="stream-calls-as-text",
        catalogue=("M08",),
        summary="A call arrives as content, `commentary to=functions.NAME json{…}`.",
        change=OnStream(_calls_as_text),
    ),
    Defect(
        id="stream-error-swallowed",
        catalogue=("O04",),
        summary="When arguments are no JSON the stream ends without finish reason, error and `[DONE]`.",
        change=OnStream(_error_swallowed),
    ),
    Defect(
        id="stream-without-role",
        catalogue=(),
        summary="No delta has a role.",
        change=OnStream(_each(_without_role)),
    ),
    Defect(
        id="stream-without-usage",
        catalogue=("V27",),
        summary="`stream_options.include_usage` is ignored.",
        change=OnStream(_without(_is_usage)),
    ),
    Defect(
        id="stream-without-done",
        catalogue=("O04",),
        summary="The stream ends without `[DONE]`.",
        change=OnStream(_without(_is_done)),
    ),
    Defect(
        id="stream-without-finish",
        catalogue=("O04",),
        summary="No chunk has a finish reason.",
        change=OnStream(_without(_is_finish)),
    ),
    Defect(
        id="stream-finish-twice",
        catalogue=(),
        summary="Two chunks have a finish reason.",
        change=OnStream(_finish_twice),
    ),
    Defect(
        id="stream-id-changes",
        catalogue=(),
        summary="Each chunk has another id.",
        change=OnStream(_changing_ids),
    ),
    Defect(
        id="stream-chunk-after-done",
        catalogue=(),
        summary="A chunk follows `[DONE]`.",
        change=OnStream(_chunk_after_done),
    ),
    Defect(
        id="stream-delta-lost",
        catalogue=(),
        summary="One delta of the content is lost.",
        change=OnStream(_one_delta_lost),
    ),
    Defect(
        id="stream-delta-doubled",
        catalogue=(),
        summary="One delta of the content is sent twice.",
        change=OnStream(_one_delta_doubled),
    ),
    Defect(
        id="stream-all-at-once",
        catalogue=(),
        summary="All events arrive together when the last token has come.",
        change=OnStream(_all_at_once),
    ),
    Defect(
        id="stream-answered-whole",
        catalogue=("P06",),
        summary="`stream: true` is answered with one JSON body.",
        change=OnRequest(_not_streamed),
    ),
)
