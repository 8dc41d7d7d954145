"""What openai_harmony's own tests say of rendering and of text, under the names they have there, said of both APIs."""

import re

import pytest

IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
CHANNELS = "# Valid channels: analysis, commentary, final. Channel must be included for every message."
FUNCTIONS_NOTE = "\nCalls to these tools must go to the commentary channel: 'functions'."
BROWSER = """## browser

// Tool for browsing.
// The `cursor` appears in brackets before each browsing display: `[{cursor}]`.
// Cite information from the tool using the following format:
// `【{cursor}†L{line_start}(-L{line_end})?】`, for example: `【6†L9-L11】` or `【8†L3】`.
// Do not quote more than 10 words directly from the tool output.
// sources=web (default: web)
namespace browser {

// Searches for information related to `query` and displays `topn` results.
type search = (_: {
query: string,
topn?: number, // default: 10
source?: string,
}) => any;

// Opens the link `id` from the page indicated by `cursor` starting at line number `loc`, showing `num_lines` lines.
// Valid link ids are displayed with the formatting: `【{id}†.*】`.
// If `cursor` is not provided, the most recent page is implied.
// If `id` is a string, it is treated as a fully qualified URL associated with `source`.
// If `loc` is not provided, the viewport will be positioned at the beginning of the document or centered on the most \
relevant passage, if available.
// Use this function without `id` to scroll to a new location of an opened page.
type open = (_: {
id?: number | string, // default: -1
cursor?: number, // default: -1
loc?: number, // default: -1
num_lines?: number, // default: -1
view_source?: boolean, // default: false
source?: string,
}) => any;

// Finds exact matches of `pattern` in the current page, or the page given by `cursor`.
type find = (_: {
pattern: string,
cursor?: number, // default: -1
}) => any;

} // namespace browser"""
PYTHON = """## python

Use this tool to execute Python code in your chain of thought. The code will not be shown to the user. This tool should \
be used for internal reasoning, but not for code that is intended to be visible to the user (e.g. when creating plots, \
tables, or files).

When you send a message containing Python code to python, it will be executed in a stateful Jupyter notebook \
environment. python will respond with the output of the execution or time out after 120.0 seconds. The drive at \
'/mnt/data' can be used to save and persist user files. Internet access for this session is UNKNOWN. Depends on the \
cluster."""


def ids(api, text):
    return api.encoding.encode(text, allowed_special="all")


def said(api, role, content):
    return api.Message.from_role_and_content(api.Role(role), content)


def prompt(api, *messages, config=None):
    conversation = api.Conversation.from_messages(messages)
    return api.encoding.render_conversation_for_completion(conversation, api.Role.ASSISTANT, config)


def system_text(*sections, effort="medium", about=""):
    lines = [f"{IDENTITY}\nKnowledge cutoff: 2024-06{about}", f"Reasoning: {effort}", *sections]
    return "<|start|>system<|message|>" + "\n\n".join(lines) + "<|end|>"


def test_simple_convo(api):
    rendered = prompt(
        api,
        said(api, "system", api.SystemContent.new().with_model_identity(IDENTITY)),
        said(api, "user", "What is 2 + 2?"),
    )
    expected = system_text(CHANNELS) + "<|start|>user<|message|>What is 2 + 2?<|end|><|start|>assistant"
    assert rendered == ids(api, expected)


@pytest.mark.parametrize("instructions", [None, "Answer the user's questions like a robot."], ids=["without", "with"])
@pytest.mark.parametrize("effort", ["Low", "Medium", "High"])
def test_simple_convo_with_effort(api, effort, instructions):
    messages = [said(api, "system", api.SystemContent.new().with_reasoning_effort(api.ReasoningEffort(effort)))]
    expected = system_text(CHANNELS, effort=effort.lower())
    if instructions is not None:
        messages.append(said(api, "developer", api.DeveloperContent.new().with_instructions(instructions)))
        expected += f"<|start|>developer<|message|># Instructions\n\n{instructions}<|end|>"
    messages.append(said(api, "user", "What is the capital of the largest country in the world?"))
    expected += "<|start|>user<|message|>What is the capital of the largest country in the world?<|end|>"
    assert prompt(api, *messages) == ids(api, f"{expected}<|start|>assistant")


def reasoning(api, content):
    return content.with_reasoning_effort(api.ReasoningEffort.MEDIUM).with_required_channels(["analysis", "final"])


TWO_CHANNELS = "# Valid channels: analysis, final. Channel must be included for every message."
ROBOT = "<|start|>developer<|message|># Instructions\n\nAnswer the user's questions like a robot.<|end|>"
QUESTION = "<|start|>user<|message|>What is 2 + 2?<|end|><|start|>assistant"


def test_reasoning_system_message(api):
    rendered = prompt(
        api,
        said(api, "system", reasoning(api, api.SystemContent.new())),
        said(
            api,
            "developer",
            api.DeveloperContent.new().with_instructions("Answer the user's questions like a robot."),
        ),
        said(api, "user", "What is 2 + 2?"),
    )
    assert rendered == ids(api, system_text(TWO_CHANNELS) + ROBOT + QUESTION)


def test_reasoning_system_message_no_instruction(api):
    content = reasoning(api, api.SystemContent.new()).with_reasoning_effort(api.ReasoningEffort.HIGH)
    rendered = prompt(api, said(api, "system", content), said(api, "user", "What is 2 + 2?"))
    assert rendered == ids(api, system_text(TWO_CHANNELS, effort="high") + QUESTION)


def test_reasoning_system_message_with_dates(api):
    content = reasoning(api, api.SystemContent.new())
    content = content.with_conversation_start_date("2021-01-01").with_knowledge_cutoff("2021-01")
    rendered = prompt(api, said(api, "system", content), said(api, "user", "What is 2 + 2?"))
    expected = system_text(TWO_CHANNELS, about="\nCurrent date: 2021-01-01").replace("2024-06", "2021-01")
    assert rendered == ids(api, expected + QUESTION)


KITCHEN_SINK = {
    "type": "object",
    "properties": {
        "string": {"type": "string", "title": "STRING", "description": "A string", "examples": ["hello", "world"]},
        "string_nullable": {"type": "string", "nullable": True, "description": "A nullable string", "default": "the"},
        "string_enum": {"type": "string", "enum": ["a", "b", "c"]},
        "oneof_string_or_number": {
            "oneOf": [
                {"type": "string", "default": "default_string_in_oneof"},
                {"type": "number", "description": "numbers can happen too"},
            ],
            "description": "a oneof",
            "default": 20,
        },
    },
}
KITCHEN_SINK_TEXT = """\
// STRING
//
// A string
// Examples:
// - "hello"
// - "world"
string?: string,
// A nullable string
string_nullable?: string | null, // default: "the"
string_enum?: "a" | "b" | "c",
// a oneof
// default: 20
oneof_string_or_number?:
 | string // default: "default_string_in_oneof"
 | number // numbers can happen too
,
"""


def test_render_functions_with_parameters(api):
    location = {"type": "string", "description": "The city and state, e.g. San Francisco, CA"}
    unit = {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}
    tools = [
        api.ToolDescription.new("get_location", "Gets the location of the user."),
        api.ToolDescription.new(
            "get_current_weather",
            "Gets the current weather in the provided location.",
            parameters={
                "type": "object",
                "properties": {"location": location, "format": unit},
                "required": ["location"],
            },
        ),
        api.ToolDescription.new(
            "get_multiple_weathers",
            "Gets the current weather in the provided list of locations.",
            parameters={
                "type": "object",
                "properties": {
                    "locations": {"type": "array", "items": {"type": "string"}, "description": "List of city names"},
                    "format": unit,
                },
                "required": ["locations"],
            },
        ),
        api.ToolDescription.new("kitchensink", "A function with various complex schemas.", parameters=KITCHEN_SINK),
    ]
    developer = api.DeveloperContent.new().with_instructions("Always respond in riddles").with_function_tools(tools)
    rendered = prompt(
        api,
        said(api, "system", api.SystemContent.new()),
        said(api, "developer", developer),
        said(api, "user", "What is the weather like in SF?"),
    )
    declared = f"""# Tools

## functions

namespace functions {{

// Gets the location of the user.
type get_location = () => any;

// Gets the current weather in the provided location.
type get_current_weather = (_: {{
// The city and state, e.g. San Francisco, CA
location: string,
format?: "celsius" | "fahrenheit", // default: celsius
}}) => any;

// Gets the current weather in the provided list of locations.
type get_multiple_weathers = (_: {{
// List of city names
locations: string[],
format?: "celsius" | "fahrenheit", // default: celsius
}}) => any;

// A function with various complex schemas.
type kitchensink = (_: {{
{KITCHEN_SINK_TEXT}}}) => any;

}} // namespace functions"""
    expected = system_text(CHANNELS + FUNCTIONS_NOTE)
    expected += f"<|start|>developer<|message|># Instructions\n\nAlways respond in riddles\n\n{declared}<|end|>"
    expected += "<|start|>user<|message|>What is the weather like in SF?<|end|><|start|>assistant"
    assert rendered == ids(api, expected)


def test_no_tools(api):
    assert prompt(api, said(api, "system", api.SystemContent.new())) == ids(
        api, system_text(CHANNELS) + "<|start|>assistant"
    )


def test_browser_tool_only(api):
    rendered = prompt(api, said(api, "system", api.SystemContent.new().with_browser_tool()))
    assert rendered == ids(api, system_text(f"# Tools\n\n{BROWSER}", CHANNELS) + "<|start|>assistant")


def test_browser_and_function_tool(api):
    tool = api.ToolDescription.new(
        "lookup_weather",
        "Use this tool to lookup the weather for a given location.",
        parameters={"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
    )
    rendered = prompt(
        api,
        said(api, "system", api.SystemContent.new().with_browser_tool()),
        said(api, "developer", api.DeveloperContent.new().with_function_tools([tool])),
    )
    declared = """# Tools

## functions

namespace functions {

// Use this tool to lookup the weather for a given location.
type lookup_weather = (_: {
location: string,
}) => any;

} // namespace functions"""
    expected = system_text(f"# Tools\n\n{BROWSER}", CHANNELS + FUNCTIONS_NOTE)
    assert rendered == ids(api, f"{expected}<|start|>developer<|message|>{declared}<|end|><|start|>assistant")


def test_browser_and_python_tool(api):
    content = api.SystemContent.new().with_browser_tool().with_python_tool()
    expected = system_text(f"# Tools\n\n{BROWSER}\n\n{PYTHON}", CHANNELS)
    assert prompt(api, said(api, "system", content)) == ids(api, f"{expected}<|start|>assistant")


def reasoned(api, *steps):
    """Messages of a user (`U`) and of the assistant on a channel."""
    messages = []
    for channel, text in steps:
        if channel == "U":
            messages.append(said(api, "user", text))
        else:
            messages.append(said(api, "assistant", text).with_channel(channel))
    return messages


def written(*steps):
    texts = []
    for channel, text in steps:
        header = "user" if channel == "U" else f"assistant<|channel|>{channel}"
        texts.append(f"<|start|>{header}<|message|>{text}<|end|>")
    return "".join(texts)


FIRST = ("U", "What is 2 + 2?")
THOUGHT = ("analysis", "User asks: What is 2 + 2? Simple arithmetic.")
ANSWER = ("final", "2 + 2 equals 4.")
SECOND = ("U", "What about 9 / 2?")
LATER_THOUGHT = ("analysis", "9 / 2 is 4.5.")
LATER_ANSWER = ("final", "9 / 2 equals 4.5.")


def test_dropping_cot_by_default(api):
    rendered = prompt(api, *reasoned(api, FIRST, THOUGHT, ANSWER, SECOND))
    assert rendered == ids(api, written(FIRST, ANSWER, SECOND) + "<|start|>assistant")


def test_does_not_drop_if_ongoing_analysis(api):
    call = said(api, "assistant", '{"location": "SF"}').with_channel("commentary").with_recipient("functions.f")
    call = call.with_content_type("<|constrain|>json")
    author = api.Author.new(api.Role.TOOL, "functions.f")
    reply = api.Message.from_author_and_content(author, '{"temperature": 20}')
    rendered = prompt(api, *reasoned(api, FIRST, THOUGHT), call, reply)
    expected = written(FIRST, THOUGHT)
    expected += (
        '<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{"location": "SF"}<|call|>'
    )
    expected += '<|start|>functions.f<|message|>{"temperature": 20}<|end|><|start|>assistant'
    assert rendered == ids(api, expected)


def test_preserve_cot(api):
    config = api.RenderConversationConfig(auto_drop_analysis=False)
    rendered = prompt(api, *reasoned(api, FIRST, THOUGHT, ANSWER, SECOND), config=config)
    assert rendered == ids(api, written(FIRST, THOUGHT, ANSWER, SECOND) + "<|start|>assistant")


def test_keep_analysis_between_final_messages(api):
    rendered = api.encoding.render_conversation(
        api.Conversation.from_messages(reasoned(api, FIRST, THOUGHT, ANSWER, SECOND, LATER_THOUGHT, LATER_ANSWER))
    )
    assert rendered == ids(api, written(FIRST, ANSWER, SECOND, LATER_THOUGHT, LATER_ANSWER))


def test_reserved_token_decoding(api):
    assert api.encoding.decode_utf8([200014]) == "<|reserved_200014|>"
    assert api.encoding.decode_utf8([201088]) == "<|reserved_201088|>"


def test_render_and_render_conversation_roundtrip(api):
    message = said(api, "user", "Hello")
    conversation = api.Conversation.from_messages([message])
    rendered = api.encoding.render(message)
    assert rendered == api.encoding.render_conversation(conversation)
    for_completion = api.encoding.render_conversation_for_completion(conversation, api.Role.ASSISTANT)
    assert for_completion == rendered + ids(api, "<|start|>assistant")


def for_training(api, message):
    return api.encoding.render_conversation_for_training(api.Conversation.from_messages([message]))


def test_render_conversation_for_training_final_channel(api):
    message = said(api, "assistant", "hi").with_channel("final")
    assert for_training(api, message) == ids(api, "<|start|>assistant<|channel|>final<|message|>hi<|return|>")


def test_render_conversation_for_training_non_final(api):
    message = said(api, "assistant", "hi").with_channel("commentary")
    assert for_training(api, message) == ids(api, "<|start|>assistant<|channel|>commentary<|message|>hi<|end|>")


def test_decode_utf8_invalid_token(api):
    with pytest.raises(api.HarmonyError, match="Invalid token for decoding: 99999999"):
        api.encoding.decode_utf8([99999999])
    with pytest.raises(ValueError, match="Input should be a valid dictionary or instance of Message"):
        api.Conversation.from_messages([api.SystemContent.new()])


def test_encode_decode_roundtrip(api):
    assert api.encoding.encode("hello world") == [24912, 2375]
    assert api.encoding.decode([24912, 2375]) == "hello world"
    for text in ("hello", "hello ", "hello  ", " hello", " hello ", " hello  ", "한글 🫠"):
        assert api.encoding.decode(api.encoding.encode(text)) == text
        assert api.encoding.decode_utf8(api.encoding.encode(text)) == text


def test_encode_allowed_special(api):
    encode = api.encoding.encode
    assert encode("hello world") == [24912, 2375]
    assert encode("<|start|>", allowed_special={"<|start|>"}) == [200006]
    assert encode("<|start|>", allowed_special="all") == [200006]
    assert encode("<|start|>", disallowed_special=()) == [27, 91, 5236, 91, 29]
    for options in ({}, {"disallowed_special": "all"}, {"disallowed_special": {"<|start|>"}}):
        with pytest.raises(api.HarmonyError, match=re.escape("disallowed special token '<|start|>'")):
            encode("<|start|>", **options)


def test_is_special_token(api):
    assert api.encoding.is_special_token(200006)
    assert not api.encoding.is_special_token(24912)


def test_invalid_utf8_decoding(api):
    with pytest.raises(api.HarmonyError, match="Invalid utf-8"):
        api.encoding.decode_utf8([132990, 9552])
    assert "\ufffd" in api.encoding.decode([132990, 9552])
