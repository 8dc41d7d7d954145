"""What agents use of the Responses API: tools of every type, background, conversations; driven by the official client."""

import time

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from harmony_conformance.reference_server import MODEL
from harmony_conformance.reference_server.responses.custom_input import InputReader
from harmony_ref import decode

EVENT = TypeAdapter(ResponseStreamEvent)
ASK = {"model": MODEL, "input": "Hi"}
PARAMETERS = {"type": "object", "properties": {"a": {"type": "string"}}}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/s"}
TOOLS = [
    {"type": "function", "name": "f", "description": "F.", "parameters": PARAMETERS},
    {"type": "custom", "name": "patch", "description": "Edits files.", "format": GRAMMAR},
    {
        "type": "namespace",
        "name": "mcp__notes",
        "description": "Notes of the user.",
        "tools": [
            {"type": "function", "name": "find", "description": "Finds a note.", "parameters": PARAMETERS},
            {"type": "custom", "name": "write"},
        ],
    },
    {"type": "local_shell"},
    {"type": "shell"},
    {"type": "apply_patch"},
    {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": PARAMETERS},
    {"type": "web_search_2025_08_26"},
]
CALLS = {
    "a custom tool": ("functions.patch", '{"input":"*** \\"a\\"\\n\\ud83e\\udee0"}'),
    "a custom tool in a namespace": ("mcp__notes.write", '{"input":"Milk."}'),
    "a function in a namespace": ("mcp__notes.find", '{"a":"b"}'),
    "a local shell": ("functions.local_shell", '{"command":["ls","-l"],"timeout_ms":10}'),
    "a shell": ("functions.shell", '{"commands":["ls","pwd"]}'),
    "a patch": ("functions.apply_patch", '{"type":"create_file","path":"a.txt","diff":"+b"}'),
    "a search for tools": ("functions.tool_search", '{"a":"weather"}'),
}
EXPECTED = {
    "a custom tool": {"type": "custom_tool_call", "name": "patch", "input": '*** "a"\n🫠'},
    "a custom tool in a namespace": {
        "type": "custom_tool_call",
        "namespace": "mcp__notes",
        "name": "write",
        "input": "Milk.",
    },
    "a function in a namespace": {
        "type": "function_call",
        "namespace": "mcp__notes",
        "name": "find",
        "arguments": '{"a":"b"}',
    },
    "a local shell": {
        "type": "local_shell_call",
        "action": {"type": "exec", "command": ["ls", "-l"], "env": {}, "timeout_ms": 10},
    },
    "a shell": {
        "type": "shell_call",
        "action": {"commands": ["ls", "pwd"], "timeout_ms": None, "max_output_length": None},
    },
    "a patch": {
        "type": "apply_patch_call",
        "operation": {"type": "create_file", "path": "a.txt", "diff": "+b"},
    },
    "a search for tools": {"type": "tool_search_call", "execution": "client", "arguments": {"a": "weather"}},
}
OUTPUTS = {
    "shell_call": {
        "type": "shell_call_output",
        "output": [{"stdout": "x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    },
    "apply_patch_call": {"type": "apply_patch_call_output", "status": "completed", "output": "done"},
    "tool_search_call": {
        "type": "tool_search_output",
        "tools": [{"type": "function", "name": "found_later", "parameters": PARAMETERS}],
    },
}
ANSWER = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It is sunny and warm.<|return|>"


def script_of(kind):
    recipient, arguments = CALLS[kind]
    return f"<|channel|>commentary to={recipient} <|constrain|>json<|message|>{arguments}<|call|>"


def prompt_of(http, **members):
    response = http.post("/v1/responses", json={**ASK, "tools": TOOLS, "return_token_ids": True, **members})
    assert response.status_code == 200, response.text
    return decode(response.json()["prompt_token_ids"])


@pytest.mark.parametrize("kind", CALLS)
def test_call_of_each_tool_by_the_official_client(client, http, kind):
    asked = {**ASK, "tools": TOOLS, "extra_body": {"harmony_script": script_of(kind)}}
    (item,) = client.responses.create(**asked).output
    told = item.model_dump(exclude_unset=True)
    assert {name: told.get(name) for name in EXPECTED[kind]} == EXPECTED[kind]
    with client.responses.stream(**asked) as stream:
        events = list(stream)
        (streamed,) = stream.get_final_response().output
    without = {"id", "parsed_arguments"}
    assert streamed.model_dump(exclude=without) == item.model_dump(exclude=without)
    deltas = [event.delta for event in events if event.type == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == EXPECTED[kind].get("input", "")
    body = http.post("/v1/responses", json={**ASK, "tools": TOOLS, "harmony_script": script_of(kind)}).json()
    Response.model_validate(body)
    back = OUTPUTS.get(item.type, {"type": f"{item.type}_output", "output": "done"})
    result = {"call_id": item.call_id, "id": item.call_id, **back}
    prompt = prompt_of(http, input=[{"role": "user", "content": "Hi"}, body["output"][0], result])
    recipient, _ = CALLS[kind]
    assert f"<|start|>assistant to={recipient}<|channel|>commentary <|constrain|>json<|message|>{{" in prompt
    assert f"<|start|>{recipient} to=assistant<|channel|>commentary<|message|>" in prompt
    assert ("type found_later = " in prompt) == (item.type == "tool_search_call")


@pytest.mark.parametrize("kind", CALLS)
def test_events_of_each_tool_are_valid_to_the_official_types(http, kind):
    asked = {**ASK, "tools": TOOLS, "harmony_script": script_of(kind), "stream": True}
    lines = http.post("/v1/responses", json=asked).text.splitlines()
    events = [EVENT.validate_json(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    assert events[-1].type == "response.completed"


def test_tools_are_declared_as_functions_in_namespaces(http):
    prompt = prompt_of(http)
    assert (
        "// Edits files.\n// The input follows this grammar (lark):\n// start: /.+/s\ntype patch = (_: {\ninput: string,\n}) => any;"
        in prompt
    )
    assert (
        "## mcp__notes\n\n// Notes of the user.\nnamespace mcp__notes {\n\n// Finds a note.\ntype find = (_: {\na?: string,\n}) => any;"
        in prompt
    )
    for name in ("local_shell", "shell", "apply_patch", "tool_search"):
        assert f"\ntype {name} = (_: {{" in prompt


def test_additional_tools_of_the_input_are_declared(http):
    item = {"type": "additional_tools", "role": "developer", "tools": [{"type": "custom", "name": "exec"}]}
    assert "\ntype exec = (_: {" in prompt_of(http, tools=[], input=[item, {"role": "user", "content": "Hi"}])


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "mcp", "server_label": "x", "server_url": "https://a.example"}, "tools[0].type"),
        ({"type": "image_generation"}, "tools[0].type"),
        ({"type": "tool_search"}, "tools[0].execution"),
        ({"type": "custom"}, "tools[0].name"),
        ({"type": "custom", "name": "a", "format": {"type": "xml"}}, "tools[0].format.type"),
        ({"type": "custom", "name": "a", "format": {"type": "grammar", "syntax": "abnf"}}, "tools[0].format.syntax"),
        ({"type": "namespace", "name": "browser", "tools": [TOOLS[0]]}, "tools[0].name"),
        ({"type": "namespace", "name": "x", "tools": []}, "tools[0].tools"),
        ({"type": "namespace", "name": "x", "tools": [{"type": "shell"}]}, "tools[0].tools[0].type"),
    ],
    ids=str,
)
def test_tool_that_cannot_be_offered_is_refused_by_its_place(http, tool, param):
    response = http.post("/v1/responses", json={**ASK, "tools": [tool]})
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize("choice", [{"type": "custom", "name": "patch"}, {"type": "apply_patch"}, {"type": "shell"}])
def test_chosen_tool_is_called(client, choice):
    (_, call) = client.responses.create(**ASK, tools=TOOLS, tool_choice=choice).output
    assert call.type.removesuffix("_call") == {"custom": "custom_tool"}.get(choice["type"], choice["type"])


@pytest.mark.parametrize("length", [1, 2, 3, 7, 100])
@pytest.mark.parametrize(
    ("written", "text"),
    [
        ('{"input":"a\\n\\"b\\" \\u00e9 \\ud83e\\udee0"}', 'a\n"b" é 🫠'),
        ('{ "input" : "a" }', "a"),
        ('{"input":""}', ""),
        ("*** Begin Patch\n{", "*** Begin Patch\n{"),
        ('{"input', '{"input'),
        ('{"input":"cut\\', "cut\\"),
        ('{"input":"a\\xb and more text"}', "a\\xb and more text"),
        ('{"other":"a"}', '{"other":"a"}'),
        ("", ""),
    ],
)
def test_custom_input_is_read_while_it_is_written(written, text, length):
    reader = InputReader()
    pieces = [reader.read(written[start : start + length]) for start in range(0, len(written), length)]
    assert "".join(pieces) + reader.rest() == text


# state


def in_background(client, delay, **members):
    body = {"harmony_script": ANSWER, "harmony_token_delay": delay}
    return client.responses.create(**ASK, background=True, extra_body=body, **members)


def wait_for_end(client, name):
    while (response := client.responses.retrieve(name)).status in ("queued", "in_progress"):
        time.sleep(0.01)
    return response


def test_background_response_is_polled_and_continued(client, http):
    first = in_background(client, 0.005)
    assert (first.status, first.output, first.background) == ("queued", [], True)
    last = wait_for_end(client, first.id)
    assert (last.status, last.output_text) == ("completed", "It is sunny and warm.")
    assert "It is sunny and warm." in prompt_of(http, previous_response_id=first.id)


def test_stream_is_resumed_after_any_event(client):
    first = in_background(client, 0.005, stream=True)
    begun = next(iter(first))
    first.close()
    rest = list(client.responses.retrieve(begun.response.id, stream=True, starting_after=0))
    assert [event.sequence_number for event in rest] == list(range(1, len(rest) + 1))
    assert rest[-1].response.output_text == "It is sunny and warm."
    assert list(client.responses.retrieve(begun.response.id, stream=True, starting_after=len(rest))) == []
    whole = list(client.responses.retrieve(begun.response.id, stream=True))
    assert (whole[0], whole[1:]) == (begun, rest)


def test_cancelled_response_ends(client):
    name = in_background(client, 10).id
    assert client.responses.cancel(name).status == "cancelled"
    assert client.responses.retrieve(name).status == client.responses.cancel(name).status == "cancelled"
    assert [event.type for event in client.responses.retrieve(name, stream=True)][-1] == "response.cancelled"


def test_finished_response_is_not_cancelled(client):
    name = in_background(client, 0).id
    wait_for_end(client, name)
    assert client.responses.cancel(name).status == "completed"


def test_response_in_progress_is_no_previous_one(client):
    name = in_background(client, 10).id
    with pytest.raises(openai.BadRequestError, match="not complete"):
        client.responses.create(**ASK, previous_response_id=name)
    client.responses.delete(name)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(name)


@pytest.mark.parametrize(
    "call", [lambda made, name: made.cancel(name), lambda made, name: made.retrieve(name, stream=True)]
)
def test_synchronous_response_is_neither_cancelled_nor_streamed(client, call):
    with pytest.raises(openai.BadRequestError, match="background"):
        call(client.responses, client.responses.create(**ASK).id)


def test_conversation_is_continued_by_each_response(client, http):
    ada = {"type": "message", "role": "user", "content": "I am Ada."}
    conversation = client.conversations.create(items=[ada], metadata={"a": "b"})
    script = {"harmony_script": script_of("a custom tool")}
    called = client.responses.create(**ASK, tools=TOOLS, conversation=conversation.id, extra_body=script)
    assert called.conversation.id == conversation.id
    result = {"type": "custom_tool_call_output", "call_id": called.output[0].call_id, "output": "done"}
    prompt = prompt_of(http, conversation={"id": conversation.id}, input=[result])
    assert prompt.index("I am Ada.") < prompt.index("to=functions.patch") < prompt.index("functions.patch to=assistant")
    kinds = [item.type for item in client.conversations.items.list(conversation.id, order="asc")]
    assert kinds[:4] == ["message", "message", "custom_tool_call", "custom_tool_call_output"]


def test_items_of_a_conversation_by_the_official_client(client):
    name = client.conversations.create().id
    assert list(client.conversations.items.list(name)) == []
    texts = [{"type": "message", "role": "user", "content": str(number)} for number in range(3)]
    added = client.conversations.items.create(name, items=texts).data
    assert [item.content[0].text for item in added] == ["0", "1", "2"]
    assert [item.id for item in client.conversations.items.list(name, limit=2)] == [item.id for item in added[::-1]]
    assert client.conversations.items.retrieve(added[1].id, conversation_id=name) == added[1]
    client.conversations.items.delete(added[1].id, conversation_id=name)
    assert len(list(client.conversations.items.list(name))) == 2
    assert client.conversations.update(name, metadata={"c": "d"}).metadata == {"c": "d"}
    assert client.conversations.delete(name).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(name)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/conversations", {"items": 3}, 400),
        ("POST", "/v1/conversations", {"items": [{"type": "message", "role": "king", "content": ""}]}, 400),
        ("POST", "/v1/conversations", {"metadata": 3}, 400),
        ("GET", "/v1/conversations/conv_x", None, 404),
        ("GET", "/v1/conversations/conv_x/items", None, 404),
        ("POST", "/v1/responses/resp_x/cancel", {}, 404),
        ("GET", "/v1/responses/resp_x?stream=true", None, 404),
    ],
    ids=str,
)
def test_wrong_request_for_state_is_refused(http, method, path, body, status):
    response = http.request(method, path, json=body)
    assert (response.status_code, set(response.json()["error"])) == (status, {"message", "type", "param", "code"})
