import dataclasses
import json

import pytest

from harmony_ref import (
    Author,
    ChannelConfig,
    Conversation,
    DeveloperContent,
    Message,
    MessageError,
    ReasoningEffort,
    Role,
    SystemContent,
    TextContent,
    ToolDescription,
    ToolNamespaceConfig,
)

TOOL = {"name": "f", "description": "d", "parameters": {"type": "object"}}
WIRE_FORMS = {
    "plain text": {"role": "user", "content": "hi"},
    "all fields": {
        "role": "tool",
        "name": "functions.f",
        "recipient": "assistant",
        "content": "{}",
        "channel": "commentary",
        "content_type": "json",
    },
    "no parts": {"role": "user", "content": []},
    "two parts": {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    "an empty system message": {"role": "system", "content": [{"type": "system_content"}]},
    "a full system message": {
        "role": "system",
        "content": [
            {
                "type": "system_content",
                "model_identity": "M",
                "reasoning_effort": "High",
                "conversation_start_date": "D",
                "knowledge_cutoff": "K",
                "channel_config": {"valid_channels": ["final"], "channel_required": False},
                "tools": {"key": {"name": "n", "description": "d", "tools": []}},
            }
        ],
    },
    "a full developer message": {
        "role": "developer",
        "content": [
            {
                "type": "developer_content",
                "instructions": "I",
                "tools": {"functions": {"name": "functions", "tools": [TOOL, {"name": "g", "description": ""}]}},
            }
        ],
    },
}


@pytest.mark.parametrize("data", WIRE_FORMS.values(), ids=WIRE_FORMS)
def test_the_wire_form_is_read_and_written_back(data):
    assert data == Message.from_dict(data).to_dict()
    assert {"messages": [data]} == Conversation.from_dict({"messages": [data]}).to_dict()


def test_unknown_members_are_ignored():
    assert Message(author=Role.USER, content="hi") == Message.from_dict({"role": "user", "content": "hi", "id": 7})


def test_a_default_system_message_crosses_the_wire():
    message = Message(author=Role.SYSTEM, content=SystemContent())
    assert message == Message.from_dict(json.loads(json.dumps(message.to_dict())))
    assert SystemContent().model_identity == "You are ChatGPT, a large language model trained by OpenAI."


def test_an_absent_member_is_none_and_not_the_default():
    (content,) = Message.from_dict(WIRE_FORMS["an empty system message"]).content
    assert isinstance(content, SystemContent)
    assert (content.model_identity, content.reasoning_effort, content.channel_config) == (None, None, None)


@pytest.mark.parametrize(
    "content",
    ["hi", TextContent(text="hi"), [TextContent(text="hi")], (TextContent(text="hi"),)],
    ids=["a string", "one part", "a list", "a tuple"],
)
def test_content_may_be_given_as(content):
    assert (TextContent(text="hi"),) == Message(author=Author(role=Role.USER), content=content).content


def test_messages_are_values():
    message = Message(author=Role.USER, content="hi")
    assert hash(message) == hash(Message(author=Author(role=Role.USER), content="hi"))
    assert dataclasses.replace(message, channel="final") == Message(author=Role.USER, content="hi", channel="final")
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.channel = "final"


def test_a_tool_is_keyed_by_its_namespace_and_the_last_one_wins():
    first = ToolNamespaceConfig(name="n", description="1", tools=())
    second = ToolNamespaceConfig(name="n", description="2", tools=())
    assert {"n": second} == DeveloperContent().with_tools(first).with_tools(second).tools
    assert {"n": first} == SystemContent().with_tools(first).tools
    functions = DeveloperContent().with_function_tools([ToolDescription(name="f", description="")]).tools
    assert functions is not None
    assert list(functions) == ["functions"]


def test_a_channel_can_be_required():
    assert ChannelConfig(valid_channels=("a",), channel_required=True) == ChannelConfig.require_channels(["a"])
    assert [effort.value for effort in ReasoningEffort] == ["Low", "Medium", "High"]


@pytest.mark.parametrize("empty", [None, {}], ids=["null", "an object"])
def test_a_role_may_be_the_name_of_an_empty_member(empty, oracle):
    data = {"role": {"user": empty}, "content": "hi"}
    assert Message(author=Role.USER, content="hi") == Message.from_dict(data)
    assert "ok" in oracle.render(data, False)


WRONG = {
    "a role that is an object without members": (
        {"role": {}, "content": ""},
        "invalid value: map, expected map with a single key",
    ),
    "a role that is the name of another member": (
        {"role": {"x": None}, "content": ""},
        "unknown variant `x`, expected one of `user`, `assistant`, `system`, `developer`, `tool`",
    ),
    "a role that is the name of a member with a value": (
        {"role": {"user": 1}, "content": ""},
        "invalid type: integer `1`, expected unit",
    ),
    "no object": ("x", 'invalid type: string "x", expected struct Message'),
    "a null name of a tool": (
        {"role": "developer", "content": [{"type": "developer_content", "tools": {"n": {"name": None, "tools": []}}}]},
        "invalid type: null, expected a string",
    ),
    "tools that are a list": (
        {"role": "developer", "content": [{"type": "developer_content", "tools": []}]},
        "invalid type: sequence, expected a map",
    ),
    "a text that is a number": (
        {"role": "user", "content": [{"type": "text", "text": 1.5}]},
        "invalid type: floating point `1.5`, expected a string",
    ),
    "a flag that is a string": (
        {
            "role": "system",
            "content": [
                {"type": "system_content", "channel_config": {"valid_channels": [], "channel_required": "yes"}},
            ],
        },
        'invalid type: string "yes", expected a boolean',
    ),
}


@pytest.mark.parametrize(("data", "problem"), WRONG.values(), ids=WRONG)
def test_what_is_no_message_is_refused_with_the_reason(data, problem):
    with pytest.raises(MessageError) as caught:
        Message.from_dict(data)
    assert ("message", problem) == (caught.value.subject, caught.value.problem)


@pytest.mark.parametrize(("data", "problem"), WRONG.values(), ids=WRONG)
def test_the_library_gives_the_same_reason(data, problem, oracle):
    refused, text = oracle.render(data, False)["err"]
    assert (refused, text.partition(" at line ")[0]) == ("ValueError", f"invalid message JSON: {problem}")


def test_what_is_no_conversation_is_refused():
    with pytest.raises(MessageError, match="invalid conversation JSON: missing field `messages`"):
        Conversation.from_dict({})
    with pytest.raises(MessageError, match="invalid conversation JSON: invalid type: map, expected a sequence"):
        Conversation.from_dict({"messages": {}})
