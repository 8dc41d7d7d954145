"""The response object and its items: the members that a client reads, and what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import LiteralString

from harmony_conformance.checks.responses.views import (
    ENDS,
    is_responses,
    output,
    response,
    told_a_response,
    told_events,
)
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, at, dumps, items, members, number, pointer, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, evidence
from harmony_conformance.redactable_text import Location, RedactableText, ReportText, quote, shorten

_ANSWERED = (is_responses, on.was_answered, told_a_response)


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_id(value: Json) -> bool:
    return isinstance(value, str) and bool(value)


def _is_list(value: Json) -> bool:
    return isinstance(value, list)


def _is_time(value: Json) -> bool:
    return number(value) is not None or isinstance(value, float)


def _is_optional_list(value: Json) -> bool:
    return value is None or isinstance(value, list)


def _is(*words: str) -> Callable[[Json], bool]:
    return lambda value: value in words


_STATUSES = ("completed", "failed", "in_progress", "cancelled", "queued", "incomplete")
_Members = dict[LiteralString, tuple[Callable[[Json], bool], LiteralString]]

_RESPONSE: _Members = {
    "id": (_is_id, "a text"),
    "object": (_is("response"), "response"),
    "created_at": (_is_time, "a time in seconds"),
    "status": (_is(*_STATUSES), "one of " + ", ".join(_STATUSES)),
    "model": (_is_text, "a text"),
    "output": (_is_list, "a list"),
}

_ITEMS: dict[str, _Members] = {
    "message": {
        "id": (_is_id, "a text"),
        "role": (_is("assistant"), "assistant"),
        "content": (_is_list, "a list of parts"),
    },
    "reasoning": {
        "id": (_is_id, "a text"),
        "summary": (_is_list, "a list"),
        "content": (_is_optional_list, "a list of parts, or null"),
    },
    "function_call": {
        "call_id": (_is_id, "a text"),
        "name": (_is_id, "a text"),
        "arguments": (_is_text, "a text"),
    },
    "code_interpreter_call": {"id": (_is_id, "a text"), "status": (_is_id, "a text")},
    "web_search_call": {"id": (_is_id, "a text"), "status": (_is_id, "a text")},
}
"""What an item of each type has; types that are not listed are those of tools that gpt-oss does not have."""

_PARTS = {
    "message": {"content": {"output_text": "text", "refusal": "refusal"}},
    "reasoning": {"content": {"reasoning_text": "text"}, "summary": {"summary_text": "text"}},
}
"""The types of the parts in each list of an item, and the member that has the text."""


@check(SHOULD, spec="responses#object", when=_ANSWERED)
def response_has_its_members(x: Exchange) -> Iterator[Finding]:
    """A response object has its id, type, time, status, model and output.

    Clients with typed objects leave out what is missing, or refuse the whole answer.
    """
    told = response(x)
    yield from _faults(told.get, _RESPONSE, "")


@check(MUST, spec="responses#output", when=_ANSWERED)
def items_have_their_members(x: Exchange) -> Iterator[Finding]:
    """Each item of the output is of a type, and has the members of that type, its texts in parts of the right one.

    Clients find the answer by these types: text in a part of another one is not shown, or reasoning is shown as the answer (defects P07, V35).
    """
    for place, item in enumerate(output(x)):
        where = pointer("output", place)
        kind = text(at(item, "type"))
        if not kind:
            yield Finding(message="an item has no type", at=where, expected="a type", actual=shorten(dumps(item)))
            continue
        yield from _faults(members(item).get, _ITEMS.get(kind, {}), where)
        if kind == "reasoning" and at(item, "role") is not None:
            yield Finding(
                message="a reasoning item has a role", at=f"{where}/role", actual=quote(dumps(at(item, "role")))
            )
        for member, kinds in _PARTS.get(kind, {}).items():
            for number_, part in enumerate(items(at(item, member))):
                yield from _part_faults(part, kinds, f"{where}/{member}/{number_}")


def _faults(told: Callable[[str], Json], wanted: _Members, where: str) -> Iterator[Finding]:
    for name, (is_right, expected) in wanted.items():
        value = told(name)
        if not is_right(value):
            actual = "nothing" if value is None else shorten(dumps(value))
            yield Finding(
                message=f"`{name}` is missing or of the wrong kind",
                at=f"{where}/{name}",
                expected=expected,
                actual=actual,
            )


def _part_faults(part: Json, kinds: dict[str, str], where: str) -> Iterator[Finding]:
    kind = text(at(part, "type"))
    if kind not in kinds:
        yield Finding(
            message="a part has a type that its item does not have",
            at=f"{where}/type",
            expected=quote(" or ".join(kinds)),
            actual=quote(kind) or "nothing",
        )
    elif not isinstance(at(part, kinds[kind]), str):
        yield Finding(
            message="a part has no text", at=f"{where}/{kinds[kind]}", expected="a text", actual=shorten(dumps(part))
        )


@check(MUST, spec="responses#status", when=(*_ANSWERED, on.ended_well))
def status_says_how_it_ended(x: Exchange) -> Iterator[Finding]:
    """A response that the limit cut is `incomplete` for `max_output_tokens`, one that the model ended is `completed`, and the last event says the same.

    A client that is told `completed` takes half an answer, or half a call, for a whole one. Where nobody knows how it ended, what is said of that must agree:
    the status, its details, that of the last item, and the last event.
    """
    told = response(x)
    status, reason = text(told.get("status")), at(told.get("incomplete_details"), "reason")
    if x.hit_token_limit and (status, reason) != ("incomplete", "max_output_tokens"):
        yield Finding(
            message="the limit cut the answer, and the status does not say so",
            at="/status",
            expected="incomplete, max_output_tokens",
            actual=RedactableText("{}, {}", status, reason or RedactableText("no reason")),
        )
    elif x.reached_stop and (status != "completed" or told.get("incomplete_details") is not None):
        yield Finding(
            message="the model ended its turn, and the status does not say so",
            at="/status",
            expected="completed",
            actual=RedactableText("{}, {}", status, reason or RedactableText("no reason")),
        )
    elif (contradiction := _contradiction(told)) is not None:
        yield Finding(
            message="what is said of the end does not agree", at="/status", expected=quote(status), actual=contradiction
        )
    kinds = [ENDS[kind] for event in told_events(x) if (kind := text(event.get("type"))) in ENDS]
    if kinds and kinds[-1] != status:
        yield Finding(
            message="the last event and the status of its response differ",
            at="/status",
            expected=quote(kinds[-1]),
            actual=quote(status) or "nothing",
        )


def _contradiction(told: JsonObject) -> ReportText | None:
    """What a response says against its being completed."""
    if told.get("status") != "completed":
        return None
    if isinstance(told.get("incomplete_details"), dict):
        return RedactableText("incomplete_details {}", shorten(dumps(told["incomplete_details"])))
    last = next(iter(reversed(items(told.get("output")))), None)
    unfinished = text(at(last, "status"))
    return RedactableText("the last item is {}", unfinished) if unfinished in ("incomplete", "in_progress") else None


@evidence
def counts_a_thought(x: Exchange) -> bool:
    """answers whose usage counts a thought: more reasoning tokens than may stand around one"""
    usage = x.turn.usage if x.turn is not None else None
    return usage is not None and (usage.reasoning_tokens or 0) > _AROUND_A_THOUGHT


_AROUND_A_THOUGHT = 6
"""Tokens of a header, which some servers count with its text."""


@check(SHOULD, spec="responses#output", when=(*_ANSWERED, on.ended_well, counts_a_thought))
def counted_thought_has_an_item(x: Exchange) -> Iterator[Finding]:
    """A response whose usage counts a thought has an item: what was generated is in the output, if only as an item that hides its text.

    Where the limit cut the thought, servers return `incomplete` and no output: the client pays, has nothing, and cannot go on from it (defect V39).
    """
    announced = any(text(event.get("type")).startswith("response.output_item.") for event in told_events(x))
    if not output(x) and not announced:
        told = x.turn.usage.reasoning_tokens if x.turn is not None and x.turn.usage is not None else 0
        yield Finding(
            message=RedactableText("{} tokens of a thought are counted, and the output has no item", told),
            at="/output",
            expected="a reasoning item",
            actual=RedactableText("status {}, no item", text(response(x).get("status")) or RedactableText("missing")),
        )


@check(MUST, spec="responses#ids", when=_ANSWERED)
def ids_are_unique(x: Exchange) -> Iterator[Finding]:
    """No two items of a response have the same id, and no two calls the same `call_id`.

    A client sends results by `call_id`, and keeps items by their id: of two that are alike one is lost.
    """
    for member, kinds in (("id", None), ("call_id", "function_call")):
        named = [text(at(item, member)) for item in output(x) if kinds in (None, at(item, "type"))]
        for name, count in Counter(filter(None, named)).items():
            if count > 1:
                yield Finding(
                    message=RedactableText("{} items have the same `{}`", count, Location(member)),
                    at="/output",
                    expected="one item",
                    actual=quote(name),
                )
