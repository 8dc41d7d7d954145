"""The sentences of failures have the words of the API that was called."""

import json

import pytest

from harmony_conformance.apis.registry import APIS
from harmony_conformance.checks import CHECKS
from harmony_conformance.checks.helpers.api_words import words_of
from harmony_conformance.checks.streaming import right_side
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.judge import judge
from harmony_conformance.transport.messages import Request

RULES = {rule.id: rule for rule in CHECKS}
CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]


def message(reason, blocks, script="<|channel|>final<|message|>Hello!<|return|>", spent=10, **request):
    body = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}], **request}
    usage = {"input_tokens": 70, "output_tokens": spent}
    answer = {"id": "msg_1", "type": "message", "role": "assistant", "content": blocks, "usage": usage}
    return {
        "api": "messages",
        "request": {"path": "/v1/messages", "json": body},
        "response": {"json": {**answer, "model": "m", "stop_reason": reason}},
        "script": script,
    }


def found(check, shown):
    example = golden.read_example(json.dumps(shown).encode(), check=check, name="fail-x")
    (result,) = judge([example.series], [RULES[check]])
    return [(str(one.message), str(one.location), str(one.expected), str(one.actual)) for one in result.findings]


@pytest.mark.parametrize(
    ("check", "shown", "finding"),
    [
        (
            "tool_calls.finish_reason_agrees",
            message("end_turn", [{"type": "tool_use", "id": "t", "name": "f", "input": {}}], CALL, tools=TOOLS),
            ("calls are returned and stop_reason is end_turn", "/stop_reason", "tool_use", "end_turn"),
        ),
        (
            "tool_calls.finish_reason_agrees",
            message("tool_use", [{"type": "text", "text": "Hello!"}]),
            ("stop_reason is tool_use and there is no call", "/stop_reason", "end_turn", "tool_use"),
        ),
        (
            "tool_calls.finish_reason_agrees",
            message(None, [{"type": "text", "text": "Hello!"}]),
            ("the answer has no stop_reason", "/stop_reason", "end_turn or max_tokens", "nothing"),
        ),
        (
            "stop_tokens.limit_is_kept",
            message("max_tokens", [{"type": "text", "text": "Hello!"}], spent=5),
            (
                "stop_reason is max_tokens below the limit, although the model ended its turn",
                "/stop_reason",
                "end_turn or tool_use",
                "max_tokens after 5 of 10 tokens",
            ),
        ),
        (
            "tool_calls.demanded_call_is_made",
            message("end_turn", [{"type": "text", "text": "Hello!"}], CALL, tools=TOOLS, tool_choice={"type": "any"}),
            (
                "the request demands a call and none is returned",
                "/tool_calls",
                "at least one call",
                "no call, stop_reason end_turn",
            ),
        ),
        (
            "channels.nothing_is_lost",
            message("end_turn", [], "<|channel|>final<|message|>Hello there!<|return|>", spent=14, max_tokens=20),
            (
                "14 tokens were spent, about 0 of them on reasoning, and the client got neither content nor a call",
                "content",
                "content or a call",
                "stop_reason end_turn, no content, no call",
            ),
        ),
    ],
)
def test_a_failure_over_messages_has_the_words_of_that_api(check, shown, finding):
    assert found(check, shown) == [finding]


def words(api, **request):
    body = json.dumps({"model": "m", "max_tokens": 1, "messages": [], **request}).encode()
    return words_of(Exchange(id="x", api=api, request=Request(path="/v1/messages", body=body)))


@pytest.mark.parametrize(
    ("api", "end", "stop", "cut"),
    [
        ("chat", "finish_reason", "stop", "length"),
        ("messages", "stop_reason", "end_turn", "max_tokens"),
        ("responses", "status", "completed", "incomplete (incomplete_details.reason max_output_tokens)"),
        ("ollama", "done_reason", "stop", "length"),
    ],
)
def test_each_api_has_its_words(api, end, stop, cut):
    assert (words(api).end, str(words(api).end_value("stop")), str(words(api).end_value("length"))) == (end, stop, cut)
    assert str(words(api).end_value("stop", None, "weird")) == f"{stop} or None or weird"


def test_a_stop_sequence_may_have_ended_a_message():
    assert str(words("messages", stop_sequences=["x"]).end_value("stop")) == "end_turn or stop_sequence"


@pytest.mark.parametrize("api", APIS)
def test_the_right_side_of_a_stream_is_known_by_the_place_of_its_end(api):
    """A whole answer and a stream that end differently are compared by the failures of each at that place."""
    assert words(api).end_place.strip("/").startswith(right_side.PLACES[right_side.FINISH])


def unfinished(api, path):
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    request = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools, "stream": False}
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": None, "tool_calls": [call]},
        "finish_reason": None,
    }
    return {
        "api": api,
        "request": {"path": path, "json": request},
        "response": {"json": {"choices": [choice]}},
        "script": CALL,
    }


@pytest.mark.parametrize(("api", "expected"), [("tgi", "stop"), ("chat", "tool_calls")])
def test_an_api_without_a_word_for_calls_expects_the_end_of_a_turn(api, expected):
    finding = ("the answer has no finish_reason", "/finish_reason", expected, "nothing")
    assert finding in found("tool_calls.finish_reason_agrees", unfinished(api, "/v1/chat/completions"))


def test_the_ends_of_a_turn_are_words_of_the_api():
    def ends(api):
        return words_of(Exchange(id="x", api=api, request=Request(path="/", body=b"{}"))).ends_of_a_turn

    assert {api: ends(api) for api in ("chat", "tgi", "ollama", "messages")} == {
        "chat": "stop or tool_calls",
        "tgi": "stop",
        "ollama": "stop",
        "messages": "end_turn or tool_use",
    }
