"""Findings about streams of the Responses API name the event or member at fault, and nothing that the stream does right."""

import json

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import MUST, SHOULD
from harmony_conformance.judge.judge import judge

RULES = {rule.id: rule for rule in CHECKS}
ADDED = "response.output_item.added"
DONE = "response.output_item.done"


def findings(
    check, name, of="responses.events_follow_the_grammar", drop=lambda event: False, change=lambda event: event
):
    """The findings of a check on an example of golden data, without the events of `drop`, and with the others changed."""
    return [
        (
            str(one.message),
            one.location,
            *(None if value is None else str(value) for value in (one.expected, one.actual)),
        )
        for one in result_of(check, name, of, drop, change).findings
    ]


def result_of(
    check, name, of="responses.events_follow_the_grammar", drop=lambda event: False, change=lambda event: event
):
    """The result of a check on the same changed example."""
    shown = json.loads((golden.root() / "exchanges" / of / f"{name}.json").read_text("utf-8"))
    if "events" in shown.get("response", {}):
        shown["response"]["events"] = [change(event) for event in shown["response"]["events"] if not drop(event)]
    example = golden.read_example(json.dumps(shown).encode(), check=check, name=name)
    (result,) = judge([example.series], [RULES[check]])
    return result


def told(*arguments, **options):
    return [message for message, *_ in findings(*arguments, **options)]


def is_of_first_item_before_its_end(event):
    return event.get("output_index") == 0 and event["type"] != DONE


def to_first_item(event):
    return {**event, "output_index": 0} if event.get("output_index") == 1 else event


FINISHED_ONLY = {"drop": is_of_first_item_before_its_end}


def test_an_item_that_is_finished_and_was_never_announced_is_done():
    assert told("responses.events_follow_the_grammar", "pass-answer", **FINISHED_ONLY) == [
        "an event is about an item that was not announced"
    ]


def test_a_second_item_at_an_index_is_not_about_the_item_that_was_only_finished():
    first = {"drop": lambda event: "output_index" in event and event["type"] != DONE, "change": to_first_item}
    assert told("responses.events_follow_the_grammar", "pass-answer", **first) == [
        "an event is about an item that was not announced"
    ]


def test_an_item_after_its_end_is_reported_only_if_it_was_announced():
    assert "an event is about an item that is done" in told(
        "responses.events_follow_the_grammar", "fail-delta-after-done"
    )


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (
            "responses.events_follow_the_grammar",
            "an item is announced at the output_index of one that was never announced, only finished",
        ),
        (
            "responses.events_name_their_item",
            "an event has another item id than the item at its output_index, which was never announced, only finished",
        ),
    ],
)
def test_an_item_that_was_only_finished_is_not_called_announced(check, message):
    assert message in told(check, "pass-answer", **FINISHED_ONLY, change=to_first_item)


EARLY_PART = {"type": "response.content_part.added", "item_id": "rs_1", "output_index": 0, "content_index": 0}


def test_an_item_that_is_announced_after_its_first_event_is_late_and_not_twice_there():
    def begin_with_part(event):
        return EARLY_PART if event["type"] == "response.in_progress" else event

    assert told("responses.events_follow_the_grammar", "pass-answer", change=begin_with_part) == [
        "an event is about an item that was not announced",
        "an item is announced after its first event",
    ]


@pytest.mark.parametrize(
    ("check", "name", "expected"),
    [
        pytest.param(
            "responses.texts_begin_and_end",
            "fail-arguments-not-ended",
            (
                "deltas of arguments come without the event that ends their text",
                "response.function_call_arguments.done",
                "no such event",
            ),
            id="the missing event by its name",
        ),
        pytest.param(
            "responses.events_are_numbered",
            "fail-none",
            ("an event has no sequence_number", "0", "nothing"),
            id="no number is not another number",
        ),
        pytest.param(
            "responses.events_name_their_item",
            "fail-no-output-index",
            ("an event about an item has no output_index", "output_index", "nothing, in response.output_item.added"),
            id="the member is missing, and the event is its place",
        ),
        pytest.param(
            "apis.same_end",
            "fail-told-as-completed",
            (
                "the same tokens are reported as ended, over Chat Completions as cut",
                "the same over both",
                "Chat Completions: finish_reason length, Responses: status completed",
            ),
            id="neither API is known to be right",
        ),
        pytest.param(
            "responses.texts_are_told_alike",
            "fail-delta-lost",
            (
                "the output_text of `response.output_text.done` differs from the joined deltas",
                "the same in both",
                "deltas: Hello, event: Hello!",
            ),
            id="neither the deltas nor the text are known to be right",
        ),
    ],
)
def test_a_finding_shows_what_is_missing(check, name, expected):
    (message, _, *values), *_ = findings(check, name, of=check)
    assert (message, *values) == expected


@pytest.mark.parametrize(
    ("name", "place"),
    [("fail-incomplete-item", "/output/0/status"), ("fail-completed-with-details", "/incomplete_details")],
)
def test_a_member_that_contradicts_the_status_is_the_place(name, place):
    check = "responses.status_says_how_it_ended"
    assert [one[:2] for one in findings(check, name, of=check)] == [("the status contradicts other members", place)]


def test_deltas_with_another_content_index_than_the_finished_text_are_not_called_missing():
    def count_over_items(event):
        is_delta = event["type"] == "response.output_text.delta"
        return {**event, "content_index": 1} if is_delta else event

    found = findings("responses.texts_are_told_alike", "pass-answer", change=count_over_items)
    assert [(message, expected, actual) for message, _, expected, actual in found] == [
        ("the deltas of a text have another index than its item's output_text", "0", "1")
    ]


def test_a_part_that_no_event_added_is_not_called_announced():
    def without_parts(event):
        return event["type"] == "response.content_part.added"

    def change_kind(event):
        is_part = event["type"] == "response.content_part.done" and event["part"]["type"] == "output_text"
        return {**event, "part": {**event["part"], "type": "reasoning_text"}} if is_part else event

    check = "responses.items_stay_as_announced"
    assert told(check, "pass-answer", change=change_kind) == ["the type of the part is not the one that was announced"]
    dropped = told(check, "pass-answer", drop=without_parts, change=change_kind)
    assert dropped == ["the type of the part is not the one of its first delta"]


def test_an_item_that_ends_at_the_place_of_another_is_not_called_changed():
    def to_the_first_place(event):
        return {**event, "output_index": 0} if event["type"] == DONE and event["output_index"] == 1 else event

    assert told("responses.items_stay_as_announced", "pass-answer", change=to_the_first_place) == []
    assert told("responses.events_name_their_item", "pass-answer", change=to_the_first_place) != []


KINDS = [
    ("response.function_call_arguments", "responses#arguments-done"),
    ("response.mcp_call_arguments", "responses#mcp-arguments-done"),
    ("response.custom_tool_call_input", "responses#custom-input-done"),
    ("response.code_interpreter_call_code", "responses#code-done"),
]


@pytest.mark.parametrize(("kind", "clause"), KINDS)
@pytest.mark.parametrize(
    ("check", "name"),
    [
        ("responses.texts_begin_and_end", "fail-arguments-not-ended"),
        ("responses.texts_are_told_alike", "fail-arguments-cut"),
    ],
)
def test_a_text_is_cited_by_the_event_that_ends_its_kind(check, name, kind, clause):
    member = {"input": "input", "code": "code"}.get(kind.rpartition("_")[2], "arguments")

    def change(event):
        event = {**event, "type": event["type"].replace("response.function_call_arguments", kind)}
        if event["type"] == f"{kind}.done":
            return {**event, member: event["arguments"]}
        if event["type"] == DONE:
            return {**event, "item": {**event["item"], member: event["item"]["arguments"]}}
        return event

    (finding,) = result_of(check, name, of=check, change=change).findings
    assert finding.clause == clause
    if check == "responses.texts_begin_and_end":
        assert str(finding.expected) == f"{kind}.done"


@pytest.mark.parametrize(
    ("deltas", "whole", "severity"),
    [
        pytest.param("Hello!", "Hello!\ufffd", SHOULD, id="the sign of an incomplete character"),
        pytest.param("Hello", "Hello!\ufffd", MUST, id="a character before it too"),
        pytest.param("Hello!", "Hello!\ufffda", MUST, id="a sign that is not the last character"),
    ],
)
def test_deltas_may_lack_the_sign_of_an_incomplete_last_character(deltas, whole, severity):
    def change(event):
        written = json.dumps(event)
        old, new = ("Hello!", whole) if not event["type"].endswith(".delta") else ("Hello", deltas)
        return {**json.loads(written.replace(old, json.dumps(new)[1:-1])), "type": event["type"]}

    check = "responses.texts_are_told_alike"
    assert result_of(check, "fail-delta-lost", of=check, change=change).severity is severity
