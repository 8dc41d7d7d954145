import io
import json
import re
import sys
from argparse import ArgumentParser
from datetime import UTC, datetime

import openai_harmony
import pytest

from harmony_conformance.apis.registry import APIS
from harmony_conformance.checks.rendering.accepted_renderings import has_predictable_prompt
from harmony_conformance.cli.harmony import parse, render
from harmony_conformance.cli.options.harmony import configure_parse, configure_render
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.golden import data as golden
from harmony_ref import decode, encode_with_special_tokens

CONVERSATION = {
    "messages": [
        {"role": "user", "content": "What is 2 + 2? 🙂"},
        {"role": "assistant", "channel": "analysis", "content": "A sum."},
        {"role": "assistant", "channel": "final", "content": "4"},
    ]
}
COMPLETION = "<|channel|>analysis<|message|>A sum.<|end|><|start|>assistant<|channel|>final<|message|>4 🙂<|return|>"


def call(command, *arguments):
    parser = ArgumentParser()
    {render: configure_render, parse: configure_parse}[command](parser)
    return command.execute(parser.parse_args([str(argument) for argument in arguments]))


@pytest.fixture
def file(tmp_path):
    def write(content):
        path = tmp_path / "input"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def official(library, purpose):
    conversation = openai_harmony.Conversation.from_json(json.dumps(CONVERSATION))
    match purpose:
        case "completion":
            return library.render_conversation_for_completion(conversation, openai_harmony.Role.ASSISTANT)
        case "training":
            return library.render_conversation_for_training(conversation)
        case _:
            return library.render_conversation(conversation)


@pytest.mark.parametrize("purpose", ["completion", "training", "conversation"])
def test_a_conversation_is_rendered_as_the_official_library_does(file, capfdbinary, library, purpose):
    expected = official(library, purpose)
    path = file(json.dumps(CONVERSATION))
    assert call(render, path, "--for", purpose) == Exit.CONFORMS
    assert capfdbinary.readouterr().out == library.decode(expected).encode()
    assert call(render, path, "--for", purpose, "--tokens") == Exit.CONFORMS
    assert json.loads(capfdbinary.readouterr().out) == expected


def test_a_completion_is_parsed_as_the_official_library_does(file, capsys, library):
    ids = library.encode(COMPLETION, allowed_special="all")
    expected = [
        json.loads(message.to_json())
        for message in library.parse_messages_from_completion_tokens(ids, openai_harmony.Role.ASSISTANT)
    ]
    for content in (COMPLETION, json.dumps(ids)):
        assert call(parse, file(content), "--role", "assistant") == Exit.CONFORMS
        read = json.loads(capsys.readouterr().out)["messages"]
        assert [openai_harmony.Message.from_dict(message) for message in read] == [
            openai_harmony.Message.from_dict(message) for message in expected
        ]


def test_what_is_rendered_is_parsed_back(file, capsys):
    call(render, file(json.dumps(CONVERSATION)), "--for", "conversation")
    assert call(parse, file(capsys.readouterr().out)) == Exit.CONFORMS
    read = json.loads(capsys.readouterr().out)["messages"]
    assert [message["role"] for message in read] == ["user", "assistant"]


def test_a_dash_is_standard_input(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(COMPLETION.encode())))
    assert call(parse, "-", "--role", "assistant") == Exit.CONFORMS
    assert '"channel":"final"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "content", "said"),
    [
        pytest.param(render, "{", "invalid JSON: ", id="render: cut JSON"),
        pytest.param(render, "3", "invalid conversation: ", id="render: a number"),
        pytest.param(render, "{}", "invalid conversation: ", id="render: no messages"),
        pytest.param(
            render, '{"messages": [{"role": "king", "content": "x"}]}', "invalid conversation: ", id="render: a role"
        ),
        pytest.param(render, b"\xff\xfe{\x00}\x00", "the file is UTF-16: convert it", id="render: UTF-16"),
        pytest.param(parse, "no Harmony at all", "invalid Harmony: Unexpected token 1750", id="parse: plain text"),
        pytest.param(parse, "", None, id="parse: nothing is no message"),
        pytest.param(parse, "[1, 2", "invalid JSON list: ", id="parse: a cut list"),
        pytest.param(
            parse, '[1, "x"]', "invalid token id: expected an integer, got ", id="parse: a list of something else"
        ),
        pytest.param(
            parse,
            "[999999999]",
            "input: invalid token id: expected 0 to 201088, got 999999999",
            id="parse: an unknown id",
        ),
        pytest.param(parse, "[-1]", "expected 0 to 201088, got -1", id="parse: a negative id"),
        pytest.param(
            parse,
            "[99999999999999999999999]",
            "expected 0 to 201088, got 99999999999999999999999",
            id="parse: a huge id",
        ),
        pytest.param(
            parse, "[200006, true]", "invalid token id: expected an integer, got true", id="parse: a truth value"
        ),
        pytest.param(parse, "[]", "invalid token ids: expected at least one, got an empty list", id="parse: no ids"),
        pytest.param(parse, b"\xff", "invalid UTF-8 at byte 0", id="parse: no text"),
    ],
)
def test_bad_input_is_one_line(file, capsys, command, content, said):
    if said is None:
        assert call(command, file(content)) == Exit.CONFORMS
        assert json.loads(capsys.readouterr().out) == {"messages": []}
        return
    with pytest.raises(UsageError, match=said) as raised:
        call(command, file(content))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("command", "content"),
    [(parse, b"plain"), (parse, b"[3"), (parse, b"[-1]"), (parse, b"\xff"), (render, b"3"), (render, b"{")],
)
def test_standard_input_is_called_by_its_name(monkeypatch, command, content):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    with pytest.raises(UsageError, match=r"^standard input"):
        call(command, "-")


@pytest.mark.parametrize("command", [render, parse])
def test_a_missing_file_is_one_line(tmp_path, command):
    with pytest.raises(UsageError, match="No such file"):
        call(command, tmp_path / "absent")


LOOP = {
    "messages": [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "channel": "commentary",
            "recipient": "functions.f",
            "content_type": "<|constrain|>json",
            "content": '{"a":1}',
        },
    ]
}
ASKED = "<|start|>user<|message|>Weather?<|end|>"
IN_STYLES = {
    "harmony_0_0_8": '<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{"a":1}<|call|>',
    "oss_harmony_0_0_11": (
        '<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>'
    ),
    "guide": '<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>',
    "hf_template": '<|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"a": 1}<|call|>',
    "ollama": '<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>',
}


@pytest.mark.parametrize(("style", "called"), IN_STYLES.items(), ids=IN_STYLES)
def test_a_conversation_is_rendered_in_a_style_and_told_to_be_in_it(file, tmp_path, capsys, style, called):
    path = file(json.dumps(LOOP))
    assert call(render, path, "--style", style, "--for", "conversation") == Exit.CONFORMS
    assert capsys.readouterr().out == ASKED + called
    assert call(render, path, "--style", style, "--tokens") == Exit.CONFORMS
    prompt = tmp_path / "prompt"
    prompt.write_text(capsys.readouterr().out)
    assert call(render, path, "--explain", prompt) == Exit.CONFORMS
    assert style in capsys.readouterr().out
    assert call(render, path, "--explain", prompt, "--style", style) == Exit.CONFORMS


def test_earlier_reasoning_is_left_out_as_asked(file, capsys):
    again = [*CONVERSATION["messages"], *CONVERSATION["messages"], {"role": "user", "content": "Why?"}]
    path = file(json.dumps(again))
    kept = {}
    for history in ("as_0_0_8", "before_last_final", "before_last_user"):
        assert call(render, path, "--history", history) == Exit.CONFORMS
        kept[history] = capsys.readouterr().out.count("<|channel|>analysis")
    assert kept == {"as_0_0_8": 1, "before_last_final": 0, "before_last_user": 0}


def test_a_prompt_in_no_style_is_reported_where(file, tmp_path, capsys):
    prompt = tmp_path / "prompt"
    prompt.write_text(f"{ASKED}{IN_STYLES['harmony_0_0_8']}<|start|>assistant".replace("Weather?", "Whether?"))
    assert call(render, file(json.dumps(LOOP)), "--explain", prompt) == Exit.DIVERGES
    first, second, third = capsys.readouterr().out.splitlines()
    assert first == "message 0 (user): the content differs from character 1 on: 'Whether?' instead of 'Weather?'"
    assert second.startswith("token 3: ")
    assert (
        third
        == "nearest style: harmony_0_0_8 (reasoning of earlier turns: as_0_0_8 or before_last_final or before_last_user)"
    )


def test_any_ids_are_explained(file, tmp_path, capsys):
    prompt = tmp_path / "prompt"
    for ids in ([], [-1], [999999999], [200006, 99999999999999999999999]):
        prompt.write_text(json.dumps(ids))
        assert call(render, file(json.dumps(LOOP)), "--explain", prompt) == Exit.DIVERGES
        assert capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        pytest.param("[1, 2", [], "invalid JSON list: ", id="a cut list"),
        pytest.param('[1, "x"]', [], "invalid token id: expected an integer, got ", id="a list of something else"),
        pytest.param("[true]", [], "invalid token id: expected an integer, got ", id="a truth value"),
        pytest.param(b"\xff", [], "invalid UTF-8 at byte 0", id="no text"),
        pytest.param("[]", ["--for", "training"], "--for training has no styles", id="for training"),
        pytest.param("[]", ["--tokens"], "--explain cannot be combined with --tokens or --history", id="tokens"),
    ],
)
def test_what_cannot_be_explained_is_said_in_one_line(tmp_path, content, arguments, said):
    prompt, conversation = tmp_path / "prompt", tmp_path / "conversation"
    prompt.write_bytes(content if isinstance(content, bytes) else content.encode())
    conversation.write_text(json.dumps(LOOP))
    with pytest.raises(UsageError, match=said):
        call(render, conversation, "--explain", prompt, *arguments)


def test_two_files_cannot_both_be_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"[]")))
    with pytest.raises(UsageError, match="cannot both be standard input"):
        call(render, "-", "--explain", "-")


def test_a_style_for_training_is_refused(file):
    with pytest.raises(UsageError, match="--for training has no styles"):
        call(render, file(json.dumps(LOOP)), "--style", "guide", "--for", "training")


FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
SCHEMA = {"name": "answer", "schema": {"type": "object", "properties": {"x": {"type": "integer"}}}}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
REQUESTS = {
    "a chat request": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hi"}],
            "tools": [{"type": "function", "function": FUNCTION}],
            "reasoning_effort": "high",
            "response_format": {"type": "json_schema", "json_schema": SCHEMA},
        },
    ),
    "a tool loop": (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "user", "content": "Hi"},
                {**CALLED, "reasoning_content": "Hm."},
                {"role": "tool", "tool_call_id": "c1", "content": "7"},
            ],
            "tools": [{"type": "function", "function": FUNCTION}],
        },
    ),
    "a Responses request": (
        "/v1/responses",
        {
            "input": "Hi",
            "instructions": "Be short.",
            "tools": [{"type": "function", **FUNCTION}],
            "reasoning": {"effort": "low"},
            "text": {"format": {"type": "json_schema", **SCHEMA}},
        },
    ),
    "Responses items": (
        "/v1/responses",
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "7"},
            ]
        },
    ),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_an_api_request_is_rendered_to_the_prompt_of_a_server(what, file, capsys, http):
    path, request = REQUESTS[what]
    body = {"model": "gpt-oss-reference", **request, "return_token_ids": True}
    answered = http.post(path, content=json.dumps(body)).json()
    prompt = answered["prompt_token_ids"]
    shown = decode(prompt)
    asked = ["--date", shown.partition("Current date: ")[2][:10]]
    assert call(render, file(json.dumps(request)), "--tokens", *asked) == Exit.CONFORMS
    assert json.loads(capsys.readouterr().out) == prompt
    assert call(render, file(json.dumps(request)), *asked) == Exit.CONFORMS
    assert capsys.readouterr().out == shown


NAMES = {"ollama_chat": "ollama", "ollama_generate": "ollama-generate"}


def golden_rows():
    for path in sorted((golden.root() / "api").iterdir()):
        for row in json.loads(path.read_text("utf-8"))["tests"]:
            if row["result"] == "valid":
                yield pytest.param(row, id=f"{path.stem}: {row['id']}")


@pytest.mark.parametrize("row", list(golden_rows()))
def test_a_request_means_what_the_golden_rows_say(row, file, capsys):
    """Both are rendered. A request without a predictable prompt is refused."""
    system = row["messages"][0]["content"]
    date = system[0].get("conversation_start_date") if isinstance(system, list) else None
    request = {"model": "m", **row["request"]}
    api = NAMES.get(row.get("api", "chat"), row.get("api", "chat"))
    if not has_predictable_prompt(APIS[api].read_request(request)):
        with pytest.raises(UsageError, match="invalid request: expected "):
            call(render, file(json.dumps(request)), "--api", api)
        return
    assert call(render, file(json.dumps(request)), "--api", api, "--date", date or "none", "--tokens") == Exit.CONFORMS
    rendered = json.loads(capsys.readouterr().out)
    assert call(render, file(json.dumps({"messages": row["messages"]})), "--tokens") == Exit.CONFORMS
    assert rendered == json.loads(capsys.readouterr().out)


def test_a_conversation_with_calls_in_the_form_of_the_api_is_a_request(file, capsys):
    messages = [{"role": "user", "content": "Hi"}, CALLED, {"role": "tool", "tool_call_id": "c1", "content": "7"}]
    assert call(render, file(json.dumps(messages)), "--date", "none") == Exit.CONFORMS
    shown = capsys.readouterr().out
    assert shown.startswith("<|start|>system<|message|>")
    assert "Current date" not in shown
    assert "<|start|>functions.f to=assistant<|channel|>commentary<|message|>7<|end|>" in shown


def test_messages_alone_are_a_conversation_unless_the_api_is_named(file, capsys):
    path = file('{"messages": [{"role": "user", "content": "Hi"}]}')
    assert call(render, path) == Exit.CONFORMS
    assert capsys.readouterr().out == "<|start|>user<|message|>Hi<|end|><|start|>assistant"
    assert call(render, path, "--api", "chat") == Exit.CONFORMS
    today = datetime.now(UTC).date().isoformat()
    assert f"\nCurrent date: {today}\n" in capsys.readouterr().out


def test_the_prompt_of_a_request_is_explained_with_its_own_date(file, tmp_path, capsys):
    _, request = REQUESTS["a chat request"]
    prompt = tmp_path / "prompt"
    call(render, file(json.dumps(request)), "--date", "2025-06-28")
    prompt.write_text(capsys.readouterr().out)
    assert call(render, file(json.dumps(request)), "--explain", prompt) == Exit.CONFORMS
    assert capsys.readouterr().out.startswith("the prompt is in the style harmony_0_0_8 ")
    assert call(render, file(json.dumps(request)), "--explain", prompt, "--date", "2025-06-29") == Exit.DIVERGES
    assert "the current date is 'Current date: 2025-06-28'" in capsys.readouterr().out
    without_tools = {name: value for name, value in request.items() if name != "tools"}
    assert call(render, file(json.dumps(without_tools)), "--explain", prompt) == Exit.DIVERGES
    assert capsys.readouterr().out.startswith("message 0 (system): the note on functions is not requested: ")


def test_the_history_of_a_request_drops_reasoning_by_a_rule(file, capsys):
    turn = [{"role": "user", "content": "Hi"}, {"role": "assistant", "reasoning": "Hm.", "content": "Yes"}]
    request = json.dumps({"model": "m", "messages": [*turn, *turn, {"role": "user", "content": "Why?"}]})
    kept = {}
    for history in ("as_0_0_8", "before_last_final", "before_last_user"):
        call(render, file(request), "--history", history)
        kept[history] = capsys.readouterr().out.count("<|channel|>analysis")
    assert kept == {"as_0_0_8": 1, "before_last_final": 0, "before_last_user": 0}


@pytest.mark.parametrize(
    ("request_body", "arguments", "said"),
    [
        (
            {"input": "x", "previous_response_id": "r"},
            [],
            "invalid request: expected the whole conversation, got one that",
        ),
        ({"input": "x", "reasoning": {"effort": "max"}}, [], 'expected low, medium, high, got "max"'),
        (
            {"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            [],
            "expected messages with",
        ),
        ({"model": "m", "messages": []}, [], "expected messages with texts"),
        ({"messages": []}, ["--date", "2025-06-28"], "invalid --date: expected an API request, got a conversation"),
    ],
)
def test_requests_without_a_known_prompt_are_refused_in_one_line(request_body, arguments, said, file):
    with pytest.raises(UsageError, match=re.escape(said)) as raised:
        call(render, file(json.dumps(request_body)), *arguments)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("date", ["2025-13-01", "today", ""])
def test_other_dates_are_refused(date, file, capsys):
    with pytest.raises(SystemExit):
        call(render, file("{}"), "--date", date)
    assert f"expected a date such as 2025-06-28, or none, got '{date}'" in capsys.readouterr().err


COMPLETIONS = {
    "reasoning and an answer": (COMPLETION, ["analysis", "final"]),
    "a call": (" to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>", ["commentary"]),
    "no channel": ("<|message|>Hi<|return|>", [None]),
}


@pytest.mark.parametrize("what", COMPLETIONS)
def test_a_bare_completion_is_the_assistant_s(what, file, capsys):
    text, channels = COMPLETIONS[what]
    assert call(parse, file(text), "--role", "assistant") == Exit.CONFORMS
    expected = capsys.readouterr().out
    for content in (text, json.dumps(encode_with_special_tokens(text))):
        assert call(parse, file(content)) == Exit.CONFORMS
        assert capsys.readouterr().out == expected
    messages = json.loads(expected)["messages"]
    assert [message.get("channel") for message in messages] == channels
    assert {message["role"] for message in messages} == {"assistant"}


def test_a_bare_completion_is_read_leniently(file, capsys):
    assert call(parse, file("<|channel|>analysis<|message|>cut"), "--lenient") == Exit.CONFORMS
    assert json.loads(capsys.readouterr().out)["remainder"]["header"] == {"role": "assistant", "channel": "analysis"}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_line_break_after_the_last_token_is_named(file, end):
    """Editors and `echo` write one, and it is a token of its own."""
    with pytest.raises(UsageError, match=r"; without the line break at its end it is valid$"):
        call(parse, file(COMPLETION + end))
    with pytest.raises(UsageError, match=r"; --lenient prints the readable parts$"):
        call(parse, file(f"{COMPLETION} more{end}"))
