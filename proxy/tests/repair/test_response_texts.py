"""Every place of a response or message that has a text is read before a client gets it: items, parts, events, and members of other forms."""

import json

import pytest

from harmony_proxy.configuration import load_rules
from harmony_proxy.guard.guard import Guard

LEAK = "<|channel|>analysis<|message|>We need to answer. A secret.<|end|><|start|>assistant<|channel|>final<|message|>Hello!"
WORDS = "analysisWe need to answer. A secret.assistantfinalHello!"
PLAIN = "The sky is blue."
FILLER = "The sky is blue and the grass is green. " * 600
BLOCK = load_rules(block=["channels.*"])
REPAIR = load_rules(repair=["channels.no_marker_leak"], fallback="block")


def guarded(data, path, *, kind=b"application/json", rules=BLOCK):
    one = Guard(rules.policy, request_id="r-1", handlers=rules.handlers)
    one.request_head("POST", path, ())
    one.request_body(json.dumps({"model": "m", "stream": kind != b"application/json"}).encode())
    one.response_head(200, ((b"content-type", kind),))
    out = b"".join((*one.feed(data, 0.1), *([] if one.must_stop else one.close(0.2).body)))
    return one, out


def part(text):
    return {"type": "output_text", "text": text, "annotations": []}


def message(content):
    return {"type": "message", "id": "m2", "role": "assistant", "status": "completed", "content": content}


def call(**more):
    return {"type": "custom_tool_call", "id": "c", "call_id": "c", "name": "n", "input": "x", **more}


HELLO = {**message([part("Hello!")]), "id": "m1"}
ITEMS = {
    "a text as content": message,
    "a list of texts": lambda text: message([text]),
    "one part": lambda text: message(part(text)),
    "an unknown part": lambda text: message([{"type": "x", "text": text}]),
    "a refusal": lambda text: message([{"type": "refusal", "refusal": text}]),
    "an annotation": lambda text: message(
        [{**part("Hello!"), "annotations": [{"type": "url_citation", "title": text}]}]
    ),
    "no type": lambda text: {"id": "z", "content": [part(text)]},
    "no item": lambda text: text,
    "an unknown item": lambda text: {"type": "x", "a": {"b": [{"c": text}]}},
    "a text as summary": lambda text: {"type": "compaction", "id": "z", "summary": text},
    "an input": lambda text: call(input=text),
    "a name": lambda text: call(name=text),
    "a namespace": lambda text: call(namespace=text),
    "arguments that are no text": lambda text: {**call(arguments={"a": text}), "type": "function_call"},
    "a search": lambda text: {"type": "web_search_call", "id": "w", "action": {"query": text}},
    "code": lambda text: {"type": "code_interpreter_call", "id": "w", "code": text, "outputs": []},
    "a result": lambda text: {"type": "mcp_call", "id": "w", "name": "n", "arguments": "{}", "output": text},
}
MEMBERS = ("output_text", "content", "text", "choices", "error", "incomplete_details", "message")
REPEATED = {
    "the name of a call": lambda text: {
        "type": "response.function_call_arguments.done",
        "name": text,
        "arguments": "{}",
    },
    "arguments": lambda text: {"type": "response.function_call_arguments.done", "arguments": text},
    "a part of arguments": lambda text: {"type": "response.function_call_arguments.delta", "delta": text},
    "a text without deltas": lambda text: {"type": "response.output_text.done", "item_id": "m9", "text": text},
    "reasoning": lambda text: {"type": "response.reasoning_text.done", "item_id": "r", "text": text},
    "a part": lambda text: {"type": "response.content_part.done", "item_id": "m9", "part": {"type": "x", "text": text}},
    "a further member": lambda text: {
        "type": "response.output_text.delta",
        "item_id": "m9",
        "delta": "x",
        "text": text,
    },
    "much text": lambda text: {"type": "response.custom_tool_call_input.done", "item_id": "c", "input": text + FILLER},
}
BLOCKS = {
    "the name of a tool": {"content_block": lambda text: {"type": "tool_use", "id": "i", "name": text, "input": {}}},
    "input as a text": {"content_block": lambda text: {"type": "tool_use", "id": "i", "name": "n", "input": text}},
    "arguments": {"delta": lambda text: {"type": "input_json_delta", "partial_json": text}},
    "a further member": {"delta": lambda text: {"type": "text_delta", "text": "x", "note": text}},
    "a text that is none": {"delta": lambda text: {"type": "text_delta", "text": {"a": text}}},
    "the end of a block": {"note": lambda text: text},
}
TEXT = pytest.mark.parametrize("text", [LEAK, WORDS])


def response(*output, **more):
    return {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [*output], **more}


def framed(*events):
    return "".join(f"data: {json.dumps(one)}\n\n" for one in events).encode()


def assert_blocks(data, path, *, kind=b"application/json"):
    one, out = guarded(data, path, kind=kind)
    assert one.recorder.blocked_checks
    assert b"secret" not in out


@TEXT
@pytest.mark.parametrize("name", [*ITEMS, *MEMBERS])
def test_a_leak_anywhere_in_a_response_is_blocked(name, text):
    def body(text):
        return response(HELLO, ITEMS[name](text)) if name in ITEMS else response(HELLO, **{name: text})

    assert_blocks(json.dumps(body(text)).encode(), "/v1/responses")
    plain = json.dumps(body(PLAIN)).encode()
    assert guarded(plain, "/v1/responses")[1] == plain
    streams = [framed({"type": "response.completed", "response": body(one)}) for one in (text, PLAIN)]
    assert_blocks(streams[0], "/v1/responses", kind=b"text/event-stream")
    assert guarded(streams[1], "/v1/responses", kind=b"text/event-stream")[1] == streams[1]


@TEXT
@pytest.mark.parametrize("name", [*ITEMS, *REPEATED])
def test_a_leak_anywhere_in_an_event_of_a_response_is_blocked(name, text):
    def data(text):
        done = (
            {"type": "response.output_item.done", "output_index": 1, "item": ITEMS[name](text)} if name in ITEMS else {}
        )
        return framed(done or REPEATED[name](text), {"type": "response.completed", "response": response(HELLO)})

    if (name, text) != ("reasoning", WORDS):  # words of a channel are no leak in reasoning
        assert_blocks(data(text), "/v1/responses", kind=b"text/event-stream")
    assert guarded(data(PLAIN), "/v1/responses", kind=b"text/event-stream")[1] == data(PLAIN)


@TEXT
@pytest.mark.parametrize("name", BLOCKS)
def test_a_leak_anywhere_in_an_event_of_messages_is_blocked(name, text):
    ((member, make),) = BLOCKS[name].items()
    kind = {"content_block": "content_block_start", "delta": "content_block_delta", "note": "content_block_stop"}[
        member
    ]
    for one in (text, PLAIN):
        data = framed({"type": kind, "index": 0, member: make(one)}, {"type": "message_stop"})
        if one == text:
            assert_blocks(data, "/v1/messages", kind=b"text/event-stream")
        else:
            assert guarded(data, "/v1/messages", kind=b"text/event-stream")[1] == data


def test_a_file_about_the_format_may_be_an_argument_of_any_call():
    quoted = json.dumps(
        {"text": "It is <|channel|>analysis<|message|>We think.<|end|><|start|>assistant<|channel|>final<|message|>"}
    )
    done = {"type": "response.output_item.done", "item": {**call(arguments=quoted), "type": "mcp_call"}}
    arguments = [{"type": "response.function_call_arguments.delta", "item_id": "f", "delta": one} for one in quoted]
    data = framed(*arguments, done, {"type": "response.completed", "response": response(HELLO)})
    assert guarded(data, "/v1/responses", kind=b"text/event-stream")[1] == data
    deltas = [{"type": "input_json_delta", "partial_json": one} for one in quoted]
    data = framed(
        *({"type": "content_block_delta", "index": 0, "delta": one} for one in deltas), {"type": "message_stop"}
    )
    assert guarded(data, "/v1/messages", kind=b"text/event-stream")[1] == data


def test_a_text_that_is_repaired_is_not_blocked_where_it_is_repeated():
    place = {"item_id": "m2", "output_index": 0, "content_index": 0}
    done = message([part(LEAK)])
    data = framed(
        {"type": "response.output_item.added", "output_index": 0, "item": message([])},
        {"type": "response.output_text.delta", **place, "delta": LEAK},
        {"type": "response.output_text.done", **place, "text": LEAK},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": response(done)},
    )
    one, out = guarded(data, "/v1/responses", kind=b"text/event-stream", rules=REPAIR)
    assert not one.recorder.blocked_checks
    assert b"<|" not in out
    assert b"Hello!" in out
