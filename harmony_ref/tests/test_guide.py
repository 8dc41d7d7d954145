"""The examples of the Harmony guide (cookbook.openai.com/articles/openai-harmony).

The guide writes a call's recipient after the channel, as the models do; the library, and therefore this package,
writes it before. Both orders are read, and mean the same.
"""

from harmony_ref import (
    Author,
    Conversation,
    DeveloperContent,
    Message,
    MessageFinished,
    ReasoningEffort,
    Role,
    StreamParser,
    SystemContent,
    ToolDescription,
    ToolNamespaceConfig,
    decode,
    encode_with_special_tokens,
    parse,
    render_conversation,
    render_conversation_for_completion,
    render_conversation_for_training,
    text_of,
    tokens,
)

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

// Gets the current weather in the provided list of locations.
type get_multiple_weathers = (_: {
// List of city and state, e.g. ["San Francisco, CA", "New York, NY"]
locations: string[],
format?: "celsius" | "fahrenheit", // default: celsius
}) => any;

} // namespace functions"""

QUESTION = "What is the weather like in SF?"
REASONING = "Need to use function get_current_weather."
CALL = '{"location":"San Francisco"}'
ANSWER = '{"sunny": true, "temperature": 20}'

FORMAT = {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}

system = SystemContent(reasoning_effort=ReasoningEffort.HIGH, conversation_start_date="2025-06-28")
developer = DeveloperContent(instructions="Use a friendly tone.").with_function_tools(
    [
        ToolDescription(name="get_location", description="Gets the location of the user."),
        ToolDescription(
            name="get_current_weather",
            description="Gets the current weather in the provided location.",
            parameters={
                "type": "object",
                "properties": {
                    "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
                    "format": FORMAT,
                },
                "required": ["location"],
            },
        ),
        ToolDescription(
            name="get_multiple_weathers",
            description="Gets the current weather in the provided list of locations.",
            parameters={
                "type": "object",
                "properties": {
                    "locations": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": 'List of city and state, e.g. ["San Francisco, CA", "New York, NY"]',
                    },
                    "format": FORMAT,
                },
                "required": ["locations"],
            },
        ),
    ]
)
opening = [
    Message(author=Role.SYSTEM, content=system),
    Message(author=Role.DEVELOPER, content=developer),
    Message(author=Role.USER, content=QUESTION),
]
called = [
    Message(author=Role.ASSISTANT, content=REASONING, channel="analysis"),
    Message(
        author=Role.ASSISTANT,
        content=CALL,
        channel="commentary",
        recipient="functions.get_current_weather",
        content_type="<|constrain|>json",
    ),
    Message(
        author=Author(role=Role.TOOL, name="functions.get_current_weather"),
        content=ANSWER,
        channel="commentary",
        recipient="assistant",
    ),
]

OPENING = (
    f"<|start|>system<|message|>{SYSTEM}{NOTE}<|end|>"
    f"<|start|>developer<|message|>{DEVELOPER}<|end|>"
    f"<|start|>user<|message|>{QUESTION}<|end|>"
)
ANALYSIS = f"<|start|>assistant<|channel|>analysis<|message|>{REASONING}<|end|>"
GUIDE_CALL = (
    "<|start|>assistant<|channel|>commentary to=functions.get_current_weather <|constrain|>json"
    f"<|message|>{CALL}<|call|>"
)
LIBRARY_CALL = (
    "<|start|>assistant to=functions.get_current_weather<|channel|>commentary <|constrain|>json"
    f"<|message|>{CALL}<|call|>"
)
TOOL = f"<|start|>functions.get_current_weather to=assistant<|channel|>commentary<|message|>{ANSWER}<|end|>"

ARITHMETIC_OUTPUT = [
    *[
        200005,
        35644,
        200008,
        1844,
        31064,
        25,
        392,
        4827,
        382,
        220,
        17,
        659,
        220,
        17,
        16842,
        12295,
        81645,
        13,
        51441,
        6052,
    ],
    *[13, 200007, 200006, 173781, 200005, 17196, 200008, 17, 659, 220, 17, 314, 220, 19, 13, 200002],
]


def test_the_first_prompt_of_the_tool_example_is_the_guides():
    assert decode(render_conversation_for_completion(opening, Role.ASSISTANT)) == OPENING + "<|start|>assistant"
    assert encode_with_special_tokens(OPENING) == render_conversation(Conversation(messages=opening))


def test_the_second_prompt_of_the_tool_example_is_the_guides_but_for_the_place_of_the_recipient():
    expected = encode_with_special_tokens(OPENING + ANALYSIS + LIBRARY_CALL + TOOL + "<|start|>assistant")
    assert expected == render_conversation_for_completion([*opening, *called])


def test_the_models_call_is_read_with_the_recipient_in_either_place():
    expected = called[1:2]
    assert expected == parse(encode_with_special_tokens(GUIDE_CALL))
    assert expected == parse(encode_with_special_tokens(LIBRARY_CALL))


def test_a_call_without_a_space_before_the_constraint_is_read():
    text = (
        "<|channel|>commentary<|message|>**Action plan**:\n1. Generate an HTML file<|end|>"
        "<|start|>assistant<|channel|>commentary to=functions.generate_file<|constrain|>json<|message|>{}<|call|>"
    )
    preamble, call = parse(encode_with_special_tokens(text), Role.ASSISTANT)
    assert (preamble.channel, preamble.recipient) == ("commentary", None)
    assert (call.recipient, call.content_type) == ("functions.generate_file", "<|constrain|>json")


def test_the_example_of_the_stream_is_reasoning_and_an_answer():
    analysis, final = parse(ARITHMETIC_OUTPUT, Role.ASSISTANT)
    assert Message(author=Role.ASSISTANT, content="2 + 2 = 4.", channel="final") == final
    assert analysis.channel == "analysis"
    assert text_of(analysis).startswith('User asks: "What is 2 + 2?')


def test_the_turn_ends_in_return_and_the_reasoning_in_end():
    events = StreamParser(Role.ASSISTANT).feed(ARITHMETIC_OUTPUT)
    assert [event.stop for event in events if isinstance(event, MessageFinished)] == [tokens.END, tokens.RETURN]


def test_the_next_prompt_has_the_answer_but_not_its_reasoning():
    user = Message(author=Role.USER, content="What is 2 + 2?")
    again = Message(author=Role.USER, content="What about 9 / 2?")
    expected = (
        "<|start|>user<|message|>What is 2 + 2?<|end|>"
        "<|start|>assistant<|channel|>final<|message|>2 + 2 = 4.<|end|>"
        "<|start|>user<|message|>What about 9 / 2?<|end|><|start|>assistant"
    )
    history = [user, *parse(ARITHMETIC_OUTPUT, Role.ASSISTANT), again]
    assert encode_with_special_tokens(expected) == render_conversation_for_completion(history)


def test_a_training_example_ends_in_return():
    history = [Message(author=Role.USER, content="q"), *parse(ARITHMETIC_OUTPUT, Role.ASSISTANT)]
    assert render_conversation_for_training(history)[-1] == tokens.RETURN


def test_the_constrain_form_printed_in_the_guides_sample_renders_with_a_space_that_cannot_be_read_back():
    # The guide's Python sample says "<|constrain|> json"; its texts and the library's tests say "<|constrain|>json".
    message = Message(author=Role.ASSISTANT, recipient="f", content_type="<|constrain|> json", channel="commentary")
    expected = "<|start|>assistant to=f<|channel|>commentary <|constrain|> json<|message|><|call|>"
    assert encode_with_special_tokens(expected) == render_conversation([message])


def test_the_browser_is_described_in_the_guides_words():
    text = text_of(Message(author=Role.SYSTEM, content=system.with_tools(ToolNamespaceConfig.browser())))
    assert text.startswith(SYSTEM[: SYSTEM.index("# Valid")] + "# Tools\n\n## browser\n\n// Tool for browsing.\n")
    assert "// `【{cursor}†L{line_start}(-L{line_end})?】`, for example: `【6†L9-L11】` or `【8†L3】`.\n" in text
    assert "\ntype open = (_: {\nid?: number | string, // default: -1\ncursor?: number, // default: -1\n" in text
    assert text.endswith("} // namespace browser\n\n" + SYSTEM[SYSTEM.index("# Valid") :])


def test_python_is_described_without_comment_marks():
    text = text_of(Message(author=Role.SYSTEM, content=system.with_tools(ToolNamespaceConfig.python())))
    assert "## python\n\nUse this tool to execute Python code in your chain of thought. " in text
    assert "(e.g. when creating plots, tables, or files).\n\nWhen you send a message" in text
