"""What only some clients show: a block reads it also with `fail = "open"`; what has no leak passes as it came."""

import json

import pytest

from harmony_proxy.configuration import load_rules
from harmony_proxy.guard.guard import Guard
from harmony_proxy.guard.response_head import HeadTiming
from harmony_proxy.repair.answer import other_clients
from harmony_proxy.repair.stream_parts.stream_judge import StreamJudge
from harmony_proxy.repair.text.other_readings import MOST_READINGS, TooManyReadingsError, read_json

BODY = b'{"messages": [{"role": "user", "content": "Hi"}], "stream": true}'
PLAIN = "The sky is blue."
LEAK = "<|channel|>analysis<|message|>We need to answer. A secret.<|end|><|start|>assistant<|channel|>final<|message|>Hello!"
WORDS = "analysisWe need to answer. A secret.assistantfinalHello!"
TAGS = "<think>We need to answer. A secret.</think>Hello!"
OPEN = pytest.mark.parametrize("fail", ["open", "closed"])


def guarded(
    body, *, kind=b"application/json", status=200, path="/v1/chat/completions", request=BODY, fail="open", **rules
):
    rules = load_rules(**(rules or {"block": ["channels.*"]}), fail=fail)
    one = Guard(rules.policy, request_id="r-1", handlers=rules.handlers)
    one.request_head("POST", path, ())
    one.request_body(request)
    one.response_head(status, ((b"content-type", kind),))
    out = b"".join((*one.feed(body, 0.1), *([] if one.must_stop else one.close(0.2).body)))
    return one, out


def answer(message):
    return f'{{"id": "c", "choices": [{{"index": 0, "message": {message}, "finish_reason": "stop"}}]}}'


def member(name, text):
    return f'"{name}": {json.dumps(text)}'


WHOLE = {
    "the first of two": lambda text: answer(f'{{{member("content", text)}, "content": "Hello!"}}'),
    "the second of three": lambda text: answer(
        f'{{"content": "Hello!", {member("content", text)}, "content": "Hello!"}}'
    ),
    "the first of two choices": lambda text: (
        answer(f"{{{member('content', text)}}}")[:-1] + ', "choices": [{"index": 0, "message": {"content": "Hello!"}}]}'
    ),
    "another case": lambda text: answer(f'{{"content": "Hello!", {member("Content", text)}}}'),
    "another case, alone": lambda text: answer(f"{{{member('CONTENT', text)}}}"),
    "another case of the choices": lambda text: answer(f"{{{member('content', text)}}}").replace("choices", "Choices"),
    "a long s": lambda text: answer(f"{{{member('content', text)}}}").replace("choices", "choice\u017f"),
    "no underscore": lambda text: answer(
        f'{{"content": "Hello!", {member("outputText", "")}, {member("Content", text)}}}'
    ),
    "utf-16": lambda text: answer(f"{{{member('content', text)}}}").encode("utf-16"),
    "utf-16, no mark": lambda text: answer(f"{{{member('content', text)}}}").encode("utf-16-le"),
    "utf-32": lambda text: answer(f"{{{member('content', text)}}}").encode("utf-32"),
    "a byte order mark": lambda text: "\ufeff" + answer(f"{{{member('content', text)}}}"),
    "no number": lambda text: answer(f"{{{member('content', text)}}}").replace('"c"', "NaN"),
    "two documents": lambda text: "{}\n" + answer(f"{{{member('content', text)}}}"),
    "another API": lambda text: json.dumps({"output": [{"type": "message", "content": [{"text": text}]}]}),
    "an old answer": lambda text: json.dumps({"choices": [{"text": text}]}),
    "a text": json.dumps,
    "no JSON": lambda text: text,
    "HTML": lambda text: f"<html><body><p>{text}</p></body></html>" if text != TAGS else text,
}


def encoded(body):
    return body if isinstance(body, bytes) else body.encode()


@OPEN
@pytest.mark.parametrize("text", [LEAK, WORDS, TAGS])
@pytest.mark.parametrize("name", WHOLE)
def test_a_leak_that_only_some_clients_show_is_blocked(name, text, fail):
    one, out = guarded(encoded(WHOLE[name](text)), fail=fail)
    assert one.head.status == 502
    assert b"secret" not in out
    assert one.recorder.blocked_checks


@pytest.mark.parametrize("name", WHOLE)
def test_without_a_leak_it_passes(name):
    body = encoded(WHOLE[name](PLAIN))
    one, out = guarded(body)
    assert (out, one.recorder.blocked_checks) == (body, ())


@pytest.mark.parametrize("name", WHOLE)
def test_what_is_only_repaired_passes(name):
    body = encoded(WHOLE[name](LEAK))
    _, out = guarded(body, repair=["channels.*"])
    assert out == body


ERRORS = {
    "text/plain": lambda text: f"Failed to parse: {text}",
    "text/html": lambda text: f"<html><h1>Error</h1><p>{text.replace('<', '&lt;').replace('>', '&gt;')}</p></html>",
    "text/html; charset=utf-16": lambda text: f"<p>{text}</p>".encode("utf-16"),
    "application/xml": lambda text: f"<error><message><![CDATA[{text}]]></message></error>",
    "application/json": lambda text: json.dumps({"detail": [{"msg": text}]}),
    "application/problem+json": lambda text: json.dumps({"title": "Error", "detail": text}),
    "text/event-stream": lambda text: f"event: error\ndata: {text}\n\n",
}


@OPEN
@pytest.mark.parametrize("status", [302, 400, 500])
@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_of_any_type_that_leaks_is_blocked(kind, status, fail):
    one, out = guarded(encoded(ERRORS[kind](LEAK)), kind=kind.encode(), status=status, fail=fail)
    assert one.recorder.blocked_checks == ("channels.no_marker_leak",)
    assert "secret".encode("utf-16-le") not in out
    assert b"secret" not in out


@OPEN
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize(
    "text",
    [
        "it is overloaded",
        "unexpected token <|channel|>",
        "<|end|>",
        "in the template: {{ '<|start|>assistant<|channel|>final<|message|>' }}",
        "no assistant final message",
    ],
)
def test_any_other_error_passes_as_it_came(kind, text, fail):
    body = encoded(ERRORS[kind](text))
    one, out = guarded(body, kind=kind.encode(), status=500, fail=fail)
    assert (out, one.head.status) == (body, 500)


@pytest.mark.parametrize("text", [WORDS, TAGS])
def test_an_error_that_is_only_a_leak_is_blocked_whatever_leaks(text):
    for body in (text, json.dumps({"detail": text})):
        one, out = guarded(body.encode(), kind=b"text/plain", status=500)
        assert one.recorder.blocked_checks, body
        assert b"secret" not in out


def test_what_a_request_quotes_passes():
    asked = json.dumps({"messages": [{"role": "user", "content": f"Repeat: {LEAK}"}]}).encode()
    for name in ("another API", "the first of two", "no JSON", "a byte order mark"):
        body = encoded(WHOLE[name](LEAK))
        assert guarded(body, request=asked)[1] == body, name


def test_an_api_that_returns_the_raw_output_is_not_read():
    body = json.dumps({"Choices": [{"text": LEAK}]}).encode()
    assert guarded(body, path="/v1/completions", request=b'{"prompt": "Hi"}')[1] == body


def stream(
    data, *, split=None, fail="open", status=200, kind=b"text/event-stream", path="/v1/chat/completions", **rules
):
    rules = load_rules(**(rules or {"block": ["channels.*"]}), fail=fail)
    one = Guard(rules.policy, request_id="r-1", handlers=rules.handlers, head_timing=HeadTiming.WITH_BYTES)
    one.request_head("POST", path, ())
    one.request_body(BODY)
    one.response_head(status, ((b"content-type", kind),))
    out = b""
    for piece in (data[:split], data[split:]) if split is not None else (data[at : at + 1] for at in range(len(data))):
        out += b"".join(one.feed(piece, 0.1)) if piece and not one.must_stop else b""
    return one, out + (b"" if one.must_stop else b"".join(one.close(0.2).body))


def event(delta, finish="null", more=""):
    return f'data: {{"id": "c", "choices": [{{"index": 0, "delta": {delta}, "finish_reason": {finish}}}]{more}}}\n\n'


HELLO, END = event('{"content": "Hello!"}'), event("{}", '"stop"') + "data: [DONE]\n\n"
FIELDS = {
    "an unknown field": lambda text: f"text: {text}\n\n",
    "a field of another case": lambda text: "Data: " + event(f"{{{member('content', text)}}}")[6:],
    "an id": lambda text: f"id: {text}\n{HELLO}",
    "an id over the events": lambda text: (
        "".join(f"id: {text[at : at + 9]} \n{HELLO}" for at in range(0, len(text), 9))
        if text == PLAIN
        else f"id: {text}\n\n"
    ),
    "a name": lambda text: f"event: {text}\n{HELLO}",
    "a time": lambda text: f"retry: {text}\n\n",
    "a comment": lambda text: f": {text}\n\n",
    "a comment in an event": lambda text: f"{HELLO[:-1]}:{text}\n\n",
    "comments": lambda text: "".join(f":{text[at : at + 9]}\n\n" for at in range(0, len(text), 9)),
    "no JSON": lambda text: f"data: {text}\n\n",
    "a text of JSON": lambda text: f"data: {json.dumps(text)}\n\n",
    "a list": lambda text: f"data: {json.dumps([text])}\n\n",
    "no number": lambda text: event(f"{{{member('content', text)}}}", more=', "x": NaN'),
    "very many values": lambda text: event(
        "{" + ", ".join([member("content", text), *[member("content", "!")] * 20]) + "}"
    ),
}
MEMBERS = {
    "the first of two": lambda text: event(f'{{{member("content", text)}, "content": ""}}'),
    "the second of three": lambda text: event(f'{{"content": "", {member("content", text)}, "content": ""}}'),
    "another case": lambda text: event(f'{{"content": "", {member("Content", text)}}}'),
    "another case, alone": lambda text: event(f"{{{member('CONTENT', text)}}}"),
    "choices of another case": lambda text: event(f"{{{member('content', text)}}}").replace("choices", "Choices"),
}


@OPEN
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("name", FIELDS)
def test_a_leak_in_a_field_that_no_check_reads_is_blocked(name, end, fail):
    data = (HELLO + FIELDS[name](LEAK) + END).replace("\n", end).encode()
    for split in (None, *range(0, len(data), 41)):
        one, out = stream(data, split=split, fail=fail)
        assert b"secret" not in out, split
        assert one.must_stop or "comment" in name, split  # `closed` empties comments
        assert one.recorder.blocked_checks or fail == "closed"


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("text", [PLAIN, "the <|channel|> token", "a final assistant"])
def test_any_other_text_of_a_field_passes(name, text):
    data = (HELLO + FIELDS[name](text) + END).encode()
    if "<" in text and name in ("comments", "an id over the events"):
        return
    for split in (None, *range(0, len(data), 41)):
        assert stream(data, split=split)[1] == data


@OPEN
@pytest.mark.parametrize("size", [3, 20, 1000])
@pytest.mark.parametrize("text", [LEAK, WORDS, TAGS])
@pytest.mark.parametrize("name", MEMBERS)
def test_a_leak_in_members_that_no_check_reads_is_blocked(name, text, size, fail):
    data = "".join(MEMBERS[name](text[at : at + size]) for at in range(0, len(text), size))
    for ends in ("", *([HELLO] if text != TAGS else [])):
        one, out = stream((ends + data + END).encode(), fail=fail)
        assert one.must_stop
        assert "secret" not in "".join(out.decode().split('"'))
        assert one.recorder.blocked_checks or "of" in name


@pytest.mark.parametrize("name", MEMBERS)
def test_members_without_a_leak_pass_at_the_end(name):
    data = (HELLO + MEMBERS[name]("The ") + MEMBERS[name]("sky.") + END).encode()
    for split in (None, *range(0, len(data), 41)):
        assert stream(data, split=split)[1] == data
    assert stream((HELLO + MEMBERS[name](LEAK) + END).encode(), repair=["channels.*"])[1].endswith(END.encode())


def letters(make, leak):
    """A stream with one letter of the leak in each event."""
    return "".join(make(json.dumps(letter)) for letter in leak) + END


RARE = {
    "parts": lambda text: event(f'{{"content": [{{"type": "text", "text": {text}}}]}}'),
    "refusal": lambda text: event(f'{{"refusal": {text}}}'),
    "function_call": lambda text: event(f'{{"function_call": {{"name": "f", "arguments": {text}}}}}'),
    "an unknown member": lambda text: event(f'{{"output_text": {text}}}'),
    "details": lambda text: event(f'{{"reasoning_details": [{{"index": 0, "text": {text}}}]}}'),
    "a member of the choice": lambda text: event("{}").replace('"delta"', f'"text": {text}, "delta"'),
    "a message": lambda text: event(f'{{"content": {text}}}').replace('"delta"', '"message"'),
}


@OPEN
@pytest.mark.parametrize("name", RARE)
def test_a_leak_in_a_rare_member_is_blocked_before_the_thought(name, fail):
    one, out = stream(letters(RARE[name], LEAK).encode(), fail=fail)
    assert one.recorder.blocked_checks == ("channels.no_marker_leak",)
    assert b'"W"' not in out
    data = letters(RARE[name], PLAIN).encode()
    assert stream(data, fail=fail)[1] == data


def test_a_leak_in_a_refusal_of_the_responses_api_is_blocked_before_the_thought():
    place = '"item_id": "m", "output_index": 0, "content_index": 0, "sequence_number": 4'
    data = "".join(f'data: {{"type": "response.refusal.delta", {place}, {member("delta", one)}}}\n\n' for one in LEAK)
    one, out = stream(data.encode(), path="/v1/responses")
    assert one.recorder.blocked_checks == ("channels.no_marker_leak",)
    assert b'"W"' not in out


def response(**members):
    return {"id": "r", "object": "response", "status": "in_progress", "model": "m", "output": [], **members}


def item(text):
    return {"id": "m", "type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


TYPED = {
    "an item of the first event": (
        "responses",
        lambda text: {"type": "response.created", "response": response(output=[item(text)])},
    ),
    "a text of the first event": (
        "responses",
        lambda text: {"type": "response.created", "response": response(output_text=text)},
    ),
    "a new item": (
        "responses",
        lambda text: {"type": "response.output_item.added", "output_index": 0, "item": item(text)},
    ),
    "a new part": (
        "responses",
        lambda text: {
            "type": "response.content_part.added",
            "item_id": "m",
            "part": {"type": "output_text", "text": text},
        },
    ),
    "the end of a refusal": (
        "responses",
        lambda text: {"type": "response.refusal.done", "item_id": "m", "refusal": text},
    ),
    "a delta with a text": (
        "responses",
        lambda text: {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "delta": {"text": text}},
    ),
    "an unknown event": ("responses", lambda text: {"type": "x", "text": text}),
    "an event without a type": ("responses", lambda text: {"delta": text}),
    "an unknown delta": (
        "messages",
        lambda text: {"type": "content_block_delta", "delta": {"type": "x", "text": text}},
    ),
    "a citation": (
        "messages",
        lambda text: {"type": "content_block_delta", "delta": {"type": "citations_delta", "citation": {"text": text}}},
    ),
    "a ping": ("messages", lambda text: {"type": "ping", "text": text}),
}


@OPEN
@pytest.mark.parametrize("name", TYPED)
def test_a_leak_in_an_event_whose_text_is_not_tracked_is_blocked(name, fail):
    api, make = TYPED[name]
    ends = {"responses": {"type": "response.completed", "response": response(status="completed")}}
    for text, is_leak in ((LEAK, True), (PLAIN, False)):
        events = [make(text), ends.get(api, {"type": "message_stop"})]
        data = "".join(f"data: {json.dumps(one)}\n\n" for one in events).encode()
        one, out = stream(data, path=f"/v1/{api}", fail=fail)
        assert bool(one.recorder.blocked_checks) is is_leak
        assert b"secret" not in out
        assert is_leak or b"blue" in out


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("/api/chat", {"message": {"role": "assistant", "content": ""}, "response": LEAK}),
        ("/api/generate", {"response": "", "message": {"content": LEAK, "text": LEAK}}),
        ("/api/chat", {"message": {"role": "assistant", "content": "", "refusal": LEAK}}),
    ],
)
def test_a_leak_in_a_member_of_another_api_is_blocked(path, line):
    end = {"done": True, "message": {"role": "assistant", "content": ""}, "response": ""}
    data = "".join(f"{json.dumps(one)}\n" for one in ({**line, "done": False}, end)).encode()
    one, out = stream(data, path=path, kind=b"application/x-ndjson")
    assert (one.recorder.blocked_checks, b"secret" in out) == (("channels.no_marker_leak",), False)


@pytest.mark.parametrize("where", ["choice", "answer"])
def test_a_complete_answer_beside_its_message(where):
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hello!"}, "finish_reason": "stop"}
    for text, is_leak in ((LEAK, True), ("<|return|>", False), (PLAIN, False)):
        body = {"choices": [{**choice, **({"text": text} if where == "choice" else {})}], "id": "c"}
        body |= {"output_text": text} if where == "answer" else {}
        one, out = guarded(json.dumps(body).encode())
        assert bool(one.recorder.blocked_checks) is is_leak
        assert is_leak or json.loads(out) == body


def test_arguments_are_read_by_the_checks_alone():
    def call(text):
        return event(f'{{"tool_calls": [{{"index": 0, "function": {{"arguments": {json.dumps(text)}}}}}]}}')

    quoted = json.dumps({"text": "It is <|channel|>analysis<|message|>."})
    data = "".join(map(call, quoted)) + END
    assert stream(data.encode())[1] == data.encode()
    one, out = stream(("".join(map(call, LEAK)) + END).encode())
    assert (bool(one.recorder.blocked_checks), b'"W"' in out) == (True, False)


UNUSUAL = {
    "another case": ("data:", "DATA:"),
    "a blank before": ("data:", " data:"),
    "a blank after": ("data:", "data :"),
    "a mark before": ("data:", "\ufeffdata:"),
    "no name": ("data: ", ""),
}


@pytest.mark.parametrize("name", UNUSUAL)
def test_lines_that_only_some_clients_read_as_data(name):
    def made(letter):
        return event(f'{{"content": {letter}}}').replace(*UNUSUAL[name])

    one, out = stream((HELLO + letters(made, LEAK)).encode())
    assert one.recorder.blocked_checks == ("channels.no_marker_leak",)
    assert b'"<"' not in out
    data = (HELLO + letters(made, PLAIN)).encode()
    assert stream(data)[1] == data


@pytest.mark.parametrize("kind", [b"text/plain", b"application/json", b"", b"text/event-stream, text/plain"])
@pytest.mark.parametrize("text", [LEAK, WORDS, TAGS])
def test_events_under_another_content_type(kind, text):
    def made(letter):
        return event(f'{{"content": {letter}}}')

    one, out = guarded(letters(made, text).encode(), kind=kind)
    assert (one.head.status, b'"W"' in out) == (502, False)
    assert one.recorder.blocked_checks
    data = letters(made, PLAIN).encode()
    assert guarded(data, kind=kind)[1] == data


def test_lines_under_another_content_type():
    def lines(text):
        made = [json.dumps({"message": {"role": "assistant", "content": letter}, "done": False}) for letter in text]
        return "\n".join([*made, '{"done": true}', ""]).encode()

    one, out = guarded(lines(LEAK), path="/api/chat")
    assert (one.head.status, b'"W"' in out) == (502, False)
    assert guarded(lines(PLAIN), path="/api/chat")[1] == lines(PLAIN)


@pytest.mark.parametrize("filler", ['\\"', '"', "<!--", "<a", "data:\n", "{", '"<"'])
def test_no_text_is_read_in_quadratic_time(filler, monkeypatch):
    reads = []
    monkeypatch.setattr(other_clients.json, "loads", lambda *read, **_: reads.append(len(read[0])) or "")
    for begin in ("", "{"):
        body = (begin + filler * 20_000).encode()
        assert guarded(body, kind=b"text/plain", status=500)[1] == body
        assert len(other_clients._STRING.findall(body.decode())) <= 2 * len(body)
    assert sum(reads) <= 4 * len(body)


def test_the_texts_of_very_many_fields_take_no_more_memory():
    one, _ = stream("".join(f"field{number}: <\n\n" for number in range(1000)).encode(), split=0)
    assert len(one._stream._others._texts) <= 65


def test_a_long_text_in_single_letters_is_not_searched_for_each(monkeypatch):
    searched = []
    monkeypatch.setattr(
        StreamJudge, "failures_of_text", lambda _, text, checks: searched.append(len(text)) or checks & set()
    )
    comments = "".join(f":{letter}\n\n" for letter in "<a " * 3000)
    stream(comments.encode(), split=0)
    assert 0 < sum(searched) < 20 * len(comments)


@pytest.mark.parametrize("api", ["responses", "ollama"])
def test_members_of_other_apis(api):
    place = '"item_id": "m", "output_index": 0, "content_index": 0, "sequence_number": 4, "delta": ""'
    message = f'{{"role": "assistant", "content": "", {member("Content", LEAK)}}}'
    leaks = {
        "responses": f'data: {{"type": "response.output_text.delta", {place}, {member("Delta", LEAK)}}}\n\n',
        "ollama": f'{{"model": "m", "message": {message}, "done": false}}\n',
    }
    kinds = {"responses": b"text/event-stream", "ollama": b"application/x-ndjson"}
    paths = {"responses": "/v1/responses", "ollama": "/api/chat"}
    _, out = stream(leaks[api].encode(), kind=kinds[api], path=paths[api])
    assert b"secret" not in out


def test_usual_streams_do_not_wait():
    comments = ": connected to the server\n\n: processing\n\n"
    rules = load_rules(block=["channels.*"])
    one = Guard(rules.policy, request_id="r-1", handlers=rules.handlers)
    one.request_head("POST", "/v1/chat/completions", ())
    one.request_body(BODY)
    one.response_head(200, ((b"content-type", b"text/event-stream"),))
    begun = HELLO.replace('"id"', '"Id": "x", "metadata": {"Content": "x"}, "id"')
    for piece in (comments, begun, "id: 17 of 20\n" + HELLO, HELLO):
        assert b"".join(one.feed(piece.encode(), 0.1)) == piece.encode()


@pytest.mark.parametrize("status", [300, 500])
@pytest.mark.parametrize("text", [LEAK, WORDS, TAGS])
def test_a_stream_with_an_error_status_shows_nothing_before_it_is_read(status, text):
    for data in (
        "".join(event(f"{{{member('content', letter)}}}") for letter in text) + END,
        f"data: {json.dumps({'detail': text})}\n\n",
        f"data: {text}\n\n",
        text,
    ):
        one, out = stream(data.encode(), status=status)
        assert (one.head.status, b"blocked_by_policy" in out) == (502, True), data


def test_a_member_with_very_many_values_is_read_as_text():
    values = ", ".join(member("content", PLAIN + str(number)) for number in range(MOST_READINGS + 1))
    one, _ = guarded(answer(f"{{{values}}}").encode())
    assert one.recorder.unrepaired_reasons == {"*": "the answer has duplicate JSON members"}
    one, _ = guarded(answer(f"{{{values}, {member('content', LEAK)}, {values}}}").encode())
    assert one.recorder.blocked_checks
    with pytest.raises(TooManyReadingsError):
        read_json(answer(f"{{{values}}}"))


@pytest.mark.parametrize(
    ("document", "others"),
    [
        ('{"a": 1, "a": 2}', [{"a": 1}]),
        ('{"a": {"b": 1, "b": 2}, "a": 3}', [{"a": {"b": 1}}, {"a": {"b": 2}}]),
        ('[{"text": 1, "Text": 2}, {"content": 3}]', [[{"text": 1}, {"content": 3}], [{"text": 2}, {"content": 3}]]),
        ('{"toolCalls": 1}', [{"tool_calls": 1}]),
        ('{"\\u0063ontent": 1}', []),
        ('{"tools": [{"Name": 1, "name": 2}], "metadata": {"Content": 1}, "Id": 3}', []),
        ('{"message": {"arguments": {"Text": 1, "text": 2}}}', []),
    ],
)
def test_readings(document, others):
    assert list(read_json(document).others) == others
