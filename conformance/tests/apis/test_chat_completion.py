from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_conformance.apis.chat_completion import ToolCall, Turn, Usage, read_completion, read_stream, read_usage
from harmony_conformance.apis.text_fields import read_answers
from harmony_conformance.prompts.request_members import content_text

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def call(index=0, **function):
    return {"index": index, "id": f"call_{index}", "type": "function", "function": function}


def whole(message, finish="stop", **more):
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **more}
    return {"id": "c", "model": "m", "choices": [choice], "usage": USAGE, "prompt_token_ids": [1, 2]}


def chunk(delta, finish=None, **more):
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish, **more}]}


def streamed(*chunks, finish="stop"):
    first = {**chunk({"role": "assistant", "content": None}), "prompt_token_ids": [1, 2]}
    return [first, *chunks, chunk({}, finish), {"id": "c", "model": "m", "choices": [], "usage": USAGE}]


@pytest.mark.parametrize(
    ("body", "chunks"),
    [
        pytest.param(
            whole({"content": "Hello!"}), streamed(chunk({"content": "Hel"}), chunk({"content": "lo!"})), id="content"
        ),
        pytest.param(whole({"content": None}), streamed(), id="nothing at all"),
        pytest.param(whole({"content": ""}), streamed(chunk({"content": ""})), id="an empty content"),
        pytest.param(
            whole({"content": "b", "reasoning": "a"}),
            streamed(chunk({"reasoning": "a"}), chunk({"content": "b"})),
            id="reasoning",
        ),
        pytest.param(
            whole({"content": "b", "reasoning_content": "a"}),
            streamed(chunk({"reasoning_content": "a"}), chunk({"content": "b"})),
            id="reasoning under another name",
        ),
        pytest.param(
            whole({"content": None, "tool_calls": [call(name="f", arguments='{"a":1}')]}, "tool_calls"),
            streamed(
                chunk({"tool_calls": [call(name="f", arguments="")]}),
                chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"a"'}}]}),
                chunk({"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}]}),
                finish="tool_calls",
            ),
            id="a call in pieces",
        ),
        pytest.param(
            whole(
                {"content": None, "tool_calls": [call(name="f", arguments="{}"), call(1, name="g", arguments="[]")]},
                "tool_calls",
            ),
            streamed(
                chunk({"tool_calls": [call(name="f", arguments="{"), call(1, name="g", arguments="[")]}),
                chunk({"tool_calls": [{"index": 1, "function": {"arguments": "]"}}]}),
                chunk({"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}),
                finish="tool_calls",
            ),
            id="two calls, interleaved",
        ),
        pytest.param(
            whole({"content": "🧑‍🚀"}), streamed(chunk({"content": "🧑"}), chunk({"content": "‍🚀"})), id="joined emoji"
        ),
        pytest.param(
            whole({"content": "ab"}, token_ids=[7, 8, 9]),
            streamed(chunk({"content": "a"}, token_ids=[7]), chunk({"content": "b"}, token_ids=[8, 9])),
            id="token ids",
        ),
        pytest.param(
            whole({"content": "cut"}, "length"), streamed(chunk({"content": "cut"}), finish="length"), id="a cut answer"
        ),
    ],
)
def test_a_stream_reads_as_the_whole_answer(body, chunks):
    assert read_completion(body) == read_stream(chunks)


@given(st.text(min_size=1), st.lists(st.integers(min_value=0, max_value=200), max_size=10))
def test_text_cut_anywhere_reads_the_same(text, cuts):
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    deltas = [chunk({"content": text[start:end]}) for start, end in pairwise(places)]
    assert read_stream(streamed(*deltas)).content == text


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param(
            [
                chunk({"tool_calls": [call(name="f", arguments="1")]}),
                chunk({"tool_calls": [call(name="g", arguments="2")]}),
            ],
            (ToolCall(name="f", arguments="12", id="call_0", kind="function"),),
            id="the first name counts",
        ),
        pytest.param(
            [
                chunk({"tool_calls": [{"function": {"name": "f"}}]}),
                chunk({"tool_calls": [{"function": {"name": "g"}}]}),
            ],
            (ToolCall(name="f", arguments=""), ToolCall(name="g", arguments="")),
            id="without an index each delta is a call",
        ),
        pytest.param(
            [chunk({"tool_calls": [call(1, name="g")]}), chunk({"tool_calls": [call(0, name="f")]})],
            (
                ToolCall(name="f", arguments="", id="call_0", kind="function"),
                ToolCall(name="g", arguments="", id="call_1", kind="function"),
            ),
            id="calls stand in the order of their index",
        ),
        pytest.param([chunk({"tool_calls": "no list"})], (), id="no list of calls"),
        pytest.param([chunk({"tool_calls": [7]})], (ToolCall(name="", arguments=""),), id="a call that is no object"),
    ],
)
def test_calls_are_joined_as_clients_join_them(chunks, expected):
    assert read_stream(chunks).tool_calls == expected


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param([], Turn(), id="no chunks"),
        pytest.param([None, 7, "x", [], {}], Turn(), id="no objects"),
        pytest.param([{"choices": [{"index": 1, "delta": {"content": "x"}}]}], Turn(), id="another choice"),
        pytest.param([{"choices": [{"delta": {"content": "x"}}]}], Turn(content="x"), id="a choice without an index"),
        pytest.param([chunk({"content": 7})], Turn(id="c", model="m"), id="a content that is no text"),
    ],
)
def test_reading_a_stream_is_forgiving(chunks, expected):
    assert read_stream(chunks) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(None, Turn(), id="no JSON"),
        pytest.param({"choices": []}, Turn(), id="no choices"),
        pytest.param({"choices": [{"message": None}]}, Turn(), id="no message"),
        pytest.param({"choices": [{"message": {"content": ["x"]}}]}, Turn(content=""), id="parts of no kind"),
        pytest.param({"choices": [{"token_ids": [1, "2"]}]}, Turn(), id="ids that are no numbers"),
        pytest.param(
            {"choices": [{"message": {"tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}}]},
            Turn(tool_calls=(ToolCall(name="f", arguments=""),)),
            id="arguments that are no text",
        ),
    ],
)
def test_reading_an_answer_is_forgiving(body, expected):
    assert read_completion(body) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(None, None, id="none"),
        pytest.param("x", None, id="no object"),
        pytest.param({}, Usage(), id="empty"),
        pytest.param(USAGE, Usage(prompt_tokens=3, completion_tokens=2, total_tokens=5), id="three counts"),
        pytest.param(
            {"completion_tokens_details": {"reasoning_tokens": 4}, "prompt_tokens_details": {"cached_tokens": 5}},
            Usage(reasoning_tokens=4, cached_tokens=5),
            id="details",
        ),
        pytest.param({"reasoning_tokens": 4}, Usage(reasoning_tokens=4), id="reasoning tokens at the top"),
        pytest.param({"prompt_tokens": "3", "completion_tokens": True, "total_tokens": 5.0}, Usage(), id="no numbers"),
    ],
)
def test_usage(value, expected):
    assert read_usage(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(None, None, id="null"),
        pytest.param("text", "text", id="a text"),
        pytest.param([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab", id="parts"),
        pytest.param([{"type": "image_url"}, {"type": "text", "text": "b"}], "b", id="a part without text"),
        pytest.param([], "", id="no parts"),
        pytest.param(7, None, id="a number"),
    ],
)
def test_a_content_is_a_text_or_parts(value, expected):
    assert content_text(value) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param({"reasoning": "a", "reasoning_content": "b"}, ("reasoning", "a"), id="the first of two"),
        pytest.param({"reasoning": None, "thinking": "b"}, ("thinking", "b"), id="null is not there"),
        pytest.param({"reasoning": "", "reasoning_content": "b"}, ("reasoning_content", "b"), id="text before none"),
        pytest.param({"reasoning": ""}, ("reasoning", ""), id="empty, and there"),
        pytest.param({}, (None, None), id="hidden"),
    ],
)
def test_the_reasoning_field(message, expected):
    turn = read_completion(whole(message))
    assert (turn.reasoning_field, turn.reasoning) == expected


@pytest.mark.parametrize(
    ("turn", "expected"),
    [
        pytest.param(Turn(content="x"), True, id="content"),
        pytest.param(Turn(tool_calls=(ToolCall(name="f", arguments=""),)), True, id="a call"),
        pytest.param(Turn(content="", reasoning="x"), False, id="only reasoning"),
    ],
)
def test_whether_a_client_is_given_anything(turn, expected):
    assert turn.has_answer is expected


@pytest.mark.parametrize("name", ["output", "blocks"])
@pytest.mark.parametrize("value", ["a text", ["a text"], [["a text"]], [{"note": "a text"}]], ids=str)
def test_a_member_with_the_name_of_items_is_read_whatever_its_form(name, value):
    body = {"choices": [{"message": {"role": "assistant", "content": "Hi", name: value}}]}
    (answer,) = read_answers(body)
    assert "a text" in [field.text for field in answer.fields]
