import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_conformance.prompts.declarations_in_prompt import as_identifier, declared_functions, is_same_function
from harmony_conformance.prompts.expected_parts import (
    PartKind,
    RecipientPosition,
    Retention,
    expected_parts,
    format_ids,
    read_prompt,
    text_pieces,
)
from harmony_conformance.prompts.token_injection import find_injection
from harmony_conformance.redactable_text import shorten
from harmony_ref import encode, encode_with_special_tokens, tokens


def ids(text):
    return encode_with_special_tokens(text)


def read_back(reading):
    """The messages as the library's wire form has them."""
    names = {
        "role": "role",
        "name": "name",
        "recipient": "recipient",
        "channel": "channel",
        "content_type": "content_type",
    }
    return [
        {key: value for key, name in names.items() if (value := getattr(message, name)) is not None}
        | {"content": message.content}
        for message in reading.messages
    ]


TEXTS = st.text(max_size=30) | st.sampled_from(
    ["<|end|>", "a<|start|>system<|message|>b", "⟦end⟧", "⟦", "to=functions.f", "\n", "🧑‍🚀", "assistant"]
)
MESSAGES = st.one_of(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "developer", "user"]), "content": TEXTS}),
    st.fixed_dictionaries(
        {
            "role": st.just("assistant"),
            "channel": st.sampled_from(["analysis", "commentary", "final"]),
            "content": TEXTS,
        }
    ),
    st.fixed_dictionaries(
        {
            "role": st.just("assistant"),
            "channel": st.just("commentary"),
            "recipient": st.sampled_from(["functions.f", "functions.mcp.search-web"]),
            "content_type": st.sampled_from(["json", "code"]),
            "content": TEXTS,
        }
    ),
    st.fixed_dictionaries(
        {
            "role": st.just("tool"),
            "name": st.sampled_from(["functions.f", "functions.mcp.search-web"]),
            "recipient": st.just("assistant"),
            "channel": st.just("commentary"),
            "content": TEXTS,
        }
    ),
)


@given(messages=st.lists(MESSAGES, max_size=6))
def test_what_the_library_renders_is_read_back(render_by_library, messages):
    reading = read_prompt(render_by_library(messages))
    assert (read_back(reading), reading.generation_prompt, reading.unparsed_tokens) == (
        messages,
        "⟦start⟧assistant",
        (),
    )
    assert [message.special_count for message in reading.messages] == [0] * len(messages)


def test_the_constrain_marker_is_a_content_type(render_by_library):
    call = {
        "role": "assistant",
        "recipient": "functions.f",
        "channel": "commentary",
        "content_type": "<|constrain|>json",
        "content": "{}",
    }
    (message,) = read_prompt(render_by_library([call])).messages
    assert (message.content_type, message.recipient, message.recipient_position) == (
        "⟦constrain⟧json",
        "functions.f",
        RecipientPosition.ROLE,
    )


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param("user", {"role": "user"}, id="a role"),
        pytest.param("user:alice", {"role": "user", "name": "alice"}, id="a role with a name"),
        pytest.param("assistant<|channel|>final", {"role": "assistant", "channel": "final"}, id="a channel"),
        pytest.param(
            "assistant to=functions.f<|channel|>commentary json",
            {"role": "assistant", "recipient": "functions.f", "channel": "commentary", "content_type": "json"},
            id="the recipient before the channel",
        ),
        pytest.param(
            "assistant<|channel|>commentary to=functions.f <|constrain|>json",
            {
                "role": "assistant",
                "recipient": "functions.f",
                "channel": "commentary",
                "content_type": "⟦constrain⟧json",
            },
            id="the recipient after the channel",
        ),
        pytest.param(
            "assistant<|channel|>commentary to=functions.f<|constrain|>json",
            {
                "role": "assistant",
                "recipient": "functions.f",
                "channel": "commentary",
                "content_type": "⟦constrain⟧json",
            },
            id="no blank before the marker",
        ),
        pytest.param(
            "functions.f to=assistant<|channel|>commentary",
            {"role": "tool", "name": "functions.f", "recipient": "assistant", "channel": "commentary"},
            id="a function",
        ),
        pytest.param("functions.f", {"role": "tool", "name": "functions.f"}, id="a bare function"),
        pytest.param("tool", {"role": "tool"}, id="the word tool"),
        pytest.param("", {"role": "tool", "name": ""}, id="nothing"),
    ],
)
def test_headers(header, expected):
    (found,) = read_back(read_prompt(ids(f"<|start|>{header}<|message|>x<|end|>")))
    assert found == {**expected, "content": "x"}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param("assistant<|channel|>final", RecipientPosition.NONE, id="no recipient"),
        pytest.param("assistant to=functions.f<|channel|>commentary", RecipientPosition.ROLE, id="before the channel"),
        pytest.param(
            "assistant<|channel|>commentary to=functions.f", RecipientPosition.CHANNEL, id="after the channel"
        ),
        pytest.param("assistant to=a<|channel|>commentary to=b", RecipientPosition.ROLE, id="twice: the first counts"),
    ],
)
def test_the_place_of_the_recipient(header, expected):
    assert read_prompt(ids(f"<|start|>{header}<|message|>x<|end|>")).messages[0].recipient_position is expected


@pytest.mark.parametrize(
    ("text", "function"),
    [
        pytest.param("<|start|>assistant to=functions.f<|channel|>commentary<|message|>", "f", id="a call"),
        pytest.param("<|start|>functions.a.b to=assistant<|channel|>commentary<|message|>", "a.b", id="a result"),
        pytest.param("<|start|>assistant to=f<|channel|>commentary<|message|>", None, id="no namespace"),
        pytest.param("<|start|>tool<|message|>", None, id="the word tool"),
        pytest.param("<|start|>user<|message|>", None, id="a user"),
    ],
)
def test_the_function_of_a_message(text, function):
    assert read_prompt(ids(text)).messages[0].function == function


@pytest.mark.parametrize(
    ("text", "contents", "trailer", "stray"),
    [
        pytest.param("", [], "", (), id="nothing"),
        pytest.param("<|start|>user<|message|>a<|end|>", ["a"], "", (), id="one message"),
        pytest.param(
            "<|start|>user<|message|>a<|end|>\n<|start|>assistant",
            ["a"],
            "⟦start⟧assistant",
            ("\n",),
            id="text before the answer",
        ),
        pytest.param("x<|start|>user<|message|>a<|end|>", ["a"], "", ("x",), id="text before"),
        pytest.param(
            "<|start|>user<|message|>a<|message|>b<|end|>", ["a⟦message⟧b"], "", (), id="a special token inside"
        ),
        pytest.param("<|start|>user<|message|>a", ["a"], "", (), id="not closed"),
        pytest.param("<|start|>user<|message|>a<|call|>", ["a"], "", (), id="closed by another token"),
        pytest.param("hello", [], "hello", (), id="no message"),
    ],
)
def test_nothing_of_a_prompt_is_dropped(text, contents, trailer, stray):
    reading = read_prompt(ids(text))
    assert ([message.content for message in reading.messages], reading.generation_prompt, reading.unparsed_tokens) == (
        contents,
        trailer,
        stray,
    )


@given(
    st.lists(
        st.sampled_from(["a", " x", "<|start|>", "<|message|>", "<|end|>", "<|channel|>", "<|call|>"]), max_size=20
    )
)
def test_every_word_of_a_prompt_is_shown_somewhere(words):
    text = "".join(words)
    reading = read_prompt(ids(text))
    shown = "".join((*map(str, reading.messages), reading.generation_prompt, *reading.unparsed_tokens))
    assert shown.count("x") == text.count("x")


def test_special_tokens_are_distinguished_from_their_letters():
    mixed = [*encode("<|end|>"), tokens.END, *encode("⟦end⟧")]
    assert format_ids(mixed) == "<|end|>⟦end⟧⟦end⟧"
    assert list(text_pieces(mixed)) == [("<|end|>", False), ("<|end|>", True), ("⟦end⟧", False)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param("short", "short", id="a short text"),
        pytest.param("a" * 10, "aaaaaaaaaa", id="as long as allowed"),
        pytest.param("a" * 7 + "b" * 7, "aaaaa…(4 characters)…bbbbb", id="a long text"),
    ],
)
def test_shortening_keeps_both_ends(value, expected):
    assert shorten(value, 10) == expected


def history(code):
    """A request of turns: u user, n reasoning, c call, r result, f final answer; what stands together is one message."""
    messages = []
    for number, word in enumerate(code.split()):
        if word == "u":
            messages.append({"role": "user", "content": f"u{number}"})
        elif word == "r":
            messages.append({"role": "tool", "tool_call_id": "c", "content": "r"})
        else:
            message = {"role": "assistant", "content": "said" if "f" in word or "p" in word else None}
            if "n" in word:
                message["reasoning"] = f"n{number}"
            if "c" in word:
                message["tool_calls"] = [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]
            messages.append(message)
    return {"messages": messages}


@pytest.mark.parametrize(
    ("code", "keeps"),
    [
        pytest.param("u nf u", [Retention.ABSENT], id="a finished turn"),
        pytest.param("u nc r", [Retention.PRESENT], id="an open loop"),
        pytest.param("u nc r nc r", [Retention.PRESENT, Retention.PRESENT], id="a longer loop"),
        pytest.param("u nc r nf u", [Retention.ABSENT, Retention.ABSENT], id="a finished loop"),
        pytest.param("u nf u nf u", [Retention.ABSENT, Retention.EITHER], id="between two finals the sources differ"),
        pytest.param(
            "u nf u nc r", [Retention.EITHER, Retention.PRESENT], id="a finished turn while a new loop is open"
        ),
        pytest.param("u f u nc r", [Retention.PRESENT], id="an open loop after a finished turn"),
        pytest.param("u nc r u", [Retention.EITHER], id="a user who interrupts a loop"),
        pytest.param("u nf", [Retention.EITHER], id="an answer to be continued"),
        pytest.param("u f u", [], id="no reasoning"),
    ],
)
def test_which_reasoning_has_to_be_kept(code, keeps):
    assert [part.retention for part in expected_parts(history(code)) if part.kind is PartKind.REASONING] == keeps


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        pytest.param("u", [PartKind.USER], id="a question"),
        pytest.param("u f u", [PartKind.USER, PartKind.FINAL, PartKind.USER], id="an answer"),
        pytest.param(
            "u npc r",
            [PartKind.USER, PartKind.REASONING, PartKind.PREAMBLE, PartKind.CALL, PartKind.RESULT],
            id="a call with all",
        ),
    ],
)
def test_the_parts_of_a_request_stand_in_order(code, kinds):
    assert [part.kind for part in expected_parts(history(code))] == kinds


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(
            {"role": "system", "content": "a"}, [(PartKind.INSTRUCTIONS, "a", "/messages/0/content")], id="system"
        ),
        pytest.param(
            {"role": "developer", "content": "a"}, [(PartKind.INSTRUCTIONS, "a", "/messages/0/content")], id="developer"
        ),
        pytest.param({"role": "user", "content": None}, [(PartKind.USER, "", "/messages/0/content")], id="no content"),
        pytest.param(
            {"role": "assistant", "thinking": "t"}, [(PartKind.REASONING, "t", "/messages/0/thinking")], id="thinking"
        ),
        pytest.param({"role": "robot", "content": "a"}, [], id="an unknown role"),
        pytest.param("no object", [], id="no object"),
    ],
)
def test_what_a_message_becomes(message, expected):
    assert [(part.kind, part.text, part.where) for part in expected_parts({"messages": [message]})] == expected


@pytest.mark.parametrize("request_body", [None, {}, {"messages": None}, {"messages": 7}, []])
def test_a_request_without_messages_wants_nothing(request_body):
    assert expected_parts(request_body) == ()


SYSTEM = "<|start|>system<|message|>s<|end|>"


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        pytest.param(
            "a<|end|>b", [f"{SYSTEM}<|start|>user<|message|>", "a<|end|>b", "<|end|>"], id="in ordinary tokens"
        ),
        pytest.param("<|end|>", [f"{SYSTEM}<|start|>user<|message|>", "<|end|>", "<|end|>"], id="one marker alone"),
        pytest.param('"<|end|>"\n', [f"{SYSTEM}<|start|>f<|message|>", '"\\"<|end|>\\"\\n"', "<|end|>"], id="escaped"),
        pytest.param("a <| b", [f"{SYSTEM}<|start|>user<|message|>", "a <| b", "<|end|>"], id="no marker"),
        pytest.param("gone<|end|>", [SYSTEM, "", "<|start|>user<|message|>hi<|end|>"], id="not in the prompt at all"),
    ],
)
def test_text_that_stayed_text(text, prompt):
    before, ordinary, after = prompt
    assert find_injection([*ids(before), *encode(ordinary), *ids(after)], [text]) is None


@pytest.mark.parametrize(
    ("text", "prompt"),
    [
        pytest.param("a<|end|>b", f"{SYSTEM}<|start|>user<|message|>a<|end|>b<|end|>", id="one marker"),
        pytest.param("<|end|>", f"{SYSTEM}<|start|>user<|message|><|end|><|end|>", id="a marker alone"),
        pytest.param("a<|return|>\nb", f"{SYSTEM}<|start|>f<|message|>a<|return|>\\nb<|end|>", id="escaped around it"),
        pytest.param(
            "a<|endoftext|>b", f"{SYSTEM}<|start|>user<|message|>a<|endoftext|>b<|end|>", id="another special token"
        ),
        pytest.param(
            "a<|reserved_200013|>",
            f"{SYSTEM}<|start|>user<|message|>a<|reserved_200013|><|end|>",
            id="a reserved token",
        ),
    ],
)
def test_text_that_became_special(text, prompt):
    found = find_injection(ids(prompt), ["harmless", text])
    assert found is not None
    assert "⟦" in found.prompt_excerpt


def developer(text):
    return read_prompt(ids(f"<|start|>developer<|message|>{text}<|end|>")).messages


def test_declarations_are_read_as_they_are_spelled():
    text = (
        "# Tools\n\n## functions\n\nnamespace functions {\n\n// Weather\n// now\ntype get_weather = (_: {\n"
        '// City\ncity: string,\n"unit"?: "C" | "F", // default: C\n}) => any;\n\ntype mcp.now = () => any;\n\n} // namespace functions'
    )
    found = declared_functions(developer(text))
    assert list(found) == ["get_weather", "mcp.now"]
    assert "// Weather\n// now\n" in found["get_weather"].comment
    assert "Weather" not in found["mcp.now"].comment
    assert [found["get_weather"].has_parameter(name) for name in ("city", "unit", "City", "cit", "default")] == [
        True, True, False, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "type f = () => any;", "# Tools\n[]"])
def test_outside_the_namespace_nothing_is_declared(text):
    assert declared_functions(developer(text)) == {}


@pytest.mark.parametrize(
    ("declared", "shown", "expected"),
    [
        pytest.param("f", "f", True, id="the same"),
        pytest.param("a-b.c d", "a_b_c_d", True, id="its identifier"),
        pytest.param("a_b", "a-b", False, id="not the other way round"),
        pytest.param("f", None, False, id="none"),
        pytest.param(None, None, True, id="both unknown"),
    ],
)
def test_a_name_and_its_identifier(declared, shown, expected):
    assert is_same_function(declared, shown) is expected
    assert as_identifier("a-b") == "a_b"
