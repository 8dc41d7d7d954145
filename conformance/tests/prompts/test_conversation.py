"""A request as the conversation that it means, against the hand-written triples of golden/api: their tokens come from openai-harmony 0.0.8."""

import itertools
import json

import pytest

from harmony_conformance.golden import data as golden
from harmony_conformance.prompts.conversation import (
    ALLOWED_RETENTIONS,
    REQUIRED_RETENTIONS,
    ConversationOptions,
    conversation_of,
)
from harmony_conformance.prompts.expected_parts import PartKind, expected_parts, part_kinds
from harmony_ref import render_conversation

TRIPLES = {
    f"{file.stem}: {test['id']}": test
    for file in sorted((golden.root() / "api").glob("*.json"))
    for test in json.loads(file.read_text("utf-8"))["tests"]
    if "api" not in test  # Chat Completions
}
READINGS = [
    ConversationOptions(retentions=keeps, joins_instructions=joins, declares_formats=declares)
    for keeps, joins, declares in itertools.product(
        (REQUIRED_RETENTIONS, ALLOWED_RETENTIONS), (True, False), (True, False)
    )
]
DATE = "2025-06-28"

# the other readings that the triples allow, and this module does not make
NOT_READ = {
    "a content is one text": ["two parts", "a word in two parts", "a marker in two parts"],
    "an empty text is no message of the assistant, and no instruction": [
        "an empty answer",
        "an empty system message",
        "empty content",
    ],
    "a user has no name in Harmony": ["a user with a name", "two users with names"],
    "calls stand together, and so do their results": [
        "two parallel calls",
        "two parallel calls of one function",
        "three parallel calls with reasoning",
        "a preamble before parallel calls",
    ],
    "a schema is written as the library writes it": [
        "an object without properties",
        "an object without the key properties",
        "an empty schema",
    ],
    "forbidden tools are not shown": ["choice none"],
}


def rendered(request, reading):
    messages = conversation_of(request, reading, date=DATE)
    return [*render_conversation(messages, auto_drop_analysis=False), 200006, 173781]


def by_library(test, render_by_library):
    return [render_by_library(m) for m in (test["messages"], *(other["messages"] for other in test.get("also", [])))]


@pytest.mark.parametrize("name", TRIPLES)
def test_a_request_is_read_as_its_triple_says(name, render_by_library):
    test = TRIPLES[name]
    right = by_library(test, render_by_library)
    assert any(rendered(test["request"], reading) in right for reading in READINGS)


def test_every_reading_of_the_triples_is_made_but_those_listed(render_by_library):
    listed = {name for names in NOT_READ.values() for name in names}
    missing = set()
    for test in TRIPLES.values():
        made = [rendered(test["request"], reading) for reading in READINGS]
        if not all(right in made for right in by_library(test, render_by_library)):
            missing.add(test["id"])
    assert missing == listed


def test_no_date_is_no_line():
    request = {"messages": [{"role": "user", "content": "Hi"}]}
    system, user = conversation_of(request, ConversationOptions(), date=None)
    assert "Current date" not in str(system.content)
    assert user.author.role == "user"


def test_half_of_a_surrogate_pair_becomes_the_replacement_character():
    request = json.loads('{"messages": [{"role": "user", "content": "a \\ud83d b \\ud83d\\ude00"}]}')
    assert [part.text for part in expected_parts(request)] == ["a \ufffd b \U0001f600"]


HOSTILE = (
    *(
        {"messages": messages}
        for messages in (None, 1, "a", {}, [[]], [None, 1, "user", {}, {"role": None}, {"role": ["user"]}])
    ),
    {"messages": [{"role": role} for role in ("system", "developer", "user", "assistant", "tool", "function", "")]},
    {
        "messages": [
            {"role": "assistant", "content": content} for content in ("", [], [{"refusal": "No"}], 1, {"text": "a"})
        ]
    },
    {
        "messages": [
            {"role": "assistant", "tool_calls": calls, "content": "a"} for calls in ([], [None], {}, "a", [{"id": 1}])
        ]
    },
    {"messages": [{"role": "assistant", "phase": "commentary", "content": "a", "reasoning": "b", "thinking": "c"}]},
)


def test_kinds_of_parts_are_those_of_the_parts():
    exchanges = (x for example in golden.examples() for x in example.series.exchanges.values())
    requests = [*HOSTILE, *(x.chat_request for x in exchanges)]
    kinds = [frozenset(part.kind for part in expected_parts(request)) for request in requests]
    assert [*map(part_kinds, requests)] == kinds
    assert frozenset().union(*kinds) == frozenset(PartKind)
