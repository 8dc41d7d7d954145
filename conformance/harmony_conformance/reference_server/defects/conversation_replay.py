"""Defects of answers that a client can not send back as it should: what is wrong with them shows in its next request."""

from collections.abc import Callable, Iterator

from harmony_conformance.json_value import Json, JsonObject, dumps, items, members
from harmony_conformance.reference_server.defects.event_changes import dropping, goes_to, is_call, on
from harmony_conformance.reference_server.defects.stages import Defect, OnEvents, OnJson
from harmony_conformance.reference_server.model.output_events import OutputField
from harmony_conformance.reference_server.model.output_parser import Event, Opened


def _calls_without_reasoning(events: Iterator[Event]) -> Iterator[Event]:
    output = list(events)
    calls = any(isinstance(event, Opened) and is_call(event.header) for event in output)
    hidden = dropping(on(lambda header: goes_to(header) is OutputField.REASONING))
    return hidden(iter(output)) if calls else iter(output)


def _in_calls(change: Callable[[list[Json]], list[Json]]) -> OnJson:
    """A change of the calls of a message, and likewise of the calls of a delta."""

    def part(value: JsonObject) -> JsonObject:
        return {**value, "tool_calls": change(items(value["tool_calls"]))} if items(value.get("tool_calls")) else value

    def choice(value: Json) -> Json:
        return {
            name: part(members(member)) if name in {"message", "delta"} else member
            for name, member in members(value).items()
        }

    def body(value: JsonObject) -> JsonObject:
        return {**value, "choices": [choice(one) for one in items(value["choices"])]} if "choices" in value else value

    return OnJson(body)


def _with_one_id(calls: list[Json]) -> list[Json]:
    return [{**members(call), "id": "call_0"} if "id" in members(call) else call for call in calls]


def _twice(calls: list[Json]) -> list[Json]:
    """Each call of a whole message again under another id; the calls of a delta, which have an index, are left alone."""
    again: list[Json] = [
        {**members(call), "id": f"{members(call)['id']}x"} for call in calls if "index" not in members(call)
    ]
    return [*calls, *again]


def _encoded_again(calls: list[Json]) -> list[Json]:
    def changed(call: Json) -> Json:
        function = members(members(call).get("function"))
        if "index" in members(call):
            return call
        return {**members(call), "function": {**function, "arguments": dumps(function.get("arguments"))}}

    return list(map(changed, calls))


DEFECTS = (
    Defect(
        id="call-reasoning-hidden",
        catalogue=("P11",),
        summary="Reasoning is returned with answers and not with calls, so that no client can send it back.",
        change=OnEvents(_calls_without_reasoning),
    ),
    Defect(
        id="call-ids-repeated",
        catalogue=(),
        summary="All calls of an answer have the same id.",
        change=_in_calls(_with_one_id),
    ),
    Defect(
        id="calls-returned-twice",
        catalogue=(),
        summary="Each call of a whole answer is returned twice, under two ids.",
        change=_in_calls(_twice),
    ),
    Defect(
        id="returned-arguments-encoded-twice",
        catalogue=(),
        summary="The arguments of the calls of a whole answer are encoded as JSON once more.",
        change=_in_calls(_encoded_again),
    ),
)
