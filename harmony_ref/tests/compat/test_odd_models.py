"""Models that hold what their annotations do not allow: openai_harmony writes them as JSON and lets its core refuse them.

Each row changes one good conversation; both APIs have to render it to the same ids or refuse it in the same words, the
column in the JSON text included. HARMONY_ORACLE_EXAMPLES sets the number of examples of the last test.
"""

import enum
import math
import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("HARMONY_ORACLE_EXAMPLES", "400"))


class Shade(str, enum.Enum):  # noqa: UP042 - the kind that json writes by its value
    RED = "analysis"


class OwnText(str):
    __slots__ = ()


def good(api):
    tool = api.ToolDescription.new("f", "d", {"type": "object", "properties": {"a": {"type": "string"}}})
    return api.Conversation.from_messages(
        [
            api.Message.from_role_and_content(api.Role.SYSTEM, api.SystemContent.new().with_browser_tool()),
            api.Message.from_role_and_content(
                api.Role.DEVELOPER, api.DeveloperContent.new().with_instructions("I").with_function_tools([tool])
            ),
            api.Message.from_role_and_content(api.Role.ASSISTANT, "thinking").with_channel("analysis"),
            api.Message.from_role_and_content(api.Role.ASSISTANT, "answer").with_channel("final"),
        ]
    )


def nested(depth):
    found = 1
    for _ in range(depth):
        found = {"a": found}
    return found


def listed(depth):
    found = 1
    for _ in range(depth):
        found = [found]
    return {"a": found}


ODD_TEXTS = {
    "an integer": 5,
    "a float": 5.5,
    "a large integer": 10**30,
    "a boolean": True,
    "a list": [],
    "a dict": {"a": 1},
    "bytes": b"a",
    "an enumeration of strings": Shade.RED,
    "a subclass of str": OwnText("analysis"),
    "a first half": "a\ud800",
    "a first half and text": "a\ud800b",
    "a first half and an escape": "a\ud800\n",
    "two first halves": "a\ud800\ud800",
    "a second half": "a\udc00",
    "a pair of halves": "a\ud83d\ude00",
    "nothing": None,
}
ODD_SCHEMAS = {
    "NaN": {"a": math.nan},
    "infinity": {"a": math.inf},
    "minus infinity": {"a": [1, -math.inf]},
    "an integer too large": {"a": 10**400},
    "numbers as keys": {1: {"type": "string"}, 2.5: 1, None: 2, False: 3},
    "the same key twice": {"properties": {1: {"type": "string"}, "1": {"type": "number"}}, "type": "object"},
    "a tuple as a key": {(1, 2): 1},
    "a set": {"a": {1}},
    "bytes": {"a": b"a"},
    "a tuple": {"type": ("string", "null")},
    "an enumeration of strings": {"type": Shade.RED},
    "an object": {"a": object},
    "a half": {"x": "\ud800"},
    "a half as a key": {"\udc00": 1},
    "objects, not quite too deep": nested(118),
    "objects, as deep as it goes in a message": nested(120),
    "objects, too deep": nested(121),
    "arrays, not quite too deep": listed(117),
    "arrays, too deep": listed(120),
    "very deep": nested(3000),
    "a list": [1],
    "a text": "a",
}


def set_path(*path):
    *steps, last = path

    def change(conversation, value):
        place = conversation
        for step in steps:
            place = place[step] if isinstance(step, int) or isinstance(place, dict) else getattr(place, step)
        if isinstance(place, dict | list):
            place[last] = value
        else:
            setattr(place, last, value)

    return change


TEXT_PLACES = {
    "channel": set_path("messages", 2, "channel"),
    "recipient of the last": set_path("messages", 3, "recipient"),
    "content type": set_path("messages", 2, "content_type"),
    "name": set_path("messages", 2, "author", "name"),
    "name of the last": set_path("messages", 3, "author", "name"),
    "role": set_path("messages", 2, "author", "role"),
    "text": set_path("messages", 3, "content", 0, "text"),
    "text of dropped reasoning": set_path("messages", 2, "content", 0, "text"),
    "instructions": set_path("messages", 1, "content", 0, "instructions"),
    "identity": set_path("messages", 0, "content", 0, "model_identity"),
    "effort": set_path("messages", 0, "content", 0, "reasoning_effort"),
    "date": set_path("messages", 0, "content", 0, "conversation_start_date"),
    "a channel of the configuration": set_path("messages", 0, "content", 0, "channel_config", "valid_channels", 1),
    "the channels": set_path("messages", 0, "content", 0, "channel_config", "valid_channels"),
    "channel required": set_path("messages", 0, "content", 0, "channel_config", "channel_required"),
    "channel configuration": set_path("messages", 0, "content", 0, "channel_config"),
    "tools of the system": set_path("messages", 0, "content", 0, "tools"),
    "a namespace": set_path("messages", 0, "content", 0, "tools", "browser"),
    "name of a namespace": set_path("messages", 0, "content", 0, "tools", "browser", "name"),
    "description of a namespace": set_path("messages", 0, "content", 0, "tools", "browser", "description"),
    "tools of a namespace": set_path("messages", 1, "content", 0, "tools", "functions", "tools"),
    "a tool": set_path("messages", 1, "content", 0, "tools", "functions", "tools", 0),
    "name of a tool": set_path("messages", 1, "content", 0, "tools", "functions", "tools", 0, "name"),
    "description of a tool": set_path("messages", 1, "content", 0, "tools", "functions", "tools", 0, "description"),
    "the content": set_path("messages", 3, "content"),
    "a part": set_path("messages", 3, "content", 0),
    "the author": set_path("messages", 3, "author"),
    "a message": set_path("messages", 3),
    "the messages": set_path("messages"),
}
AN_ARRAY_FOR_AN_OBJECT = {("channel configuration", "a list"), ("a namespace", "a list"), ("a tool", "a list")}
"""The original reads an array of its members for an object and counts them; ours says that it is none."""

ROWS = {
    f"{value} as {place}": (change, ODD_TEXTS[value])
    for place, change in TEXT_PLACES.items()
    for value in ODD_TEXTS
    if (place, value) not in AN_ARRAY_FOR_AN_OBJECT
}
PARAMETERS = set_path("messages", 1, "content", 0, "tools", "functions", "tools", 0, "parameters")


def ways(change):
    def changed(api):
        conversation = good(api)
        change(conversation)
        return conversation

    yield "completion", lambda api: api.encoding.render_conversation_for_completion(changed(api), api.Role.ASSISTANT)
    yield "conversation", lambda api: api.encoding.render_conversation(changed(api))
    yield "training", lambda api: api.encoding.render_conversation_for_training(changed(api))
    for index in range(4):
        yield f"message {index}", lambda api, index=index: api.encoding.render(changed(api).messages[index])


def same(official, ours, change):
    for name, way in ways(change):
        expected = official.answer(way)
        expected.pop("warnings", None)
        actual = ours.answer(way)
        actual.pop("warnings", None)
        assert actual == expected, name


@pytest.mark.parametrize(("change", "value"), ROWS.values(), ids=ROWS)
def test_what_stands_in_a_place_of_text_is_taken_or_refused_alike(official, ours, change, value):
    same(official, ours, lambda conversation: change(conversation, value))


@pytest.mark.parametrize("place", sorted(place for place, _ in AN_ARRAY_FOR_AN_OBJECT))
def test_an_array_for_an_object_is_refused_by_both_in_other_words(official, ours, place):
    for name, way in ways(lambda conversation: TEXT_PLACES[place](conversation, [])):
        expected, actual = official.answer(way), ours.answer(way)
        if "ok" in expected:
            assert actual == expected, name
        else:
            assert (expected["error"], actual["error"]) == ("ValueError", "ValueError")
            assert " invalid length 0, " in expected["text"]
            assert " invalid type: sequence, " in actual["text"]
            assert expected["text"].rpartition(" at ")[2] == actual["text"].rpartition(" at ")[2]


@pytest.mark.parametrize("schema", ODD_SCHEMAS.values(), ids=ODD_SCHEMAS)
def test_what_stands_in_a_schema_is_taken_or_refused_alike(official, ours, schema):
    same(official, ours, lambda conversation: PARAMETERS(conversation, schema))


@settings(
    max_examples=EXAMPLES,
    derandomize=EXAMPLES <= 1000,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    changes=st.lists(
        st.sampled_from(list(ROWS.values()))
        | st.tuples(st.just(PARAMETERS), st.sampled_from(list(ODD_SCHEMAS.values()))),
        min_size=2,
        max_size=4,
    )
)
def test_of_several_faults_the_first_is_reported(official, ours, changes):
    def apply(conversation):
        for change, value in changes:
            try:
                change(conversation, value)
            except (TypeError, AttributeError, IndexError, KeyError):
                continue

    same(official, ours, apply)
