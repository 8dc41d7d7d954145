"""What could not be examined: `fail = "open"` lets it pass as it came and says so, `"closed"` lets none of it out. Streams at every split."""

import json
from functools import partial

import pytest

from harmony_conformance.transport.messages import Request, Response
from harmony_proxy.capture.recorder import End
from harmony_proxy.configuration import load_rules
from harmony_proxy.guard.guard import Guard
from harmony_proxy.policy.policy import Action, FailMode
from harmony_proxy.repair import REPAIRS, StreamRepairer

REPAIRING = dict.fromkeys(REPAIRS, Action.REPAIR)
WORDS = "channels.no_channel_words"
ASKED = Request(path="/v1/chat/completions", body=b'{"messages": [{"role": "user", "content": "Hi"}], "stream": true}')
LEAK = "<|channel|>analysis<|message|>A secret.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"
BOTH = pytest.mark.parametrize("fail", FailMode)


def actor(fail=FailMode.OPEN, *, fallback=Action.OBSERVE, limit=1 << 24, kind="text/event-stream", api="chat"):
    response = Response(status=200, chunks=(), headers={"content-type": kind})
    return StreamRepairer(ASKED, response, api, REPAIRING, fallback=fallback, request_id="r-1", limit=limit, fail=fail)


def event(said="", finish=None, **more):
    choice = {"index": 0, "delta": {"content": said} if said else {}, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c", "choices": [choice], **more}).encode() + b"\n\n"


STOP, DONE = event(finish="stop"), b"data: [DONE]\n\n"


def fed(one, data, *splits):
    out = b""
    for start, end in zip((0, *splits), (*splits, len(data)), strict=True):
        out += b"".join(one.feed(data[start:end]))
    return out


def at_every_split(make, data, end=StreamRepairer.close, step=1):
    """What goes out of a stream, which is the same however it is cut; and the actors."""
    results = []
    for split in range(0, len(data), step):
        one = make()
        results.append((fed(one, data, split) + b"".join(end(one)), one))
    assert len({out for out, _ in results}) == 1
    return results[0]


def content_of(data):
    events = [line[6:] for line in data.decode().splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"] for event in events for choice in json.loads(event).get("choices", ())]
    return "".join(delta.get("content") or "" for delta in deltas)


@pytest.mark.parametrize("begins", ["analysisA secret.{}assistantfinal", "<think>A secret.{}</think>"])
def test_a_thought_as_long_as_thoughts_are_is_held_to_its_end(begins):
    thought = begins.format(" So what." * 400)
    pieces = [event(thought[at : at + 4], id="chatcmpl-" + "0" * 100) for at in range(0, len(thought), 4)]
    assert sum(map(len, pieces)) > 150_000  # of events as servers send them: a few hundred bytes for a token
    one = actor()
    out = fed(one, b"".join(pieces)) + fed(one, event("Hello!") + STOP + DONE)
    assert content_of(out) == "Hello!"


@BOTH
def test_a_text_without_a_verdict_passes_only_where_the_policy_is_open(fail):
    data = b"".join([*[event("analysisA secret"), *[event(" and so on" * 1000)] * 120], STOP, DONE])
    one = actor(fail)
    out = fed(one, data) + b"".join(one.close())
    assert "no verdict within" in one.actions.unrepaired_reasons[WORDS]
    assert (out == data) == (fail is FailMode.OPEN)
    if fail is FailMode.CLOSED:
        assert content_of(out) == ""
        assert b"not_examined" in out


UNREAD = {
    "a number that is none": event(LEAK, logprob="NUMBER").replace(b'"NUMBER"', b"-Infinity"),
    "text": b"data: A secret.\n\n",
    "a list": b'data: ["A secret."]\n\n',
    "lines of JSON": event(LEAK)[6:],
}


@BOTH
@pytest.mark.parametrize("name", UNREAD)
def test_an_event_that_cannot_be_read(name, fail):
    data = event("Hello!") + UNREAD[name] + event(" Bye.") + STOP + DONE
    out, one = at_every_split(partial(actor, fail), data, step=2)
    assert one.actions.unrepaired_reasons["*"] == "an event that is not a JSON object"
    assert (out == data) == (fail is FailMode.OPEN)
    if fail is FailMode.CLOSED:
        assert out.startswith(event("Hello!"))
        assert b"secret" not in out
        assert b"not_examined" in out


@pytest.mark.parametrize(
    "more",
    [b": keep-alive\n\n", b"event: ping\ndata: {}\n\n", b"\n\n\n", b"id: 1\nretry: 3\n\n", b"data:\n\n", b"data\n\n"],
)
def test_what_says_nothing_is_no_event_that_cannot_be_read(more):
    data = b"\xef\xbb\xbf" + more + event("Hello!") + more + STOP + more + DONE + more
    out, one = at_every_split(partial(actor, FailMode.CLOSED), data)
    assert out == data
    assert not one.actions.unrepaired_reasons


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("blank", [0, 1])
def test_a_last_event_without_its_empty_line_is_read_as_clients_do_that_read_lines(end, blank):
    begun = event("Hi. ") if blank else b""
    data = (begun + event(LEAK, "stop")[:-2]).replace(b"\n", end) + end * blank
    out, one = at_every_split(partial(actor, FailMode.CLOSED), data, step=23)
    assert content_of(out) == ("Hi. Hello!" if blank else "Hello!")
    assert one.actions.repair_counts
    clean = (begun + event("Hello!", "stop")[:-2]).replace(b"\n", end) + end * blank
    out, one = at_every_split(partial(actor, FailMode.CLOSED), clean, step=3)
    assert out == clean
    assert not one.actions


@BOTH
@pytest.mark.parametrize(
    ("api", "kind", "data"),
    [
        ("chat", "text/event-stream", event("Hello!") + event(LEAK)[:-10]),
        ("ollama", "application/x-ndjson", b'{"message": {"content": "Hello!"}}\n{"message": {"content": "A secret'),
        ("chat", "text/event-stream", event(LEAK)[6:-2]),
    ],
)
def test_half_an_event_at_the_end_passes_only_where_the_policy_is_open(api, kind, data, fail):
    out, one = at_every_split(lambda: actor(fail, api=api, kind=kind), data, step=2)
    assert "*" in one.actions.unrepaired_reasons
    assert (out == data) == (fail is FailMode.OPEN)
    if fail is FailMode.CLOSED:
        assert b"secret" not in out


@BOTH
@pytest.mark.parametrize("said", ["analysisA secret", "Hello.<|chan", "<think>A secret", "Hello.assistantana"])
def test_what_is_held_when_the_server_dies_passes_only_where_the_policy_is_open(said, fail):
    out, one = at_every_split(partial(actor, fail), event(said[:6]) + event(said[6:]), StreamRepairer.abort, 3)
    assert out.endswith(DONE)
    assert b"upstream_broke_off" in out
    told = content_of(out)
    if fail is FailMode.OPEN:
        assert told == said
    else:
        assert told in ("", "Hello.")
        assert "before it was examined completely" in one.actions.unrepaired_reasons["*"]


def test_what_leaks_is_told_anew_when_the_server_dies_also_where_the_policy_is_closed():
    out, one = at_every_split(partial(actor, FailMode.CLOSED), event(LEAK[:50]), StreamRepairer.abort, 3)
    assert content_of(out) == ""
    assert b'"reasoning": "A secret.' in out.replace(b":", b": ").replace(b":  ", b": ")
    assert one.actions.repair_counts


@BOTH
def test_a_stream_that_is_larger_than_what_is_kept_goes_on_only_where_the_policy_is_open(fail):
    data = b"".join([*[event("Hello!")] * 40, event(LEAK), STOP, DONE])
    one = actor(fail, limit=2000)
    out = b"".join(b"".join(one.feed(data[at : at + 100])) for at in range(0, len(data), 100)) + b"".join(one.close())
    assert (out == data) == (fail is FailMode.OPEN)
    assert (b"not_examined" in out) == (fail is FailMode.CLOSED)
    assert b"secret" not in out or fail is FailMode.OPEN


HELLO = event("Hello!").decode()
SECRET = {
    "duplicate members": HELLO.replace('"id": "c"', '"id": "c", "choices": [{"delta": {"content": "A secret."}}]'),
    "deep duplicate members": HELLO.replace('"content":', '"content": "A secret.", "c\\u006fntent":'),
    "an unknown field": f"text: A secret.\n{HELLO}",
    "an id": f"id: A secret.\n{HELLO}",
    "a long id": f"id: {'secret' * 30}\n{HELLO}",
    "a name": f"event: A secret.\n{HELLO}",
    "an id without data": "id: A secret.\n\n",
    "a time": "retry: A secret.\n\n",
}


def blocking(fail):
    response = Response(status=200, chunks=(), headers={"content-type": "text/event-stream"})
    actions = {WORDS: Action.BLOCK}
    how = {"fallback": Action.OBSERVE, "request_id": "r-1", "limit": 1 << 24, "fail": fail}
    return StreamRepairer(ASKED, response, "completions", actions, **how)


@BOTH
@pytest.mark.parametrize("make", [actor, blocking])
@pytest.mark.parametrize("name", SECRET)
def test_what_some_clients_show_and_no_check_reads(name, make, fail):
    data = event("Hi. ") + SECRET[name].encode() + STOP + DONE
    out, one = at_every_split(partial(make, fail), data, step=7)
    if fail is FailMode.OPEN:
        assert out == data
    else:
        assert b"secret" not in out
        assert one.actions.unrepaired_reasons["*"] in (
            "an event with duplicate JSON members",
            "an event with fields that are not read",
        )
        assert b"not_examined" in out


@BOTH
@pytest.mark.parametrize("make", [actor, blocking])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_comment_passes_only_where_the_policy_is_open(end, make, fail):
    text = f": A secret.\n\n:A secret.\n{HELLO}{HELLO[:-1]}:A secret.\n\n: ping - 2026-01-01 00:00:00.5+00:00\n\n: A secret.\n"
    data = text.replace("\n", end).encode()
    out, one = at_every_split(partial(make, fail), data, step=7)
    assert "*" not in one.actions.unrepaired_reasons
    assert (out == data) == (fail is FailMode.OPEN)
    assert content_of(out.replace(b"\r\n", b"\n").replace(b"\r", b"\n")) == "Hello!Hello!"
    assert b": ping - 2026-01-01 00:00:00.5+00:00" in out
    assert b"secret" not in out or fail is FailMode.OPEN


@pytest.mark.parametrize(
    "more",
    [
        *(
            b": ping - 2026-01-31 12:00:00.000000+00:00\n\n",
            b":\n\n",
            b":keepalive\n\n",
            b": OPENROUTER PROCESSING\n\n",
        ),
        *(b"event: response.created\nid: 1700-a/b+c=\nretry: 3000\ndata: {}\n\n", b"id\nevent:\ndata:{}\n\n"),
        b'data: {"a": {"b": 1},\ndata: "c": {"b": 1}}\n\n',
    ],
)
def test_usual_fields_and_keep_alives_pass_where_the_policy_is_closed(more):
    data = more + event("Hello!") + more + STOP + DONE
    out, one = at_every_split(partial(actor, FailMode.CLOSED), data, step=3)
    assert out == data
    assert not one.actions.unrepaired_reasons


NOT_TO_BE_TOLD = (
    "analysisHm.assistantfinalHello!assistantcommentary to=functions.of_nobody json{}assistantanalysisA secret."
    "assistantfinalBye."
)


def test_a_leak_behind_a_repair_that_cannot_be_told_anew_is_blocked_before_it_goes_out():
    data = b"".join(event(NOT_TO_BE_TOLD[at : at + 5]) for at in range(0, len(NOT_TO_BE_TOLD), 5)) + STOP + DONE
    out, one = at_every_split(partial(actor, fallback=Action.BLOCK), data, step=40)
    assert "Hello!" in content_of(out)
    assert b"secret" not in out
    assert b"functions" not in out
    assert one.actions.blocked_checks == (WORDS,)
    assert out.endswith(DONE)


def guarded(fail, kind, body, *, end=Guard.close, status=200):
    rules = load_rules(repair=["*"], fail=fail)
    one = Guard(rules.policy, request_id="r-1", handlers=rules.handlers)
    one.request_head("POST", ASKED.path, ((b"content-type", b"application/json"),))
    one.request_body(ASKED.body)
    one.response_head(status, ((b"content-type", kind),))
    out = b"".join(one.feed(body, 0.1))
    return one, out + b"".join(end(one, at=0.2).body)


WHOLE = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": LEAK}}], "x": 0}).encode()


@BOTH
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (b"text/plain", event(LEAK) + STOP + DONE),
        (b"application/json", event(LEAK) + STOP + DONE),
        (b"application/json", b"\xef\xbb\xbf" + WHOLE),
        (b"application/json", WHOLE.replace(b'"x": 0', b'"x": NaN')),
        (b"application/json", WHOLE + b"\n" + WHOLE),
        (b"text/html", b"<p>A secret.</p>"),
    ],
)
def test_a_whole_answer_that_cannot_be_read(kind, body, fail):
    one, out = guarded(fail.value, kind, body)
    assert one.recorder.unrepaired_reasons == {"*": "the answer is not JSON"}
    headers = dict(one.head.headers)
    if fail is FailMode.OPEN:
        assert out == body
        assert headers[b"x-harmony-verdict"] == b"unexamined"
    else:
        assert one.head.status == 502
        assert b"secret" not in out
        assert b"not_examined" in out


@BOTH
@pytest.mark.parametrize("status", [400, 500])
def test_an_error_is_no_answer_that_cannot_be_read(status, fail):
    one, out = guarded(fail.value, b"text/plain", b"Internal Server Error", status=status)
    assert out == b"Internal Server Error"
    assert one.head.status == status
    for data in (b"data: it is overloaded\n\n", b"it is overloaded"):
        one, out = guarded(fail.value, b"text/event-stream", data, status=status)
        assert out == data


@BOTH
@pytest.mark.parametrize("action", ["repair", "block"])
def test_a_whole_answer_with_duplicate_members(action, fail):
    body = WHOLE.replace(LEAK.encode(), b"Hello!").replace(b'"x": 0', b'"x": {"y": "A secret.", "y": 0}')
    rules = load_rules(**{action: ["channels.*"]}, fail=fail.value)
    one = Guard(rules.policy, request_id="r-1", handlers=rules.handlers)
    one.request_head("POST", ASKED.path, ())
    one.request_body(ASKED.body)
    one.response_head(200, ((b"content-type", b"application/json"),))
    out = b"".join((*one.feed(body, 0.1), *one.close(0.2).body))
    assert one.recorder.unrepaired_reasons == {"*": "the answer has duplicate JSON members"}
    assert (out == body) == (fail is FailMode.OPEN)
    assert b"secret" not in out or fail is FailMode.OPEN


def test_a_repaired_answer_has_no_duplicate_members():
    _, out = guarded("closed", b"application/json", WHOLE.replace(b'"x": 0', b'"x": "A secret.", "x": 0'))
    assert json.loads(out)["choices"][0]["message"]["content"] == "Hello!"
    assert b'"A secret."' not in out.partition(b'"x"')[2]


def test_a_guard_tells_its_streams_what_is_to_become_of_them():
    one, out = guarded(
        "closed", b"text/event-stream", event("analysisA secret"), end=partial(Guard.abort, end=End.CUT, detail="")
    )
    assert b"secret" not in out
    one, out = guarded("closed", b"text/event-stream", UNREAD["text"])
    assert b"secret" not in out
    assert one.must_stop
