"""Leaks in the calls of agents' tools are found in logs: items of Responses and blocks of Messages, whole and streamed, by both plans."""

import json
from dataclasses import replace

import pytest

from harmony_conformance.audit.batches import Batch, ReadOptions, scan_batch
from harmony_conformance.audit.plans.needles import NEEDLE_CHECKS
from harmony_conformance.audit.plans.plan import AuditPlan, PlanName
from harmony_conformance.audit.plans.prefilter import installed_library
from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.evidence.file_lines import Line

MARKER, WORDS, SUSPECTED = "channels.no_marker_leak", "channels.no_channel_words", "channels.no_suspected_leak"
STRUCTURE = "<|end|><|start|>assistant<|channel|>final<|message|>Done."
JOINED = "analysisWe need to run it.assistantcommentary to=functions.f json{}"
DOCS = {"server_label": "docs", "name": "search"}
QUESTION = '{"q":"x"}'
PLANS = {
    "structure": AuditPlan(),
    "needles": AuditPlan(name=PlanName.NEEDLES, sample=0.0, library=installed_library()),
}


def call(kind, **members):
    return {"type": f"{kind}_call", "id": "i_1", "call_id": "call_1", "status": "completed", **members}


# an item by what the model wrote in it, and by its name
RESPONSES = {
    "a custom tool": lambda text="*** End Patch", name="apply_patch": call("custom_tool", name=name, input=text),
    "a patch": lambda text="+b": call("apply_patch", operation={"type": "update_file", "path": "a", "diff": text}),
    "a local shell": lambda text="ls": call("local_shell", action={"type": "exec", "command": ["bash", text]}),
    "a shell": lambda text="ls": call("shell", action={"commands": [text]}),
    "a search in the web": lambda text="rain": call("web_search", action={"type": "search", "query": text}),
    "a search for tools": lambda text="rain": call("tool_search", arguments={"query": text}),
    "code": lambda text="1": call("code_interpreter", container_id="c", code=text, outputs=None),
    "an MCP tool": lambda text=QUESTION, name="search": call(
        "mcp", **{**DOCS, "name": name}, arguments=text, output="found"
    ),
    "leave for an MCP tool": lambda text=QUESTION, name="search": {
        **DOCS, "type": "mcp_approval_request", "id": "i_1", "name": name, "arguments": text,
    },
    "a function": lambda text=QUESTION, name="f": call("function", name=name, arguments=text),
}  # fmt: skip
MESSAGES = {
    "a tool": lambda text="rain", name="f": {"type": "tool_use", "id": "t", "name": name, "input": {"q": text}},
    "a tool of the server": lambda text="rain", name="web_search": {
        "type": "server_tool_use", "id": "t", "name": name, "input": {"q": text},
    },
    "a tool by MCP": lambda text="rain", name="search": {
        "type": "mcp_tool_use", "id": "t", "name": name, "server_name": "docs", "input": {"q": text},
    },
}  # fmt: skip
SHOWN = {"type": "message", "id": "m_1", "role": "assistant", "status": "completed", "content": []}
SHOWN["content"] = [{"type": "output_text", "text": "It is sunny.", "annotations": []}]
DELTAS = {
    "custom_tool_call": ("custom_tool_call_input", "input"),
    "code_interpreter_call": ("code_interpreter_call_code", "code"),
    "mcp_call": ("mcp_call_arguments", "arguments"),
    "function_call": ("function_call_arguments", "arguments"),
}
LATER = ("action", "operation", "output", "outputs", "tools", "error")


def response(*output):
    usage = {"input_tokens": 90, "output_tokens": 40, "total_tokens": 130}
    known = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    return {**known, "output": list(output), "usage": usage}


def pieces(text):
    return [text[start : start + 5] for start in range(0, len(text), 5)]


def item_events(index, item):
    """The events of an item: it is announced without what comes later, and its text comes in deltas if it has events for them."""
    stem, member = DELTAS.get(item["type"], ("", ""))
    announced = {name: value for name, value in item.items() if name not in LATER}
    announced |= {name: [] for name in ("content", "summary") if name in item}
    about = {"output_index": index, "item_id": item["id"]}
    yield {
        "type": "response.output_item.added",
        "output_index": index,
        "item": {**announced, **({member: ""} if member else {})},
    }
    for part in item.get("content", ()):
        place = {**about, "content_index": 0}
        yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
        yield {"type": "response.output_text.delta", **place, "delta": part["text"]}
        yield {"type": "response.output_text.done", **place, "text": part["text"]}
        yield {"type": "response.content_part.done", **place, "part": part}
    for part in item.get("summary", ()):
        place, name = {**about, "summary_index": 0}, "response.reasoning_summary"
        yield {"type": f"{name}_part.added", **place, "part": {**part, "text": ""}}
        yield {"type": f"{name}_text.delta", **place, "delta": part["text"]}
        yield {"type": f"{name}_text.done", **place, "text": part["text"]}
        yield {"type": f"{name}_part.done", **place, "part": part}
    if member:
        yield from ({"type": f"response.{stem}.delta", **about, "delta": piece} for piece in pieces(item[member]))
        yield {"type": f"response.{stem}.done", **about, member: item[member]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def response_events(*output):
    yield {"type": "response.created", "response": {**response(), "status": "in_progress"}}
    for index, item in enumerate(output):
        yield from item_events(index, item)
    yield {"type": "response.completed", "response": response(*output)}


def message(*content):
    is_call = content[-1]["type"] == "tool_use"
    known = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    usage = {"input_tokens": 90, "output_tokens": 40}
    return {**known, "content": list(content), "stop_reason": "tool_use" if is_call else "end_turn", "usage": usage}


def message_events(*content):
    whole = message(*content)
    yield {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}}
    for index, block in enumerate(content):
        empty, kind, text = {"input": {}}, "input_json_delta", json.dumps(block.get("input"))
        if block["type"] == "text":
            empty, kind, text = {"text": ""}, "text_delta", block["text"]
        member = "text" if block["type"] == "text" else "partial_json"
        deltas = pieces(text) if "input" in block or "text" in block else []
        yield {
            "type": "content_block_start",
            "index": index,
            "content_block": {**block, **empty} if deltas else block,
        }
        yield from (
            {"type": "content_block_delta", "index": index, "delta": {"type": kind, member: one}} for one in deltas
        )
        yield {"type": "content_block_stop", "index": index}
    ending = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
    yield {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 40}}
    yield {"type": "message_stop"}


FORMS = {
    ("/v1/responses", "whole"): response,
    ("/v1/responses", "streamed"): lambda *output: [
        {**event, "sequence_number": number} for number, event in enumerate(response_events(*output))
    ],
    ("/v1/messages", "whole"): message,
    ("/v1/messages", "streamed"): lambda *content: list(message_events(*content)),
}
REQUESTS = {
    "/v1/responses": {
        "model": "m",
        "input": "Do it.",
        "tools": [
            *({"type": kind} for kind in ("apply_patch", "local_shell", "shell", "web_search", "tool_search")),
            {"type": "custom", "name": "apply_patch"},
            {"type": "mcp", "server_label": "docs", "server_url": "https://example.org"},
            {"type": "function", "name": "f", "parameters": {"type": "object"}},
        ],
    },
    "/v1/messages": {
        "model": "m",
        "max_tokens": 500,
        "messages": [{"role": "user", "content": "Do it."}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    },
}


def failing(plan, path, form, *content, request=None):
    """The checks that fail on one line of a log."""
    asked = {**REQUESTS[path], **(request or {}), "stream": form == "streamed"}
    line = json.dumps({"path": path, "request": asked, "response": FORMS[path, form](*content)})
    batch = Batch(file="log", lines=(Line(offset=1, number=1, data=line.encode()),))
    result = scan_batch(batch, replace(ReadOptions(excerpts=Excerpts.FULL), plan=PLANS[plan]))
    return {json.loads(row)["check"] for row in result.failures.splitlines()}


PLANTED = [
    pytest.param(path, make, leak, id=f"{name}: {shown}")
    for path, kinds in (("/v1/responses", RESPONSES), ("/v1/messages", MESSAGES))
    for name, make in kinds.items()
    for shown, leak in {
        "words of the next header": (MARKER, lambda make: make(make_text(make) + STRUCTURE)),
        "joined channel words": (WORDS, lambda make: make(as_written(make, JOINED))),
        "a marker in the name": (MARKER, lambda make: make(name=f"{named(make)}<|channel|>commentary")),
    }.items()
    if shown != "a marker in the name" or "name" in make.__code__.co_varnames
]


def make_text(make):
    return make.__defaults__[0]


def as_written(make, text):
    """A text as the model would write it for a tool: in JSON, if the tool takes JSON."""
    return json.dumps({"q": text}) if make_text(make) == QUESTION else text


def named(make):
    return make.__defaults__[1]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("form", ["whole", "streamed"])
@pytest.mark.parametrize(("path", "make", "leak"), PLANTED)
def test_a_leak_in_a_call_is_found(path, make, leak, form, plan):
    check, planted = leak
    after = () if make()["type"] in ("tool_use", "function_call") else (TEXT[path],)
    assert check in failing(plan, path, form, planted(make), *after)


TEXT = {"/v1/responses": SHOWN, "/v1/messages": {"type": "text", "text": "It is sunny."}}


@pytest.mark.parametrize("form", ["whole", "streamed"])
@pytest.mark.parametrize("name", RESPONSES)
def test_a_call_without_a_leak_has_no_failure(name, form):
    assert failing("structure", "/v1/responses", form, RESPONSES[name](), SHOWN) == set()


@pytest.mark.parametrize("form", ["whole", "streamed"])
@pytest.mark.parametrize("name", MESSAGES)
def test_a_block_without_a_leak_has_no_failure(name, form):
    after = () if name == "a tool" else (TEXT["/v1/messages"],)
    assert failing("structure", "/v1/messages", form, MESSAGES[name](), *after) == set()


OF_PLAIN_TEXT = [
    name for name, make in RESPONSES.items() if make_text(make) != QUESTION and name != "a search for tools"
]


@pytest.mark.parametrize("form", ["whole", "streamed"])
@pytest.mark.parametrize("name", OF_PLAIN_TEXT)
def test_a_stop_token_at_the_end_of_an_input_is_a_leak(name, form):
    make = RESPONSES[name]
    asked = {"input": "What does <|call|> mean?"}
    for plan in PLANS:
        assert MARKER in failing(plan, "/v1/responses", form, make(f"{make_text(make)}<|call|>"), SHOWN)
    assert failing("structure", "/v1/responses", form, make("grep '<|call|>' notes"), SHOWN) == set()
    assert failing("structure", "/v1/responses", form, make("grep <|call|> notes"), SHOWN) == {SUSPECTED}
    assert failing("structure", "/v1/responses", form, make("meaning of <|call|>"), SHOWN, request=asked) == set()


@pytest.mark.parametrize("form", ["whole", "streamed"])
def test_the_result_of_a_tool_is_searched_too(form):
    found = call("mcp", **DOCS, arguments=QUESTION, output=STRUCTURE)
    listed = {"type": "mcp_list_tools", "id": "l", "server_label": "docs", "tools": [{"name": "search"}]}
    listed["tools"][0] |= {"input_schema": {"type": "object"}, "description": STRUCTURE}
    page = {"type": "web_search_tool_result", "tool_use_id": "t", "content": [{"title": STRUCTURE}]}
    for plan in PLANS:
        assert MARKER in failing(plan, "/v1/responses", form, found, SHOWN)
        assert MARKER in failing(plan, "/v1/responses", form, listed, SHOWN)
        assert MARKER in failing(plan, "/v1/messages", form, page, TEXT["/v1/messages"])


@pytest.mark.parametrize("form", ["whole", "streamed"])
@pytest.mark.parametrize("name", ["a function", "an MCP tool"])
def test_a_file_about_the_format_in_arguments_is_only_suspected(name, form):
    written = json.dumps({"q": "It is <|channel|>analysis<|message|>We think.<|end|>"})
    assert failing("structure", "/v1/responses", form, RESPONSES[name](written), SHOWN) == {SUSPECTED}
    quoted = json.dumps({"q": "Write `<|channel|>analysis<|message|>`."})
    assert failing("structure", "/v1/responses", form, RESPONSES[name](quoted), SHOWN) == set()


THOUGHT = {"type": "reasoning", "id": "r_1", "summary": [{"type": "summary_text", "text": "The notes have it."}]}
LISTED = {"type": "mcp_list_tools", "id": "l_1", "server_label": "docs", "tools": [{"name": "search"}]}
ASKED = {"type": "mcp_approval_request", "id": "q_1", **DOCS, "arguments": QUESTION}
APPROVED = {"type": "mcp_approval_response", "approval_request_id": "q_1", "approve": True}
FOUND = {**call("mcp", **DOCS, arguments=QUESTION, output="found"), "id": "c_1"}
USER = {"type": "message", "role": "user", "content": "Do it."}
OF_MCP = {
    "a call that the server made": ([LISTED, THOUGHT, FOUND, SHOWN], [USER]),
    "a call that failed": ([LISTED, THOUGHT, {**FOUND, "output": None, "error": "timeout"}, SHOWN], [USER]),
    "a request to approve": ([LISTED, THOUGHT, ASKED], [USER]),
    "a request to approve alone": ([ASKED], [USER]),
    "after the approval": ([FOUND, THOUGHT, SHOWN], [USER, LISTED, THOUGHT, ASKED, APPROVED]),
    "a later turn": ([THOUGHT, SHOWN], [USER, LISTED, THOUGHT, FOUND, SHOWN, {**USER, "content": "Go on."}]),
}


@pytest.mark.parametrize("form", ["whole", "streamed"])
@pytest.mark.parametrize("name", OF_MCP)
def test_a_conversation_with_an_mcp_server_has_no_failure(name, form):
    output, history = OF_MCP[name]
    assert failing("structure", "/v1/responses", form, *output, request={"input": history}) == set()


def test_both_plans_judge_these_checks():
    assert {MARKER, WORDS} == NEEDLE_CHECKS
