"""What openai-harmony 0.0.8 answered, replayed: every `ok` and `err` in `cases/` came out of that library."""

import json
import re
from pathlib import Path

import pytest

from harmony_ref import (
    Conversation,
    HarmonyError,
    Message,
    MessageError,
    ParseError,
    Role,
    StreamParser,
    encode_with_special_tokens,
    json_schema_to_typescript,
    parse,
    render,
    render_conversation,
    render_conversation_for_completion,
    render_conversation_for_training,
)

CASES = Path(__file__).parent / "cases"
CONTROL = re.compile("⟦(\\w+)⟧")
COLUMN = re.compile(r" at line \d+ column \d+$")

RENDERERS = {
    "conversation": render_conversation,
    "completion": render_conversation_for_completion,
    "training": render_conversation_for_training,
}


def cases(name):
    rows = json.loads((CASES / f"{name}.json").read_text("utf-8"))
    return [pytest.param(row, id=f"{name} {number}: {title(row)}") for number, row in enumerate(rows)]


def title(row):
    text = row.get("label") or json.dumps(row.get("messages", row.get("text", "")))
    return text.encode("ascii", "backslashreplace").decode()[:60]


def role_of(row):
    return None if row["role"] is None else Role(row["role"])


def rendered(row):
    if row["mode"] == "message":
        message = Message.from_dict(row["messages"][0])
        return render(message, conversation_has_function_tools=row["kw"].get("fn_tools", False))
    return RENDERERS[row["mode"]](Conversation.from_dict({"messages": row["messages"]}))


@pytest.mark.parametrize("row", [*cases("render"), *cases("sysdev")])
def test_messages_are_rendered_as_the_library_renders_them(row):
    if "ok" in row:
        assert row["ok"] == rendered(row)
        return
    kind, text = row["err"]
    with pytest.raises(HarmonyError) as caught:
        rendered(row)
    assert COLUMN.sub("", text) == str(caught.value)
    assert (kind == "ValueError") == isinstance(caught.value, MessageError)


def auto_drop(word):
    # Given no configuration, the library's binding drops nothing.
    return word == "True"


@pytest.mark.parametrize("row", cases("drop"))
def test_reasoning_is_dropped_as_the_library_drops_it(row):
    conversation = Conversation.from_dict({"messages": row["messages"]})
    for key, expected in row["out"].items():
        mode, word = key.split("/")
        marked = CONTROL.sub(r"<|\1|>", expected)
        assert encode_with_special_tokens(marked) == RENDERERS[mode](conversation, auto_drop_analysis=auto_drop(word))


@pytest.mark.parametrize("row", [*cases("header"), *cases("parse")])
def test_tokens_are_parsed_as_the_library_parses_them(row):
    if "ok" in row:
        parsed = parse(row["tokens"], role_of(row), strict=row["strict"])
        assert row["ok"] == [message.to_dict() for message in parsed]
        return
    with pytest.raises(ParseError) as caught:
        parse(row["tokens"], role_of(row), strict=row["strict"])
    assert row["err"] == ["HarmonyError", str(caught.value)]


def snapshot(parser, token, error):
    return {
        "t": token,
        "err": error,
        "state": parser.state.value,
        "role": parser.current_role,
        "channel": parser.current_channel,
        "recipient": parser.current_recipient,
        "ctype": parser.current_content_type,
        "delta": parser.last_content_delta,
        "content": parser.current_content,
        "n": len(parser.messages),
        "state_data": parser.state_data,
    }


@pytest.mark.parametrize("row", cases("stream"))
def test_every_attribute_after_every_token_is_the_librarys(row):
    parser = StreamParser(role_of(row), strict=row["strict"])
    expected = iter(row["trace"])
    assert next(expected) == snapshot(parser, "init", None)
    for step in expected:
        error = None
        try:
            parser.finish() if step["t"] == "EOS" else parser.process(step["t"])
        except ParseError as caught:
            error = ["HarmonyError", str(caught)]
        assert step == snapshot(parser, step["t"], error)
    assert row["messages"] == [message.to_dict() for message in parser.messages]


@pytest.mark.parametrize("row", cases("schema"))
def test_schemas_become_the_librarys_typescript(row):
    assert row["ok"] == json_schema_to_typescript(row["schema"])


def test_no_case_was_lost():
    files = ("render", "sysdev", "drop", "header", "parse", "stream", "schema")
    assert sum(len(cases(name)) for name in files) == 762
