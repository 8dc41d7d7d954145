import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harmony_ref import (
    Author,
    DeveloperContent,
    HarmonyError,
    Message,
    MessageError,
    RenderError,
    Role,
    SystemContent,
    ToolDescription,
    ToolNamespaceConfig,
    render_conversation,
    render_conversation_for_completion,
    render_conversation_for_training,
    tokens,
)
from harmony_ref.rendering.incremental import GrowingConversation

FUNCTION = ToolDescription(name="f", description="d")
DECLARES_A_FUNCTION = DeveloperContent(instructions="I").with_function_tools([FUNCTION])
DECLARES_ANOTHER = DeveloperContent().with_tools(ToolNamespaceConfig(name="browser", tools=(FUNCTION,)))
SYSTEM = Message(author=Role.SYSTEM, content=SystemContent())

texts = st.sampled_from(["", "hi", "한글 <|end|>", "a b\nc"])
contents = {
    Role.SYSTEM: st.sampled_from([SystemContent(), SystemContent(model_identity="M")]) | texts,
    Role.DEVELOPER: st.sampled_from([DeveloperContent(instructions="I"), DECLARES_A_FUNCTION, DECLARES_ANOTHER]),
}
# One kind of part in the wrong role, a lone surrogate, and tools without a name: what cannot be rendered.
faulty = st.sampled_from([SystemContent(), "\ud800"])


@st.composite
def messages(draw):
    role = draw(st.sampled_from([*Role, Role.ASSISTANT, Role.ASSISTANT]))
    content = draw(faulty if draw(st.integers(0, 29)) == 0 else contents.get(role, texts))
    return Message(
        author=Author(role=role, name=draw(st.sampled_from(["functions.f", "functions.f", None]))),
        content=content,
        channel=draw(st.sampled_from([None, "analysis", "analysis", "commentary", "final", "final"])),
        recipient=draw(st.sampled_from([None, None, "functions.f"])),
    )


def answer(function):
    try:
        return list(function())
    except HarmonyError as error:
        return type(error), str(error)


@settings(max_examples=400, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(conversation=st.lists(messages(), max_size=9), auto_drop=st.booleans())
def test_after_every_message_the_tokens_are_those_of_the_whole_conversation_rendered(conversation, auto_drop):
    growing = GrowingConversation(auto_drop_analysis=auto_drop)
    accepted = []
    for message in conversation:
        longer = [*accepted, message]
        expected = answer(lambda: render_conversation(longer, auto_drop_analysis=auto_drop))  # noqa: B023
        assert expected == answer(lambda: grown(growing, message))  # noqa: B023
        accepted = longer if isinstance(expected, list) else accepted
        check(growing, accepted, auto_drop)


def grown(growing, message):
    growing.append(message)
    return growing.tokens


def check(growing, accepted, auto_drop):
    assert growing.messages == accepted
    assert growing.tokens == render_conversation(accepted, auto_drop_analysis=auto_drop)
    assert growing.for_training() == render_conversation_for_training(accepted, auto_drop_analysis=auto_drop)
    for role in (Role.ASSISTANT, Role.TOOL):
        expected = render_conversation_for_completion(accepted, role, auto_drop_analysis=auto_drop)
        assert growing.for_completion(role) == expected


def said(text, channel, recipient=None):
    return Message(author=Role.ASSISTANT, content=text, channel=channel, recipient=recipient)


LATER_CHANGES = {
    "a final takes out the reasoning before it": [
        Message(author=Role.USER, content="u"),
        said("thought", "analysis"),
        said("answer", "final"),
    ],
    "a call after a final puts the reasoning back": [
        said("thought", "analysis"),
        said("answer", "final"),
        said("{}", "commentary", "functions.f"),
    ],
    "a function declared later adds a sentence to the system message": [
        SYSTEM,
        said("thought", "analysis"),
        said("answer", "final"),
        Message(author=Role.DEVELOPER, content=DECLARES_A_FUNCTION),
    ],
}


@pytest.mark.parametrize("conversation", LATER_CHANGES.values(), ids=LATER_CHANGES)
def test_only_the_last_message_is_encoded_and_yet(conversation, monkeypatch):
    *before, last = conversation
    growing = GrowingConversation(before)
    earlier = growing.tokens
    then = list(earlier)
    encoded = []
    encode = tokens.encode_text
    monkeypatch.setattr(tokens, "encode_text", lambda text: encoded.append(text) or encode(text))
    growing.append(last)
    assert not {"u", "thought", "answer"} & set(encoded) - {part.text for part in last.content if hasattr(part, "text")}
    assert growing.tokens == render_conversation(conversation)
    assert then == list(earlier)
    assert growing.tokens[: len(then)] != then


def test_what_is_new_is_returned():
    growing = GrowingConversation([Message(author=Role.USER, content="u")])
    assert growing.append(said("a", "final")) == render_conversation([said("a", "final")])


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (Message(author=Role.TOOL, content="r"), RenderError),
        (Message(author=Role.USER, content="\ud800"), MessageError),
    ],
    ids=["a tool without a name", "half a character"],
)
def test_what_cannot_be_rendered_is_not_added(message, kind):
    growing = GrowingConversation([SYSTEM])
    with pytest.raises(kind):
        growing.append(message)
    assert growing.messages == [SYSTEM]
    assert growing.tokens == render_conversation([SYSTEM])
