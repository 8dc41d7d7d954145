"""The further choices of a response: each is cut out alone, within limits."""

import json
import random

import pytest

from harmony_conformance.apis.stream_choices import (
    LARGEST_COPIES,
    MOST_COPIED_VALUES,
    MOST_FURTHER_CHOICES,
    join_events,
)
from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import judge_exchange
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_conformance.transport.sse import Event, parsed_event
from harmony_ref import encode, tokens

IDS = [tokens.CHANNEL, *encode("final"), tokens.MESSAGE, *encode("Hi"), tokens.RETURN]


def exchange(chunks, content_type):
    request = {"model": "m", "n": 2, "messages": [{"role": "user", "content": "Hi"}]}
    return Exchange(
        id="x",
        request=Request(path="/v1/chat/completions", headers={}, body=json.dumps(request).encode()),
        response=Response(status=200, headers={"content-type": content_type}, chunks=chunks),
    )


def whole(count, **more):
    choices = [
        {"index": i, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop", "token_ids": IDS}
        for i in range(count)
    ]
    body = {"object": "chat.completion", **more, "choices": choices}
    return exchange((Chunk(arrival_time=1.0, data=json.dumps(body).encode()),), "application/json")


def streamed(*events):
    chunks = [Chunk(arrival_time=float(at), data=f"data: {event}\n\n".encode()) for at, event in enumerate(events)]
    return exchange(tuple(chunks), "text/event-stream")


def piece(*choices, **more):
    return json.dumps({"id": "c", "choices": [{"index": i, "delta": {"content": text}} for i, text in choices], **more})


def test_a_choice_of_a_stream_has_its_own_events_and_those_of_all_in_order():
    x = streamed(piece((0, "a"), (1, "b")), "no JSON", piece((2, "c")), piece((1, "d"), (1, "e")), piece(), "[DONE]")
    first, second = x.other_choices
    assert [(e.arrival_time, e.data.replace(" ", "")) for e in first.events.events] == [
        (0.0, piece((0, "b")).replace(" ", "")),
        (1.0, "noJSON"),
        (3.0, piece((0, "d"), (0, "e")).replace(" ", "")),
        (4.0, piece().replace(" ", "")),
        (5.0, "[DONE]"),
    ]
    assert [e.arrival_time for e in second.events.events] == [1.0, 2.0, 4.0, 5.0]
    assert [one.choice for one in x.other_choices] == [1, 2]


@pytest.mark.parametrize("count", [MOST_FURTHER_CHOICES + 1, MOST_FURTHER_CHOICES + 72])
def test_at_most_so_many_further_choices_are_judged(count):
    in_stream = streamed(*(piece((index, "a")) for index in range(count)))
    for x in (whole(count), in_stream):
        assert x.choice_count == count
        assert [one.choice for one in x.other_choices] == list(range(1, MOST_FURTHER_CHOICES + 1))


def test_copies_of_what_all_choices_share_are_bounded():
    shared = LARGEST_COPIES // 4
    x = whole(9, extra="a" * shared)
    in_stream = streamed(*(piece((index, "a")) for index in range(9)), json.dumps({"extra": "a" * shared}))
    assert len(x.other_choices) == len(in_stream.other_choices) == 3


@pytest.mark.parametrize("value", ["1", "[]", "{}", '{"a":1}'])
def test_the_values_of_these_copies_are_bounded(value):
    shared = [json.loads(value)] * (MOST_COPIED_VALUES // (4 * (1 + (value != "1") + (":" in value))))
    x = whole(9, extra=shared)
    in_stream = streamed(*(piece((index, "a")) for index in range(9)), json.dumps({"extra": shared}))
    assert 3 <= len(x.other_choices) == len(in_stream.other_choices) <= 6


def test_a_count_of_tokens_is_not_compared_with_a_part_of_the_choices():
    count = MOST_FURTHER_CHOICES + 2
    spent = count * len(IDS)
    x = whole(count, usage={"prompt_tokens": 70, "completion_tokens": spent, "total_tokens": 70 + spent})
    rules = [rule for rule in CHECKS if rule.id == "usage.counts_the_output"]
    assert [result.outcome for result in judge_exchange(x, rules)] == [Outcome.PASS]


def test_the_usage_of_a_request_in_a_chunk_with_choices_belongs_to_each_choice():
    x = streamed(piece((0, "a"), (1, "b")), piece((0, ""), usage={"completion_tokens": 4}), "[DONE]")
    (second,) = x.other_choices
    assert [e.value and e.value.get("usage") for e in second.events.events[:2]] == [None, {"completion_tokens": 4}]
    assert second.turn.usage.completion_tokens == 4
    assert second.turn.content == "b"


def test_usage_of_each_choice_is_not_shared():
    own = (piece((0, "a"), usage={"completion_tokens": 1}), piece((1, "b"), usage={"completion_tokens": 2}))
    (second,) = streamed(*own, "[DONE]").other_choices
    assert [e.value["choices"][0]["delta"] for e in second.events.events[:-1]] == [{"content": "b"}]


def text_chunk(delta, **more):
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None, **more.pop("choice", {})}
    return {"id": "c", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [choice], **more}


def test_chunks_that_differ_in_a_text_alone_become_one():
    pieces = [text_chunk({"content": piece}) for piece in ("Hel", "", "lo")]
    thought = text_chunk({"reasoning": "Greet."})
    joined = (thought, text_chunk({"content": "Hello"}), thought)
    events = [Event(data=json.dumps(chunk), arrival_time=0.0) for chunk in (thought, *pieces, thought)]
    assert join_events([*events, Event(data="[DONE]", arrival_time=0.0)]) == (joined, (5,))
    assert ["value" in vars(event) for event in events] == [
        True,
        True,
        False,
        False,
        True,
    ]  # the others were not parsed


SPELLED = (
    *(
        '"a"',
        '""',
        '"assistant"',
        '"0"',
        '"|~|"',
        '"\u00e9"',
        r'"\u00e9"',
        r'"\ud83d"',
        r'"\ud83d\ude00"',
        r'"\n"',
        r'"\""',
        r'"\\"',
    ),
    *(
        '"a',
        "a",
        '"a""b"',
        '"a","content":"b"',
        '"a"},"more":{"x":"y"',
        '"\t"',
        r'"\x"',
        r'"a\"',
        "null",
        "1",
        '"a" ',
        ' "a"',
    ),
)
"""Pieces of text as they may stand in the data of an event. Not all are JSON."""


def test_a_text_that_is_in_other_members_too_is_no_piece():
    for piece in ("x", "|~|", "content", "id", "c"):
        first = text_chunk({"content": piece}, id="a", name=piece)
        others = [first | {"name": "another"}, first | {"id": "b"}, first]
        events = [Event(data=json.dumps(chunk), arrival_time=0.0) for chunk in (first, *others)]
        assert join_events(events).chunks == (first, *others)


def random_data(rng):
    """Yield the data of events that differ in a piece or in the members around it, in several spellings."""
    for chunk in random_chunks(rng):
        marked = json.dumps(chunk | {"choices": [{"index": 0, "delta": {"content": "PIECE"}}]})
        spaced = rng.choice((": ", ":"))
        yield marked.replace(": ", spaced).replace('"PIECE"', rng.choice(SPELLED))
        if rng.random() < 0.1:
            yield rng.choice(("[DONE]", "null", "{", "[]", '"text"', json.dumps(chunk)))


@pytest.mark.parametrize("seed", range(80))
def test_events_are_joined_by_their_data_as_by_their_values(seed):
    texts = [*random_data(random.Random(seed))]
    values = [Event(data=text, arrival_time=0.0).value for text in texts]
    by_values = join_events([parsed_event("", value, name="") for value in values])
    assert join_events([Event(data=text, arrival_time=0.0) for text in texts]) == by_values
    assert by_values.without_value == tuple(place for place, value in enumerate(values) if value is None)


DELTAS = (
    *({"content": text} for text in ("a", "", "\u00e9", "\ud83d", "<|end|>", None, 1)),
    *({name: "b"} for name in ("reasoning", "reasoning_content", "thinking", "role", "refusal", "other")),
    *({"role": "assistant", "content": ""}, {}, None, {"content": "c", "reasoning": "d"}),
    {"tool_calls": [{"index": 0, "id": "i", "function": {"name": "f", "arguments": "{}"}}]},
)
CHOICES = (
    *({"index": index} for index in (1, True, 0.0, None, -1)),
    *({"finish_reason": reason} for reason in ("stop", "stop", "length", 1)),
    *({"token_ids": IDS}, {"logprobs": {"content": [{"token": "a", "logprob": -1.0}]}}, {"more": 1}),
)
CHUNKS = (
    *(
        {"id": "other"},
        {"id": ""},
        {"created": 8},
        {"created": 90},
        {"model": "n"},
        {"object": ""},
        {"object": "error"},
    ),
    *({"system_fingerprint": "f"}, {"system_fingerprint": "g"}, {"usage": None}, {"error": {"message": "no"}}),
    *({"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}, {"choices": []}, {"choices": [7]}),
    *({"prompt_token_ids": [1]}, {"object": "", "id": ""}),
)


def random_chunks(rng):
    share = rng.choice((0.03, 0.2))
    delta = rng.choice(DELTAS)
    for _ in range(rng.randrange(30)):
        delta = rng.choice(DELTAS) if rng.random() < share else delta
        choice = rng.choice(CHOICES) if rng.random() < share else {}
        yield text_chunk(delta, choice=choice, **(rng.choice(CHUNKS) if rng.random() < share else {}))


@pytest.mark.parametrize("seed", range(60))
def test_joined_chunks_are_judged_as_the_pieces_are(seed):
    chunks = [json.dumps(chunk) for chunk in random_chunks(random.Random(seed))]
    x, unjoined = streamed(*chunks), streamed(*chunks)
    vars(unjoined)["joined_chunks"] = unjoined.chunks
    rules = [
        rule for rule in CHECKS if rule.id.partition(".")[0] in {"streaming", "channels", "errors", "choices", "usage"}
    ]
    assert judge_exchange(x, rules) == judge_exchange(unjoined, rules)
    assert (x.turn, x.answers, x.error, x.choice_count) == (
        unjoined.turn,
        unjoined.answers,
        unjoined.error,
        unjoined.choice_count,
    )
