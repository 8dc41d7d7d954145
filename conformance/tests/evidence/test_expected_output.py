import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_conformance.evidence.emitted_ids import cut_at_stop, end_early, strip_endoftext
from harmony_conformance.evidence.expected_output import (
    Expectation,
    ExpectedOutput,
    FunctionCall,
    OutputTokenCounts,
    count_output_tokens,
    has_texts_in_order,
    is_malformed,
    parse_output,
    read_expectation,
    write_expectation,
)
from harmony_ref import encode, encode_with_special_tokens

TEXTS = st.lists(st.text(), max_size=3).map(tuple)
CALLS = st.lists(st.builds(FunctionCall, name=st.text(), arguments=st.text()), max_size=2).map(tuple)
FINISH = st.lists(st.sampled_from(["stop", "length", "tool_calls"]), max_size=2, unique=True).map(tuple)
MEANINGS = st.builds(
    ExpectedOutput, reasoning=TEXTS, preambles=TEXTS, finals=TEXTS, calls=CALLS, finish_reason=st.none()
)
ROWS = st.builds(Expectation, required_output=MEANINGS, finish_reasons=FINISH) | st.builds(
    Expectation,
    required_output=MEANINGS,
    required_texts=TEXTS,
    optional_calls=CALLS,
    forbidden_texts=TEXTS,
    finish_reasons=FINISH,
    is_well_formed=st.just(False),
)


def ids(text):
    return encode_with_special_tokens(text)


@given(ROWS)
def test_a_row_is_read_as_it_was_written(row):
    assert read_expectation(write_expectation(row)) == row


@pytest.mark.parametrize("row", [None, 7, [], {}, {"reasoning": "x", "calls": {}, "finish": 7}])
def test_a_row_of_other_shapes_means_nothing(row):
    assert read_expectation(row) == Expectation(required_output=ExpectedOutput())


CALL = FunctionCall(name="f", arguments="{}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "<|channel|>final<|message|>hi<|return|>",
            ExpectedOutput(finals=("hi",), finish_reason="stop"),
            id="an answer",
        ),
        pytest.param(
            "<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>hi<|return|>",
            ExpectedOutput(reasoning=("x",), finals=("hi",), finish_reason="stop"),
            id="a thought and an answer",
        ),
        pytest.param(
            "<|channel|>commentary<|message|>look<|end|><|start|>assistant<|channel|>commentary to=functions.f "
            "<|constrain|>json<|message|>{}<|call|>",
            ExpectedOutput(preambles=("look",), calls=(CALL,), finish_reason="tool_calls"),
            id="a preamble and a call",
        ),
        pytest.param(
            " to=functions.f<|channel|>commentary json<|message|>{}<|call|>",
            ExpectedOutput(calls=(CALL,), finish_reason="tool_calls"),
            id="the recipient before the channel",
        ),
        pytest.param(
            "<|channel|>analysis to=functions.f code<|message|>{}<|call|>",
            ExpectedOutput(calls=(CALL,), finish_reason="tool_calls"),
            id="a call on the analysis channel",
        ),
        pytest.param(
            "<|channel|>commentary to=functions.f<|message|>{}<|return|>",
            ExpectedOutput(calls=(CALL,), finish_reason="tool_calls"),
            id="a call ended by return",
        ),
        pytest.param(
            '<|channel|>final json<|message|>{"a":1}<|return|>',
            ExpectedOutput(finals=('{"a":1}',), finish_reason="stop"),
            id="JSON",
        ),
        pytest.param(
            '<|channel|>final <|constrain|>json<|message|>{"a":1}<|return|>',
            ExpectedOutput(finals=('{"a":1}',), finish_reason="stop"),
            id="constrained JSON",
        ),
        pytest.param("<|channel|>final<|message|>cut", ExpectedOutput(finals=("cut",)), id="a cut answer"),
        pytest.param(
            "<|channel|>final<|message|>hi<|endoftext|>", ExpectedOutput(finals=("hi",)), id="ended by the engine"
        ),
        pytest.param("<|channel|>final<|message|>hi<|end|><|endoftext|>", ExpectedOutput(finals=("hi",)), id="padded"),
        pytest.param(
            "<|channel|>final<|message|><|return|>",
            ExpectedOutput(finals=("",), finish_reason="stop"),
            id="an empty answer",
        ),
    ],
)
def test_well_formed_completions_mean_what_they_say(text, expected):
    assert parse_output(ids(text)) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("just text", id="no markup"),
        pytest.param("<|channel|>commentary to=functions.f", id="cut in a header"),
        pytest.param("<|channel|>answer<|message|>hi<|return|>", id="an unknown channel"),
        pytest.param("<|message|>hi<|return|>", id="no channel"),
        pytest.param(
            "<|channel|>analysis<|message|>x<|start|>assistant<|channel|>final<|message|>hi<|return|>", id="missing end"
        ),
        pytest.param("<|channel|>analysis<|message|>x<|end|>hello<|return|>", id="text after an end"),
        pytest.param(
            "<|channel|>commentary to=functions.f<|channel|>commentary<|message|>{}<|call|>", id="a doubled channel"
        ),
        pytest.param(
            " to=functions.f<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>",
            id="both recipients",
        ),
        pytest.param("<|channel|>commentary to=assistant<|message|>x<|end|>", id="to the assistant"),
        pytest.param("<|channel|>analysis to=python code<|message|>1<|call|>", id="to a built-in tool"),
        pytest.param("<|channel|>final<|message|>a<|reserved_200013|>b<|return|>", id="a special token in a text"),
        pytest.param("<|channel|>final<|message|>a<|endoftext|>b<|return|>", id="end of text in a text"),
        pytest.param("<|channel|>final to=functions.f<|message|>{}<|call|>", id="a call on the final channel"),
    ],
)
def test_malformed_completions_mean_nothing(text):
    assert parse_output(ids(text)) is None


def test_markers_in_ordinary_tokens_are_text():
    spelled = [*ids("<|channel|>final<|message|>"), *encode("<|end|>"), *ids("<|return|>")]
    assert parse_output(spelled) == ExpectedOutput(finals=("<|end|>",), finish_reason="stop")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param("a<|end|>b", "a<|end|>b", id="end goes on"),
        pytest.param("a<|return|>b", "a<|return|>", id="return"),
        pytest.param("a<|call|>b<|call|>", "a<|call|>", id="the first call"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_a_completion_is_cut_at_its_first_stop(text, kept):
    assert cut_at_stop(ids(text)) == tuple(ids(kept))


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param("a<|endoftext|>", "a", id="the engine's own"),
        pytest.param("a<|return|>", "a<|return|>", id="the model's"),
        pytest.param("<|endoftext|>a", "<|endoftext|>a", id="not at the end"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_padding_is_taken_off(text, kept):
    assert strip_endoftext(ids(text)) == tuple(ids(kept))


@pytest.mark.parametrize(
    ("texts", "whole", "expected"),
    [
        pytest.param(("a", "b"), "a\n\nb", True, id="a blank line between"),
        pytest.param(("a", "b"), "ab", True, id="nothing between"),
        pytest.param((" a ",), "a", True, id="blanks at the edges lost"),
        pytest.param(("a\ufffd",), "a", True, id="a character cut at the end"),
        pytest.param((), "", True, id="nothing"),
        pytest.param((), " \n", True, id="blanks"),
        pytest.param(("",), "", True, id="an empty text"),
        pytest.param(("a", "b"), "ba", False, id="another order"),
        pytest.param(("a",), "aa", False, id="twice"),
        pytest.param(("a",), "", False, id="lost"),
        pytest.param(("a",), "xa", False, id="something before"),
        pytest.param(("a",), "a x", False, id="something behind"),
        pytest.param(("a", "b"), "a x b", False, id="something between"),
    ],
)
def test_texts_told_in_order(texts, whole, expected):
    assert has_texts_in_order(texts, whole) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "<|channel|>analysis<|message|>one two<|end|>", OutputTokenCounts(reasoning_tokens=2), id="a thought"
        ),
        pytest.param("<|channel|>final<|message|>Hello!<|return|>", OutputTokenCounts(user_tokens=2), id="an answer"),
        pytest.param("<|channel|>final<|message|><|return|>", OutputTokenCounts(), id="an empty answer"),
        pytest.param("<|message|>Hello!<|return|>", OutputTokenCounts(user_tokens=2), id="no channel"),
        pytest.param(
            "<|channel|>commentary to=functions.f<|message|>{}<|call|>", OutputTokenCounts(call_tokens=1), id="a call"
        ),
        pytest.param("<|channel|>commentary to=functions.f", OutputTokenCounts(), id="cut in a header"),
    ],
)
def test_tokens_written_for_somebody(text, expected):
    assert count_output_tokens(ids(text)) == expected


def test_what_is_shown_is_preambles_and_answers():
    assert ExpectedOutput(reasoning=("r",), preambles=("p",), finals=("f",)).user_texts == ("p", "f")


SCRIPT_OF_TWO_CALLS = tuple(
    ids(
        "<|channel|>commentary to=functions.f<|message|>{}<|end|><|start|>assistant to=functions.f<|message|>{}<|call|>"
    )
)
FIRST_CALL = len(ids("<|channel|>commentary to=functions.f<|message|>{}<|end|>"))


@pytest.mark.parametrize(
    ("count", "stop_strings", "wants_one_call", "emitted"),
    [
        pytest.param(FIRST_CALL, (), True, FIRST_CALL, id="one call is wanted, and its tokens are counted"),
        pytest.param(FIRST_CALL - 1, (), True, FIRST_CALL - 1, id="all but its last token are counted"),
        pytest.param(FIRST_CALL + 1, (), True, None, id="the count is of no call"),
        pytest.param(FIRST_CALL, (), False, None, id="several calls are allowed"),
        pytest.param(None, (), True, None, id="nothing is counted"),
        pytest.param(3, ("functions",), False, None, id="a stop string behind the counted tokens"),
        pytest.param(FIRST_CALL, ("functions",), False, FIRST_CALL, id="a stop string within the counted tokens"),
    ],
)
def test_a_request_may_end_the_generation_early(count, stop_strings, wants_one_call, emitted):
    kept = end_early(SCRIPT_OF_TWO_CALLS, count, stop_strings, wants_one_call)
    assert kept == SCRIPT_OF_TWO_CALLS[:emitted]


_THOUGHT = "<|channel|>analysis<|message|>Think.<|end|><|start|>assistant"


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>final<|message|>hi<|return|>",
        "<|channel|>final<|message|>hi<|return|><|endoftext|>",
        f"{_THOUGHT}<|channel|>commentary to=functions.f <|constrain|>json<|message|>{{}}<|call|>",
        f"{_THOUGHT}<|channel|>commentary to=functions.f json<|message|>{{}}<|call|>",
        f"{_THOUGHT} to=functions.f<|channel|>commentary<|constrain|>json<|message|>{{}}<|call|>",
        f"{_THOUGHT}<|channel|>final <|constrain|>json<|message|>{{}}<|return|>",
        *("", "<|channel|>", "<|channel|>fin", "<|channel|>analysis<|message|>Thi"),
        *(_THOUGHT, _THOUGHT.removesuffix("assistant"), f"{_THOUGHT} to=functions.f<|channel|>commentary json"),
    ],
)
def test_output_in_the_form_of_the_guide_is_not_malformed_wherever_it_is_cut(text):
    assert not is_malformed(ids(text))


@pytest.mark.parametrize(
    "text",
    [
        *("hi there", "hi<|return|>", "<|return|>", "assistant<|channel|>final<|message|>hi<|return|>"),
        "<|start|>assistant<|channel|>final<|message|>hi<|return|>",
        "hi there<|end|><|start|>assistant<|channel|>final<|message|>ok<|return|>",
        "<|channel|>final hello there<|end|><|start|>assistant<|channel|>final<|message|>ok<|return|>",
        *(f"<|channel|>final{blank}<|message|>hi<|return|>" for blank in " \t\n"),
        f"{_THOUGHT} <|channel|>final<|message|>hi<|return|>",
        f"{_THOUGHT}<|channel|>final json<|message|>{{}}<|return|>",
        f"{_THOUGHT}<|channel|>commentary functions.f<|message|>{{}}<|call|>",
        f"{_THOUGHT}<|channel|>commentary to=functions.f<|channel|>commentary<|message|>{{}}<|call|>",
        f"{_THOUGHT}<|message|>hi<|return|>",
        f"{_THOUGHT}<|channel|>thoughts<|message|>hi<|return|>",
        "<|channel|>final<|message|>one<|channel|>two<|return|>",
        "<|channel|>analysis<|message|>Think.<|start|>assistant<|channel|>final<|message|>hi<|return|>",
        "<|channel|>final<|message|>hi<|end|><|start|>user<|message|>yo<|end|>",
    ],
)
def test_what_only_the_tolerance_of_the_library_reads_is_malformed(text):
    assert is_malformed(ids(text))
