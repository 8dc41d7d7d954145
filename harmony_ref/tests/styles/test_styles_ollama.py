"""The style of Ollama's template, written out by hand from `gptossDefaultTemplate` (ollama/ollama, x/create/client).

The template is Go's text/template: `{{-` and `-}}` take away the white space beside them, and a map is walked in the
order of its keys.
"""

import pytest

from harmony_ref import Conversation, decode
from harmony_ref.styles import OLLAMA, History, render_in_style
from harmony_ref.styles.typescript_ollama import type_text

SYSTEM = """\
You are ChatGPT, a large language model trained by OpenAI.
Knowledge cutoff: 2024-06
Current date: 2025-06-28

Reasoning: medium

# Valid channels: analysis, commentary, final. Channel must be included for every message."""
NOTE = "\nCalls to these tools must go to the commentary channel: 'functions'."
CHANNELS = {"valid_channels": ["analysis", "commentary", "final"], "channel_required": True}


def system(**fields):
    content = {
        "type": "system_content",
        "model_identity": "You are ChatGPT, a large language model trained by OpenAI.",
        "reasoning_effort": "Medium",
        "conversation_start_date": "2025-06-28",
        "knowledge_cutoff": "2024-06",
        "channel_config": CHANNELS,
    }
    return {"role": "system", "content": [{**content, **fields}]}


def developer(instructions, *tools, formats=()):
    content = {"type": "developer_content"}
    if instructions is not None:
        content["instructions"] = instructions
    if tools:
        content["tools"] = {"functions": {"name": "functions", "tools": tools}}
    if formats:
        content["response_formats"] = formats
    return {"role": "developer", "content": [content]}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, channel, **fields):
    return {"role": "assistant", "content": text, "channel": channel, **fields}


def result(text, name="functions.get_weather"):
    return {"role": "tool", "name": name, "recipient": "assistant", "channel": "commentary", "content": text}


WEATHER = {
    "name": "get_weather",
    "description": "Gets the weather.",
    "parameters": {
        "type": "object",
        "properties": {
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "city": {"type": "string", "description": "City and state"},
        },
        "required": ["city"],
    },
}
NOW = {"name": "now", "description": "Tells the time."}
QUIET = {"name": "ping", "description": "", "parameters": {"type": "object", "properties": {}}}
TOOLS = """\
# Tools

## functions

namespace functions {

// Gets the weather.
type get_weather = (_: {
  // City and state
  city: string,
  unit: string,
}) => any;

// Tells the time.
type now = () => any;

type ping = () => any;

} // namespace functions"""

PROMPTS = {
    "the system message is the library's": (
        [system(), user("Hi")],
        f"<|start|>system<|message|>{SYSTEM}<|end|><|start|>user<|message|>Hi<|end|>",
    ),
    "cutoff and channels are always those of the template": (
        [system(knowledge_cutoff="2023-01", channel_config=None), user("Hi")],
        f"<|start|>system<|message|>{SYSTEM}<|end|><|start|>user<|message|>Hi<|end|>",
    ),
    "instructions alone stand behind a blank line": (
        [developer("Be brief."), user("Hi")],
        "<|start|>developer<|message|>\n\n# Instructions\n\nBe brief.<|end|><|start|>user<|message|>Hi<|end|>",
    ),
    "tools stand before the instructions": (
        [system(), developer("Be brief.", WEATHER, NOW, QUIET)],
        (
            f"<|start|>system<|message|>{SYSTEM}{NOTE}<|end|>"
            f"<|start|>developer<|message|>{TOOLS}\n\n# Instructions\n\nBe brief.<|end|>"
        ),
    ),
    "tools alone end with their namespace": (
        [developer(None, WEATHER, NOW, QUIET)],
        f"<|start|>developer<|message|>{TOOLS}<|end|>",
    ),
    "response formats stand last": (
        [developer("Be brief.", formats=[{"name": "list", "schema": {"type": "array"}}])],
        (
            "<|start|>developer<|message|>\n\n# Instructions\n\nBe brief.\n\n"
            '# Response Formats\n\n## list\n\n{"type":"array"}<|end|>'
        ),
    ),
    "a call names its recipient after the channel, and json behind a marker": (
        [assistant('{"city": "Paris"}', "commentary", recipient="functions.get_weather", content_type="json")],
        (
            "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json"
            '<|message|>{"city":"Paris"}<|call|>'
        ),
    ),
    "a call without a content type is given json": (
        [assistant("{}", "commentary", recipient="functions.now")],
        "<|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>",
    ),
    "the keys of arguments are sorted": (
        [assistant('{"b": [1, 2], "a": "<x> & é"}', "commentary", recipient="functions.f")],
        (
            "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json"
            '<|message|>{"a":"\\u003cx\\u003e \\u0026 é","b":[1,2]}<|call|>'
        ),
    ),
    "arguments that are no JSON stay as they are": (
        [assistant("{a: 1}", "commentary", recipient="functions.f")],
        ("<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{a: 1}<|call|>"),
    ),
    "a call of a built-in tool stays on its channel": (
        [assistant("1+1", "analysis", recipient="python", content_type="code")],
        "<|start|>assistant<|channel|>analysis to=python <|constrain|>code<|message|>1+1<|call|>",
    ),
    "a result names no channel": (
        [result('"raw"')],
        '<|start|>functions.get_weather to=assistant<|message|>"raw"<|end|>',
    ),
    "two calls of one message and their results": (
        [
            assistant("{}", "commentary", recipient="functions.get_weather"),
            assistant("{}", "commentary", recipient="functions.now"),
            result("1"),
            result("2", "functions.now"),
        ],
        (
            "<|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{}<|call|>"
            "<|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>"
            "<|start|>functions.get_weather to=assistant<|message|>1<|end|>"
            "<|start|>functions.now to=assistant<|message|>2<|end|>"
        ),
    ),
    "reasoning before the last message of the user is dropped": (
        [
            user("a"),
            assistant("t1", "analysis"),
            assistant("b", "final"),
            user("c"),
            assistant("t2", "analysis"),
            assistant("{}", "commentary", recipient="functions.now"),
        ],
        (
            "<|start|>user<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b<|end|>"
            "<|start|>user<|message|>c<|end|><|start|>assistant<|channel|>analysis<|message|>t2<|end|>"
            "<|start|>assistant<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}<|call|>"
        ),
    ),
}


@pytest.mark.parametrize(("messages", "expected"), PROMPTS.values(), ids=PROMPTS)
def test_the_prompts_of_ollama(messages, expected):
    conversation = Conversation.from_dict({"messages": messages})
    rendered = render_in_style(conversation, OLLAMA, history=History.BEFORE_LAST_USER)
    assert decode(rendered) == f"{expected}<|start|>assistant"


TYPES = [
    ({"type": "string", "enum": ["a"]}, "string"),
    ({"type": "integer"}, "number"),
    ({"type": "boolean", "default": True}, "boolean"),
    ({"type": "array", "items": {"type": "string"}}, "any[]"),
    ({"type": "object", "properties": {"a": {"type": "string"}}}, "Record<string, any>"),
    ({"type": "null"}, "null"),
    ({"type": "file"}, "any"),
    ({"type": ["string", "integer", "null"]}, "string | number | null"),
    ({"anyOf": [{"type": "string"}, {"type": ["array", "null"]}]}, "string | any[] | null"),
    ({"anyOf": [], "type": "number"}, "number"),
    ({"type": []}, "any"),
    ({}, "any"),
    (True, "any"),
]


@pytest.mark.parametrize(("schema", "expected"), TYPES, ids=[str(schema) for schema, _ in TYPES])
def test_the_types_of_ollama(schema, expected):
    assert type_text(schema) == expected
