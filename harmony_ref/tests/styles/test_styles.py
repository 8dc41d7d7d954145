"""The named styles: each beside whoever writes prompts that way. What is kept is the same in all of them."""

import contextlib
import json
import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harmony_ref import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyError,
    Message,
    MessageError,
    RenderError,
    Role,
    SystemContent,
    TextContent,
    ToolDescription,
    ToolNamespaceConfig,
    decode,
    encode_with_special_tokens,
    parse,
    render_conversation,
    render_conversation_for_completion,
    text_of,
)
from harmony_ref.styles import (
    HARMONY_0_0_8,
    HF_TEMPLATE,
    OSS_HARMONY_0_0_11,
    STYLES,
    History,
    accepted_renderings,
    kept_indices,
    render_in_style,
)
from harmony_ref.styles.styled_rendering import rendered_messages
from harmony_ref.styles.typescript_hf import signature, type_text
from harmony_ref.tokenizer import vocabulary

CASES = Path(__file__).parents[1] / "cases"
EXAMPLES = int(os.environ.get("HARMONY_ORACLE_EXAMPLES", "100"))
TEMPLATE = "HARMONY_GPT_OSS_TEMPLATE"
INTERPRETER = "HARMONY_OSS_PYTHON"


def fixture(name):
    return json.loads((CASES / "styles" / f"{name}.json").read_text("utf-8"))["tests"]


def conversation(row):
    return Conversation.from_dict({"messages": row["messages"]})


def library_cases():
    return list(numbered_cases())


def numbered_cases():
    for name in ("render", "sysdev", "drop"):
        for number, row in enumerate(json.loads((CASES / f"{name}.json").read_text("utf-8"))):
            yield pytest.param(row, id=f"{name} {number}")


def text(words):
    return st.lists(st.sampled_from(words), max_size=3).map("".join)


WORDS = ["a", " b", "é", "한글", "\n", "\n\n", "<|end|>", "to=functions.f", '{"a": 1}', "# Tools"]
TURNS = st.one_of(
    st.builds(lambda content: Message(author=Role.USER, content=content), text(WORDS)),
    st.builds(
        lambda content, channel, recipient, kind: Message(
            author=Role.ASSISTANT, content=content, channel=channel, recipient=recipient, content_type=kind
        ),
        text(WORDS),
        st.sampled_from(["analysis", "commentary", "final", None]),
        st.sampled_from([None, None, "functions.f", "python", "all"]),
        st.sampled_from([None, "json", "<|constrain|>json", "code"]),
    ),
    st.builds(
        lambda content, channel, recipient: Message(
            author=Author(role=Role.TOOL, name="functions.f"), content=content, channel=channel, recipient=recipient
        ),
        text(WORDS),
        st.sampled_from(["commentary", "analysis", None]),
        st.sampled_from(["assistant", None]),
    ),
)
CONVERSATIONS = st.lists(TURNS, max_size=6)


# harmony_0_0_8


@pytest.mark.parametrize("row", library_cases())
def test_the_librarys_style_is_the_librarys_rendering(row, oracle):
    expected = oracle.render_all("completion", row["messages"], True, "assistant")
    try:
        rendered = {"ok": render_in_style(conversation(row), HARMONY_0_0_8)}
    except HarmonyError:
        rendered = {}
    assert expected.get("ok") == rendered.get("ok")


@pytest.mark.parametrize("row", library_cases())
def test_the_pieces_of_a_message_are_its_rendering(row):
    try:
        expected = render_conversation(conversation(row), auto_drop_analysis=False)
    except HarmonyError as error:
        with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
            rendered_messages(list(conversation(row)), HARMONY_0_0_8)
        return
    rendered = rendered_messages(list(conversation(row)), HARMONY_0_0_8)
    assert expected == [token for message in rendered for token in message.ids]
    assert all(message.ids == tuple(token for piece in message.pieces for token in piece.ids) for message in rendered)


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
@pytest.mark.parametrize(
    "message",
    [
        Message(author=Role.TOOL, content="a tool without a name"),
        Message(author=Role.USER, content=SystemContent()),
        Message(author=Role.SYSTEM, content=DeveloperContent()),
    ],
    ids=["a tool without a name", "system content of a user", "developer content of the system"],
)
def test_what_harmony_has_no_form_for_has_none_in_any_style(message, style):
    with pytest.raises(RenderError) as expected:
        render_conversation([message])
    with pytest.raises(RenderError) as caught:
        render_in_style([message], style)
    assert str(expected.value) == str(caught.value)


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_a_schema_that_is_nested_too_deeply_is_an_error_or_any_text_in_every_style(style):
    schema = {"type": "string"}
    for _ in range(5_000):
        schema = {"type": "object", "properties": {"a": schema}}
    tool = ToolDescription(name="f", description="", parameters=schema)
    message = Message(author=Role.DEVELOPER, content=DeveloperContent().with_function_tools([tool]))
    with contextlib.suppress(MessageError):
        assert render_in_style([message], style)


# oss_harmony_0_0_11


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{i}") for i, row in enumerate(fixture("oss_harmony_0_0_11"))])
def test_the_style_of_the_fork_is_what_the_fork_rendered(row):
    assert row["ids"] == render_in_style(conversation(row), OSS_HARMONY_0_0_11)


def test_most_of_the_forks_renderings_are_not_the_librarys():
    rows = fixture("oss_harmony_0_0_11")
    differing = [row for row in rows if row["ids"] != render_in_style(conversation(row), HARMONY_0_0_8)]
    assert len(differing) >= 60


ASK_THE_FORK = """
import json, sys, openai_harmony
from importlib.metadata import version
inner = openai_harmony.load_harmony_encoding("HarmonyGptOss")._inner
config = {"auto_drop_analysis": True}
rows = [json.dumps({"messages": messages}) for messages in json.load(sys.stdin)]
print(json.dumps([version("oss-harmony"), [inner.render_conversation_for_completion(r, "assistant", config) for r in rows]]))
"""


@pytest.mark.skipif(INTERPRETER not in os.environ, reason=f"{INTERPRETER} names no Python that has oss-harmony")
def test_the_fork_still_renders_what_is_kept_here(tmp_path):
    (tmp_path / "o200k_base.tiktoken").write_bytes(vocabulary.read_vocabulary_file())
    rows = fixture("oss_harmony_0_0_11")
    answer = subprocess.run(
        [os.environ[INTERPRETER], "-c", ASK_THE_FORK],
        input=json.dumps([row["messages"] for row in rows]),
        env={**os.environ, "TIKTOKEN_ENCODINGS_BASE": str(tmp_path)},
        capture_output=True,
        check=True,
        text=True,
    )
    assert json.loads(answer.stdout) == ["0.0.11", [row["ids"] for row in rows]]


# hf_template


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in fixture("hf_template")])
def test_the_style_of_the_template_is_what_the_template_rendered(row):
    rendered = render_in_style(conversation(row), HF_TEMPLATE, history=History(row["history"]))
    assert row["text"] == decode(rendered)
    assert encode_with_special_tokens(row["text"]) == rendered


@pytest.mark.parametrize("row", [pytest.param(row, id=row["label"]) for row in fixture("hf_typescript")])
def test_typescript_of_the_template(row):
    written = signature(row["schema"])
    assert row["signature"] in (written, None)
    assert written.startswith("(")


LONGEST = "{\n" + 21 * "n" + "?: \n" + 16 * " " + "string}"


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ({"type": "object", "properties": {21 * "n": {"type": "string"}}}, f"{LONGEST}[]"),
        ({"type": "object", "properties": {22 * "n": {"type": "string"}}}, "any[]"),
        ({"type": ["object", "object"]}, "any[]"),
        ({"type": ["object", "string"]}, "object | string[]"),
    ],
    ids=["50 characters", "51 characters", "two objects", "an object and a string"],
)
def test_an_item_that_the_template_finds_too_long_is_any(items, expected):
    assert type_text({"type": "array", "items": items}) == expected


@pytest.mark.skipif(TEMPLATE not in os.environ, reason=f"{TEMPLATE} names no chat template of gpt-oss")
def test_the_template_still_renders_what_is_kept_here():
    transformers = pytest.importorskip("transformers.utils.chat_template_utils")
    template = Path(os.environ[TEMPLATE]).read_text("utf-8")
    for row in fixture("hf_template"):
        request = dict(row["request"])
        (rendered,), _ = transformers.render_jinja_template(
            conversations=[request.pop("messages")],
            tools=request.pop("tools", None),
            chat_template=template,
            add_generation_prompt=True,
            **request,
        )
        assert row["text"] == re.sub(r"(?<=Current date: )\d{4}-\d\d-\d\d", "2025-06-28", rendered, count=1)


@pytest.mark.parametrize(
    "content", ['"quoted"', "a\nb", '{"a": 1}', "", "<|end|>"], ids=["quotes", "lines", "JSON", "nothing", "a marker"]
)
@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_results_are_raw_in_every_style(style, content):
    result = Message(author=Author(role=Role.TOOL, name="functions.f"), recipient="assistant", content=content)
    (read,) = parse(render_in_style([result], style, next_turn_role=None))
    assert read.content == result.content


SCHEMAS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.sampled_from(["string", "a"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "items",
                    "oneOf",
                    "anyOf",
                    "enum",
                    "default",
                    "required",
                    "description",
                    "nullable",
                ]
            ),
            st.one_of(inner, st.sampled_from(["object", "array", "string", ["string", "null"]])),
            max_size=5,
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(schema=SCHEMAS, properties=st.dictionaries(st.sampled_from(["a", "b"]), SCHEMAS, max_size=2))
def test_any_schema_has_a_text_in_every_style_or_is_an_error_of_our_own(schema, properties):
    for parameters in (schema, {"type": "object", "properties": properties}):
        tool = ToolDescription(name="f", description="d", parameters=parameters)
        message = Message(author=Role.DEVELOPER, content=DeveloperContent().with_function_tools([tool]))
        for style in STYLES.values():
            with contextlib.suppress(MessageError):
                assert "type f = (" in decode(render_in_style([message], style))


EVERY_STYLE = {
    "a namespace without tools": (
        DeveloperContent().with_tools(ToolNamespaceConfig(name="python", description="Runs code.", tools=())),
        "# Tools\n\n## python\n\nRuns code.",
    ),
    "a namespace with a description": (
        DeveloperContent().with_tools(
            ToolNamespaceConfig(
                name="n", description="One.\nTwo.\n", tools=(ToolDescription(name="f", description="d"),)
            )
        ),
        "# Tools\n\n## n\n\n// One.\n// Two.\nnamespace n {\n\n// d\ntype f = () => any;\n\n} // namespace n",
    ),
}


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
@pytest.mark.parametrize(("content", "expected"), EVERY_STYLE.values(), ids=EVERY_STYLE)
def test_what_only_the_library_has_a_form_for_has_that_form_in_every_style(content, expected, style):
    (read,) = parse(render_in_style([Message(author=Role.DEVELOPER, content=content)], style, next_turn_role=None))
    assert text_of(read) == expected


@pytest.mark.parametrize("style", STYLES.values(), ids=STYLES)
def test_a_call_in_several_parts_is_raw_in_every_style(style):
    parts = [TextContent(text='{ "a":'), TextContent(text="1 }")]
    call = Message(author=Role.ASSISTANT, recipient="functions.f", channel="commentary", content=parts)
    assert '{ "a":1 }' in decode(render_in_style([call], style))


def rendered(message, style):
    return decode(render_in_style([message], STYLES[style], next_turn_role=None))


def test_only_the_json_of_calls_to_functions_is_spelled_anew_or_named():
    call = Message(
        author=Role.ASSISTANT, content='{"a":1}', channel="commentary", recipient="functions.f", content_type="code"
    )
    header = "<|start|>assistant to=functions.f<|channel|>commentary"
    assert rendered(call, "hf_template") == f'{header} code<|message|>{{"a":1}}<|call|>'
    assert rendered(replace(call, content_type=None), "hf_template") == f'{header} json<|message|>{{"a": 1}}<|call|>'
    asked = Message(author=Role.USER, content='{"a":1}', recipient="functions.f")
    for style in STYLES:
        assert rendered(asked, style) == '<|start|>user to=functions.f<|message|>{"a":1}<|end|>'


def test_a_template_writes_no_heading_over_empty_instructions_and_its_namespaces_in_order():
    one = ToolDescription(name="f", description="F.")
    tools = {name: ToolNamespaceConfig(name=name, tools=[one]) for name in ("beta", "alpha")}
    developer = Message(author=Role.DEVELOPER, content=DeveloperContent(instructions="", tools=tools))
    for style in ("hf_template", "ollama"):
        text = rendered(developer, style)
        assert "# Instructions" not in text
        assert text.index("## alpha") < text.index("## beta")


def test_a_default_that_json_cannot_carry_is_an_error_as_it_is_in_the_library():
    schema = {"type": "object", "properties": {"a": {"type": "number", "default": float("nan")}}}
    tool = ToolDescription(name="f", description="", parameters=schema)
    with pytest.raises(MessageError, match="invalid conversation JSON: expected value"):
        render_in_style(
            [Message(author=Role.DEVELOPER, content=DeveloperContent().with_function_tools([tool]))], OSS_HARMONY_0_0_11
        )


# accepted renderings


def test_one_question_has_one_prompt_whatever_the_style():
    (rendering,) = accepted_renderings([Message(author=Role.USER, content="Hi")])
    assert rendering.styles == tuple(STYLES)
    assert list(rendering.ids) == render_conversation_for_completion([Message(author=Role.USER, content="Hi")])


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(messages=CONVERSATIONS)
def test_every_accepted_rendering_is_distinct_and_is_what_its_styles_give(messages):
    rendered = list(accepted_renderings(messages))
    assert len({rendering.ids for rendering in rendered}) == len(rendered)
    named = [(style, rendering) for rendering in rendered for style in rendering.styles]
    assert {style for style, _ in named} == set(STYLES)
    for rendering in rendered:
        for history in rendering.histories:
            style = STYLES[rendering.styles[0]]
            assert tuple(render_in_style(messages, style, history=history)) == rendering.ids


def said(message):
    """What a style may not touch; the JSON of a call by its value."""
    words = "".join(part.text for part in message.content)
    is_call = message.author.role is Role.ASSISTANT and message.recipient == "functions.f"
    with contextlib.suppress(ValueError):
        return message.author, message.recipient, json.loads(words) if is_call else words
    return message.author, message.recipient, words


# Without a recipient a lone content type is read as one, and a result cannot be read at all.
READABLE = st.lists(
    TURNS.filter(lambda turn: turn.recipient != "all" and (turn.recipient or turn.author.role is not Role.TOOL)).map(
        lambda turn: turn if turn.recipient else replace(turn, content_type=None)
    ),
    max_size=6,
)


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(messages=READABLE)
def test_a_style_keeps_every_message_and_its_words(messages):
    kept = [messages[index] for index in kept_indices(messages, History.AS_0_0_8)]
    for style in STYLES.values():
        read = parse(render_in_style(messages, style, next_turn_role=None))
        assert list(map(said, read)) == list(map(said, kept))
