"""Wrong prompts for the triples of golden/api: right messages changed, rendered by openai-harmony 0.0.8, and caught by the checks.

What lives is listed with the reason why it may; a reason that no mutant needs fails as well.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import cache

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import is_comparison, judge_one
from harmony_conformance.transport.messages import Chunk, Request, Response

TRIPLES = {
    f"{file.stem}: {test['id']}": test
    for file in sorted((golden.root() / "api").iterdir())
    for test in json.loads(file.read_text("utf-8"))["tests"]
    if "api" not in test  # Chat Completions
}
FAMILIES = {"prompt", "headers", "hierarchy", "multi_turn"}
ON_PROMPTS = [
    check
    for check in CHECKS
    if (check.family in FAMILIES or check.id == "reasoning.effort_is_rendered") and not is_comparison(check)
]
REASONING = ("reasoning", "reasoning_content", "thinking")

Messages = list[dict]
Mutation = Callable[[Messages], Iterator[Messages]]


def readings(test):
    return [test["messages"], *(other["messages"] for other in test.get("also", []))]


def is_caught(request, ids):
    usage = {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(ids) + 1}
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    answer = {"object": "chat.completion", "choices": [choice], "usage": usage, "prompt_token_ids": list(ids)}
    x = Exchange(
        id="x",
        request=Request(path="/v1/chat/completions", body=json.dumps(request).encode()),
        response=Response(status=200, chunks=(Chunk(arrival_time=0.0, data=json.dumps(answer).encode()),)),
    )
    series = [Series(name="", exchanges={"": x})]
    return any(judge_one(rule, series, exercised=False).outcome is Outcome.FAIL for rule in ON_PROMPTS)


# ways from right messages to wrong ones


def is_a(what, message):
    return {
        "call": message["role"] == "assistant" and "recipient" in message,
        "assistant": message["role"] == "assistant" and "recipient" not in message,
        "result": message["role"] == "tool",
    }.get(what, message["role"] == what)


def each(what: str, *changes: dict | Callable[[dict], dict]) -> Mutation:
    """Every message of a kind, with some of its fields changed; a field set to None is left out."""

    def mutated(messages):
        for place, message in enumerate(messages):
            for change in changes if is_a(what, message) else ():
                changed = {**message, **(change(message) if callable(change) else change)}
                kept = {name: value for name, value in changed.items() if value is not None}
                yield [*messages[:place], kept, *messages[place + 1 :]]

    return mutated


def everywhere(change: Callable[[Messages, int], Messages | None]) -> Mutation:
    def mutated(messages):
        yield from filter(None, (change(messages, place) for place in range(len(messages))))

    return mutated


def each_text(change: Callable[[str], str]) -> Mutation:
    """Every text of a client, changed: contents, instructions."""

    def mutated(messages):
        for place, message in enumerate(messages):
            wrong = deepcopy(messages)
            holder, name = wrong[place], "content"
            if isinstance(message["content"], list):
                holder = wrong[place]["content"][0]
                name = "text" if "text" in holder else "instructions"
            if name in holder:
                holder[name] = change(holder[name])
                yield wrong

    return mutated


def functions_of(message):
    content = message["content"][0] if is_a("developer", message) else {}
    return content.get("tools", {}).get("functions", {}).get("tools", [])


def each_function(change: Callable[[list[dict], int], object]) -> Mutation:
    """Every declared function, changed in place."""

    def mutated(messages):
        for place, message in enumerate(messages):
            for number, _ in enumerate(functions_of(message)):
                wrong = deepcopy(messages)
                change(functions_of(wrong[place]), number)
                yield wrong

    return mutated


def each_member(change: Callable[[dict, str], object]) -> Mutation:
    """Every parameter of every function, changed in place."""

    def mutated(messages):
        for place, message in enumerate(messages):
            for number, function in enumerate(functions_of(message)):
                for name in function.get("parameters", {}).get("properties", {}):
                    wrong = deepcopy(messages)
                    change(functions_of(wrong[place])[number]["parameters"], name)
                    yield wrong

    return mutated


def altered(text):
    middle = len(text) // 2
    return text[:middle] + ("x" if text[middle : middle + 1] != "x" else "y") + text[middle + 1 :]


def joined(messages, place):
    one, other = (*messages[place : place + 2], None)[:2]
    if other is None or not isinstance(one["content"], str) or {**one, "content": ""} != {**other, "content": ""}:
        return None
    return [*messages[:place], {**one, "content": one["content"] + "\n" + other["content"]}, *messages[place + 2 :]]


def before(message):
    return lambda messages, place: [*messages[:place], message, *messages[place:]] if place else None


def quoted(message):
    return {"content": json.dumps(message["content"], ensure_ascii=False)}


def as_text(role):
    return lambda message: {"role": role, "content": message["content"][0].get("instructions", "tools")}


def efforts(messages):
    for effort in ("Low", "Medium", "High"):
        content = {**messages[0]["content"][0], "reasoning_effort": effort}
        yield [{"role": "system", "content": [content]}, *messages[1:]]


def rename(parameters, name):
    properties = parameters["properties"].items()
    parameters["properties"] = {f"{key}x" if key == name else key: value for key, value in properties}


def thought(text):
    return {"role": "assistant", "channel": "analysis", "content": text}


INSTRUCTION = {"role": "developer", "content": [{"type": "developer_content", "instructions": "Invented."}]}
ANSWER = {"role": "assistant", "channel": "final", "content": "Invented."}
OTHER_CHANNELS = [{"channel": channel} for channel in ("final", "commentary", "analysis", None)]

MUTATIONS: Mapping[str, Mutation] = {
    "a message dropped": everywhere(lambda messages, place: [*messages[:place], *messages[place + 1 :]]),
    "a message doubled": everywhere(lambda messages, place: [*messages[: place + 1], *messages[place:]]),
    "two messages swapped": everywhere(
        lambda messages, place: [
            *messages[:place],
            *messages[place + 1 : place + 2],
            messages[place],
            *messages[place + 2 :],
        ]
    ),
    "two messages joined": everywhere(joined),
    "a character altered": each_text(altered),
    "a text cut": each_text(lambda text: text[:-1]),
    "a text stripped": each_text(str.strip),
    "a text trebled": each_text(lambda text: text * 3),
    "an invented question": everywhere(before({"role": "user", "content": "Invented."})),
    "an invented answer": everywhere(before(ANSWER)),
    "an invented instruction": everywhere(before(INSTRUCTION)),
    "an invented thought": everywhere(before(thought("Invented."))),
    "a question under another role": each("user", {"role": "developer"}, {"role": "system"}, {**ANSWER, "name": None}),
    "instructions under another role": each("developer", as_text("user"), as_text("system"), as_text("developer")),
    "a saying as a question": each("assistant", {"role": "user"}, {"role": "user", "channel": None}),
    "a saying on another channel": each("assistant", *OTHER_CHANNELS),
    "a saying as a call": each("assistant", {"recipient": "functions.f"}),
    "a call to another function": each("call", {"recipient": "functions.other"}, {"recipient": "functions"}),
    "a call to nobody": each("call", {"recipient": None}, {"recipient": None, "content_type": None}),
    "a call on another channel": each("call", *OTHER_CHANNELS),
    "arguments encoded twice": each("call", quoted),
    "a result quoted": each("result", quoted),
    "a result under another name": each(
        "result", {"name": "functions.other"}, {"name": "f"}, lambda message: {"name": message["name"][10:]}
    ),
    "a result as a question": each("result", {"role": "user", "name": None, "recipient": None, "channel": None}),
    "a result to somebody else": each("result", {"recipient": None}, {"recipient": "user"}),
    "a result on another channel": each("result", *OTHER_CHANNELS),
    "another effort": efforts,
    "a function lost": each_function(lambda functions, place: functions.pop(place)),
    "a function renamed": each_function(lambda functions, place: functions[place].update(name="other")),
    "a function undescribed": each_function(lambda functions, place: functions[place].update(description="")),
    "a description altered": each_function(
        lambda functions, place: functions[place].update(description=altered(functions[place]["description"]))
    ),
    "a function without its parameters": each_function(
        lambda functions, place: functions[place].pop("parameters", None)
    ),
    "a parameter lost": each_member(lambda parameters, name: parameters["properties"].pop(name)),
    "a parameter renamed": each_member(rename),
    "a parameter undescribed": each_member(
        lambda parameters, name: parameters["properties"][name].pop("description", None)
    ),
}


def finished_reasoning(test) -> Iterator[Messages]:
    """The messages with reasoning put back that is in the request and in no reading."""
    said = {message["content"] for reading in readings(test) for message in reading if is_a("assistant", message)}
    for message in test["request"]["messages"]:
        text = next(filter(None, (message.get(name) for name in REASONING)), None)
        if text is not None and text not in said:
            answers = (place for place, held in enumerate(test["messages"]) if held["role"] == "assistant")
            yield from (before(thought(text))(test["messages"], place) for place in answers)


# what may live: the places where right and wrong messages differ tell why


def differences(test, wrong):
    return [(one, other) for one, other in zip(test["messages"], wrong, strict=False) if one != other]


def is_silent(test, wrong):
    """The message that came, went or moved is empty."""
    changed = [message for pair in differences(test, wrong) for message in pair] or [test["messages"][-1], wrong[-1]]
    counts = {message["content"] for message in changed if isinstance(message["content"], str)}
    return "" in counts


def is_moved_to_analysis(test, wrong):
    pairs = differences(test, wrong)
    return len(pairs) == 1 and [message["channel"] for message in pairs[0]] == ["commentary", "analysis"]


def is_instruction_earlier(test, wrong):
    return differences(test, wrong)[0][1]["role"] == "developer"


def is_thought_beside_preamble(test, wrong):
    return [message.get("channel") for message, _ in differences(test, wrong)] == ["analysis", "commentary"]


def is_result_beside_later_call(test, wrong):
    return [is_a("call", message) for message, _ in differences(test, wrong)] == [True, False]


def is_thought_of_no_open_call(test, wrong):
    lost = [message for message in test["messages"] if message not in wrong]
    return [message.get("channel") for message in lost] == ["analysis"] and test["messages"][-1]["role"] != "tool"


def is_repeated_by_lines(test, wrong):
    ((one, other),) = differences(test, wrong)
    return one["channel"] == "analysis" and one["content"].endswith("\n ") and other["content"] == one["content"] * 3


def had_no_description(test, wrong):
    ((one, other),) = differences(test, wrong)
    pairs = zip(functions_of(one), functions_of(other), strict=True)
    return [before["description"] for before, after in pairs if before != after] == [""]


def is_function_not_named(test, wrong):
    ((one, other),) = differences(test, wrong)
    (lost,) = [function["name"] for function in functions_of(one) if function not in functions_of(other)]
    return lost != test["request"]["tool_choice"]["function"]["name"]


def is_without_effort(test, wrong):
    return test["request"].get("reasoning_effort") is None


SURVIVORS = [
    ("another effort", "plain: one question", is_without_effort, "a server has a default of its own"),
    ("a call on another channel", "tool_calls: one call", is_moved_to_analysis, "a variant: models write calls there"),
    (
        "a saying on another channel",
        "tool_loops: a preamble",
        is_moved_to_analysis,
        "a preamble as reasoning: a variant",
    ),
    (
        "two messages swapped",
        "instructions: instructions after the question",
        is_instruction_earlier,
        "no source says where later instructions stand: before is a variant, after a failure",
    ),
    (
        "two messages swapped",
        "tool_loops: thought, preamble, call",
        is_thought_beside_preamble,
        "the API does not say which of the two came first",
    ),
    (
        "two messages swapped",
        "tool_loops: three parallel calls with reasoning",
        is_result_beside_later_call,
        "a result may follow its own call or all calls of the message",
    ),
    ("two messages swapped", "content_forms: an empty answer", is_silent, "it says nothing, wherever it stands"),
    ("a message dropped", "content_forms: an empty question", is_silent, "it says nothing, and may be left out"),
    ("a message doubled", "content_forms: an empty answer", is_silent, "it says nothing, however often"),
    ("a question under another role", "content_forms: an empty question", is_silent, "it says nothing, as whoever"),
    ("a saying on another channel", "content_forms: an empty answer", is_silent, "it says nothing, to whomever"),
    (
        "a message dropped",
        "reasoning: a thought without an answer",
        is_thought_of_no_open_call,
        "reasoning has to be kept from the last question on while a call is open; elsewhere it may be",
    ),
    (
        "a text trebled",
        "reasoning: reasoning of several lines",
        is_repeated_by_lines,
        "a server may join several thoughts by line breaks, so one may stand among others",
    ),
    (
        "a description altered",
        "tools: no description",
        had_no_description,
        "a comment where none was sent is not looked for",
    ),
    (
        "a function lost",
        "tools: choice by name",
        is_function_not_named,
        "a named choice leaves one function to call: a server may leave the others out",
    ),
]


@cache
def survivors(name, render):
    """The kinds of mutants of a triple that no check catches, each with the place in SURVIVORS of its reason, or None."""
    test = TRIPLES[name]
    mutants = [(kind, wrong) for kind, mutation in MUTATIONS.items() for wrong in mutation(test["messages"])]
    mutants += [("finished reasoning put back", wrong) for wrong in finished_reasoning(test)]
    caught = {tuple(render(messages)): True for messages in readings(test)}
    found = set()
    for kind, wrong in mutants:
        ids = tuple(render(wrong))
        if ids not in caught:
            caught[ids] = is_caught(test["request"], ids)
        if not caught[ids]:
            rows = (n for n, row in enumerate(SURVIVORS) if row[0] == kind and row[2](test, wrong))
            found.add((kind, next(rows, None)))
    return found


HALVES = [pytest.param(name, marks=[pytest.mark.slow] if n % 2 else []) for n, name in enumerate(TRIPLES)]


@pytest.mark.parametrize("name", HALVES)
def test_a_wrong_prompt_is_caught(name, render_by_library):
    assert {kind for kind, row in survivors(name, render_by_library) if row is None} == set()


@pytest.mark.parametrize("row", range(len(SURVIVORS)), ids=lambda row: f"{SURVIVORS[row][0]}: {SURVIVORS[row][3]}")
def test_each_reason_to_live_is_needed(row, render_by_library):
    kind, name, *_ = SURVIVORS[row]
    assert (kind, row) in survivors(name, render_by_library)
