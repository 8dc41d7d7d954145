"""Events that fit one before are not read again, and come to the same as if they were."""

import json

import pytest

from harmony_conformance.transport.messages import Request, Response
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair import REPAIRS, StreamRepairer
from harmony_proxy.repair.stream_parts import event_splitter
from harmony_proxy.repair.stream_parts.event_matching import EventTemplates
from harmony_proxy.repair.stream_parts.text_tracker import TextTracker

REPAIRING = dict.fromkeys(REPAIRS, Action.REPAIR)
CHAT = {"id": "c", "created": 7, "choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]}


def actor(api, *, request=None, kind="text/event-stream"):
    body = Request(path="/v1/x", body=json.dumps({"model": "m", "messages": [], "stream": True}).encode())
    response = Response(status=200, chunks=(), headers={"content-type": kind})
    return StreamRepairer(
        request or body, response, api, REPAIRING, fallback=Action.OBSERVE, request_id="r", limit=1 << 24
    )


def framed(value):
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def learned(raw, said):
    moulds = EventTemplates()
    moulds.learn(
        raw,
        said,
        (0, "content", 0),
        TextTracker(),
        lambda value, other: value["choices"][0]["delta"]["content"] == other,
    )
    return moulds


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((b"Hello", b" cat"), " cat"),
        ((b"Hello", "Zürich 🐈".encode()), "Zürich 🐈"),
        ((b"Hello", b""), ""),
        ((b'"created": 7', b'"created": 123'), "Hello"),
        ((b"Hello", b'a\\"b'), None),
        ((b"Hello", b"a\\n"), None),
        ((b"Hello", b'a", "tool_calls": "'), None),
        ((b"Hello", b"a\x00b"), None),
        ((b'"created": 7', b'"created": 07'), None),
        ((b'"created": 7', b'"created": x'), None),
        ((b'"id": "c"', b'"id": "d"'), None),
        ((b"null", b'"stop"'), None),
        ((b"\n\n", b"\n"), None),
        ((b"\n\n", b"\n\n\n"), None),
    ],
)
def test_what_fits_differs_in_its_text_alone(change, said):
    found = learned(framed(CHAT), "Hello").fit(framed(CHAT).replace(*change))
    assert (found and found[1]) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({**CHAT, "id": "Hello"}, "Hello"),
        (CHAT, "no such text"),
        ({**CHAT, "choices": [{"index": 0, "delta": {"content": 'a"b'}}]}, 'a"b'),
        ({**CHAT, "choices": [{"index": 0, "delta": {"role": "Hello"}}]}, "Hello"),
    ],
)
def test_where_the_place_of_the_text_is_not_certain_there_is_no_mould(value, said):
    moulds = EventTemplates()
    moulds.learn(
        framed(value),
        said,
        (0, "content", 0),
        TextTracker(),
        lambda value, other: other in str(value.get("choices")[0]["delta"].get("content")),
    )
    assert moulds.fit(framed(value)) is None


def numbered(told_as_response):
    return told_as_response([("reasoning", "We greet them. " * 20, None), ("message", "Hello there! " * 20, None)], 5)


def plain(member):
    deltas = [{member: " word"} for _ in range(100)]
    return [framed({**CHAT, "choices": [{"index": 0, "delta": delta}]}) for delta in deltas]


def lines():
    head = {"model": "m", "done": False}
    return [
        json.dumps(
            {**head, "created_at": f"2026-01-31T12:00:{n:02}Z", "message": {"role": "assistant", "content": f" {n}"}}
        ).encode()
        + b"\n"
        for n in range(60)
    ]


@pytest.mark.parametrize("api", ["chat", "responses", "ollama"])
def test_of_a_stream_of_plain_text_few_events_are_read(api, monkeypatch, told_as_response):
    pieces = {
        "chat": lambda: [*plain("reasoning"), *plain("content")],
        "responses": lambda: numbered(told_as_response),
        "ollama": lines,
    }[api]()
    read = []
    loads = event_splitter.loads
    monkeypatch.setattr(event_splitter, "loads", lambda data, **how: read.append(data) or loads(data, **how))
    one = actor(api, kind="application/x-ndjson" if api == "ollama" else "text/event-stream")
    for piece in pieces[:-1]:
        one.feed(piece)
    assert len(read) < 25 < len(pieces)


def test_every_stream_comes_to_the_same_with_and_without(shown, tellings, monkeypatch):
    cases = []
    for number, one in enumerate(shown):
        cases += [one.x] if one.x.events is not None and number % 4 == 0 else []
        ways = ("pieces", "response") if one.check in REPAIRS and one.outcome == "fail" and number % 4 == 0 else ()
        cases += [x for name in ways if (x := tellings[name](one.x)) is not None]

    def all_of(x):
        told = actor(x.api, request=x.request, kind=x.response.headers["content-type"])
        out = [b"".join(told.feed(chunk.data)) for chunk in x.response.chunks]
        return out, b"".join(told.close()), told.actions

    quick = [all_of(x) for x in cases]
    monkeypatch.setattr(EventTemplates, "fit", lambda *_: None)
    assert quick == [all_of(x) for x in cases]
    assert len(cases) > 30
