"""Programs written for openai_harmony print the same when the module's name is replaced, which is all that changes."""

import contextlib
import io
import subprocess
import sys

import pytest

from harmony_ref.extras import install_command
from harmony_ref.tokenizer import vocabulary

A_CHAT_WITH_A_TOOL = """
from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncodingName,
    Message,
    ReasoningEffort,
    Role,
    SystemContent,
    ToolDescription,
    load_harmony_encoding,
)

encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
system = SystemContent.new().with_reasoning_effort(ReasoningEffort.HIGH).with_conversation_start_date("2025-06-28")
weather = ToolDescription.new(
    "get_current_weather",
    "Gets the current weather in the provided location.",
    parameters={
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
            "format": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
        },
        "required": ["location"],
    },
)
developer = DeveloperContent.new().with_instructions("Always respond in riddles").with_function_tools([weather])
convo = Conversation.from_messages(
    [
        Message.from_role_and_content(Role.SYSTEM, system),
        Message.from_role_and_content(Role.DEVELOPER, developer),
        Message.from_role_and_content(Role.USER, "What is the weather in Tokyo?"),
        Message.from_role_and_content(Role.ASSISTANT, "Need to call the tool.").with_channel("analysis"),
        Message.from_role_and_content(Role.ASSISTANT, '{"location": "Tokyo"}')
        .with_channel("commentary")
        .with_recipient("functions.get_current_weather")
        .with_content_type("<|constrain|> json"),
        Message.from_author_and_content(
            Author.new(Role.TOOL, "functions.get_current_weather"), '{"temperature": 20, "sunny": true}'
        ).with_channel("commentary").with_recipient("assistant"),
    ]
)
tokens = encoding.render_conversation_for_completion(convo, Role.ASSISTANT)
print(tokens)
print(encoding.decode_utf8(tokens))
print(convo)
print(convo.to_json())
print(Conversation.from_json(convo.to_json()) == convo)
print(encoding.render_conversation_for_training(convo) == encoding.render_conversation(convo))
"""

THE_PROMPT_IS_PARSED = """
from openai_harmony import *

encoding = load_harmony_encoding("HarmonyGptOss")
convo = Conversation.from_messages([Message.from_role_and_content(Role.USER, "What is 2 + 2?")])
tokens = encoding.render_conversation_for_completion(convo, Role.ASSISTANT)
for role in (None, Role.ASSISTANT):
    try:
        print(encoding.parse_messages_from_completion_tokens(tokens, role=role))
    except HarmonyError as error:
        print("HarmonyError:", error, repr(error), isinstance(error, RuntimeError), error.args)
try:
    encoding.render(Message.from_author_and_content(Author(role=Role.TOOL), "x"))
except HarmonyError as error:
    print("a HarmonyError", error)
except RuntimeError as error:
    print("a RuntimeError", error)
"""

TOKENS_ARE_STREAMED = """
import openai_harmony

encoding = openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
stream = openai_harmony.StreamableParser(encoding, role=openai_harmony.Role.ASSISTANT)
tokens = encoding.encode(
    "<|channel|>analysis<|message|>2 + 2 = 4 🫠<|end|>"
    "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
    "<|start|>assistant<|channel|>final<|message|>4.<|return|>",
    allowed_special="all",
)
for token in tokens:
    stream.process(token)
    print("role", stream.current_role, "channel", stream.current_channel, "to", stream.current_recipient)
    print("delta", repr(stream.last_content_delta), "type", stream.current_content_type, stream.state)
    print("content", repr(stream.current_content), stream.state_data)
    if token in encoding.stop_tokens_for_assistant_actions():
        print("STOP", len(stream.messages))
print(stream.process_eos().messages)
print(stream.tokens == tokens)
"""

WHAT_IS_PRINTED_NAMES_THE_MODULE = """
import pickle
import openai_harmony
from openai_harmony import HarmonyError, Message, Role

print(Message, Role, HarmonyError, openai_harmony.StreamableParser, openai_harmony.StreamState.HEADER)
print(Role.USER, f"{Role.USER}", repr(Role.USER), Role("user"), openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
print(pickle.loads(pickle.dumps(Role.USER)) is Role.USER, pickle.loads(pickle.dumps(HarmonyError("x"))))
print(sorted(openai_harmony.__all__))
"""

A_SPECIAL_TOKEN_IS_TYPED = """
from openai_harmony import HarmonyError, load_harmony_encoding

enc = load_harmony_encoding("HarmonyGptOss")
try:
    enc.encode("hello <|start|>")
except HarmonyError as error:
    print(error)
print(enc.encode("hello <|start|>", disallowed_special=enc.special_tokens_set - {"<|start|>"}))
print(enc.encode("hello <|start|>", allowed_special={"<|start|>"}), enc.is_special_token(200006))
try:
    enc.decode_utf8([9552])
except HarmonyError as error:
    print(error)
print(enc.decode([9552]), sorted(enc.stop_tokens()), enc.name)
"""

PROGRAMS = {
    "a chat with a tool": A_CHAT_WITH_A_TOOL,
    "a prompt is parsed": THE_PROMPT_IS_PARSED,
    "tokens are streamed": TOKENS_ARE_STREAMED,
    "what is printed names the module": WHAT_IS_PRINTED_NAMES_THE_MODULE,
    "a special token is typed": A_SPECIAL_TOKEN_IS_TYPED,
}


def printed(program):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(program, "<program>", "exec"), {"__name__": "__main__"})
    return out.getvalue()


@pytest.fixture(scope="module")
def packaged_vocabulary_for_the_original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary")
    (folder / "o200k_base.tiktoken").write_bytes(vocabulary.read_vocabulary_file())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_ENCODINGS_BASE", str(folder))
        yield


@pytest.mark.usefixtures("packaged_vocabulary_for_the_original")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_prints_the_same_when_the_name_is_replaced(program):
    pytest.importorskip("openai_harmony")
    expected = printed(program)
    assert expected.count("\n") >= 3
    replaced = printed(program.replace("openai_harmony", "harmony_ref.compat"))
    assert replaced == expected.replace("openai_harmony", "harmony_ref.compat")


WITHOUT_PYDANTIC = """
import sys
sys.modules["pydantic"] = None
import harmony_ref
try:
    import harmony_ref.compat
except ImportError as error:
    print(error)
"""


def test_a_missing_pydantic_is_reported_with_the_way_to_get_it():
    told = subprocess.run([sys.executable, "-c", WITHOUT_PYDANTIC], capture_output=True, text=True, check=True)
    assert told.stdout == f"harmony_ref.compat needs pydantic: {install_command('compat')}\n"


def test_the_rest_of_the_package_does_without_pydantic():
    code = "import sys, harmony_ref; print('pydantic' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "False\n"
