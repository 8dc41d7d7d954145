"""The response object and its items: the members that a client reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import LiteralString

from harmony_conformance.checks.helpers.empty_answers import may_be_cut
from harmony_conformance.checks.responses import views
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, members, pointer, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, cited, mismatch
from harmony_conformance.judge.condition import evidence
from harmony_conformance.redactable_text import Location, RedactableText, ReportText, quote, shorten

_ANSWERED = (views.is_responses, on.was_answered, views.has_response_object)


def _is_filled(value: Json) -> bool:
    return isinstance(value, str) and bool(value)


def _is_a(*types: type) -> Callable[[Json], bool]:
    return lambda value: isinstance(value, types)


def _is(*words: str) -> Callable[[Json], bool]:
    return lambda value: value in words


_STATUSES = ("completed", "failed", "in_progress", "cancelled", "queued", "incomplete")
_Members = dict[LiteralString, tuple[Callable[[Json], bool], LiteralString]]

_RESPONSE: _Members = {
    "id": (_is_filled, "a string that is not empty"),
    "object": (_is("response"), "response"),
    "created_at": (lambda value: integer(value) is not None or isinstance(value, float), "a time in seconds"),
    "status": (_is(*_STATUSES), "one of " + ", ".join(_STATUSES)),
    "model": (_is_a(str), "a string"),
    "output": (_is_a(list), "a list"),
}

_ITEMS: dict[str, _Members] = {
    "message": {
        "id": (_is_filled, "a string that is not empty"),
        "role": (_is("assistant"), "assistant"),
        "content": (_is_a(list), "a list of parts"),
    },
    "reasoning": {
        "id": (_is_filled, "a string that is not empty"),
        "summary": (_is_a(list), "a list"),
        "content": (_is_a(list, type(None)), "a list of parts, or null"),
    },
    "function_call": {
        "call_id": (_is_filled, "a string that is not empty"),
        "name": (_is_filled, "a string that is not empty"),
        "arguments": (_is_a(str), "a string"),
    },
    "custom_tool_call": {
        "call_id": (_is_filled, "a string that is not empty"),
        "name": (_is_filled, "a string that is not empty"),
        "input": (_is_a(str), "a string"),
    },
    "local_shell_call": {"call_id": (_is_filled, "a string that is not empty"), "action": (_is_a(dict), "an object")},
    "shell_call": {"call_id": (_is_filled, "a string that is not empty"), "action": (_is_a(dict), "an object")},
    "apply_patch_call": {
        "call_id": (_is_filled, "a string that is not empty"),
        "operation": (_is_a(dict), "an object"),
    },
    "mcp_call": {
        "id": (_is_filled, "a string that is not empty"),
        "name": (_is_filled, "a string that is not empty"),
        "server_label": (_is_filled, "a string that is not empty"),
        "arguments": (_is_a(str), "a string"),
    },
    "mcp_approval_request": {
        "id": (_is_filled, "a string that is not empty"),
        "name": (_is_filled, "a string that is not empty"),
        "server_label": (_is_filled, "a string that is not empty"),
        "arguments": (_is_a(str), "a string"),
    },
    "mcp_list_tools": {
        "id": (_is_filled, "a string that is not empty"),
        "server_label": (_is_filled, "a string that is not empty"),
        "tools": (_is_a(list), "a list"),
    },
    "code_interpreter_call": {
        "id": (_is_filled, "a string that is not empty"),
        "status": (_is_filled, "a string that is not empty"),
    },
    "web_search_call": {
        "id": (_is_filled, "a string that is not empty"),
        "status": (_is_filled, "a string that is not empty"),
    },
}
"""The members of an item by its type. Other types belong to tools that gpt-oss does not have."""

_PARTS = {
    "message": {"content": {"output_text": "text", "refusal": "refusal"}},
    "reasoning": {"content": {"reasoning_text": "text"}, "summary": {"summary_text": "text"}},
}
"""The types of the parts in each list of an item, and the member with the text."""
_CLAUSES = {
    "message": "responses#output-message",
    "reasoning": "responses#reasoning-item",
    "function_call": "responses#tool-call",
    "custom_tool_call": "responses#tool-types",
    "mcp_call": "responses#mcp-call",
    "mcp_approval_request": "responses#mcp-approval-request",
    "mcp_list_tools": "responses#mcp-list-tools",
    "code_interpreter_call": "responses#code-interpreter-call",
    "web_search_call": "responses#web-search-call",
}
"""The clause about the members of an item, by its type."""
_MEMBER_CLAUSES = {
    ("function_call", "arguments"): "responses#arguments",
    ("custom_tool_call", "call_id"): "responses#custom-call-id",
    ("custom_tool_call", "input"): "responses#custom-input",
    ("message", "type"): "responses#output-text-type",
}
"""The clause about a member, by the type of its item, where that of the item does not name it. The type is that of a part."""


@check(SHOULD, spec="responses#object", when=_ANSWERED)
def response_has_its_members(x: Exchange) -> Iterator[Finding]:
    """A response object has its id, type, time, status, model and output.

    Clients with typed objects omit the missing members, or reject the whole answer.
    """
    yield from _faults(views.response(x), _RESPONSE, "")


@check(MUST, spec="responses#output", when=_ANSWERED)
def items_have_their_members(x: Exchange) -> Iterator[Finding]:
    """Each item of the output has a type, the members of that type, and its texts in parts of the right type.

    Clients find the answer by these types. Otherwise they do not show a text, or show reasoning as the answer (defects P07, V35).
    """
    for place, item in enumerate(views.output(x)):
        kind = text(value_at(item, "type"))
        for fault in _item_faults(item, pointer("output", place)):
            member = fault.location.rpartition("/")[2]
            yield cited(fault, _MEMBER_CLAUSES.get((kind, member), _CLAUSES.get(kind, "")))


def _item_faults(item: Json, where: str) -> Iterator[Finding]:
    kind = text(value_at(item, "type"))
    if not kind:
        yield mismatch("an item has no type", where, "a type", shorten(dumps(item)))
        return
    yield from _faults(members(item), _ITEMS.get(kind, {}), where)
    if kind == "reasoning" and value_at(item, "role") is not None:
        yield mismatch("a reasoning item has a role", f"{where}/role", "no role", quote(dumps(value_at(item, "role"))))
    for member, kinds in _PARTS.get(kind, {}).items():
        for index, part in enumerate(items(value_at(item, member))):
            yield from _part_faults(part, kinds, f"{where}/{member}/{index}")


def _faults(value: JsonObject, expected_members: _Members, where: str) -> Iterator[Finding]:
    for name, (is_valid, expected) in expected_members.items():
        member = value.get(name)
        if not is_valid(member):
            message = f"`{name}` is missing, empty or of the wrong type"
            actual = "nothing" if member is None else shorten(dumps(member))
            yield mismatch(message, f"{where}/{name}", expected, actual)


def _part_faults(part: Json, kinds: dict[str, str], where: str) -> Iterator[Finding]:
    kind = text(value_at(part, "type"))
    if kind not in kinds:
        message = "a part has a type that its item does not allow"
        yield mismatch(message, f"{where}/type", quote(" or ".join(kinds)), quote(kind) or "nothing")
    elif not isinstance(value_at(part, kinds[kind]), str):
        yield mismatch("a part has no text", f"{where}/{kinds[kind]}", "a string", shorten(dumps(part)))


@check(MUST, spec="responses#status", when=(*_ANSWERED, on.is_complete_answer))
def status_says_how_it_ended(x: Exchange) -> Iterator[Finding]:
    """A response cut by the limit is `incomplete` with `max_output_tokens`, one ended by the model is `completed`; the last event agrees.

    With a wrong `completed`, a client takes half an answer, or half a call, for a complete one. Without knowledge of the real end, the check
    compares the status, its details, the status of the last item, and the last event.
    """
    body = views.response(x)
    status, reason = text(body.get("status")), value_at(body.get("incomplete_details"), "reason")
    actual = RedactableText("{}, {}", status, reason or RedactableText("no reason"))
    if (x.hit_token_limit or _shows_no_answer_at_limit(x)) and (status, reason) != ("incomplete", "max_output_tokens"):
        message = "the limit cut the answer, and the status does not report it"
        yield mismatch(message, "/status", "incomplete, max_output_tokens", actual)
    elif x.reached_stop and (status != "completed" or body.get("incomplete_details") is not None):
        yield mismatch("the model ended its turn, and the status does not report it", "/status", "completed", actual)
    elif (contradiction := _contradiction(body)) is not None:
        yield mismatch("the status contradicts other members", *contradiction)
    types = (text(event.get("type")) for event in views.json_events(x))
    kinds = [kind for kind in types if kind in views.STATUS_BY_FINAL_EVENT]
    if kinds and views.STATUS_BY_FINAL_EVENT[kinds[-1]] != status:
        message = "the last event and the status of its response differ"
        if x.hit_token_limit and status == "incomplete":
            yield mismatch(message, "the last event", "response.incomplete", quote(kinds[-1]))
        else:
            yield mismatch(
                message, "/status", quote(views.STATUS_BY_FINAL_EVENT[kinds[-1]]), quote(status) or "nothing"
            )


def _shows_no_answer_at_limit(x: Exchange) -> bool:
    """Return True if all allowed tokens were spent, and the client got reasoning alone, or nothing."""
    return may_be_cut(x) and x.turn is not None and not x.turn.has_answer


def _contradiction(body: JsonObject) -> tuple[str, ReportText, ReportText] | None:
    """Return the place of the first member that contradicts the status `completed`, its expected and its actual value."""
    if body.get("status") != "completed":
        return None
    if isinstance(body.get("incomplete_details"), dict):
        return "/incomplete_details", "null", shorten(dumps(body["incomplete_details"]))
    output = items(body.get("output"))
    status = text(value_at(output[-1], "status")) if output else ""
    place = pointer("output", len(output) - 1, "status")
    return (place, "completed", quote(status)) if status in ("incomplete", "in_progress") else None


@evidence
def counts_reasoning(x: Exchange) -> bool:
    """answers whose usage counts reasoning: more tokens than the header of a message has"""
    usage = x.turn.usage if x.turn is not None else None
    return usage is not None and (usage.reasoning_tokens or 0) > _HEADER_TOKENS


_HEADER_TOKENS = 6
"""The number of tokens of a header, which some servers count with its text."""


@check(SHOULD, spec="responses#output", when=(*_ANSWERED, on.is_complete_answer, counts_reasoning))
def counted_thought_has_an_item(x: Exchange) -> Iterator[Finding]:
    """A response whose usage counts reasoning has an item for it in the output, possibly without its text.

    If the limit cuts the reasoning, servers return `incomplete` without output: the client pays, gets nothing, and cannot continue (defect V39).
    """
    is_announced = any(text(event.get("type")).startswith("response.output_item.") for event in views.json_events(x))
    if not views.output(x) and not is_announced:
        count = x.turn.usage.reasoning_tokens if x.turn is not None and x.turn.usage is not None else 0
        message = RedactableText("{} reasoning tokens are counted, and the output has no item", count)
        actual = RedactableText(
            "status {}, no item", text(views.response(x).get("status")) or RedactableText("missing")
        )
        yield mismatch(message, "/output", "a reasoning item", actual)


def _is_result(item: Json) -> bool:
    """Return True for the result of a call, which has the id of the call."""
    return text(value_at(item, "type")).endswith("_output")


@check(MUST, spec="responses#ids", when=_ANSWERED)
def ids_are_unique(x: Exchange) -> Iterator[Finding]:
    """No two items of a response have the same id, and no two calls the same `call_id`.

    A client sends results by `call_id`, and stores items by their id: of two items with the same id one is lost.
    """
    for member in ("id", "call_id"):
        names = [text(value_at(item, member)) for item in views.output(x) if not _is_result(item)]
        for name, count in Counter(filter(None, names)).items():
            if count > 1:
                message = RedactableText("{} items have the same `{}`", count, Location(member))
                yield mismatch(message, "/output", "one item", quote(name))
