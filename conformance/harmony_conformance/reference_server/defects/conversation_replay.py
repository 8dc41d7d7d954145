"""Defects of responses that a client cannot send back correctly; the effect shows in its next request."""

from collections.abc import Callable, Iterator

from harmony_conformance.json_value import Json, JsonObject, dumps, items, members
from harmony_conformance.reference_server.defects.changes.body import in_answer, in_list
from harmony_conformance.reference_server.defects.changes.events import by_header, dropping, is_call, is_reasoning
from harmony_conformance.reference_server.defects.stages import Defect, OnEvents, OnJson
from harmony_conformance.reference_server.model.output_parser import MessageStart, OutputEvent


def _calls_without_reasoning(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
    output = list(events)
    calls = any(isinstance(event, MessageStart) and is_call(event.header) for event in output)
    return dropping(by_header(is_reasoning))(iter(output)) if calls else iter(output)


def _in_calls(change: Callable[[list[Json]], list[Json]]) -> OnJson:
    """Change the list of calls of each message and of each delta."""

    def changed(part: JsonObject) -> JsonObject:
        return {**part, "tool_calls": change(items(part["tool_calls"]))} if items(part.get("tool_calls")) else part

    return OnJson(in_list("choices", in_answer(changed)))


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
        "call-reasoning-hidden",
        "Reasoning is missing from responses with calls, so clients cannot send it back.",
        OnEvents(_calls_without_reasoning),
        ("P11",),
    ),
    Defect("call-ids-repeated", "All calls of a response have the same id.", _in_calls(_with_one_id)),
    Defect(
        "calls-returned-twice",
        "Each call of a response without streaming is returned twice, with two ids.",
        _in_calls(_twice),
    ),
    Defect(
        "returned-arguments-encoded-twice",
        "The arguments of calls are JSON-encoded twice in responses without streaming.",
        _in_calls(_encoded_again),
    ),
)
