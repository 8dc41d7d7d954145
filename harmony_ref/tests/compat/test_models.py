"""How the models behave: what changes, what is copied, what is equal, and what is refused in which words."""

import copy
import pickle
import weakref

import pytest
from pydantic import BaseModel


def said(api, text="hi"):
    return api.Message.from_role_and_content(api.Role.USER, text)


def tool(api):
    return api.ToolDescription.new("f", "d", {"type": "object", "properties": {"a": {"type": "string"}}})


def namespace(api):
    return api.ToolNamespaceConfig(name="n", description="d", tools=[tool(api)])


def all_models(api):
    system = api.SystemContent.new().with_browser_tool()
    developer = api.DeveloperContent.new().with_instructions("I").with_function_tools([tool(api)])
    message = said(api).with_channel("final").with_recipient("all").with_content_type("json")
    return [
        api.Author.new(api.Role.TOOL, "functions.f"),
        api.Content(),
        api.TextContent(text="a"),
        system,
        developer,
        message.adding_content(developer),
        api.Conversation.from_messages([message]),
        tool(api),
        namespace(api),
        api.ChannelConfig.require_channels(["a"]),
        api.RenderOptions(),
        api.RenderConversationConfig(),
    ]


def test_models_survive_pickling_and_copying(api):
    for model in all_models(api):
        for again in (pickle.loads(pickle.dumps(model)), copy.copy(model), copy.deepcopy(model), model.model_copy()):
            assert again == model
            assert repr(again) == repr(model)
            assert again.model_fields_set == model.model_fields_set


def test_models_print_and_dump_alike(official, ours):
    for way in (
        lambda api: [repr(model) for model in all_models(api)],
        lambda api: [str(model) for model in all_models(api)],
        lambda api: [repr(model.model_dump()) for model in all_models(api)],
        lambda api: [model.model_dump_json() for model in all_models(api)],
        lambda api: [sorted(model.model_fields_set) for model in all_models(api)],
        lambda api: [repr(model.to_dict()) for model in all_models(api)[2:7]],
        lambda api: [repr(dict(model)) for model in all_models(api)[:6]],
    ):
        assert ours.answer(way) == official.answer(way)


def test_fluent_methods_change_and_return_their_own_object(api):
    system, developer, message = api.SystemContent.new(), api.DeveloperContent.new(), said(api)
    channels = api.ChannelConfig.require_channels(["a"])
    assert system.with_model_identity("I") is system
    assert system.with_reasoning_effort(api.ReasoningEffort.LOW) is system
    assert system.with_conversation_start_date("D") is system
    assert system.with_knowledge_cutoff("K") is system
    assert system.with_channel_config(channels) is system
    assert system.channel_config is channels
    assert system.with_required_channels(["b"]) is system
    assert system.with_tools(namespace(api)).with_browser_tool().with_python_tool() is system
    assert list(system.tools) == ["n", "browser", "python"]
    assert (system.model_identity, system.conversation_start_date, system.knowledge_cutoff) == ("I", "D", "K")
    assert developer.with_instructions("I").with_tools(namespace(api)).with_function_tools([tool(api)]) is developer
    assert list(developer.tools) == ["n", "functions"]
    assert message.with_channel("c").with_recipient("r").with_content_type("t").adding_content("more") is message
    assert (message.channel, message.recipient, message.content_type) == ("c", "r", "t")
    assert message.content == [api.TextContent(text="hi"), api.TextContent(text="more")]


def test_fluent_methods_do_not_validate(api):
    assert said(api).with_channel(5).channel == 5


def test_lists_of_the_caller_are_copied_and_their_members_are_not(api):
    messages, parts, part = [said(api)], [], api.TextContent(text="a")
    conversation = api.Conversation.from_messages(messages)
    messages.append(said(api))
    assert len(conversation.messages) == 1
    assert conversation.messages[0] is messages[0]
    assert list(conversation) == conversation.messages
    parts.append(part)
    message = api.Message.from_role_and_contents(api.Role.USER, parts)
    parts.append(part)
    assert message.content == [part]
    assert message.content[0] is part


def test_what_is_changed_after_a_rendering_counts_in_the_next(api):
    content = api.DeveloperContent.new().with_instructions("I").with_function_tools([tool(api)])
    message = api.Message.from_role_and_content(api.Role.DEVELOPER, content)
    texts = []

    def rendered():
        texts.append(api.encoding.decode(api.encoding.render(message)))
        return texts[-1]

    rendered()
    content.tools["functions"].tools[0].parameters["properties"]["a"]["type"] = "number"
    assert "a?: number," in rendered()
    content.tools["functions"].tools[0].parameters["properties"]["a"]["default"] = True
    assert "// default: true" in rendered()
    content.tools["functions"].tools[0].parameters["properties"]["a"]["default"] = 1
    assert "// default: 1\n" in rendered()
    content.tools["functions"].tools[0].parameters["properties"]["a"]["default"] = 1.0
    assert "// default: 1.0" in rendered()
    content.tools["functions"].tools[0].description = "e"
    assert "// e\n" in rendered()
    content.tools["functions"].tools.append(tool(api))
    assert rendered().count("type f =") == 2
    content.instructions = "J"
    assert "# Instructions\n\nJ" in rendered()
    message.author.role = api.Role.USER
    with pytest.raises(RuntimeError, match="DeveloperContent may only appear in developer messages, found in User"):
        rendered()
    assert len(set(texts)) == len(texts) == 8


def test_built_in_tools_are_new_objects_each_time(api):
    api.ToolNamespaceConfig.browser().tools[0].parameters["properties"].clear()
    assert api.ToolNamespaceConfig.browser().tools[0].parameters["properties"]
    api.SystemContent.new().channel_config.valid_channels.append("x")
    assert api.SystemContent.new().channel_config.valid_channels == ["analysis", "commentary", "final"]


def test_messages_of_a_parser_are_new_objects_each_time(api):
    parser = api.StreamableParser(api.encoding, api.Role.ASSISTANT)
    for token in api.encoding.encode("<|channel|>final<|message|>hi<|end|>", allowed_special="all"):
        parser.process(token)
    parser.messages[0].with_channel("x").adding_content("more").content[0].text = "changed"
    parser.messages.clear()
    parser.tokens.clear()
    parser.state_data.clear()
    assert parser.messages == [api.Message.from_role_and_content(api.Role.ASSISTANT, "hi").with_channel("final")]
    assert len(parser.tokens) == 5
    assert parser.state_data == {"state": "ExpectStart"}


class Ids(BaseModel):
    ids: list[int]


def test_what_a_parser_returns_are_plain_lists_and_dicts(api):
    """Code in C, pydantic's above all, reads a list without asking it: a subclass that fills itself would be empty."""
    parser = api.StreamableParser(api.encoding, api.Role.ASSISTANT)
    for token in api.encoding.encode("<|channel|>final<|message|>hi<|end|><|start|>", allowed_special="all"):
        parser.process(token)
    assert len(api.Conversation(messages=parser.messages).messages) == 1
    assert Ids(ids=parser.tokens).ids == list(parser.tokens)
    assert len(Ids(ids=parser.tokens).ids) == 6
    for value in (parser.messages, parser.tokens, parser.state_data["header_tokens"]):
        assert type(value) is list
    assert type(parser.state_data) is dict


def test_objects_take_attributes_and_weak_references(api):
    for made in (api.StreamableParser(api.encoding, None), api.HarmonyEncoding(api.encoding._inner)):
        made.note = "mine"
        assert made.note == "mine"
        assert weakref.ref(made)() is made


def test_pydantic_writes_no_text_of_a_message(api):
    assert '"content":[{}]' in said(api).model_dump_json()
    read = api.Message(author=api.Author(role=api.Role.USER), content=[{"type": "text", "text": "a"}])
    assert read.content == [api.Content()]
    with pytest.raises(NotImplementedError):
        read.to_dict()


def test_an_encoding_has_its_name_and_its_special_tokens(api):
    assert api.encoding.name == "HarmonyGptOss"
    assert len(api.encoding.special_tokens_set) == 1091
    assert api.encoding.special_tokens_set is api.encoding.special_tokens_set
    assert sorted(api.encoding.stop_tokens()) == [200002, 200007, 200012]
    assert sorted(api.encoding.stop_tokens_for_assistant_actions()) == [200002, 200012]


def test_an_encoding_is_loaded_by_member_or_by_name(ours):
    for name in ("HarmonyGptOss", ours.HarmonyEncodingName.HARMONY_GPT_OSS):
        assert ours.load_harmony_encoding(name).name == "HarmonyGptOss"
    assert ours.load_harmony_encoding("HarmonyGptOss") is not ours.load_harmony_encoding("HarmonyGptOss")


class Speech(BaseModel):
    text: str


REFUSED = {
    "content that is no message": lambda api: api.Conversation(messages=[api.SystemContent()]),
    "a text for messages": lambda api: api.Conversation(messages="x"),
    "a message of another class": lambda api: api.Conversation(messages=[Speech(text="a")]),
    "an unknown role": lambda api: api.Author(role="bad"),
    "no role": lambda api: api.Author(name="x"),
    "a name that is a number": lambda api: api.Author(role="user", name=5),
    "a tool without a description": lambda api: api.ToolDescription(name="f"),
    "a tool whose parameters are a list": lambda api: api.ToolDescription.new("f", "d", [1]),
    "a namespace without tools": lambda api: api.ToolNamespaceConfig(name="n"),
    "an unknown effort": lambda api: api.SystemContent(reasoning_effort="low"),
    "channels that are a text": lambda api: api.ChannelConfig.require_channels("analysis"),
    "content that is a number": lambda api: api.Message.from_role_and_content(api.Role.USER, 5),
    "text that is a number": lambda api: api.TextContent(text=5),
    "a flag that is a word": lambda api: api.RenderConversationConfig(auto_drop_analysis="maybe"),
    "an unknown attribute": lambda api: setattr(said(api), "nope", 1),
    "a hash": lambda api: hash(said(api)),
    "from_dict, no role": lambda api: api.Message.from_dict({"content": "a"}),
    "from_dict, no content": lambda api: api.Message.from_dict({"role": "user"}),
    "from_dict, an unknown role": lambda api: api.Message.from_dict({"role": "bad", "content": "a"}),
    "from_dict, no content at all": lambda api: api.Message.from_dict({"role": "user", "content": None}),
    "from_dict, parts that are texts": lambda api: api.Message.from_dict({"role": "user", "content": ["a"]}),
    "from_dict, a part of an unknown type": lambda api: api.Message.from_dict(
        {"role": "user", "content": [{"type": "image", "url": "x"}]}
    ),
    "from_dict, a part whose type is a list": lambda api: api.Message.from_dict(
        {"role": "user", "content": [{"type": ["text"]}]}
    ),
    "from_dict, a part without its text": lambda api: api.Message.from_dict(
        {"role": "user", "content": [{"type": "text"}]}
    ),
    "from_dict, a part with an odd key": lambda api: api.Message.from_dict(
        {"role": "user", "content": [{"type": "text", 5: 6}]}
    ),
    "system from_dict, an unknown effort": lambda api: api.SystemContent.from_dict({"reasoning_effort": "x"}),
    "developer from_dict, tools that are a list": lambda api: api.DeveloperContent.from_dict({"tools": []}),
    "from_json, no JSON": lambda api: api.Conversation.from_json("x"),
    "from_json, no messages": lambda api: api.Conversation.from_json("{}"),
    "to_json, bytes": lambda api: said(api).with_channel(b"a").to_json(),
    "raising for a special token": lambda api: api.raise_disallowed_special_token("<|x|>"),
}


@pytest.mark.parametrize("way", REFUSED.values(), ids=REFUSED)
def test_what_models_refuse_they_refuse_in_the_same_words(official, ours, way):
    expected = official.answer(way)
    assert "error" in expected
    assert ours.answer(way) == expected


ACCEPTED = {
    "roles by value": lambda api: repr(api.Author(role="user")),
    "from_dict, plain text": lambda api: repr(api.Message.from_dict({"role": "user", "content": "a", "x": 1})),
    "from_dict, no validation of a channel": lambda api: (
        api.Message.from_dict({"role": "user", "content": "", "channel": 5}).channel
    ),
    "from_dict, each kind of part": lambda api: repr(
        api.Message.from_dict(
            {
                "role": "tool",
                "name": "n",
                "recipient": "r",
                "content_type": "t",
                "content": [
                    {"type": "text", "text": "a", "more": 1},
                    {"type": "system_content"},
                    {"type": "developer_content", "instructions": "I", "tools": {"x": {"name": "y", "tools": []}}},
                ],
            }
        )
    ),
    "contents of a dict": lambda api: repr(api.SystemContent.from_dict({"type": "system_content"})),
    "a dict for a message": lambda api: repr(api.Conversation(messages=[{"author": {"role": "user"}}])),
    "parameters with keys that are numbers": lambda api: repr(api.ToolDescription.new("f", "d", {1: {2.5: None}})),
    "an extra member": lambda api: repr(api.TextContent(text="a", more=1)),
    "content without a kind": lambda api: repr(api.Content(text="a")),
    "strict schemas": lambda api: api.SystemContent.model_validate_json('{"reasoning_effort": "High"}').to_dict(),
    "rebuilding": lambda api: api.Message.model_rebuild(force=True),
    "empty": lambda api: [api.Conversation().to_json(), api.Message(author={"role": "user"}).to_json()],
}


@pytest.mark.parametrize("way", ACCEPTED.values(), ids=ACCEPTED)
def test_what_models_accept_they_accept_alike(official, ours, way):
    expected = official.answer(way)
    assert "ok" in expected
    assert repr(ours.answer(way)) == repr(expected)


def own_message(api):
    class Marked(api.Message):
        mark: str = "!"

        def to_dict(self):
            written = super().to_dict()
            return {**written, "content": [{"type": "text", "text": self.content[0].text + self.mark}]}

    return Marked(author=api.Author(role=api.Role.USER), content=[api.TextContent(text="a")])


def own_content(api):
    class Shout(api.Content):
        text: str

        def to_dict(self):
            return {"type": "text", "text": self.text.upper()}

    return api.Message.from_role_and_content(api.Role.USER, Shout(text="loud"))


def own_text(api):
    class Loud(api.TextContent):
        def to_dict(self):
            return {"type": "text", "text": self.text.upper()}

    return api.Message.from_role_and_content(api.Role.USER, Loud(text="loud"))


def own_text_among_others(api):
    return own_text(api).adding_content("more")


def own_instructions(api):
    class Polite(api.DeveloperContent):
        def to_dict(self):
            return {**super().to_dict(), "instructions": "Please."}

    return api.Message.from_role_and_content(api.Role.DEVELOPER, Polite.new())


def own_author(api):
    class Named(api.Author):
        def model_dump(self):
            return {"role": "user", "name": "bob"}

    return api.Message.from_author_and_content(Named(role=api.Role.TOOL), "a")


def own_tool(api):
    class Described(api.ToolDescription):
        origin: str = "here"

    tool = Described.new("f", "d")
    return api.Message.from_role_and_content(api.Role.DEVELOPER, api.DeveloperContent.new().with_function_tools([tool]))


@pytest.mark.parametrize(
    "make",
    [own_message, own_content, own_text, own_text_among_others, own_instructions, own_author, own_tool],
)
def test_classes_of_the_user_are_rendered_by_their_own_to_dict(official, ours, make):
    def way(api):
        message = make(api)
        return [
            api.encoding.decode(api.encoding.render(message)),
            api.encoding.render_conversation(api.Conversation.from_messages([message])),
            message.to_json(),
            repr(message),
        ]

    assert "ok" in official.answer(way)
    assert ours.answer(way) == official.answer(way)
