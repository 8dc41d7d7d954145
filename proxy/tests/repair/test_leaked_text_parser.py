"""Leaked texts and what they say, written by hand; at every split."""

import pytest

from harmony_proxy.repair.text.api_dialects import join
from harmony_proxy.repair.text.leaked_text_parser import LeakedTextParser, NoDestinationError, TextKind

THOUGHT, TEXT, CALL = TextKind.REASONING, TextKind.CONTENT, TextKind.CALL
CALLED = (CALL, "get_weather", '{"city":"Paris"}')

# text, whether special tokens were skipped, what it says
CONTENTS = {
    "a thought and an answer": (
        "<|channel|>analysis<|message|>We greet.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>",
        False,
        [(THOUGHT, None, "We greet."), (TEXT, None, "Hello!")],
    ),
    "the tail of a header": ("final<|message|>Hello!", False, [(TEXT, None, "Hello!")]),
    "the end of a message": ("Hello!<|end|>", False, [(TEXT, None, "Hello!")]),
    "a cut header": ("Hello!<|end|><|start|>assistant<|channel|>comm", False, [(TEXT, None, "Hello!")]),
    "a call": (
        '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>',
        False,
        [CALLED],
    ),
    "a call with its recipient in the role": (
        '<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>{"city":"Paris"}<|call|>',
        False,
        [CALLED],
    ),
    "a preamble and a call": (
        'I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather<|message|>{"city":"Paris"}',
        False,
        [(TEXT, None, "I look."), CALLED],
    ),
    "what the model said as the user": (
        "Hi.<|end|><|start|>user<|message|>And you?<|end|><|start|>assistant<|channel|>final<|message|>Fine.",
        False,
        [(TEXT, None, "Hi.Fine.")],
    ),
    "escaped for HTML": (
        "&lt;|channel|&gt;analysis&lt;|message|&gt;a &lt; b&lt;|end|&gt;&lt;|start|&gt;&lt;|channel|&gt;final&lt;|message|&gt;Yes.",
        False,
        [(THOUGHT, None, "a &lt; b"), (TEXT, None, "Yes.")],
    ),
    "skipped tokens": (
        "analysisWe need to greet.assistantfinalHello!",
        True,
        [(THOUGHT, None, "We need to greet."), (TEXT, None, "Hello!")],
    ),
    "skipped tokens, lower case": (
        "analysiswe addassistantfinalfour",
        True,
        [(THOUGHT, None, "we add"), (TEXT, None, "four")],
    ),
    "skipped tokens and a call": (
        'analysisNeed weather.assistantcommentary to=functions.get_weather json{"city":"Paris"}',
        True,
        [(THOUGHT, None, "Need weather."), CALLED],
    ),
    "a seam alone": ("assistantfinalHello!", False, [(TEXT, None, "Hello!")]),
    "a preamble and a glued call": (
        'I look.assistantcommentary to=functions.get_weather json{"city":"Paris"}',
        False,
        [(TEXT, None, "I look."), CALLED],
    ),
    "a thought in tags": (
        "<think>We greet.</think>\n\nHello!",
        False,
        [(THOUGHT, None, "We greet."), (TEXT, None, "Hello!")],
    ),
    "words that only look so": (
        "The assistant finally said: 2 < 3 && <b>.",
        False,
        [(TEXT, None, "The assistant finally said: 2 < 3 && <b>.")],
    ),
    "a reserved token": ("Hello!<|reserved_200013|>", False, [(TEXT, None, "Hello!")]),
}


def read(text, cuts, *, glued, home=TextKind.CONTENT, declared=("get_weather",)):
    reader = LeakedTextParser(home, frozenset(declared), glued=glued)
    said, start = [], 0
    for cut in (*cuts, len(text)):
        said += reader.feed(text[start:cut])
        start = cut
    return [(one.kind, one.name, one.text) for one in join([*said, *reader.close()]) if one.text or one.name]


@pytest.mark.parametrize(("text", "glued", "says"), CONTENTS.values(), ids=CONTENTS)
def test_a_leaked_text_says_the_same_at_every_split(text, glued, says):
    for cut in range(len(text) + 1):
        assert read(text, (cut,), glued=glued) == says, text[:cut]
    assert read(text, range(1, len(text)), glued=glued) == says


def test_a_reasoning_that_goes_on_as_the_answer():
    text = "Simple.<|start|>assistant<|channel|>final<|message|>Hello!"
    assert read(text, (), glued=False, home=THOUGHT) == [(THOUGHT, None, "Simple."), (TEXT, None, "Hello!")]


def test_what_a_reader_holds_is_only_what_may_become_a_marker_or_a_word_of_a_header():
    reader = LeakedTextParser(TextKind.CONTENT, frozenset())
    assert "".join(one.text for one in reader.feed("Hello. <|en")) == "Hello. "
    assert "".join(one.text for one in reader.feed("tity")) == "<|entity"
    assert "".join(one.text for one in reader.feed(".assist")) == "."
    assert "".join(one.text for one in reader.feed("ed")) == "assisted"


@pytest.mark.parametrize(
    "text",
    [
        "<|channel|>commentary to=functions.other<|message|>{}",
        "<|channel|>analysis to=python code<|message|>print(1)",
        "<|channel|>" + "x" * 300,
    ],
)
def test_a_message_without_a_place_is_said_to_be_one(text):
    with pytest.raises(NoDestinationError):
        read(text, (), glued=False)


def test_nothing_is_lost_where_a_message_has_no_place():
    reader = LeakedTextParser(TextKind.CONTENT, frozenset())
    text = "Hi.<|end|><|start|>assistant<|channel|>commentary to=functions.other<|message|>{}"
    with pytest.raises(NoDestinationError):
        reader.feed(text)
    assert [one.text for one in reader.pop_results()] == ["Hi."]
    assert reader.unparsed_text == text.removeprefix("Hi.<|end|>")
