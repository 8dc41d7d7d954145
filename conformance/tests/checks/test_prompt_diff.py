"""A prompt beside the nearest accepted rendering: what is found, where, and which tokens differ; and no failure where there is none.

The prompts are written by hand, or are those of golden examples and of a real server.
"""

import gzip
import json
from pathlib import Path

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.checks.rendering.differing_tokens import tokens_of_text
from harmony_conformance.checks.rendering.prompt_diff import compare_with_nearest
from harmony_conformance.evidence.exchange import Series
from harmony_conformance.evidence.exchange_json import read_exchange
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import judge_one
from harmony_conformance.prompts.declarations_in_prompt import official_tools_text
from harmony_conformance.prompts.expected_parts import read_prompt
from harmony_ref import decode, encode, encode_with_special_tokens

RULE = next(rule for rule in CHECKS if rule.id == "prompt.is_an_accepted_rendering")
RECORDED = Path(__file__).parents[3] / "reports" / "vllm-0.32.0" / "exchanges.jsonl.gz"
SYSTEM = (
    "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n"
    "Current date: 2025-06-28\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. "
    "Channel must be included for every message.<|end|>"
)
END = "<|start|>assistant"
HI = {"role": "user", "content": "Hi"}
BYE = {"role": "user", "content": "Bye"}
HELLO = {"role": "assistant", "content": "Hello."}
THOUGHT = {"role": "assistant", "content": "Hello.", "reasoning": "Greet."}
BRIEF = {"role": "system", "content": "Be brief."}
EMPTY = {"role": "user", "content": ""}
EMPTY_ANSWER = {"role": "assistant", "content": ""}


def user(text):
    return f"<|start|>user<|message|>{text}<|end|>"


def final(text):
    return f"<|start|>assistant<|channel|>final<|message|>{text}<|end|>"


def developer(text):
    return f"<|start|>developer<|message|># Instructions\n\n{text}<|end|>"


def compared(messages, prompt):
    ids = tuple(encode_with_special_tokens(prompt))
    return compare_with_nearest({"messages": messages}, ids, read_prompt(ids))


ANSWER = "/messages/1/content"
KEPT = "<|start|>assistant<|channel|>analysis<|message|>Greet.<|end|>"
MARKED = [HI, {"role": "assistant", "content": "x<|end|>y"}, BYE]
LATE = [HI, BRIEF, BYE]
TURN = SYSTEM + user("Hi") + final("Hello.") + user("Bye") + END
THOUGHTFUL = TURN.replace(final("Hello."), KEPT + final("Hello."))
LATER = SYSTEM + user("Hi") + user("Bye") + developer("Be brief.") + END
FAILURES = [
    pytest.param([HI], SYSTEM + user("Hi!") + END, (1, "content", "longer", "/messages/0/content"), id="longer"),
    pytest.param([HI], SYSTEM + user("") + END, (1, "content", "missing", "/messages/0/content"), id="emptied"),
    pytest.param([HI, HELLO, BYE], SYSTEM + user("Hi") + user("Bye") + END, (2, "message", "missing", ANSWER), id="an answer left out"),
    pytest.param([HI, HELLO, BYE], TURN.replace("final", "commentary"), (2, "channel", "different", ANSWER), id="another channel"),
    pytest.param([HI, HELLO, BYE], TURN.replace("Hello.<|end|>", "Hello.<|return|>"), (2, "end marker", "different", ANSWER), id="another end"),
    pytest.param([HI, THOUGHT, BYE], THOUGHTFUL, (2, "message", "reasoning kept", "/messages/1/reasoning"), id="reasoning kept"),
    pytest.param([HI], SYSTEM + user("Hi") + user("Hi") + END, (2, "message", "repeated", ""), id="repeated"),
    pytest.param([HI], SYSTEM + user("Hi") + user("Who?") + END, (2, "message", "extra", ""), id="invented"),
    pytest.param([EMPTY], SYSTEM + user("[empty]") + END, (1, "content", "different", "/messages/0/content"), id="words for an empty text"),
    pytest.param([HI, EMPTY_ANSWER, BYE], TURN, (2, "content", "different", ANSWER), id="words for an empty answer"),
    pytest.param([HI], user("Hi") + END, (0, "message", "missing", ""), id="no system message"),
    pytest.param([BRIEF, HI], SYSTEM + user("Hi") + END, (1, "message", "missing", ""), id="instructions left out"),
    pytest.param([BRIEF, HI], SYSTEM + developer("Be quick.") + user("Hi") + END, (1, "instructions", "different", ""), id="other instructions"),
    pytest.param(LATE, LATER, (3, "message", "moved", ""), id="instructions after what followed them"),
    pytest.param(MARKED, SYSTEM + user("Hi") + final("x<|end|>y") + user("Bye") + END, (2, "content", "cut", ANSWER), id="a marker in an answer"),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "prompt", "found"), FAILURES)
def test_a_failure_is_reported_by_message_part_and_class(messages, prompt, found):
    first = compared(messages, prompt).failures[0]
    assert (first.message_index, str(first.difference.part), str(first.difference.problem), first.where) == found


ACCEPTED = [
    pytest.param([HI], SYSTEM + user("Hi") + END, None, id="as the library writes it"),
    pytest.param([HI], SYSTEM.replace("2025-06-28", "2031-01-01") + user("Hi") + END, None, id="another date"),
    pytest.param([BRIEF, HI], SYSTEM + developer("Be brief.\n\n") + user("Hi") + END, [], id="a known style"),
    pytest.param([BRIEF, HI], SYSTEM + developer("Be brief.\n") + user("Hi") + END, ["sections: different"], id="a line end more"),
    pytest.param([HI], SYSTEM.replace("2024-06", "2025-01") + user("Hi") + END, ["knowledge cutoff: different"], id="another cutoff"),
    pytest.param([HI], SYSTEM.replace("medium", "high") + user("Hi") + END, ["reasoning effort: different"], id="an effort that nobody asked for"),
    pytest.param([{**HI, "name": "ada"}], SYSTEM + user("Hi").replace("user", "user:ada") + END, ["name: extra"], id="the author's name"),
    pytest.param([HI, BRIEF, BYE], SYSTEM + developer("Be brief.") + user("Hi") + user("Bye") + END, [], id="instructions before what was sent before them"),
    pytest.param([{"role": "user", "content": ""}, HI], SYSTEM + user("Hi") + END, [], id="an empty message left out"),
]  # fmt: skip


@pytest.mark.parametrize(("messages", "prompt", "told"), ACCEPTED)
def test_a_servers_own_choice_is_no_failure(messages, prompt, told):
    found = compared(messages, prompt)
    if told is None:
        assert found is None
    else:
        assert found.failures == ()
        assert [one.summary for one in found.differences] == told


def test_the_fewest_tokens_that_differ_are_shown():
    (found,) = compared(
        [{"role": "user", "content": "one two three four"}], SYSTEM + user("one two 3 four") + END
    ).failures
    assert found.tokens == ("' three', tokens 3407", "' 3', tokens 220, 18")


def test_an_insertion_is_shown_with_the_token_before_it():
    (found,) = compared([{"role": "user", "content": "one two"}], SYSTEM + user("one or two") + END).failures
    assert found.tokens == ("'one', tokens 690", "'one or', tokens 690, 503")


def test_a_lost_result_of_an_unknown_call_is_shown_without_a_header():
    (found,) = compared([HI, {"role": "tool", "content": "12:00"}], SYSTEM + user("Hi") + END).failures
    assert (found.label, found.tokens[0]) == ("tool, commentary", "'12:00', tokens 899, 25, 504")


def outcome(x):
    return judge_one(RULE, [Series(name="", exchanges={"": x})], exercised=False).outcome


def test_no_example_that_does_not_fail_is_blamed():
    blamed = {
        example.id
        for example in golden.examples()
        if example.outcome is not Outcome.FAIL and not example.also_fails
        for x in example.series.exchanges.values()
        if outcome(x) in (Outcome.FAIL, Outcome.ERROR)
    }
    assert blamed == {"prompt.markers_in_text_stay_text/pass-result-quoted"}  # a JSON string in place of the result


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded run is not there")
def test_a_real_server_is_not_blamed_for_its_form():
    outcomes = [
        outcome(read_exchange(json.loads(line), name=""))
        for line in gzip.decompress(RECORDED.read_bytes()).splitlines()
    ]
    assert outcomes.count(Outcome.PASS) > 200
    assert outcomes.count(Outcome.VARIANT) > 20
    assert {Outcome.FAIL, Outcome.ERROR} & set(outcomes) == set()


WEATHER = {
    "name": "get_weather",
    "description": "Weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
NOW = {"name": "now", "description": "What time it is.", "parameters": {"type": "object", "properties": {}}}
DECLARED = "// Weather of a city.\ntype get_weather = (_: {\ncity: string,\n}) => any;\n\n"
BARE = "// Weather of a city.\ntype get_weather = () => any;\n\n"
TIME = "// What time it is.\ntype now = () => any;\n\n"
OPEN = "// Open ended response.\ntype no_tool = (_: {\ncontent: string,\n}) => any;\n\n"
VALID = "\nCalls to these tools must go to the commentary channel: 'functions'."


def differences_of_tools(section, **request):
    prompt = SYSTEM.replace("every message.", f"every message.{VALID}")
    prompt += f"<|start|>developer<|message|># Tools\n\n## functions\n\nnamespace functions {{\n\n{section}}} // namespace functions<|end|>"
    ids = tuple(encode_with_special_tokens(prompt + user("Hi") + END))
    tools = [{"type": "function", "function": one} for one in (WEATHER, NOW)]
    found = compare_with_nearest({"messages": [HI], "tools": tools, **request}, ids, read_prompt(ids))
    return [(str(one.sentence), *map(str, one.tokens)) for one in found.failures]


def test_the_tokens_are_those_of_the_difference_that_the_sentence_names():
    ((sentence, expected, actual),) = differences_of_tools(BARE + TIME + OPEN)
    assert "the functions are get_weather, now, no_tool where get_weather, now were expected" in sentence
    assert expected == "no such text"
    assert "// Open ended response.\\ntype no_tool" in actual
    ((sentence, expected, actual),) = differences_of_tools(BARE)
    assert "the functions are get_weather where get_weather, now were expected" in sentence
    assert ("// What time it is." in expected, actual) == (True, "no such text")


def test_a_function_that_may_not_be_called_is_not_missing():
    named = {"type": "function", "function": {"name": "get_weather"}}
    assert differences_of_tools(DECLARED, tool_choice=named) == []
    ((sentence, expected, actual),) = differences_of_tools(BARE, tool_choice=named)
    assert "in the function get_weather" in sentence
    assert ("city: string" in expected, "city" in actual) == (True, False)


def test_the_tokens_of_a_text_are_those_of_the_prompt():
    ids = encode("a;\n\n// Wörld 🧑‍💻 b")
    assert decode(tokens_of_text("// W", ids)) == ";\n\n// W"
    assert decode(tokens_of_text("🧑‍💻", ids)) == " 🧑‍💻"
    assert tokens_of_text("not there", ids) == encode("not there")
    assert tokens_of_text("", ids) == []


def test_words_for_an_empty_text_are_named():
    (found,) = compared([EMPTY], SYSTEM + user("None") + END).failures
    assert "the text of the request is empty, and the prompt has 'None'" in found.sentence


NOW = {"name": "now", "description": "What time it is.", "parameters": {"type": "object", "properties": {}}}
TOOLS = [{"type": "function", "function": NOW}]


def test_instructions_as_a_second_system_message_are_missing_from_the_developer_message():
    request = {"messages": [BRIEF, HI], "tools": TOOLS, "chat_template_kwargs": {"builtin_tools": ["python"]}}
    declared = f"<|start|>developer<|message|>{official_tools_text(TOOLS)}<|end|>"
    prompt = SYSTEM + declared + "<|start|>system<|message|>Be brief.<|end|>" + user("Hi") + END
    ids = tuple(encode_with_special_tokens(prompt))
    first, second = compare_with_nearest(request, ids, read_prompt(ids)).failures
    assert (str(first.difference.part), str(first.difference.problem)) == ("instructions", "missing")
    assert (second.label, str(second.difference.problem)) == ("system", "extra")


def test_a_style_is_preferred_only_among_equally_near_ones():
    ids = tuple(encode_with_special_tokens(SYSTEM + user("Hi") + END))
    request, read = {"messages": [BRIEF, HI]}, read_prompt(ids)
    assert compare_with_nearest(request, ids, read).style == "harmony_0_0_8"
    found = compare_with_nearest(request, ids, read, {"ollama"})
    assert found.style == "ollama"
    assert (
        found.lost_tokens == len(encode_with_special_tokens(developer("Be brief."))) + 1
    )  # a line break before the heading
    dated = tuple(encode_with_special_tokens(SYSTEM + developer("Be brief.") + user("Ho") + END))
    assert compare_with_nearest(request, dated, read_prompt(dated), {"ollama"}).style == "harmony_0_0_8"


def test_both_sides_of_a_difference_begin_at_the_same_place():
    prompt = (
        SYSTEM + "<|start|>developer<|message|>\n\n# Instructions\n\nBe brief. SYSTEM-WORD-8<|end|>" + user("Hi") + END
    )
    kind = {"role": "developer", "content": "Be kind. DEVELOPER-WORD-8"}
    brief = {"role": "system", "content": "Be brief. SYSTEM-WORD-8"}
    (found,) = compared([kind, brief, HI], prompt).failures
    assert str(found.tokens[0]).startswith("' Instructions\\n\\nBe kind. DEVELOPER' …")
    assert found.tokens[1] == "' Instructions', tokens 68406"


@pytest.mark.parametrize(("name", "more"), [("functions.", 1), ("functions.f", 0)])
def test_a_wrong_header_of_an_empty_result_is_a_difference_too(name, more):
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [HI, {"role": "assistant", "content": None, "tool_calls": [call]}]
    result = f"<|start|>{name} to=assistant<|channel|>commentary<|message|><|end|>"
    called = "<|start|>assistant to=functions.f<|channel|>commentary <|constrain|>json<|message|>{}<|call|>"
    messages = [*history, {"role": "tool", "tool_call_id": "c1", "content": ""}]
    found = compared(messages, SYSTEM + user("Hi") + called + result + END)
    assert [one.summary for one in (found.failures if found is not None else ())] == ["name: different"] * more
