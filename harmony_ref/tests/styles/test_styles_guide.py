"""The style of the published guide: its own examples, written out as they stand there."""

import pytest

from harmony_ref import Conversation, SystemContent, decode, encode_with_special_tokens
from harmony_ref.styles import GUIDE, STYLES, History, accepted_renderings, render_in_style

SYSTEM = """\
You are ChatGPT, a large language model trained by OpenAI.
Knowledge cutoff: 2024-06
Current date: 2025-06-28

Reasoning: high

# Valid channels: analysis, commentary, final. Channel must be included for every message."""
NOTE = "\nCalls to these tools must go to the commentary channel: 'functions'."
DEVELOPER = """\
# Instructions

Use a friendly tone.

# Tools

## functions

namespace functions {

// Gets the location of the user.
type get_location = () => any;

// Gets the current weather in the provided location.
type get_current_weather = (_: {
// The city and state, e.g. San Francisco, CA
location: string,
format?: "celsius" | "fahrenheit", // default: celsius
}) => any;

} // namespace functions"""
FORMATS = """\
# Instructions

You are a helpful shopping assistant

# Response Formats

## shopping_list

{"properties":{"items":{"type":"array","description":"entries on the shopping list","items":{"type":"string"}}},\
"type":"object"}"""

LOCATION = {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
FORMAT = {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}
PARAMETERS = {"type": "object", "properties": {"location": LOCATION, "format": FORMAT}, "required": ["location"]}
WEATHER = [
    {"name": "get_location", "description": "Gets the location of the user."},
    {
        "name": "get_current_weather",
        "description": "Gets the current weather in the provided location.",
        "parameters": PARAMETERS,
    },
]
ITEMS = {"type": "array", "description": "entries on the shopping list", "items": {"type": "string"}}


def system_message(**fields):
    content = SystemContent(conversation_start_date="2025-06-28").to_dict()
    return {"role": "system", "content": [{**content, "reasoning_effort": "High", **fields}]}


def developer_message(**fields):
    return {"role": "developer", "content": [{"type": "developer_content", **fields}]}


def functions(*tools):
    return {"functions": {"name": "functions", "tools": list(tools)}}


def call(content, content_type="<|constrain|>json", name="functions.get_current_weather"):
    return {
        "role": "assistant",
        "channel": "commentary",
        "recipient": name,
        "content_type": content_type,
        "content": content,
    }


QUESTION = {"role": "user", "content": "What is the weather like in SF?"}
RESULT = {
    "role": "tool",
    "name": "functions.get_current_weather",
    "recipient": "assistant",
    "channel": "commentary",
    "content": '{"sunny": true, "temperature": 20}',
}
SHOPPING = {"name": "shopping_list", "schema": {"properties": {"items": ITEMS}, "type": "object"}}

GUIDE_EXAMPLES = {
    "receiving and handling a tool call": (
        [
            system_message(),
            developer_message(instructions="Use a friendly tone.", tools=functions(*WEATHER)),
            QUESTION,
            {"role": "assistant", "channel": "analysis", "content": "Need to use function get_current_weather."},
            call('{"location":"San Francisco"}'),
            RESULT,
        ],
        (
            f"<|start|>system<|message|>{SYSTEM}{NOTE}<|end|><|start|>developer<|message|>{DEVELOPER}<|end|>"
            "<|start|>user<|message|>What is the weather like in SF?<|end|>"
            "<|start|>assistant<|channel|>analysis<|message|>Need to use function get_current_weather.<|end|>"
            "<|start|>assistant<|channel|>commentary to=functions.get_current_weather <|constrain|>json"
            '<|message|>{"location":"San Francisco"}<|call|>'
            "<|start|>functions.get_current_weather to=assistant<|channel|>commentary"
            '<|message|>{"sunny": true, "temperature": 20}<|end|><|start|>assistant'
        ),
    ),
    "the content type with a blank, as the guide's code sample has it": (
        [call('{"location": "Tokyo"}', "<|constrain|> json")],
        (
            "<|start|>assistant<|channel|>commentary to=functions.get_current_weather <|constrain|>json"
            '<|message|>{"location": "Tokyo"}<|call|><|start|>assistant'
        ),
    ),
    "a preamble and a call": (
        [
            {"role": "assistant", "channel": "commentary", "content": "**Action plan**:\n1. Generate an HTML file"},
            call('{"template": "basic_html", "path": "index.html"}', name="functions.generate_file"),
        ],
        (
            "<|start|>assistant<|channel|>commentary<|message|>**Action plan**:\n1. Generate an HTML file<|end|>"
            "<|start|>assistant<|channel|>commentary to=functions.generate_file <|constrain|>json"
            '<|message|>{"template": "basic_html", "path": "index.html"}<|call|><|start|>assistant'
        ),
    ),
    "structured output": (
        [
            developer_message(instructions="You are a helpful shopping assistant", response_formats=[SHOPPING]),
            {"role": "user", "content": "I need to buy coffee, soda and eggs"},
        ],
        (
            f"<|start|>developer<|message|>{FORMATS}<|end|>"
            "<|start|>user<|message|>I need to buy coffee, soda and eggs<|end|><|start|>assistant"
        ),
    ),
    "the next input after an answer": (
        [
            {"role": "user", "content": "What is 2 + 2?"},
            {"role": "assistant", "channel": "analysis", "content": "Simple arithmetic. Provide answer."},
            {"role": "assistant", "channel": "final", "content": "2 + 2 = 4."},
            {"role": "user", "content": "What about 9 / 2?"},
        ],
        (
            "<|start|>user<|message|>What is 2 + 2?<|end|><|start|>assistant<|channel|>final<|message|>2 + 2 = 4.<|end|>"
            "<|start|>user<|message|>What about 9 / 2?<|end|><|start|>assistant"
        ),
    ),
    "a built-in tool is called on the analysis channel": (
        [{"role": "assistant", "channel": "analysis", "recipient": "python", "content": "1+1"}],
        "<|start|>assistant<|channel|>analysis to=python<|message|>1+1<|call|><|start|>assistant",
    ),
}


@pytest.mark.parametrize(("messages", "expected"), GUIDE_EXAMPLES.values(), ids=GUIDE_EXAMPLES)
def test_the_guides_examples(messages, expected):
    rendered = render_in_style(Conversation.from_dict({"messages": messages}), GUIDE)
    assert expected == decode(rendered)
    assert encode_with_special_tokens(expected) == rendered


def test_the_five_styles_give_five_prompts_of_a_tool_loop():
    messages = GUIDE_EXAMPLES["receiving and handling a tool call"][0]
    rendered = list(accepted_renderings(Conversation.from_dict({"messages": messages})))
    assert [rendering.styles for rendering in rendered] == [(name,) for name in STYLES]
    assert all(rendering.histories == tuple(History) for rendering in rendered)
    assert all(decode(rendering.ids) == rendering.text for rendering in rendered)
