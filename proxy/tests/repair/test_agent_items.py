"""Leaks in calls of agents' tools: a block withholds the call, a repair cleans it in a whole answer, and reports it in a stream."""

import json

import pytest

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair import REPAIRS, StreamRepairer, repair_answer

MARKER, WORDS = "channels.no_marker_leak", "channels.no_channel_words"
BLOCKING = dict.fromkeys((MARKER, WORDS), Action.BLOCK)
REPAIRING = dict.fromkeys(REPAIRS, Action.REPAIR)
STRUCTURE = "<|end|><|start|>assistant<|channel|>final<|message|>Done."
JOINED = "analysisWe need to run it.assistantfinalDone."
QUESTION = '{"q":"x"}'
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}
REASONING["content"] = [{"type": "reasoning_text", "text": "We need to call it."}]


def call(kind, **members):
    return {"type": f"{kind}_call", "id": "i_1", "call_id": "call_1", "status": "completed", **members}


# an item by its name and by what the model wrote in it, and how both are read back
ITEMS = {
    "a custom tool": (lambda name, text: call("custom_tool", name=name, input=text), "apply_patch", "+b", "input"),
    "a patch": (lambda _, text: call("apply_patch", operation={"path": "a", "diff": text}), "", "+b", "operation"),
    "a local shell": (lambda _, text: call("local_shell", action={"command": ["bash", text]}), "", "ls", "action"),
    "a search": (lambda _, text: call("web_search", action={"type": "search", "query": text}), "", "rain", "action"),
    "code": (lambda _, text: call("code_interpreter", container_id="c", code=text), "", "print(1)", "code"),
    "an MCP tool": (
        lambda name, text: call("mcp", name=name, server_label="docs", arguments=text), "search", QUESTION, "arguments",
    ),
    "leave for an MCP tool": (
        lambda name, text: {**call("mcp", name=name, server_label="docs", arguments=text), "type": "mcp_approval_request"},
        "search", QUESTION, "arguments",
    ),
}  # fmt: skip
TOOLS = [{"type": "custom", "name": "apply_patch"}, {"type": "mcp", "server_label": "docs", "server_url": "x"}]
LISTED = {"type": "mcp_list_tools", "id": "l_1", "server_label": "docs", "tools": [{"name": "search"}]}
LEAKS = {
    "a header": lambda text: text + STRUCTURE,
    "a stop token": lambda text: text + "<|call|>",
    "channel words": lambda text: json.dumps({"q": JOINED}) if text == QUESTION else JOINED,
}


def response(item):
    usage = {"input_tokens": 200, "output_tokens": 40, "total_tokens": 240}
    known = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    return {**known, "output": [LISTED, REASONING, item], "usage": usage}


def events(item):
    bare = {name: one for name, one in item.items() if name not in ("input", "operation", "action", "code")}
    kinds = (("added", {**bare, **({"arguments": ""} if "arguments" in bare else {})}), ("done", item))
    yield {"type": "response.created", "response": {**response(item), "output": [], "status": "in_progress"}}
    for index, one in enumerate((LISTED, REASONING)):
        yield {"type": "response.output_item.done", "output_index": index, "item": one}
    yield from ({"type": f"response.output_item.{end}", "output_index": 2, "item": one} for end, one in kinds)
    yield {"type": "response.completed", "response": response(item)}


def exchange(path, api, answer, *, tools=()):
    body = {"model": "m", "input": "Do it.", "tools": [*tools], "stream": isinstance(answer, list)}
    if api == "messages":
        body = {**body, "messages": [{"role": "user", "content": "Do it."}], "max_tokens": 99}
    is_stream = isinstance(answer, list)
    data = (
        "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in answer)
        if is_stream
        else json.dumps(answer)
    )
    headers = {"content-type": "text/event-stream" if is_stream else "application/json"}
    chunks = (Chunk(arrival_time=0.0, data=data.encode()),)
    request = Request(path=path, body=json.dumps(body).encode())
    return Exchange(id="x", api=api, request=request, response=Response(status=200, headers=headers, chunks=chunks))


def of_item(item, *, streamed):
    return exchange("/v1/responses", "responses", list(events(item)) if streamed else response(item), tools=TOOLS)


def act(x, actions, size=7):
    """What goes to the client, and what was done."""
    data = x.response.body
    if x.events is None:
        answer = repair_answer(x, actions, fallback=Action.OBSERVE)
        return (data if answer.body is None else answer.body), answer.actions
    one = StreamRepairer(x.request, x.response, x.api, actions, fallback=Action.OBSERVE, request_id="x", limit=1 << 24)
    out = [piece for start in range(0, len(data), size) for piece in one.feed(data[start : start + size])]
    return b"".join([*out, *one.close()]), one.actions


def planted():
    for name, (make, tool, text, _) in ITEMS.items():
        for kind, leak in LEAKS.items():
            yield pytest.param(make(tool, leak(text)), id=f"{name}: {kind}")
        if tool:
            yield pytest.param(make(f"{tool}<|channel|>commentary", text), id=f"{name}: the name")


@pytest.mark.parametrize("item", tuple(planted()))
def test_a_leaking_call_is_withheld(item):
    _, whole = act(of_item(item, streamed=False), BLOCKING)
    assert whole.blocked_checks
    sent, streamed = act(of_item(item, streamed=True), BLOCKING)
    assert streamed.blocked_checks
    assert b"We need to call it." in sent
    assert json.dumps({"item": item})[1:-1].encode() not in sent
    assert b"response.completed" not in sent


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("actions", [BLOCKING, REPAIRING], ids=["blocked", "repaired"])
@pytest.mark.parametrize("name", ITEMS)
def test_a_call_without_a_leak_passes_as_it_came(name, actions, streamed):
    make, tool, text, _ = ITEMS[name]
    x = of_item(make(tool, text), streamed=streamed)
    sent, acted = act(x, actions)
    assert sent == x.response.body
    assert [*acted.blocked_checks, *acted.repair_counts, *acted.unrepaired_reasons] == []


@pytest.mark.parametrize("name", ITEMS)
def test_a_whole_call_loses_its_markers_and_keeps_its_text(name):
    make, tool, text, _ = ITEMS[name]
    names = [tool, f"{tool}<|channel|>commentary"] if tool else [tool]
    for shown in names:
        sent, acted = act(of_item(make(shown, f"{text}<|call|>"), streamed=False), REPAIRING)
        assert json.loads(sent) == response(make(tool, text))
        assert acted.repair_counts.keys() == {MARKER}


def test_the_name_of_an_unknown_tool_is_left():
    item = ITEMS["a custom tool"][0]("delete<|channel|>commentary", "+b")
    sent, acted = act(of_item(item, streamed=False), REPAIRING)
    assert json.loads(sent) == response(item)
    assert acted.unrepaired_reasons.keys() == {MARKER}


STAYING = {name: leak for name, leak in LEAKS.items() if name != "a stop token"}


@pytest.mark.parametrize("leak", STAYING)
@pytest.mark.parametrize("name", ITEMS)
def test_another_message_in_a_streamed_call_is_reported(name, leak):
    make, tool, text, _ = ITEMS[name]
    x = of_item(make(tool, STAYING[leak](text)), streamed=True)
    sent, acted = act(x, REPAIRING)
    assert sent == x.response.body
    assert acted.unrepaired_reasons.keys() & {MARKER, WORDS}
    assert acted.repair_counts == {}


@pytest.mark.parametrize("size", [7, 100_000])
@pytest.mark.parametrize("name", ITEMS)
def test_a_streamed_call_that_comes_whole_loses_its_markers_and_keeps_its_text(name, size):
    make, tool, text, _ = ITEMS[name]
    clean = of_item(make(tool, text), streamed=True).response.body
    for shown in [tool, f"{tool}<|channel|>commentary"] if tool else [tool]:
        leaking = of_item(make(shown, f"{text}<|call|>"), streamed=True)
        assert leaking.response.body != clean
        sent, acted = act(leaking, REPAIRING, size)
        assert [json.loads(line[6:]) for line in sent.decode().split("\n") if line.startswith("data: ")] == [
            json.loads(line[6:]) for line in clean.decode().split("\n") if line.startswith("data: ")
        ]
        assert (acted.repair_counts.keys(), acted.unrepaired_reasons) == ({MARKER}, {})
        assert act(leaking, {**REPAIRING, MARKER: Action.BLOCK}, size)[1].blocked_checks


@pytest.mark.parametrize("fallback", [Action.OBSERVE, Action.BLOCK])
def test_a_repaired_call_is_not_blocked_and_another_message_in_it_is(fallback):
    make, tool, text, _ = ITEMS["a patch"]
    for leak, is_blocked in ((LEAKS["a stop token"], False), (LEAKS["a header"], fallback is Action.BLOCK)):
        x = of_item(make(tool, leak(text)), streamed=True)
        one = StreamRepairer(x.request, x.response, x.api, REPAIRING, fallback=fallback, request_id="x", limit=1 << 24)
        out = b"".join([*one.feed(x.response.body), *one.close()])
        assert bool(one.actions.blocked_checks) == is_blocked
        assert (b"response.completed" in out) != is_blocked


def with_deltas(item, written):
    *before, done, completed = events(item)
    delta = {"type": "response.custom_tool_call_input.delta", "output_index": 2, "item_id": "i_1", "delta": written}
    return [*before, delta, done, completed]


def test_an_input_whose_deltas_were_sent_is_reported_and_its_name_is_cleaned():
    make, tool, text, _ = ITEMS["a custom tool"]
    leaking = exchange(
        "/v1/responses", "responses", with_deltas(make(tool, f"{text}<|call|>"), f"{text}<|call|>"), tools=TOOLS
    )
    sent, acted = act(leaking, REPAIRING)
    assert sent == leaking.response.body
    assert acted.unrepaired_reasons.keys() == {MARKER}
    named = exchange("/v1/responses", "responses", with_deltas(make(f"{tool}<|channel|>x", text), text), tools=TOOLS)
    sent, acted = act(named, REPAIRING)
    assert b"<|channel|>" not in sent
    assert acted.repair_counts.keys() == {MARKER}


def test_an_id_of_an_item_may_be_any_value():
    make, tool, text, _ = ITEMS["a custom tool"]
    told = [{**one, "item_id": ["i"]} for one in with_deltas(make(tool, text), text)]
    x = exchange("/v1/responses", "responses", told, tools=TOOLS)
    assert act(x, REPAIRING)[0] == x.response.body


def message(*blocks):
    usage = {"input_tokens": 90, "output_tokens": 40}
    known = {"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    shown = [*blocks, {"type": "text", "text": "It is sunny."}]
    return {**known, "content": shown, "stop_reason": "end_turn", "usage": usage}


def message_events(block):
    whole = message()
    written = json.dumps(block["input"])
    yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    yield {"type": "content_block_start", "index": 0, "content_block": {**block, "input": {}}}
    for start in range(0, len(written), 5):
        delta = {"type": "input_json_delta", "partial_json": written[start : start + 5]}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}}
    yield {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "It is sunny."}}
    yield {"type": "content_block_stop", "index": 1}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": "end_turn", "stop_sequence": None},
        "usage": whole["usage"],
    }
    yield {"type": "message_stop"}


def of_block(block, *, streamed):
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    answer = list(message_events(block)) if streamed else message(block)
    return exchange("/v1/messages", "messages", answer, tools=tools)


def block(kind, name="web_search", query="rain"):
    return {"type": kind, "id": "t_1", "name": name, "input": {"query": query}}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use", "tool_use"])
def test_a_leak_in_a_block_is_withheld(kind, streamed):
    leaking = [block(kind, query=f"rain{STRUCTURE}"), block(kind, query=JOINED), block(kind, "web_search<|channel|>x")]
    for one in leaking:
        sent, acted = act(of_block(one, streamed=streamed), BLOCKING)
        assert acted.blocked_checks
        assert b"message_stop" not in sent
    x = of_block(block(kind), streamed=streamed)
    assert act(x, BLOCKING) == (x.response.body, act(x, {})[1])


def test_the_name_of_a_servers_tool_is_cleaned_in_a_whole_message():
    leaking = of_block(block("server_tool_use", "web_search<|channel|>commentary"), streamed=False)
    sent, acted = act(leaking, REPAIRING)
    assert json.loads(sent) == message(block("server_tool_use"))
    assert acted.repair_counts.keys() == {MARKER}


def test_a_leak_in_a_streamed_block_of_the_server_is_reported_as_such():
    x = of_block(block("server_tool_use", query=f"rain{STRUCTURE}"), streamed=True)
    sent, acted = act(x, REPAIRING)
    assert sent == x.response.body
    assert acted.unrepaired_reasons.keys() == {MARKER}
