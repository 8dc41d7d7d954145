import json

import pytest

from harmony_conformance.checks.helpers.counted_pairs import counted_pair, counted_pairs
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_ref import encode


def exchange(step, count, *texts, tools=()):
    body = {"messages": [{"role": "user", "content": text} for text in texts], "tools": list(tools)}
    answer = {
        "choices": [{"message": {"content": "x"}}],
        "usage": {"prompt_tokens": count, "completion_tokens": 1, "total_tokens": count},
    }
    return Exchange(
        id=step,
        step=step,
        request=Request(path="/", body=json.dumps(body).encode()),
        response=Response(status=200, chunks=(Chunk(arrival_time=0.0, data=json.dumps(answer).encode()),)),
    )


def series(*exchanges):
    return Series(name="s", exchanges={x.step: x for x in exchanges})


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        pytest.param(("plain text", "marked text"), [("plain text", "marked text")], id="plain and marked"),
        pytest.param(("tame text", "odd text"), [("tame text", "odd text")], id="tame and odd"),
        pytest.param(("short result", "long result"), [("short result", "long result")], id="short and long"),
        pytest.param(("one instruction", "two instructions"), [("one instruction", "two instructions")], id="by name"),
        pytest.param(("plain text", "marked words"), [], id="of another text"),
        pytest.param(("plain text",), [], id="alone"),
        pytest.param(("open, short", "open, long"), [], id="of another family"),
    ],
)
def test_pairs_are_known_by_the_names_of_their_steps(steps, found):
    pairs = counted_pairs(series(*(exchange(step, 9, "x") for step in steps)))
    assert [(pair.shorter.step, pair.longer.step) for pair in pairs] == found


LONG = "a<|end|>b and more"
MORE = len(encode(LONG)) - len(encode("a"))
TOOL = {"type": "function", "function": {"name": "f", "description": LONG}}


@pytest.mark.parametrize(
    ("one", "other", "grown", "expected", "explained"),
    [
        pytest.param(exchange("a", 70, "a"), exchange("b", 70 + MORE, LONG), MORE, MORE, False, id="a longer text"),
        pytest.param(exchange("a", 70, "a"), exchange("b", 73, LONG), 3, MORE, False, id="not all of it"),
        pytest.param(
            exchange("a", 70, "a", tools=[{**TOOL, "function": {"name": "f", "description": "a"}}]),
            exchange("b", 70 + MORE, "a", tools=[TOOL]),
            MORE,
            MORE,
            False,
            id="a text of a tool",
        ),
        pytest.param(exchange("a", 70, "a"), exchange("b", 75, "a", "a"), 5, 1, True, id="a message with its header"),
        pytest.param(
            exchange("a", 70, "a"), exchange("b", 70, "a", "a"), 0, 1, False, id="a message that is not there"
        ),
        pytest.param(exchange("a", 70, "a"), exchange("b", 99, "a", "a"), 29, 1, False, id="more than a header"),
    ],
)
def test_what_a_text_costs(one, other, grown, expected, explained):
    pair = counted_pair(series(one, other), "a", "b")
    assert (pair.prompt_growth, pair.expected_growth, pair.is_explained_by_headers) == (grown, expected, explained)


def test_a_prompt_that_was_not_counted_is_in_no_pair():
    assert counted_pair(series(exchange("a", 70, "a"), exchange("b", 0, "a")), "a", "b") is None
