"""Each ruling is used where it says, a failure has the severity of its rulings, and no other difference is ruled."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import harmony_conformance.checks
from harmony_conformance.apis.registry import APIS
from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.expected_output import is_malformed
from harmony_conformance.evidence.levels import Validity
from harmony_conformance.golden import data as golden
from harmony_conformance.judge import rulings
from harmony_conformance.judge.check import MUST, SHOULD, Finding, Outcome, check, ruled
from harmony_conformance.judge.condition import condition
from harmony_conformance.judge.conditions import is_refusable, is_valid
from harmony_conformance.judge.judge import judge, judge_one
from harmony_conformance.judge.rulings import RULINGS
from harmony_conformance.runner.selection import load_scenarios
from harmony_conformance.transport.messages import Request, Response

EXAMPLES = {example.id: example for example in golden.examples()}
RULES = {rule.id: rule for rule in CHECKS}
STEPS = {
    f"{scenario.name}/{name}": step
    for scenario in load_scenarios()
    for step in scenario.steps
    for name in {step.name, step.row_id}
}
SOURCES = "\n".join(file.read_text("utf-8") for file in Path(harmony_conformance.checks.__file__).parent.rglob("*.py"))
OVER = " over "
NAMES = {value: name for name, value in vars(rulings).items() if name.isupper() and isinstance(value, str)}


@pytest.mark.parametrize("name", RULINGS)
def test_each_ruling_applies_to_what_exists(name):
    ruling = RULINGS[name]
    assert set(ruling.checks) <= RULES.keys()
    assert {step.partition(OVER)[0] for step in ruling.steps} <= STEPS.keys()
    assert {api for step in ruling.steps if (api := step.partition(OVER)[2])} <= APIS.keys()
    assert bool(ruling.severity) == bool(ruling.checks)
    assert ruling.checks or ruling.steps
    if name in NAMES:
        assert re.search(rf"ruled\([^)]*\b{NAMES[name]}\b", SOURCES)
    assert name in NAMES or all(RULES[rule].severity is ruling.severity for rule in ruling.checks)


def test_a_request_with_a_ruling_may_be_refused():
    steps = [step for ruling in RULINGS.values() for step in ruling.steps if ruling.severity is None]
    assert {STEPS[step].validity for step in steps if OVER not in step} == {Validity.UNKNOWN}
    assert {STEPS[step.partition(OVER)[0]].validity for step in steps if OVER in step} == {Validity.VALID}


def test_a_request_may_be_refused_over_the_api_of_its_ruling_alone():
    x = Exchange(
        id="x", scenario="odd_texts", step="nothing", api="messages", request=Request(path="/v1/messages", body=b"{}")
    )
    assert is_refusable(x)
    assert not is_refusable(replace(x, api="chat"))
    assert not is_refusable(replace(x, step="tame text of the user"))


def test_an_output_with_a_ruling_is_malformed():
    outputs = [STEPS[step] for ruling in RULINGS.values() for step in ruling.steps if ruling.severity is not None]
    assert [step.expected.is_well_formed for step in outputs] == [False]


TOLERATED = {
    "rows_answers/an answer in JSON, 1",
    "rows_answers/the role written once more",
    "rows_answers/ended by call",
    "rows_call_headers/ended by return",
    *(f"rows_answers/white space in the header, {number}" for number in (1, 2, 3, 4)),
    "rows_call_headers/a constraint that names nothing",
    "rows_structured_otherwise/a schema, the type as a word",
}
"""Steps with complete rows, whose output only the official library's tolerance reads, or that no source describes."""


def test_output_with_a_complete_row_is_malformed_only_where_the_library_is_tolerant():
    complete = {
        name: step for name, step in STEPS.items() if step.expected is not None and step.expected.is_well_formed
    }
    found = {
        f"{name.partition('/')[0]}/{step.name}" for name, step in complete.items() if is_malformed(step.script or ())
    }
    assert found == TOLERATED


RULED = {
    "prompt.results_are_rendered/fail-quoted": SHOULD,
    "prompt.results_are_rendered/fail-parts-on-lines-quoted": SHOULD,
    "prompt.results_are_rendered/fail-dropped": MUST,
    "prompt.results_are_rendered/fail-another-function": MUST,
    "prompt.text_costs_its_tokens/fail-result-quoted": SHOULD,
    "prompt.text_costs_its_tokens/fail-markers-are-special": MUST,
    "streaming.content_equals_whole/fail-other-white-space-between-messages": SHOULD,
    "streaming.content_equals_whole/fail-white-space-lost-within-a-message": MUST,
    "streaming.content_equals_whole/fail-neither-is-right": SHOULD,
    "streaming.content_equals_whole/fail-content-lost": MUST,
    "reasoning.unknown_effort_is_not_swallowed/fail-none-is-medium": SHOULD,
    "reasoning.unknown_effort_is_not_swallowed/fail-minimal-is-high": SHOULD,
    "reasoning.unknown_effort_is_not_swallowed/fail-rendered-as-it-is": MUST,
    "channels.nothing_is_lost/fail-vllm-no-channel": SHOULD,
    "channels.nothing_is_lost/fail-call-swallowed": MUST,
    "channels.nothing_is_lost/fail-text-then-an-answer": SHOULD,
    "channels.nothing_is_lost/fail-answer-behind-a-built-in-call": SHOULD,
    "channels.content_is_the_answer/fail-white-space-in-the-header": SHOULD,
    "channels.content_is_the_answer/fail-vllm-final-json": SHOULD,
    "channels.content_is_the_answer/fail-empty": MUST,
    "tool_calls.calls_arrive/fail-recipient-without-to": SHOULD,
    "headers.broken_output_loses_nothing/fail-end-missing": SHOULD,
    "tools.orphan_result_is_not_misnamed/fail-no-name": SHOULD,
    "usage.counts_the_prompt/fail-side-endpoint-differs": SHOULD,
    "usage.counts_the_prompt/fail-more": MUST,
    "channels.no_marker_leak/fail-in-an-error": SHOULD,
    "apis.same_calls_are_returned/fail-empty-arguments-completed": SHOULD,
    "apis.same_calls_are_returned/fail-other-arguments": MUST,
    "streaming.calls_equal_whole/fail-empty-arguments-completed": SHOULD,
    "streaming.calls_equal_whole/fail-arguments-emptied": MUST,
    "tool_calls.calls_arrive/fail-number-rounded-over-messages": SHOULD,
    "tool_calls.calls_arrive/fail-value-changed": MUST,
    "prompt.calls_are_rendered/fail-number-rounded-over-messages": SHOULD,
    "prompt.calls_are_rendered/fail-value-changed": MUST,
    "prompt.user_text_is_whole/fail-neighbours-joined": SHOULD,
    "prompt.user_text_is_whole/fail-joined-across-an-answer": MUST,
    "prompt.user_text_is_whole/fail-dropped": MUST,
    "stop_tokens.stop_string_is_cut/fail-over-messages": SHOULD,
    "stop_tokens.stop_string_is_cut/fail-vllm-shown": MUST,
    "stop_tokens.stop_string_is_cut/fail-ignored": MUST,
}


@pytest.mark.parametrize("name", RULED)
def test_a_failure_has_the_severity_of_its_ruling(name):
    example = EXAMPLES[name]
    (result,) = judge([example.series], [RULES[example.check]])
    assert (result.outcome, result.severity) == (Outcome.FAIL, RULED[name])


CLAUSES_OF_FAILURES = {
    "prompt.text_costs_its_tokens/fail-second-instruction-dropped": "harmony#developer",
    "prompt.text_costs_its_tokens/fail-result-quoted": "harmony#tool-messages",
    "prompt.text_costs_its_tokens/fail-markers-are-special": "harmony#special-tokens",
    "multi_turn.reasoning_costs_what_it_must/fail-never-read": "harmony#keep-reasoning",
    "multi_turn.reasoning_costs_what_it_must/fail-always-kept": "harmony#drop-reasoning",
    "choices.logprobs_are_returned/fail-responses": "responses#logprobs",
    "structured.answer_is_json/fail-cut-and-no-json": "responses#response-format",
    "responses.items_have_their_members/fail-reasoning-as-output-text": "responses#reasoning-item",
    "responses.items_have_their_members/fail-content-is-a-text": "responses#output-message",
    "responses.items_have_their_members/fail-call-without-name": "responses#tool-call",
    "responses.items_have_their_members/fail-item-without-type": "responses#output",
    "responses.events_follow_the_grammar/fail-arguments-of-a-custom-call": "responses#custom-input-events",
    "responses.texts_begin_and_end/fail-summary-without-part": "responses#summary-events",
    "responses.texts_begin_and_end/fail-thought-without-part": "responses#reasoning-text-done",
    "responses.texts_begin_and_end/fail-text-not-ended": "responses#text-done",
    "responses.texts_begin_and_end/fail-arguments-not-ended": "responses#arguments-done",
    "responses.texts_are_told_alike/fail-arguments-cut": "responses#arguments-done",
    "responses.texts_are_told_alike/fail-done-differs": "responses#text-done",
    "streaming.role_comes_first/fail-never": "chat#delta-role",
    "apis.same_calls_are_returned/fail-other-arguments": "chat#arguments",
    "apis.same_calls_are_returned/fail-no-call": "harmony#receiving-calls",
    "apis.same_reasoning/fail-redacted-over-messages": "messages#reasoning",
    "apis.same_reasoning/fail-lost-where-it-was-cut": "responses#reasoning",
    "prompt.is_an_accepted_rendering/fail-line-ends-of-instructions": "harmony#developer-form",
    "prompt.is_an_accepted_rendering/fail-result-quoted": "harmony#message-format",
    "prompt.is_an_accepted_rendering/fail-effort-as-written": "harmony#system",
    "prompt.is_an_accepted_rendering/fail-functions-reordered": "harmony#tools",
    "prompt.is_an_accepted_rendering/fail-finished-reasoning-kept": "harmony#drop-reasoning",
    "prompt.is_an_accepted_rendering/fail-reasoning-under-its-own-name-dropped": "harmony#keep-reasoning",
    "apis.same_prompt/fail-another-date": "harmony#dates",
    "apis.same_prompt/fail-over-messages": "harmony#system",
    "apis.same_prompt/fail-other-arguments": "chat#arguments",
    "apis.same_prompt/fail-another-number": "harmony#roles",
    "native.last_line_is_done/fail-negative-duration": "ollama#statistics",
    "native.last_line_is_done/fail-never-done": "ollama#last-line",
    "native.arguments_are_objects/fail-null": "ollama#arguments",
    "native.arguments_are_objects/fail-no-name": "ollama#call-name",
    "tool_calls.call_is_complete/fail-no-id": "chat#call-id",
    "tool_calls.call_is_complete/fail-one-id-for-two": "chat#call-id",
    "tool_calls.call_is_complete/fail-no-type": "chat#call-type",
    "tool_calls.call_is_complete/fail-no-name": "chat#call-name",
    "tool_calls.call_is_complete/fail-over-messages": "messages#call-name",
    "tool_calls.call_is_complete/fail-arguments-as-object": "chat#arguments",
    "streaming.call_deltas_can_be_joined/fail-no-name": "chat#call-name",
    "messages.blocks_have_their_members/fail-input-as-text": "messages#call-input",
    "messages.blocks_have_their_members/fail-two-equal-ids": "messages#call-id",
    "responses.items_have_their_members/fail-arguments-as-object": "responses#arguments",
    "apis.same_reasoning/fail-lost-over-chat": "raw-cot#chat-output",
}


@pytest.mark.parametrize("name", CLAUSES_OF_FAILURES)
def test_a_failure_cites_the_clause_that_demands_it(name):
    example = EXAMPLES[name]
    (result,) = judge([example.series], [RULES[example.check]])
    assert result.clause.id == CLAUSES_OF_FAILURES[name]


VALUES_OF_FAILURES = {
    "apis.same_reasoning/fail-lost-over-chat": ("the same over both", "Chat Completions: , Responses: Simple things"),
    "prompt.text_costs_its_tokens/fail-second-instruction-dropped": (
        "4 more tokens and those of the message's header",
        "0 more tokens",
    ),
    "usage.prompt_count_is_steady/fail-stream": ("the same in both", "whole: 68, streamed: 80"),
}
"""The expected and the actual value of failures. A comparison names both values if it does not know which of them is right."""


@pytest.mark.parametrize("name", VALUES_OF_FAILURES)
def test_a_failure_shows_the_values_that_the_check_compared(name):
    example = EXAMPLES[name]
    (result,) = judge([example.series], [RULES[example.check]])
    (finding,) = result.findings
    assert (finding.expected, finding.actual) == VALUES_OF_FAILURES[name]


def test_an_older_recording_of_a_request_that_may_be_refused():
    refused = Exchange(
        id="x",
        scenario="json_beyond_parsers",
        step="a number beyond floats in the history",
        validity=Validity.VALID,
        request=Request(path="/v1/chat/completions", body=b"{}"),
        response=Response(status=400, chunks=()),
    )
    other = replace(refused, scenario="rows_texts")
    assert [is_valid.holds(x) for x in (refused, other)] == [False, True]


@condition
def is_anything(_):
    """everything"""
    return True


@check(MUST, spec="chat#usage", when=is_anything)
def many_faults(x):
    """It has no fault."""
    quoted = Finding(message="quoted")
    yield from {"ruled": [ruled(quoted, "quoted-results")], "both": [ruled(quoted, "quoted-results"), quoted]}[x.id]


@pytest.mark.parametrize(("name", "severity"), [("ruled", SHOULD), ("both", MUST)])
def test_the_severest_finding_counts(name, severity):
    sent = Series(name="s", exchanges={"a": Exchange(id=name, request=Request(path="/", body=b"{}"))})
    assert judge_one(many_faults, [sent], exercised=True).severity is severity
