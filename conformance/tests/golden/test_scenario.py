import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.engines.profiles import LoadMetric, ScriptMethod
from harmony_conformance.evidence.levels import Validity
from harmony_conformance.golden.scenario import (
    CHAT_PATH,
    InvalidScenarioError,
    SendMode,
    Step,
    expand,
    group_parallel_steps,
    read_scenario,
)
from harmony_conformance.runner.request_builder import RequestProfile, StepSkippedError, build_request
from harmony_conformance.runner.selection import load_scenarios
from harmony_ref import encode, encode_with_special_tokens

SCENARIOS = load_scenarios()
SCRIPT = "<|channel|>final<|message|>Hi<|return|>"
IDS = tuple(encode_with_special_tokens(SCRIPT))
HELLO = {"messages": [{"role": "user", "content": "Hi"}]}
PLAIN = RequestProfile(model="m", extra_body={})


def scenario(*steps, **members):
    return read_scenario({"about": "…", "exercises": [], "steps": list(steps), **members}, "example")


def body(step, asking=PLAIN, answers=None):
    return build_request(step, asking, answers or {}).json


def test_a_scenario_is_read_with_all_its_members():
    read = scenario(
        {
            "as": "first",
            "request": HELLO,
            "send": "whole",
            "script": SCRIPT,
            "expected": {"finals": ["Hi"], "finish": "stop"},
            "pace": 0.5,
            "together": "both",
        },
        {"as": "second", "raw": "{", "validity": "invalid", "path": "/v1/x"},
        needs_script=True,
        exercises=["errors.valid_request_is_answered"],
    )
    first, second = read.steps
    assert (read.name, read.needs_script, read.exercises) == ("example", True, {"errors.valid_request_is_answered"})
    assert (first.name, first.request, first.send_mode, first.script) == ("first", HELLO, SendMode.WHOLE, IDS)
    assert (first.expected.required_output.finals, first.pace, first.parallel_group, first.path) == (
        ("Hi",),
        0.5,
        "both",
        CHAT_PATH,
    )
    assert (second.raw_body, second.validity, second.path, second.send_mode) == (
        "{",
        Validity.INVALID,
        "/v1/x",
        SendMode.BOTH,
    )


BAD = {
    "no steps": ({}, "example: no steps"),
    "no object": ([], "example: no steps"),
    "a step without a name": ({"steps": [{"request": {}}]}, "example: a step has no name"),
    "an unknown way to send": ({"steps": [{"as": "a", "send": "twice"}]}, "example, step a: 'twice'"),
    "an unknown validity": ({"steps": [{"as": "a", "validity": "maybe"}]}, "example, step a: 'maybe'"),
    "a script that is none": ({"steps": [{"as": "a", "script": 7}]}, "example, step a: invalid script"),
    "a piece that is none": ({"steps": [{"as": "a", "script": [{}]}]}, "example, step a: invalid piece of a script"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_scenario_that_can_not_be_used_is_refused_with_its_name_and_the_reason(what):
    value, said = BAD[what]
    with pytest.raises(InvalidScenarioError, match="^" + said.replace("{", r"\{").replace("}", r"\}")):
        read_scenario(value, "example")


def test_a_script_of_pieces_keeps_markers_in_ordinary_tokens():
    read = scenario({"as": "a", "script": ["<|channel|>final<|message|>", {"ordinary": "<|end|>"}, 200002]})
    head = encode_with_special_tokens("<|channel|>final<|message|>")
    assert read.steps[0].script == (*head, *encode("<|end|>"), 200002)


def test_a_step_goes_out_whole_and_streamed_unless_it_says_otherwise():
    read = scenario({"as": "a"}, {"as": "b", "send": "whole"}, {"as": "c", "send": "stream"})
    assert [(step.name, step.is_streamed) for step in expand(read)] == [
        ("a", False),
        ("a+stream", True),
        ("b", False),
        ("c", True),
    ]


GROUPS = [
    ([None, None], [1, 1]),
    (["x", "x"], [2]),
    ([None, "x", "x", None], [1, 2, 1]),
    (["x", "x", "y", "y", "y"], [2, 3]),
    (["x", None, "x"], [1, 1, 1]),
    ([], []),
]


@pytest.mark.parametrize(("names", "sizes"), GROUPS)
def test_neighbours_of_one_group_are_sent_together(names, sizes):
    steps = [Step(name=str(place), request={}, parallel_group=name) for place, name in enumerate(names)]
    groups = list(group_parallel_steps(steps))
    assert [len(group) for group in groups] == sizes
    assert [step for group in groups for step in group] == steps


def test_a_valid_request_is_greedy_and_limited():
    assert body(Step(name="a", request=HELLO, send_mode=SendMode.WHOLE)) == {
        "model": "m",
        **HELLO,
        "temperature": 0,
        "max_tokens": 2048,
    }


def test_a_streamed_request_asks_for_usage_too():
    sent = body(Step(name="a", request=HELLO, send_mode=SendMode.STREAM))
    assert sent["stream"] is True
    assert sent["stream_options"] == {"include_usage": True}


def test_what_a_scenario_sets_itself_is_left_as_it_is():
    request = {"temperature": 1, "max_completion_tokens": 5, "model": "other", "stream": False, "seed": 9}
    sent = body(
        Step(name="a", request=request, send_mode=SendMode.STREAM), RequestProfile(model="m", extra_body={}, seed=1)
    )
    assert sent == request


def test_to_an_invalid_request_only_a_limit_is_added():
    step = Step(name="a", request={"messages": 7}, send_mode=SendMode.WHOLE, validity=Validity.INVALID)
    assert body(step, RequestProfile(model="m", extra_body={}, seed=1)) == {
        "model": "m",
        "messages": 7,
        "max_tokens": 16,
    }


def test_bytes_that_are_no_json_are_sent_as_they_are():
    request = build_request(Step(name="a", request={}, raw_body='{"model": '), PLAIN, {})
    assert (request.method, request.path, request.body, request.json) == ("POST", CHAT_PATH, b'{"model": ', None)


EXACT = {
    "a text": ('{"model": "{model}"}', b'{"model": "m"}'),
    "pieces": (["{", {"$repeat": "[", "times": 3}, "]"], b"{[[[]"),
    "bytes": (["a", {"bytes": "fffe"}], b"a\xff\xfe"),
    "nothing": ("", b""),
}


@pytest.mark.parametrize("what", EXACT)
def test_an_exact_body_is_sent_byte_by_byte(what):
    raw, sent = EXACT[what]
    assert (
        build_request(Step(name="a", request={}, raw_body=raw), RequestProfile(model="m", extra_body={"x": 1}), {}).body
        == sent
    )


def test_a_step_may_have_a_method_and_headers_of_its_own():
    value = {"as": "a", "method": "PUT", "headers": {"Content-Type": "text/plain"}, "raw": "x"}
    request = build_request(scenario(value).steps[0], PLAIN, {})
    assert (request.method, dict(request.headers)) == ("PUT", {"content-type": "text/plain"})


def test_a_step_may_ask_how_busy_the_server_is():
    (step,) = scenario({"as": "load", "settles": 2, "send": "whole"}).steps
    request = build_request(
        step, RequestProfile(model="m", extra_body={}, load_metric=LoadMetric(path="/metrics", name="running")), {}
    )
    assert (request.method, request.path, request.body) == ("GET", "/metrics", b"")
    with pytest.raises(StepSkippedError, match="no metric of running requests is known"):
        build_request(step, PLAIN, {})


@pytest.mark.parametrize("validity", [Validity.INVALID, Validity.QUESTIONABLE])
def test_an_odd_request_asks_for_no_token_ids(validity):
    step = Step(name="a", request=HELLO, send_mode=SendMode.WHOLE, validity=validity)
    assert body(step, RequestProfile(model="m", extra_body={}, ids_field="return_token_ids")) == {
        "model": "m",
        **HELLO,
        "max_tokens": 16,
    }


def test_members_given_for_each_request_win():
    asking = RequestProfile(
        model="m", extra_body={"temperature": 0.5, "top_k": 3}, seed=4, ids_field="return_token_ids"
    )
    sent = body(Step(name="a", request=HELLO, send_mode=SendMode.WHOLE), asking)
    assert (sent["temperature"], sent["top_k"], sent["seed"], sent["return_token_ids"]) == (0.5, 3, 4, True)


WAYS = {
    ScriptMethod.NONE: {},
    ScriptMethod.REFERENCE: {"harmony_script": list(IDS), "harmony_token_delay": 0.5},
    ScriptMethod.VLLM: {"vllm_xargs": {"harmony_script": " ".join(map(str, IDS))}},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_script_travels_as_the_engine_takes_it_and_only_there(way):
    step = Step(name="a", request=HELLO, send_mode=SendMode.WHOLE, script=IDS, pace=0.5)
    sent = body(step, RequestProfile(model="m", extra_body={}, script_method=way))
    limit = 2048 if way is ScriptMethod.NONE else len(IDS) + 16
    assert sent == {"model": "m", **HELLO, "temperature": 0, "max_tokens": limit, **WAYS[way]}


BEGUN = {
    ScriptMethod.NONE: {"max_tokens": 2048},
    ScriptMethod.REFERENCE: {
        "harmony_script": list(IDS),
        "harmony_script_then": "model",
        "max_tokens": len(IDS) + 64,
    },
    ScriptMethod.VLLM: {
        "vllm_xargs": {"harmony_script": " ".join(map(str, IDS)), "harmony_script_then": "model"},
        "max_tokens": len(IDS) + 64,
    },
}


@pytest.mark.parametrize("way", BEGUN)
def test_an_answer_is_begun_where_it_can_be_and_the_model_goes_on(way):
    step = Step(name="a", request=HELLO, send_mode=SendMode.WHOLE, forced_prefix=IDS)
    sent = body(step, RequestProfile(model="m", extra_body={}, script_method=way))
    assert sent == {"model": "m", **HELLO, "temperature": 0, **BEGUN[way]}


ANSWER = {"choices": [{"message": {"role": "assistant", "content": "Hi", "a/b": 1}}]}
TAKEN = {
    "a message": ({"$from": "first#/choices/0/message"}, ANSWER["choices"][0]["message"]),
    "a value with an escaped slash": ({"$from": "first#/choices/0/message/a~1b"}, 1),
    "all of it": ({"$from": "first"}, ANSWER),
}


@pytest.mark.parametrize("what", TAKEN)
def test_a_step_takes_from_an_earlier_answer(what):
    reference, value = TAKEN[what]
    step = Step(
        name="a", request={"messages": [{"role": "user", "content": "Hi"}, reference]}, send_mode=SendMode.WHOLE
    )
    assert body(step, answers={"first": ANSWER})["messages"][1] == value


REPEATED = {
    "a text": ({"$repeat": "{n}, ", "times": 3}, "1, 2, 3, "),
    "a list": ({"$repeat": [{"a": "{n}"}, 7], "times": 2}, [{"a": "1"}, 7, {"a": "2"}, 7]),
    "more items of a list": ([{"$repeat": ["{n}"], "times": 2}, "end"], ["1", "2", "end"]),
    "a text in a list": ([{"$repeat": "x", "times": 2}, "end"], ["xx", "end"]),
    "nothing": ({"$repeat": "x", "times": 0}, ""),
}


@pytest.mark.parametrize("what", REPEATED)
def test_a_long_value_is_written_short(what):
    written, value = REPEATED[what]
    assert body(Step(name="a", request={"x": written}, send_mode=SendMode.WHOLE))["x"] == value


MISSING = {
    "there is no such answer": ("other#/choices", "step other has no response"),
    "the answer is shorter": ("first#/choices/3", "/choices/3"),
    "the answer lacks the member": ("first#/usage/total", "/usage/total"),
}


@pytest.mark.parametrize("what", MISSING)
def test_a_step_whose_source_is_missing_is_not_sent(what):
    reference, said = MISSING[what]
    with pytest.raises(StepSkippedError, match=said):
        body(Step(name="a", request={"x": {"$from": reference}}), answers={"first": ANSWER})


@pytest.mark.parametrize("one", SCENARIOS, ids=lambda one: one.name)
def test_every_scenario_says_what_it_is_about_and_exercises_checks_that_exist(one):
    ids = {check.id for check in CHECKS}
    names = [step.name for step in expand(one)]
    assert one.description.endswith(".")
    assert one.exercises
    assert one.exercises <= ids
    assert len(set(names)) == len(names)
