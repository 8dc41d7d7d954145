import pytest

from harmony_conformance.apis.chat_completion import ToolCall, Turn
from harmony_conformance.apis.text_fields import AnswerTexts, FieldKind, TextField, turn_fields
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks import (
    JOINED_WORDS,
    JOINED_WORDS_IN_REASONING,
    MARKER,
    STRUCTURE,
    SUSPECTED_WORDS,
    has_harmony_mention,
    remove_code,
    unescape_markers,
)
from harmony_conformance.evidence.leaks.by_text import Strength, marker_leaks
from harmony_conformance.evidence.leaks.by_token_ids import EmittedCompletion
from harmony_conformance.evidence.leaks.markers import LEFT_BEHIND
from harmony_conformance.evidence.leaks.reasoning_tags import has_repeated_reasoning
from harmony_conformance.evidence.leaks.repetition import find_doubled_text, find_loop
from harmony_conformance.json_value import dumps
from harmony_conformance.transport.messages import Chunk, Request, Response
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
        "<|start|>assistant<|channel|>final",
        "<|start|> user<|message|>Hi",
        "<|start|>functions.f to=assistant<|channel|>commentary",
        "<|channel|>analysis<|message|>",
        "<|channel|>commentary to=functions.f <|constrain|>json",
        "x<|channel|>answer<|message|>y",
        "a<|end|><|start|>b",
        "a<|end|>\n<|start|>assistant",
        "<|constrain|>json<|message|>{",
        "to=functions.get_weather<|channel|>commentary",
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
        "<|start|>, <|end|>",
        "<|end|>\n<|start|>\n<|message|>",
        "<|channel|>analysis begins it",
        "Hello!<|return|>",
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
        'assistantcommentary to=browser.search code{"query":"x"}',
        'assistantcommentary to=container.exec json{"cmd":["ls"]}',
        'Let me look.assistantcommentary to=browser.open code{"id":1}',
        'We need the tool.assistantanalysis to=functions.get_weather json{"city":"Rome"}',
        "assistantanalysis to=python codeprint(1)",
        "analysis to=python codeprint(1)",
        "commentary to=apply_patch code*** Begin Patch",
        "Paris is the capital.\n\nassistantanalysisThe user wants more.",
        "It is Paris. assistantfinalParis is the capital.",
        "| a | b |\nassistantanalysisWe could, of course, say more.",
        "The user asks.\nassistantfinal**Paris**",
        "The user asks.\nassistantfinal# Paris",
        "The user asks.\nassistantfinal✅ Paris",
        "Simple.assistantfinal- Paris",
        "Simple.assistantfinal| a |",
        "Simple.assistantfinal✅ Paris",
        "Simple.assistantfinal ",  # a code block, which is removed before
    ],
)
def test_channel_words_glued_to_text(text):
    assert JOINED_WORDS.search(text)


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
        "Names:\nassistantfinalAnswer = 3",
        "Names:\nassistantfinalAnswer - the last text",
        "Names:\nassistantfinalAnswer: str",
        "Names:\nassistantfinalAnswer(text)",
        "Names:\nassistantanalysis\nassistantfinal",
        "row | assistantfinal | 3",
        "assistantfinal to=be done",
        "role=assistantfinal - 3",
        "commentary to the match",
        "Use this header: to=browser.search in the code.",
        'x = msg(to=browser.search, code={"query": "x"})',
        "send to=python code {1}",
        'At the start of a line is "assistantanalysis".\nassistantanalysis is a word of the format.',
        "assistantFinalScore = 3\nassistantFinalScore += 1",
        "Names:\nassistantfinalScore: int\nassistantanalysisCount: int",
        "INFO role=assistantfinal - done\nINFO role=assistantanalysis | ok",
        "- assistantfinal - the last word\n- assistantanalysis - the first",
        "",
    ],
)
def test_the_same_words_in_a_sentence_are_not_glued(text):
    assert JOINED_WORDS.search(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("We greet.assistantfinalHello", True, id="the answer follows"),
        pytest.param("I will write commentary to=functions.f json{}", False, id="a model plans its call"),
        pytest.param("analysis to=functions.f {", False, id="a model thinks of a header"),
    ],
)
def test_reasoning_may_speak_of_calls(text, expected):
    assert (JOINED_WORDS_IN_REASONING.search(text) is not None) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("analysisWe greet.", True, id="a channel and a sentence"),
        pytest.param('final"Hi"', True, id="a channel and a quotation"),
        pytest.param("analysis of it", False, id="a word"),
        pytest.param("finally", False, id="a longer word"),
        pytest.param("finalScore = 3", False, id="a name that is assigned"),
        pytest.param("finalScore(3)", False, id="a name that is called"),
        pytest.param("commentaryTrack.play", False, id="a name with a member"),
    ],
)
def test_a_leading_word_is_suspicious(text, expected):
    assert (SUSPECTED_WORDS.search(text) is not None) is expected


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
    assert remove_code(text) == expected


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
    assert has_harmony_mention(text) is expected


def test_every_text_that_reaches_a_client_is_a_field():
    turn = Turn(
        content="c",
        reasoning="r",
        reasoning_field="thinking",
        tool_calls=(ToolCall(name="f", arguments="{}"), ToolCall(name="g", arguments="")),
    )
    assert [(field.where, field.text) for field in turn_fields(turn)] == [
        ("content", "c"),
        ("thinking", "r"),
        ("tool_calls/0/function/name", "f"),
        ("tool_calls/0/function/arguments", "{}"),
        ("tool_calls/1/function/name", "g"),
        ("tool_calls/1/function/arguments", ""),
    ]


def emitted(answer, ids):
    return [leaked.text for leaked in EmittedCompletion(ids).leaked_markers(answer)]


def told(content="", **others):
    places = {"reasoning": FieldKind.REASONING, "name": FieldKind.NAME, "arguments": FieldKind.ARGUMENTS}
    return AnswerTexts(
        fields=(
            TextField(where="content", text=content),
            *(TextField(where=name, text=text, kind=places[name]) for name, text in others.items()),
        )
    )


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
        pytest.param(
            "a .<|end|>",
            [*encode("a <|end|>."), 200007],
            ["<|end|>"],
            id="the spelled one is gone, the special is there",
        ),
        pytest.param("a &lt;|end|&gt;", encode_with_special_tokens("a <|end|>"), ["<|end|>"], id="escaped"),
        pytest.param("a \\u003c|end|\\u003e", encode("a <|end|>"), [], id="escaped by the server"),
        pytest.param("a\n<|end|>", [*encode("a<|end|>")], [], id="line ends between"),
    ],
)
def test_a_marker_is_a_leak_where_ordinary_tokens_do_not_spell_it(content, ids, expected):
    assert emitted(told(content), ids) == expected


WHOLE = encode_with_special_tokens(
    "<|channel|>analysis<|message|>Simple.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
    "<|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>"
)


@pytest.mark.parametrize(
    ("field", "text", "expected"),
    [
        pytest.param("content", "Hello!", False, id="the answer"),
        pytest.param("content", "finalHello!", True, id="the channel and the answer"),
        pytest.param("content", "final\n\nHello!", True, id="with blanks between"),
        pytest.param("content", "assistantfinal", True, id="a header alone"),
        pytest.param("content", "analysisSimple.", True, id="the channel and the thought"),
        pytest.param("reasoning", "Simple.assistant", True, id="the next role"),
        pytest.param("content", "json{}", True, id="the type of a call"),
        pytest.param("name", "fjson", True, id="the type of a call behind its name"),
        pytest.param("content", "a fjson", False, id="too little to tell"),
        pytest.param("content", "Use the final Hello", False, id="other words"),
    ],
)
def test_words_of_a_header_are_a_leak_next_to_the_text_they_were_parted_from(field, text, expected):
    answer = told(text) if field == "content" else told(**{field: text})
    assert bool(list(EmittedCompletion(WHOLE).leaked_header_words(answer))) is expected


def test_a_text_that_ends_in_the_name_of_a_channel_may_be_joined_with_the_next():
    ids = encode_with_special_tokens(
        "<|channel|>analysis<|message|>So final<|end|><|start|>assistant<|channel|>analysis<|message|>Hello you!<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Hello you!<|return|>"
    )
    assert list(EmittedCompletion(ids).leaked_header_words(told("Hello you!", reasoning="So final\nHello you!"))) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\u003c|end|\\u003e", "<|end|>"),
        ("\\\\u003C|end|\\\\u003E", "<|end|>"),
        ("&lt;|end|&gt;", "<|end|>"),
        ("&amp;lt;|end|&amp;gt;", "<|end|>"),
        ("&#60;&#124;end&#x7c;&#x3e;", "<|end|>"),
        ("a &lt; b && c", "a < b && c"),
        ("AT&T &copy; \\u00e9", "AT&T &copy; \\u00e9"),
    ],
)
def test_escaped_markers_are_read(text, expected):
    assert unescape_markers(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("Hello!<|return|>", True, id="at the end"),
        pytest.param("Hello!<|end|>\n", True, id="at the end, with a line end"),
        pytest.param("{}<|call|>", True, id="after a call"),
        pytest.param("Hello!<|endoftext|>", True, id="the end of the text"),
        pytest.param("<|channel|>commentary to=functions.f", True, id="a header that was cut"),
        pytest.param("<|message|>Hello!", True, id="at the beginning"),
        pytest.param("Simple.<|start|>assistant", True, id="with the role behind it"),
        pytest.param("The token <|end|> ends it.", False, id="in a sentence"),
        pytest.param("The <|start|> of it", False, id="before a blank"),
    ],
)
def test_where_parsers_leave_a_marker(text, expected):
    assert (LEFT_BEHIND.search(text) is not None) is expected


THOUGHT = "We need to greet the user."


@pytest.mark.parametrize(
    ("reasoning", "content", "expected"),
    [
        pytest.param(THOUGHT, f"{THOUGHT}\n\nHello!", True, id="in front of the answer"),
        pytest.param(THOUGHT, "We  need to greet\nthe user. Hello!", True, id="with other blanks"),
        pytest.param(THOUGHT, "Hello!", False, id="an answer of its own"),
        pytest.param(THOUGHT, THOUGHT, False, id="the same, and nothing else"),
        pytest.param("Paris is the capital of France.", "Paris is the capital of France. Yes.", False, id="a draft"),
        pytest.param("We greet.", "We greet. Hello!", False, id="too short to tell"),
        pytest.param(THOUGHT, f"`{THOUGHT}` is what I thought.", False, id="quoted as code"),
        pytest.param("", "Hello!", False, id="no thought"),
    ],
)
def test_a_thought_that_is_reported_twice(reasoning, content, expected):
    assert has_repeated_reasoning(reasoning, content) is expected


SENTENCE = "The sky is blue because air scatters blue light."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SENTENCE, None),
        (SENTENCE * 2, SENTENCE),
        (f"{SENTENCE}\n\n{SENTENCE}", SENTENCE),
        (f"{SENTENCE} {SENTENCE} End.", None),
        ("Ha! Ha!", None),
        ("-" * 200, None),
        ("", None),
    ],
)
def test_a_text_that_is_the_same_twice(text, expected):
    assert find_doubled_text(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("So. " + "And so it goes. " * 20, True),
        ("And so it goes. " * 5, False),
        ("0" * 1000, False),
        ("| --- " * 100, False),
        (SENTENCE, False),
    ],
)
def test_a_piece_over_and_over(text, expected):
    assert (find_loop(text) is not None) is expected


def streamed(pieces):
    events = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    data = "".join(f"data: {dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    return Exchange(
        id="x",
        request=Request(path="/v1/chat/completions", body=b'{"messages": [], "stream": true}'),
        response=Response(
            status=200,
            headers={"content-type": "text/event-stream"},
            chunks=(Chunk(arrival_time=0.0, data=data.encode()),),
        ),
    )


LEAKING = "Hi <|channel|>final<|message|>there &lt;|end|&gt;<|start|>assistant"


@pytest.mark.parametrize("place", range(1, len(LEAKING)))
def test_a_leak_is_found_wherever_a_stream_is_cut(place):
    found = list(marker_leaks(streamed([LEAKING[:place], LEAKING[place:]]), by_ids=True))
    assert [leak.strength for leak in found] == [Strength.PROVEN]


def test_a_leak_is_found_letter_by_letter():
    assert list(marker_leaks(streamed(LEAKING), by_ids=True)) == list(marker_leaks(streamed([LEAKING]), by_ids=True))


def test_members_of_a_stream_are_joined_each_for_itself():
    pieces = [
        {"role": "assistant", "reasoning_details": [{"index": 1, "text": "b"}]},
        {"reasoning_details": [{"index": 0, "text": "a"}, {"index": 1, "text": "c"}], "refusal": "n"},
        {"tool_calls": [{"index": 0, "id": "1", "function": {"name": "f", "arguments": '{"k"'}}], "refusal": "o"},
        {"tool_calls": [{"index": 0, "function": {"arguments": ":1}"}}, {"index": 1, "function": {"name": "g"}}]},
    ]
    events = [{"choices": [{"index": 0, "delta": piece}]} for piece in pieces]
    data = "".join(f"data: {dumps(event)}\n\n" for event in events).encode()
    x = Exchange(
        id="x",
        request=Request(path="/", body=b"{}"),
        response=Response(
            status=200, headers={"content-type": "text/event-stream"}, chunks=(Chunk(arrival_time=0, data=data),)
        ),
    )
    (answer,) = x.answers
    assert [(field.where, field.text, field.kind.value) for field in answer.fields] == [
        ("role", "assistant", "name"),
        ("reasoning_details/0/text", "a", "reasoning"),
        ("reasoning_details/1/text", "bc", "reasoning"),
        ("refusal", "no", "content"),
        ("tool_calls/0/id", "1", "name"),
        ("tool_calls/0/function/name", "f", "name"),
        ("tool_calls/0/function/arguments", '{"k":1}', "arguments"),
        ("tool_calls/0/function/arguments", "k", "name"),
        ("tool_calls/1/function/name", "g", "name"),
    ]
