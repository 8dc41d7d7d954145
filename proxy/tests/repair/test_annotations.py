"""Annotations of texts that are told anew: kept where their text still stands, under the indexes that it has now."""

import json

import pytest

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair import REPAIRS, StreamRepairer, repair_answer
from harmony_proxy.repair.text.annotations import move_annotations

REPAIRING = dict.fromkeys(REPAIRS, Action.REPAIR)
MARKED = "<|channel|>analysis<|message|>Hm, Paris.<|end|><|start|>assistant<|channel|>final<|message|>See Paris."
ASKED = Request(path="/v1/responses", body=b'{"model": "m", "input": "Hi", "stream": true}')


def cited(said, word, place=-1):
    start = said.rindex(word) if place < 0 else said.index(word)
    return {"type": "url_citation", "start_index": start, "end_index": start + len(word), "title": "t", "url": "u"}


FILE = {"type": "file_citation", "file_id": "f", "filename": "a.txt", "index": 0}
SHOWN = [cited(MARKED, "Paris", 0), cited(MARKED, "See"), FILE, cited(MARKED, "Paris.")]
LEFT = [
    {**cited(MARKED, "See"), "start_index": 0, "end_index": 3},
    FILE,
    {**SHOWN[3], "start_index": 4, "end_index": 10},
]


@pytest.mark.parametrize(
    ("before", "after", "span", "now"),
    [
        ("abcdef", "abcdef", (1, 3), (1, 3)),
        ("xxabcdef", "abcdef", (3, 5), (1, 3)),
        ("abcdefxx", "abcdef", (3, 5), (3, 5)),
        ("abcdefxx", "abcdef", (5, 7), None),
        ("ab<|x|>cd<|y|>ef", "abcdef", (7, 9), (2, 4)),
        ("ab<|x|>cd<|y|>ef", "abcdef", (14, 16), (4, 6)),
        ("ab<|x|>cd<|y|>ef", "abcdef", (0, 9), None),
        ("ab<|x|>ab", "abab", (7, 9), (2, 4)),
        ("gone", "", (0, 4), None),
        ("é<|x|>日本", "é日本", (6, 8), (1, 3)),
    ],
)
def test_a_piece_of_a_text_is_found_where_it_stands_now(before, after, span, now):
    one = {"type": "url_citation", "start_index": span[0], "end_index": span[1]}
    told = [(place["start_index"], place["end_index"]) for _, place in move_annotations([one], before, after)]
    assert told == ([] if now is None else [now])
    within = {"type": "url_citation", "url_citation": {"start_index": span[0], "end_index": span[1], "url": "u"}}
    told = [place["url_citation"] for _, place in move_annotations([within], before, after)]
    assert told == ([] if now is None else [{"start_index": now[0], "end_index": now[1], "url": "u"}])


def test_what_has_no_indexes_stays():
    assert move_annotations([FILE, None], "ab", "b") == [(0, FILE), (1, {})]


def test_long_texts_that_agree_nowhere_are_not_compared_for_ever():
    assert move_annotations([cited("a" * 5_000, "aaa")], "ab" * 2_500, "bc" * 2_500) == []


def test_whole():
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    part = {"type": "output_text", "text": MARKED, "annotations": SHOWN}
    body = {"id": "resp_1", "object": "response", "status": "completed", "output": [{**item, "content": [part]}]}
    response = Response(status=200, chunks=(Chunk(arrival_time=0.0, data=json.dumps(body).encode()),))
    asked = Request(path=ASKED.path, body=b'{"model": "m", "input": "Hi"}')
    x = Exchange(id="x", request=asked, response=response, api="responses")
    told = json.loads(repair_answer(x, REPAIRING, fallback=Action.OBSERVE).body)
    assert [one["type"] for one in told["output"]] == ["reasoning", "message"]
    assert told["output"][1]["content"] == [{"type": "output_text", "text": "See Paris.", "annotations": LEFT}]


def test_whole_chat_completions():
    cites = [{"type": "url_citation", "url_citation": {"start_index": at, "end_index": at + 5}} for at in (38, 96)]
    assert [MARKED[one["url_citation"]["start_index"] :][:5] for one in cites] == ["s.<|e", "Paris"]
    message = {"role": "assistant", "content": MARKED, "annotations": cites}
    body = {
        "id": "c",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }
    response = Response(status=200, chunks=(Chunk(arrival_time=0.0, data=json.dumps(body).encode()),))
    asked = Request(path="/v1/chat/completions", body=b'{"model": "m", "messages": []}')
    x = Exchange(id="x", request=asked, response=response, api="chat")
    told = json.loads(repair_answer(x, REPAIRING, fallback=Action.OBSERVE).body)["choices"][0]["message"]
    assert (told["content"], told["reasoning"]) == ("See Paris.", "Hm, Paris.")
    assert told["annotations"] == [{"type": "url_citation", "url_citation": {"start_index": 4, "end_index": 9}}]


WITHIN = [{"type": "url_citation", "url_citation": one} for one in (SHOWN[0], SHOWN[1], SHOWN[3])]
KEPT = [{"type": "url_citation", "url_citation": one} for one in (LEFT[0], LEFT[2])]


def chat_stream(deltas, ends=("stop",), choice=0):
    finishes = [*[None] * (len(deltas) - len(ends)), *ends]
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    for delta, finish in zip(deltas, finishes, strict=True):
        told = {**body, "choices": [{"index": choice, "delta": delta, "finish_reason": finish}]}
        yield b"data: " + json.dumps(told).encode() + b"\n\n"


def chat_actor():
    asked = Request(path="/v1/chat/completions", body=b'{"model": "m", "messages": [], "stream": true}')
    response = Response(status=200, headers={"content-type": "text/event-stream"}, chunks=())
    return StreamRepairer(asked, response, "chat", REPAIRING, fallback=Action.OBSERVE, request_id="r", limit=1 << 24)


def told_by_chat(actor, pieces, *, is_cut=False):
    """What the client has of a stream: reasoning, content, annotations, and which delta had the annotations."""
    out = b"".join(b"".join(actor.feed(piece)) for piece in pieces)
    out += b"".join(actor.abort() if is_cut else actor.close())
    values = [json.loads(line[6:]) for line in out.split(b"\n\n") if line[:7] == b"data: {"]
    deltas = [choice["delta"] for value in values for choice in value.get("choices", ())]
    texts = ("".join(delta.get(name) or "" for delta in deltas) for name in ("reasoning", "content"))
    return *texts, [one for delta in deltas for one in delta.get("annotations", ())]


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize(
    "ending",
    [
        [{"annotations": WITHIN}],
        [{"annotations": WITHIN[:1]}, {"annotations": WITHIN[1:]}, {}],
        [{"content": "", "annotations": WITHIN}, {}],
    ],
    ids=["with the end", "one after the other", "before the end"],
)
def test_streamed_chat_completions(size, ending):
    pieces = [{"content": MARKED[at : at + size]} for at in range(0, len(MARKED), size)]
    stream = [*chat_stream([{"role": "assistant"}, *pieces, *ending]), b"data: [DONE]\n\n"]
    assert told_by_chat(chat_actor(), stream) == ("Hm, Paris.", "See Paris.", KEPT)


def test_streamed_chat_completions_with_them_behind_the_end_or_without_an_end():
    stream = chat_stream([{"content": MARKED}, {}, {"annotations": WITHIN}], ("stop", None))
    assert told_by_chat(chat_actor(), stream) == ("Hm, Paris.", "See Paris.", KEPT)
    stream = chat_stream([{"content": MARKED}, {"annotations": WITHIN}], ())
    assert told_by_chat(chat_actor(), stream, is_cut=True) == ("Hm, Paris.", "See Paris.", KEPT)


def test_streamed_chat_completions_where_the_leak_stands_behind_what_is_cited():
    good, bad = "See Paris and Rome. ", "<|end|><|start|>assistant<|channel|>final<|message|>Rome it is."
    cites = [
        {"type": "url_citation", "url_citation": cited(good, "Paris")},
        {"type": "url_citation", "url_citation": cited(good + bad, "Rome it")},
    ]
    deltas = [{"content": good, "annotations": cites[:1]}, {"content": bad}, {"annotations": cites[1:]}]
    now = cited(good + "Rome it is.", "Rome it")
    assert told_by_chat(chat_actor(), chat_stream(deltas)) == (
        "",
        good + "Rome it is.",
        [cites[0], {"type": "url_citation", "url_citation": now}],
    )


def test_what_leaks_nowhere_keeps_its_bytes():
    pieces = [*chat_stream([{"content": "See "}, {"content": "Paris."}, {"annotations": WITHIN}, {}])]
    actor = chat_actor()
    assert b"".join([*(b"".join(actor.feed(one)) for one in pieces), *actor.close()]) == b"".join(pieces)


@pytest.mark.parametrize("announced", [True, False])
def test_streamed(told_as_response, announced):
    about = {"item_id": "message_0", "output_index": 0, "content_index": 0}
    events = []
    for data in told_as_response([("message", MARKED, None)], 5):
        event = json.loads(data.partition(b"data: ")[2])
        if event["type"] == "response.output_text.done" and announced:
            added = {"type": "response.output_text.annotation.added", **about}
            events += [{**added, "annotation_index": at, "annotation": one} for at, one in enumerate(SHOWN)]
        for holder in (event.get("part"), *(event.get("item", {}).get("content", ()))):
            if holder and holder.get("text"):
                holder["annotations"] = SHOWN
        for item in event.get("response", {}).get("output", ()):
            item["content"][0]["annotations"] = SHOWN
        events.append(event)
    actor = StreamRepairer(
        ASKED,
        Response(status=200, headers={"content-type": "text/event-stream"}, chunks=()),
        "responses",
        REPAIRING,
        fallback=Action.OBSERVE,
        request_id="r",
        limit=1 << 24,
    )
    out = b""
    for number, event in enumerate(events):
        out += b"".join(actor.feed(b"data: " + json.dumps({**event, "sequence_number": number}).encode() + b"\n\n"))
    told = [json.loads(line[6:]) for line in (out + b"".join(actor.close())).split(b"\n\n") if line[:6] == b"data: "]
    assert [event["sequence_number"] for event in told] == [*range(len(told))]
    added = [event for event in told if event["type"].endswith("annotation.added")]
    assert [event["annotation"] for event in added] == (LEFT if announced else [])
    assert [event["annotation_index"] for event in added] == ([0, 1, 2] if announced else [])
    (done,) = [e["item"] for e in told if e["type"].endswith("item.done") and e["item"]["type"] == "message"]
    last = told[-1]["response"]["output"][-1]
    assert done["content"][0]["annotations"] == last["content"][0]["annotations"] == LEFT
    assert done["content"][0]["text"] == last["content"][0]["text"] == "See Paris."
    ((place, text),) = [(n, e["text"]) for n, e in enumerate(told) if e["type"] == "response.output_text.done"]
    assert text == "See Paris."
    assert all(told.index(event) < place for event in added)
