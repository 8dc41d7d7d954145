import pytest

from harmony_conformance.leak import (
    GLUED,
    GLUED_IN_REASONING,
    LEADING_WORD,
    MARKER,
    STRUCTURE,
    fields,
    speaks_of_harmony,
    surplus,
    without_code,
)
from harmony_conformance.turn import ToolCall, Turn
from harmony_ref import encode, encode_with_special_tokens

NAMED = ("start", "end", "message", "channel", "constrain", "return", "call", "startoftext", "endoftext")


@pytest.mark.parametrize("name", [*NAMED, "reserved_200013"])
def test_every_special_token_is_a_marker(name):
    assert MARKER.fullmatch(f"<|{name}|>")


@pytest.mark.parametrize("text", ["<|im_start|>", "<|>", "<| end |>", "<|endofprompt|>", "f <| x |> g", "<end>"])
def test_what_looks_like_a_marker_is_none(text):
    assert MARKER.search(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "<|start|>assistant",
        "<|start|> user",
        "<|start|>functions.f",
        "<|channel|>analysis",
        "x<|channel|>answer<|message|>y",
        "a<|end|><|start|>b",
        "<|constrain|>json<|message|>{",
        "to=functions.get_weather<|channel|>commentary",
        "Hello!<|return|>",
        "Hello!<|end|>\n",
        "{}<|call|>",
        "Hello!<|endoftext|>",
    ],
)
def test_markers_in_the_order_of_a_header_are_structure(text):
    assert STRUCTURE.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "A message ends with <|end|>.",
        "<|start|> begins it",
        "<|channel|> and <|message|> are markers",
        "",
        "to=functions.f",
    ],
)
def test_a_marker_in_a_sentence_is_no_structure(text):
    assert STRUCTURE.search(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "analysisWe greet.assistantfinalHello",
        "analysiswe greet.assistantfinalhello",
        "analysis인사.assistantfinal안녕",
        "assistantfinalHello!",
        "Done.assistantfinal# Title",
        'He said "hi".assistantfinal"Hi"',
        "x)assistantfinal**Yes**",
        "so 4.assistantfinal4",
        "greet.assistantfinal🎉",
        "greet.assistantfinal",
        "I look.assistantcommentary to=functions.f json{}",
        "commentary to=functions.f json{}",
        "analysis to=functions.f code{}",
        'assistantcode{"path":"/"}',
        'assistantjson{"a":1}',
        'final{"a":1}assistantfinal{"a":2}',
    ],
)
def test_channel_words_glued_to_text(text):
    assert GLUED.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "The analysis of the assistant finally ended.",
        "Analysis: assistant final report",
        "analysis paralysis",
        "analysis를 해보면 assistant가 final 답",
        'the "assistant final" message',
        "`assistantfinal`",
        "'assistantfinal' glued",
        "You call it assistantfinal",
        "the assistant commentary",
        "assistant final-checks",
        "assistant final/analysis",
        "finalAnswer = assistant.final",
        "assistantfinalizer",
        "assistant code {",
        "commentary to the match",
        "",
    ],
)
def test_the_same_words_in_a_sentence_are_not_glued(text):
    assert GLUED.search(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("We greet.assistantfinalHello", True, id="the answer follows"),
        pytest.param("I will write commentary to=functions.f json{}", False, id="a model plans its call"),
        pytest.param("analysis to=functions.f {", False, id="a model thinks of a header"),
    ],
)
def test_reasoning_may_speak_of_calls(text, expected):
    assert (GLUED_IN_REASONING.search(text) is not None) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("analysisWe greet.", True, id="a channel and a sentence"),
        pytest.param('final"Hi"', True, id="a channel and a quotation"),
        pytest.param("<think>We greet.</think>Hi", True, id="another model's wrapper"),
        pytest.param("analysis of it", False, id="a word"),
        pytest.param("finally", False, id="a longer word"),
        pytest.param("finalScore = 3", False, id="a name that is assigned"),
        pytest.param("finalScore(3)", False, id="a name that is called"),
        pytest.param("commentaryTrack.play", False, id="a name with a member"),
    ],
)
def test_a_leading_word_is_suspicious(text, expected):
    assert (LEADING_WORD.search(text) is not None) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a `b` c", "a   c", id="inline code"),
        pytest.param("a\n```\nb\n```\nc", "a\n \nc", id="a code block"),
        pytest.param("a\n```\nb", "a\n```\nb", id="a block that is not closed"),
        pytest.param("a `b\nc` d", "a `b\nc` d", id="backticks on two lines"),
    ],
)
def test_code_is_left_out(text, expected):
    assert without_code(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("What is <|end|>?", True, id="a marker"),
        pytest.param("Explain the Harmony response format.", True, id="the format"),
        pytest.param("How does gpt-oss write the format of a call?", True, id="the model's format"),
        pytest.param("Which special tokens are there?", True, id="special tokens"),
        pytest.param("Write a chat template.", True, id="a chat template"),
        pytest.param("Write a song in four-part harmony.", False, id="music"),
        pytest.param("They live in harmony. Format the disk.", False, id="two sentences"),
        pytest.param("Ask gpt-oss-20b.", False, id="the model's name"),
    ],
)
def test_whether_a_request_is_about_the_format(text, expected):
    assert speaks_of_harmony(text) is expected


def test_every_text_that_reaches_a_client_is_a_field():
    turn = Turn(
        content="c",
        reasoning="r",
        reasoning_field="thinking",
        tool_calls=(ToolCall(name="f", arguments="{}"), ToolCall(name="g", arguments="")),
    )
    assert [(field.where, field.text) for field in fields(turn)] == [
        ("content", "c"),
        ("thinking", "r"),
        ("tool_calls/0/function/name", "f"),
        ("tool_calls/0/function/arguments", "{}"),
        ("tool_calls/1/function/name", "g"),
        ("tool_calls/1/function/arguments", ""),
    ]


@pytest.mark.parametrize(
    ("content", "ids", "expected"),
    [
        pytest.param("Hello!", encode_with_special_tokens("Hello!<|return|>"), [], id="no marker"),
        pytest.param("a <|end|>", encode("a <|end|>"), [], id="spelled in ordinary tokens"),
        pytest.param("a <|end|>", encode_with_special_tokens("a <|end|>"), ["<|end|>"], id="a special token"),
        pytest.param(
            "<|end|> <|end|>",
            [*encode("<|end|> "), *encode_with_special_tokens("<|end|>")],
            ["<|end|>"],
            id="one of each",
        ),
        pytest.param("<|endoftext|>", encode_with_special_tokens("<|endoftext|>"), ["<|endoftext|>"], id="end of text"),
        pytest.param(
            "<|end|>", encode_with_special_tokens("<|<|end|>|>"), ["<|end|>"], id="letters around a special token"
        ),
    ],
)
def test_a_marker_is_a_leak_where_ordinary_tokens_do_not_spell_it(content, ids, expected):
    assert [marker for _, marker in surplus(Turn(content=content), ids)] == expected
