"""Log probabilities of texts that are told anew: what was taken out of a text stands in them no more, and what is left has its own."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair import REPAIRS, StreamRepairer, repair_answer
from harmony_proxy.repair.answer.action_notes import ActionNotes
from harmony_proxy.repair.chat.chat_stream import ChatStream
from harmony_proxy.repair.request_facts import read_facts
from harmony_proxy.repair.stream_parts.stream_judge import StreamJudge
from harmony_proxy.repair.text.api_dialects import DIALECTS
from harmony_proxy.repair.text.leaked_text_parser import ParsedText, TextKind
from harmony_proxy.repair.text.logprobs import LogprobRewriter, entries_for_text

REPAIRING = dict.fromkeys(REPAIRS, Action.REPAIR)
MARKED = (
    "<|channel|>analysis<|message|>The secret is hers. Hm.<|end|><|start|>assistant<|channel|>final<|message|>"
    "Hello there, Zoë 🎉 again!<|return|>"
)
GLUED = "analysisThe secret is hers. Hm.assistantfinalHello there, Zoë 🎉 again!"
ANSWER = "Hello there, Zoë 🎉 again!"
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "logprobs": True}
PATHS = {"chat": "/v1/chat/completions", "ollama": "/api/chat", "responses": "/v1/responses"}


def entry(piece):
    """A token; a piece of a character is told by its bytes alone."""
    data = piece if isinstance(piece, bytes) else piece.encode()
    return {"token": data.decode("utf-8", "replace"), "logprob": -0.5, "bytes": list(data), "top_logprobs": []}


def spelled(entries):
    return b"".join(bytes(one["bytes"]) for one in entries).decode()


def tokens(said):
    """Markers, words with the space before them, and what is between; the last character of four bytes in two tokens."""
    for one in re.findall(r"<\|\w+\|>|analysis|assistant|final| ?\w+|[^\w<]", said):
        data = one.encode()
        yield from ((data[:2], data[2:]) if one == "🎉" else (data,))


def whole(said, api):
    entries = [entry(one) for one in tokens(said)]
    if api == "ollama":
        told = {"model": "m", "message": {"role": "assistant", "content": said}, "done": True, "done_reason": "stop"}
        return {**told, "logprobs": entries}
    if api == "responses":
        part = {"type": "output_text", "text": said, "annotations": [], "logprobs": entries}
        item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        return {"id": "resp_1", "object": "response", "status": "completed", "output": [item]}
    choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
    return {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "choices": [{**choice, "logprobs": {"content": entries}}],
    }


def told_in(body, api):
    """The content, and the log probabilities beside it."""
    if api == "ollama":
        return body["message"]["content"], body.get("logprobs")
    if api == "responses":
        (part,) = next(item for item in body["output"] if item["type"] == "message")["content"]
        return part["text"], part["logprobs"]
    (choice,) = body["choices"]
    return choice["message"]["content"], choice["logprobs"] and choice["logprobs"]["content"]


@pytest.mark.parametrize("api", PATHS)
@pytest.mark.parametrize("said", [MARKED, GLUED], ids=["markers", "glued"])
def test_of_a_whole_answer_those_stay_that_spell_what_is_left(api, said):
    asked = {**ASKED, "stream": False} if api == "ollama" else ASKED
    asked = {"model": "m", "input": "Hi"} if api == "responses" else asked
    body = json.dumps(whole(said, api)).encode()
    response = Response(
        status=200, headers={"content-type": "application/json"}, chunks=(Chunk(arrival_time=0.1, data=body),)
    )
    request = Request(path=PATHS[api], body=json.dumps(asked).encode())
    out = repair_answer(
        Exchange(id="x", request=request, response=response, api=api), REPAIRING, fallback=Action.OBSERVE
    )
    content, entries = told_in(json.loads(out.body), api)
    assert content == ANSWER
    assert spelled(entries) == ANSWER


def event(api, content, entries, finish=None):
    if api == "ollama":
        line = {"model": "m", "message": {"role": "assistant", "content": content}, "done": finish is not None}
        line |= {"done_reason": finish} if finish else {}
        return json.dumps({**line, **({"logprobs": entries} if entries else {})}).encode() + b"\n"
    choice = {"index": 0, "delta": {"content": content} if finish is None else {}, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}
    choice["logprobs"] = {"content": entries} if entries else None
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def streamed(api, groups):
    """A stream, some tokens an event; the text comes with the token that completes its characters."""
    waiting = b""
    for group in groups:
        waiting += b"".join(group)
        content = waiting.decode("utf-8", "ignore")
        waiting = waiting[len(content.encode()) :]
        yield event(api, content, [entry(one) for one in group])
    yield event(api, "", [], "stop")
    if api == "chat":
        yield b"data: [DONE]\n\n"


def acted(api, pieces):
    kind = "application/x-ndjson" if api == "ollama" else "text/event-stream"
    request = Request(path=PATHS[api], body=json.dumps({**ASKED, "stream": True}).encode())
    response = Response(status=200, chunks=(), headers={"content-type": kind})
    one = StreamRepairer(request, response, api, REPAIRING, fallback=Action.OBSERVE, request_id="r", limit=1 << 24)
    return b"".join(part for piece in pieces for part in one.feed(piece)) + b"".join(one.close())


def read(api, data):
    """What a client reads: the reasoning, the content and the log probabilities, and the largest distance of the last two."""
    thought, content, entries = "", "", []
    for line in data.decode().splitlines():
        if not line.removeprefix("data: ").startswith("{"):
            continue
        body = json.loads(line.removeprefix("data: "))
        part = body["message"] if api == "ollama" else body["choices"][0]["delta"]
        held = body.get("logprobs") if api == "ollama" else (body["choices"][0].get("logprobs") or {}).get("content")
        thought += (part.get("thinking") if api == "ollama" else part.get("reasoning")) or ""
        content += part.get("content") or ""
        entries += held or []
    return thought, content, entries


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["chat", "ollama"]), st.sampled_from([MARKED, GLUED]), st.data())
def test_of_a_stream_those_are_told_that_spell_what_is_told(api, said, data):
    rest, groups = list(tokens(said)), []
    while rest:
        size = data.draw(st.integers(1, 4))
        groups.append(rest[:size])
        rest = rest[size:]
    thought, content, entries = read(api, acted(api, streamed(api, groups)))
    assert (thought.strip(), content) == ("The secret is hers. Hm.", ANSWER)
    assert spelled(entries) == ANSWER


def test_a_stream_that_is_not_told_anew_keeps_them_all():
    for said in (ANSWER, "Use <|end|> `<|start|>` in code."):
        pieces = list(streamed("chat", [[one] for one in tokens(said)]))
        assert acted("chat", pieces) == b"".join(pieces)


def test_entries_that_name_no_text_are_left_out_once_a_text_is_told_anew():
    pieces = [
        event("chat", one.decode(), [{"token": f"token_id:{number}", "logprob": -0.5, "bytes": None}])
        for number, one in enumerate(GLUED.encode().split(b"~"))
    ]
    assert read("chat", acted("chat", [*pieces, event("chat", "", [], "stop"), b"data: [DONE]\n\n"])) == (
        "The secret is hers. Hm.",
        ANSWER,
        [],
    )


def test_an_entry_waits_until_all_of_its_text_was_told():
    one = LogprobRewriter()
    ab, cd = entry("ab"), entry("cd")
    assert one.match_entries([ab, cd], [ParsedText(kind=TextKind.CONTENT, text="abc")]) == [ab]
    assert one.match_entries([], [ParsedText(kind=TextKind.CONTENT, text="d")]) == [cd]
    assert one.match_entries(
        [entry("x"), ab], [ParsedText(kind=TextKind.REASONING, text="x"), ParsedText(kind=TextKind.CONTENT, text="ab")]
    ) == [ab]
    half = one.copy()
    assert (
        half.match_entries(
            [entry("finalHi"), ab],
            [ParsedText(kind=TextKind.CONTENT, text="Hi"), ParsedText(kind=TextKind.CONTENT, text="ab")],
        )
        == []
    )
    assert half.match_entries([cd], [ParsedText(kind=TextKind.CONTENT, text="cd")]) == []
    assert one.match_entries([entry("x")], [ParsedText(kind=TextKind.CONTENT, text="y")]) == []
    assert one.match_entries([ab], [ParsedText(kind=TextKind.CONTENT, text="ab")]) == []


@pytest.mark.parametrize(
    ("pieces", "content", "kept"),
    [
        (["Hi", "<|end|>"], "Hi", ["Hi"]),
        (["Hi", "x", "Hi"], "Hi", ["Hi"]),
        (["aHi"], "Hi", []),
        (["H", "i"], "", []),
        (["H", "i"], "Ha", []),
    ],
)
def test_the_entries_that_spell_a_text(pieces, content, kept):
    assert [one["token"] for one in entries_for_text([entry(one) for one in pieces], content)] == kept


def test_what_a_choice_was_told_is_not_changed_by_what_is_taken_back():
    asking = StreamJudge(Exchange(id="x", request=Request(path=PATHS["chat"], body=b"{}")), is_lines=False)
    stream = ChatStream(
        DIALECTS["chat"],
        read_facts(Request(path=PATHS["chat"], body=b"{}"), "chat"),
        asking,
        ActionNotes(),
        body=b"",
        reasoning_field=None,
        repairs_finish=False,
        keeps_bytes=False,
    )
    (part,) = DIALECTS["chat"].parts(json.loads(event("chat", "a", [])[6:]))
    telling = stream._writer_of(part)
    go_back = stream.create_rollback()
    telling.deltas([ParsedText(kind=TextKind.REASONING, text="Hm.")], is_over=False)
    go_back()
    assert stream._writer_of(part).reasoning_fragments == []
