"""The oracle for rendering: this package and openai-harmony 0.0.8 give the same answer to the same random input.

HARMONY_ORACLE_EXAMPLES sets the number of examples per property.
"""

import importlib.metadata
import os
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harmony_ref import (
    Conversation,
    Message,
    MessageError,
    RenderError,
    Role,
    json_schema_to_typescript,
    render,
    render_conversation,
    render_conversation_for_completion,
    render_conversation_for_training,
)

WORDS = [
    "a",
    "hi",
    "json",
    "all",
    "code",
    "functions.f",
    "to=",
    "to=functions.f",
    "to=b",
    "user",
    "assistant",
    "system",
    "developer",
    "tool",
    "User",
    "user:bob",
    "assistantassistant",
    "analysis",
    "commentary",
    "final",
    "Final",
    "browser.search",
    "123456",
    "null",
    "é",
    "한글",
    "🫠",
    "'q",
    '"q"',
    "\\",
    "<",
    ">",
    "",
    " ",
    "  ",
    "hi there",
    "x y z",
    "\n",
    "\t",
    "\r\n",
    "\x0b",
    "\x0c",
    "\x1c",
    "\x85",
    "\xa0",
    "\u3000",
    "\u2028",
    "e\u0301",
    "\u200d",
    "\u200b",
    "\x00",
    "\x01",
    "'s",
]
MARKERS = [
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|constrain|>",
    "<|return|>",
    "<|call|>",
    "<|endoftext|>",
    "<|constrain|>json",
    "<|constrain|> json",
    "<|channel|>final",
    "<|reserved_200013|>",
    "<|endofprompt|>",
    "<|refusal|>",
]

texts = st.lists(st.sampled_from(WORDS + MARKERS) | st.text(max_size=8), max_size=5).map("".join)
fields = st.none() | st.sampled_from(WORDS + MARKERS) | texts
roles = st.sampled_from(["user", "assistant", "assistant", "system", "developer", "tool"])
channels = st.sampled_from([None, None, "analysis", "commentary", "final", "final", "Final", ""]) | fields


def without_none(fields):
    return {name: value for name, value in fields.items() if value is not None}


def members(**kinds):
    return st.fixed_dictionaries({}, optional=kinds)


numbers = (
    st.integers(-(2**66), 2**66)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(-1e6, 1e6).map(lambda value: round(value, 4))
    | st.sampled_from([1.0, -0.0, 1e15, 1e16, 1e17, 1e-4, 1e-5, 1e-7, 5e-324, 1.7976931348623157e308, 2**64, 10**30])
)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
type_names = st.sampled_from(
    ["string", "number", "integer", "boolean", "array", "object", "object", "null", "file", ""]
)


def schema_members(inner):
    some_texts = st.lists(st.sampled_from(["a", "b", "null", "nullify"]) | texts, max_size=3)
    return members(
        type=type_names | st.lists(type_names | st.integers(), max_size=3) | json_values,
        description=texts | st.sampled_from(["D", "D", "L1\nL2"]) | json_values,
        title=texts | json_values,
        default=json_values | st.sampled_from(["a", "x"]),
        enum=some_texts | json_values | st.lists(json_values, max_size=3),
        nullable=st.booleans() | json_values,
        examples=st.lists(json_values, max_size=3) | json_values,
        required=some_texts | json_values,
        properties=st.dictionaries(st.sampled_from(["a", "b", "nullx"]) | texts, inner, max_size=3) | json_values,
        items=inner,
        oneOf=st.lists(inner, max_size=3) | json_values,
        anyOf=st.lists(inner, max_size=2),
        const=json_values,
    )


def typed_members(inner):
    return st.one_of(
        st.builds(
            lambda properties, rest: {**rest, "type": "object", "properties": properties},
            st.dictionaries(st.sampled_from(["a", "b", "nullx"]) | texts, inner, max_size=3),
            members(required=st.lists(st.sampled_from(["a", "b"])), description=texts, nullable=st.booleans()),
        ),
        st.builds(
            lambda variants, rest: {**rest, "oneOf": variants},
            st.lists(inner, max_size=3),
            members(description=st.sampled_from(["D", "E"]), default=json_values, title=texts, enum=json_values),
        ),
        st.builds(
            lambda name, rest: {**rest, "type": name},
            type_names,
            members(
                description=st.sampled_from(["D", "E", "L1\nL2"]),
                default=json_values,
                enum=st.lists(texts, max_size=3),
                nullable=st.booleans(),
                items=inner,
                examples=st.lists(texts, max_size=2),
            ),
        ),
    )


schemas = st.recursive(
    json_values | schema_members(st.none()),
    lambda inner: typed_members(inner) | typed_members(inner) | schema_members(inner),
    max_leaves=10,
)

tool_descriptions = st.builds(
    lambda name, description, parameters: without_none(
        {"name": name, "description": description, "parameters": parameters}
    ),
    texts,
    texts,
    st.none() | schemas,
)
namespaces = st.builds(
    lambda name, description, tools: without_none({"name": name, "description": description, "tools": tools}),
    texts,
    fields,
    st.lists(tool_descriptions, max_size=2),
)
tool_maps = st.dictionaries(st.sampled_from(["functions", "functions", "browser"]) | texts, namespaces, max_size=3)
channel_configs = st.fixed_dictionaries(
    {"valid_channels": st.lists(texts, max_size=3), "channel_required": st.booleans()}
)
system_contents = members(
    model_identity=fields,
    reasoning_effort=st.sampled_from([None, "Low", "Medium", "High"]),
    conversation_start_date=fields,
    knowledge_cutoff=fields,
    channel_config=st.none() | channel_configs,
    tools=st.none() | tool_maps,
).map(lambda content: {"type": "system_content", **content})
developer_contents = members(instructions=fields, tools=st.none() | tool_maps).map(
    lambda content: {"type": "developer_content", **content}
)
text_contents = texts.map(lambda text: {"type": "text", "text": text})


@st.composite
def messages(draw):
    role = draw(roles)
    own = {"system": system_contents, "developer": developer_contents}.get(role, text_contents)
    parts = st.one_of(own, own, text_contents) if draw(st.booleans()) else own
    stray = system_contents | developer_contents
    content = draw(texts | st.lists(parts | stray if draw(st.integers(0, 19)) == 0 else parts, max_size=3))
    name = draw(texts if role == "tool" and draw(st.integers(0, 9)) else fields)
    return without_none(
        {
            "role": role,
            "name": name,
            "recipient": draw(fields),
            "content": content,
            "channel": draw(channels),
            "content_type": draw(fields),
        }
    )


conversations = st.lists(messages(), max_size=5)

EXAMPLES = int(os.environ.get("HARMONY_ORACLE_EXAMPLES", "400"))
examples = settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 1000,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
COLUMN = re.compile(r" at line \d+ column \d+$")
RENDERERS = {
    "conversation": render_conversation,
    "completion": render_conversation_for_completion,
    "training": render_conversation_for_training,
}


def without_column(answer):
    """The library's answer; for a dict that is no message, without the place in its JSON text."""
    if answer.get("err", [""])[0] != "ValueError":
        return answer
    return {"err": ["ValueError", COLUMN.sub("", answer["err"][1])]}


def ours(function, *arguments, render_error="RuntimeError", **options):
    """Our answer in the oracle's form, our errors under the names of the library's."""
    try:
        return {"ok": function(*arguments, **options)}
    except MessageError as error:
        return {"err": ["ValueError", str(error)]}
    except RenderError as error:
        return {"err": [render_error, str(error)]}


def test_the_oracle_is_openai_harmony_0_0_8_and_not_its_namesake():
    assert importlib.metadata.version("openai-harmony") == "0.0.8"
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("oss-harmony")


@examples
@given(message=messages(), note=st.booleans())
def test_one_message_is_rendered_equally(oracle, message, note):
    expected = without_column(oracle.render(message, note))
    assert expected == ours(lambda: render(Message.from_dict(message), conversation_has_function_tools=note))


@examples
@given(
    conversation=conversations,
    mode=st.sampled_from(list(RENDERERS)),
    auto_drop=st.sampled_from([True, True, False, None]),
    role=st.sampled_from(list(Role)),
)
def test_a_conversation_is_rendered_equally(oracle, conversation, mode, auto_drop, role):
    expected = without_column(oracle.render_all(mode, conversation, auto_drop, role.value))
    arguments = [role] if mode == "completion" else []
    actual = ours(
        lambda: RENDERERS[mode](
            Conversation.from_dict({"messages": conversation}), *arguments, auto_drop_analysis=bool(auto_drop)
        ),
        render_error="HarmonyError" if mode == "completion" else "RuntimeError",
    )
    assert expected == actual


@examples
@given(
    text=st.text(
        st.characters(codec=None, categories=["Cs", "Ll", "Cc"]) | st.sampled_from("\ud83d\ude00 \n"), max_size=6
    )
)
def test_text_with_surrogates_is_repaired_or_refused_equally(oracle, text):
    conversation = [{"role": "user", "content": text}]
    expected = without_column(oracle.render_all("conversation", conversation, auto_drop=None, role=None))
    assert expected == ours(lambda: render_conversation(Conversation.from_dict({"messages": conversation})))


@examples
@given(schema=schemas)
def test_a_schema_becomes_equal_typescript(oracle, schema):
    # Without a schema there is no type to compare.
    if schema is not None:
        assert without_column(oracle.typescript(schema)) == ours(json_schema_to_typescript, schema)
