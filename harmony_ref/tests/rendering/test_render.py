import pytest

from harmony_ref import (
    Author,
    Conversation,
    DeveloperContent,
    Message,
    MessageError,
    RenderError,
    Role,
    SystemContent,
    TextContent,
    ToolDescription,
    ToolNamespaceConfig,
    decode,
    developer_text,
    encode,
    has_function_tools,
    render,
    render_conversation,
    render_conversation_for_completion,
    system_text,
    text_of,
    tokens,
    without_dropped_analysis,
)

FUNCTION = DeveloperContent().with_function_tools([ToolDescription(name="f", description="")])


def said(role, content, channel=None, recipient=None):
    return Message(author=role, content=content, channel=channel, recipient=recipient)


ENDS = {
    "a user's": (said(Role.USER, "x", recipient="assistant"), tokens.END),
    "an assistant's": (said(Role.ASSISTANT, "x"), tokens.END),
    "an assistant's final": (said(Role.ASSISTANT, "x", "final"), tokens.END),
    "an assistant's call": (said(Role.ASSISTANT, "x", recipient="f"), tokens.CALL),
    "an assistant's to all, though nobody is named": (said(Role.ASSISTANT, "x", recipient="all"), tokens.CALL),
}


@pytest.mark.parametrize(("message", "end"), ENDS.values(), ids=ENDS)
def test_the_last_token_of_a_message_is_right_for(message, end):
    assert end == render(message)[-1]


def test_parts_are_encoded_one_by_one():
    message = said(Role.USER, [TextContent(text="hel"), TextContent(text="lo")])
    assert [*encode("hel"), *encode("lo")] == render(message)[3:-1]
    assert text_of(message) == "hello"


def test_a_prompt_ends_with_the_next_role():
    assert [tokens.START, *encode("assistant")] == render_conversation_for_completion([])
    assert [tokens.START, *encode("tool")] == render_conversation_for_completion(Conversation(), Role.TOOL)


def test_the_system_message_says_where_functions_go_iff_there_are_some():
    system = said(Role.SYSTEM, SystemContent())
    note = "Calls to these tools must go to the commentary channel: 'functions'."
    assert note not in decode(render_conversation([system]))
    assert note in decode(render_conversation([system, said(Role.DEVELOPER, FUNCTION)]))
    assert note in system_text(SystemContent(), conversation_has_function_tools=True)


def test_only_functions_of_developers_count():
    namespace = ToolNamespaceConfig(name="functions", tools=(ToolDescription(name="f", description=""),))
    assert has_function_tools([said(Role.DEVELOPER, FUNCTION)])
    assert not has_function_tools([said(Role.SYSTEM, SystemContent().with_tools(namespace))])
    assert not has_function_tools([said(Role.DEVELOPER, DeveloperContent(tools={"other": namespace}))])
    assert not has_function_tools([said(Role.DEVELOPER, DeveloperContent().with_function_tools([]))])


def test_namespaces_are_ordered_by_key_and_shown_by_name():
    first, second = (ToolNamespaceConfig(name=name, tools=()) for name in ("z", "a"))
    assert developer_text(DeveloperContent(tools={"B": first, "a": second})) == "# Tools\n\n## z\n\n\n## a\n"


MISPLACED = {
    "system content": (
        said(Role.USER, SystemContent()),
        "SystemContent may only appear in system messages, found in User",
    ),
    "developer content": (
        said(Role.SYSTEM, DeveloperContent()),
        "DeveloperContent may only appear in developer messages, found in System",
    ),
    "a nameless tool": (said(Role.TOOL, "x"), "Tools should have a name!"),
}


@pytest.mark.parametrize(("message", "text"), MISPLACED.values(), ids=MISPLACED)
def test_harmony_has_no_form_for(message, text):
    with pytest.raises(RenderError) as caught:
        render_conversation([message])
    assert text == str(caught.value)
    assert caught.value.found
    assert caught.value.expected


def test_text_that_json_cannot_carry_is_refused():
    with pytest.raises(MessageError):
        render(said(Role.USER, "\ud83d"))
    assert render(said(Role.USER, "😀")) == render(said(Role.USER, "\ud83d\ude00"))


def test_the_given_messages_are_not_changed():
    history = [
        said(Role.USER, "q"),
        said(Role.ASSISTANT, "thinking", "analysis"),
        said(Author(role=Role.TOOL, name="python"), "output", "analysis"),
        said(Role.ASSISTANT, "a", "final"),
    ]
    assert [history[0], history[3]] == without_dropped_analysis(history)
    assert len(history) == 4
    rendered = render_conversation(iter(history))
    assert rendered == render_conversation(without_dropped_analysis(history), auto_drop_analysis=False)


def test_a_schema_nested_beyond_all_measure_is_refused():
    schema = {"type": "string"}
    for _ in range(10_000):
        schema = {"type": "array", "items": schema}
    developer = DeveloperContent().with_function_tools([ToolDescription(name="f", description="", parameters=schema)])
    with pytest.raises(MessageError, match="invalid conversation JSON: recursion limit exceeded"):
        render_conversation([said(Role.DEVELOPER, developer)])
