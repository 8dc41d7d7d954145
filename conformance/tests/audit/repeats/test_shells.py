"""What has a shell, and how the pieces of a stream are joined."""

import importlib.util
import json
from pathlib import Path

import pytest

from harmony_conformance.audit.repeats.shells import read_shell

SPEC = importlib.util.spec_from_file_location("corpora", Path(__file__).with_name("corpora.py"))
corpora = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(corpora)
asked, whole = corpora.asked, corpora.whole


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["request"].update(n=2),
        lambda record: record["request"].update(stop=["x"]),
        lambda record: record["request"].update(response_format={"type": "json_object"}),
        lambda record: record["request"].update(logprobs=True),
        lambda record: record["request"]["messages"].append({"role": "tool", "name": "f", "content": "x"}),
        lambda record: record["request"]["messages"][0].update(content=[{"type": "text", "text": "x"}]),
        lambda record: record["response"].update(prompt_token_ids=[1]),
        lambda record: record["response"]["choices"][0].update(token_ids=[1]),
        lambda record: record["response"]["choices"][0].update(finish_reason="length"),
        lambda record: record["response"]["choices"][0]["message"].update(
            tool_calls=[{"id": "1", "custom": {"name": "f", "input": "x"}}]
        ),
        lambda record: record["response"]["choices"][0]["message"].update(content="x <|end|>"),
        lambda record: record["response"]["choices"][0]["message"].update(content="x \ud83d"),
        lambda record: record["response"]["usage"].update(total_tokens=81),
        lambda record: record.update(response=None),
        lambda record: record["request"].update(max_tokens=20),
        lambda record: record.update(messages=["x"]),
    ],
)
def test_an_exchange_with_anything_unusual_is_judged(change):
    record = {"request": asked(), "response": whole("Far.")}
    assert corpora.sighting(json.dumps(record).encode()) is not None
    change(record)
    assert corpora.sighting(json.dumps(record).encode()) is None


def test_a_stream_of_two_choices_is_judged_although_no_event_has_both():
    deltas = [{"role": "assistant"}, {"reasoning": "Short."}, {"content": "Far"}, {"content": " off."}]
    for first in (0, 1):
        events = corpora.streamed(*deltas)
        events[0]["choices"][0]["index"] = first
        seen = [corpora.sighting(line) for line in corpora.as_records(asked(stream=True), None, events)]
        assert [one is not None for one in seen] == [first == 0] * 2


def stream_text(*pieces):
    """Return the record of a stream as text, whose pieces are written as they are."""
    chunks = [
        f'{{"choices": [{{"index": 0, "delta": {{"content": "{piece}"}}, "finish_reason": null}}]}}' for piece in pieces
    ]
    return json.dumps(
        {"request": asked(stream=True), "response": "".join(f"data: {chunk}\n\n" for chunk in chunks)}
    ).encode()


def stream_list(*pieces):
    return b'{"response": [%s]}' % b", ".join(b'{"delta": {"content": "%s"}}' % piece.encode() for piece in pieces)


@pytest.mark.parametrize("write", [stream_text, stream_list])
@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (["He", "llo", " you"], "Hello"),
        (["a\\n", "\\u00e9", "\\\\", '\\"b', "c"], 'a\n\u00e9\\"b'),
        (["a", "\\u12", "34", "b"], None),
        (["a", "b\\", "n", "c"], None),
        (["a", "\\ud83d", "\\ude00", "b"], None),
        (["a", "b\x7f", "c", "d"], None),
    ],
)
def test_pieces_of_a_stream_are_joined_only_if_each_is_a_whole_text(write, pieces, text):
    shell = read_shell(write(*pieces))
    assert (None if shell is None else shell.leaves[0]) == text


DELTA = b'\\"delta\\": {\\"content\\": \\"'


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        b'{"content": "a\x01"}',
        b'{"content": "a',
        b'{"content": "\\x"}',
        b"[" * 500_000,
        b'{"response": "' + DELTA * 1000,
    ],
)
def test_what_is_no_json_has_no_shell_or_no_outline(data):
    assert corpora.sighting(data) is None


@pytest.mark.parametrize(
    ("written", "number"),
    [("0.5", "0.5"), ("10", "10"), ("007", None), ("00.5", None), ("1.", None), ("-1", None), ("1e3", None)],
)
def test_a_number_is_a_leaf_only_if_it_is_json(written, number):
    shell = read_shell(b'{"temperature": %s}' % written.encode())
    assert shell.leaves == ([] if number is None else [number])


def test_equal_ids_and_times_are_one_leaf():
    same = [
        json.dumps({"id": "a", "created": 1750000000, "x": {"id": one, "created": at}})
        for one in "ab"
        for at in (1750000000, 1750000001)
    ]
    assert len({read_shell(data.encode()).text for data in same}) == len(same)
    assert read_shell(same[0].encode()).leaves == ["a", "1750000000"]
