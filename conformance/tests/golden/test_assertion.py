"""`assert_conforms` and its helpers: for renderers and parsers written in Python."""

import json
from types import SimpleNamespace

import pytest

import harmony_conformance
from harmony_conformance import assert_conforms, assert_vector, vector_parameters
from harmony_conformance.golden.vectors import answers_harmony_ref
from harmony_ref import Conversation, HarmonyError, Role, render_conversation
from harmony_ref import parse as parse_tokens


def parse(vector_input):
    """The official strict parser, which takes tokens and returns messages."""
    if vector_input["strictness"] != "strict":
        raise NotImplementedError
    role = vector_input["role"] and Role(vector_input["role"])
    return [message.to_dict() for message in parse_tokens(vector_input["tokens"], role)]


def parse_without_recipient(vector_input):
    messages = parse(vector_input)
    for message in messages:
        message.pop("recipient", None)
    return messages


def render(vector_input):
    """A renderer of conversations, which returns tokens."""
    if vector_input["mode"] != "conversation":
        raise NotImplementedError
    conversation = Conversation.from_dict({"messages": vector_input["messages"]})
    return render_conversation(conversation, auto_drop_analysis=vector_input.get("auto_drop_analysis", True))


def failure(**functions):
    with pytest.raises(AssertionError) as raised:
        assert_conforms(refusals=(HarmonyError,), **functions)
    return str(raised.value)


def test_functions_that_conform_pass():
    assert_conforms(parse=parse, render=render, refusals=(HarmonyError,))
    assert_conforms(stream=answers_harmony_ref.stream, typescript=answers_harmony_ref.typescript)


def test_message_has_the_cause_and_an_example():
    message = failure(parse=parse_without_recipient)
    first, second, _, cause, example, *_ = message.splitlines()
    assert first == "parse_without_recipient: does not conform"
    assert second.endswith(" judged vectors fail, for 1 cause")
    assert cause.endswith(" vectors (parse): the recipient of a message is lost")
    assert example.startswith("   for example parse/headers/")


def test_only_the_given_functions_are_judged():
    message = failure(render=render, parse=parse_without_recipient)
    assert "render  " in message
    assert "stream" not in message


def test_other_exceptions_are_no_refusals():
    def wrong(_):
        raise KeyError("recipient")

    message = failure(parse=wrong)
    assert "the function raises KeyError: 'recipient'" in message
    with pytest.raises(AssertionError, match="the function raises HeaderError"):
        assert_conforms(parse=parse)


def test_a_function_that_supports_nothing_does_not_pass():
    def absent(_):
        raise NotImplementedError

    assert failure(parse=absent).startswith("absent: nothing could be checked")


@pytest.mark.parametrize("value", [None, 5, {"messages": SimpleNamespace()}, {1: 2}, [{"role": object()}]])
def test_values_that_are_no_answer_are_no_pass(value):
    assert "does not conform" in failure(parse=lambda _: value) or "nothing could be checked" in failure(
        parse=lambda _: value
    )


def test_the_function_can_change_its_input():
    def greedy(vector_input):
        answer = parse(vector_input)
        vector_input.clear()
        return answer

    assert_conforms(parse=greedy, refusals=(HarmonyError,))
    assert_conforms(parse=greedy, refusals=(HarmonyError,))


def test_without_a_function_there_is_an_error():
    with pytest.raises(ValueError, match="expected at least one of render, parse, stream, typescript, got none"):
        assert_conforms()


def test_package_has_these_names_only():
    assert set(harmony_conformance.__all__) == {"assert_conforms", "assert_vector", "vector_parameters"}
    with pytest.raises(AttributeError, match="has no attribute 'assert_nothing'"):
        _ = harmony_conformance.assert_nothing


# one test for each vector


@pytest.mark.parametrize("vector", vector_parameters("parse"))
def test_each_vector_is_a_test(vector):
    assert_vector(vector, answers_harmony_ref.parse)


def test_one_vector_fails_with_its_difference():
    vector = next(one.values[0] for one in vector_parameters("parse") if one.id == "parse/headers/call-recipient-first")
    with pytest.raises(AssertionError) as raised:
        assert_vector(vector, parse_without_recipient)
    assert 'expected "functions.f"' in str(raised.value)


def test_unsupported_vector_is_skipped():
    vector = next(one.values[0] for one in vector_parameters("parse") if one.id.startswith("parse/lenient/"))
    with pytest.raises(pytest.skip.Exception, match="is not supported"):
        assert_vector(vector, parse)


@pytest.mark.parametrize("kinds", [(), ("template",)])
def test_unknown_kinds_are_refused(kinds):
    with pytest.raises(ValueError, match="expected some of render, parse, stream, typescript, got "):
        vector_parameters(*kinds)


def test_ids_are_those_of_the_vectors():
    ids = [one.id for one in vector_parameters("render", "stream")]
    assert len(ids) == len(set(ids)) > 300
    assert json.dumps(ids)
