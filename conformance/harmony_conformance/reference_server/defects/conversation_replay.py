"""Defects of responses that a client cannot send back correctly; the effect shows in its next request."""

from collections.abc import Callable, Iterator

from harmony_conformance.json_value import Json, JsonObject, dumps, items, members
from harmony_conformance.reference_server.defects.body_changes import in_choices
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
    """Change the list of calls of each message and of each delta."""

    def part(value: JsonObject) -> JsonObject:
        return {**value, "tool_calls": change(items(value["tool_calls"]))} if items(value.get("tool_calls")) else value

    def choice(value: JsonObject) -> JsonObject:
        return {
            name: part(members(member)) if name in {"message", "delta"} else member for name, member in value.items()
        }

    return OnJson(lambda body: in_choices(choice)(body) if "choices" in body else body)


def _with_one_id(calls: list[Json]) -> list[Json]:
    return [{**members(call), "id": "call_0"} if "id" in members(call) else call for call in calls]


def _twice(calls: list[Json]) -> list[Json]:
    """Append each call with a second id. Calls of a delta have an `index` and remain unchanged."""
    return [*calls, *({**members(one), "id": f"{members(one)['id']}x"} for one in calls if "index" not in members(one))]


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
        summary="Reasoning is missing from responses with calls, so clients cannot send it back.",
        change=OnEvents(_calls_without_reasoning),
    ),
    Defect(id="call-ids-repeated", summary="All calls of a response have the same id.", change=_in_calls(_with_one_id)),
    Defect(
        id="calls-returned-twice",
        summary="Each call of a response without streaming is returned twice, with two ids.",
        change=_in_calls(_twice),
    ),
    Defect(
        id="returned-arguments-encoded-twice",
        summary="The arguments of calls are JSON-encoded twice in responses without streaming.",
        change=_in_calls(_encoded_again),
    ),
)
