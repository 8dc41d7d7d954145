"""The figures of older tools, by rows written by hand after their rules."""

import json

import pytest

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.sampling.graders import Grade
from harmony_conformance.sampling.legacy import legacy_figures
from harmony_conformance.sampling.report import legacy_lines
from harmony_conformance.sampling.sampler import TaskTry
from harmony_conformance.sampling.task import Task, read_tasks
from harmony_conformance.transport.messages import Chunk, Request, Response

WEATHER = next(task for task in read_tasks()["compatibility"] if task.id == "get_weather 1")
CHART = next(task for task in read_tasks()["compatibility"] if task.id == "generate_chart 1")
OPENAI, KIMI = "OpenAI's compatibility test", "Kimi's vendor verifier"
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}]


def exchange(message=None, finish="stop"):
    """An exchange with this message, or one that the server refused."""
    request = Request(path="/v1/chat/completions", body=b"{}")
    if message is None:
        return Exchange(id="x", request=request, response=Response(status=500, chunks=()))
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = json.dumps({"object": "chat.completion", "choices": [choice]}).encode()
    response = Response(
        status=200, chunks=(Chunk(data=body, arrival_time=0.0),), headers={"content-type": "application/json"}
    )
    return Exchange(id="x", request=request, response=response)


def calling(name, arguments, **members):
    call = {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return exchange({"content": None, "tool_calls": [call], **members}, "tool_calls")


def tried(task, attempt, *exchanges, grade=Grade.SOLVED):
    return TaskTry(task=task, attempt=attempt, grade=grade, exchanges=exchanges)


RIGHT = calling("get_weather", '{"location": "Oslo"}', reasoning="Call.")
ANSWER = exchange({"content": "Sunny.", "reasoning": "Say it."})
BARE = calling("get_weather", '{"location": "Oslo"}')
OTHER_MEMBER = calling("get_weather", '{"location": "Oslo"}', reasoning_content="Call.")
OTHER_SCHEMA = calling("get_weather", '{"city": "Oslo"}', reasoning="Call.")
NO_JSON = calling("get_weather", "{", reasoning="Call.")
OTHER_NAME = calling("weather", '{"location": "Oslo"}', reasoning="Call.")


@pytest.mark.parametrize(
    ("tries", "figures"),
    [
        ([tried(WEATHER, 0, RIGHT, ANSWER)], (1, 1.0, 1.0, 0, 0)),
        ([tried(WEATHER, 0, BARE, ANSWER)], (1, 1.0, 1.0, 0, 0)),  # reasoning in any of the answers is enough
        ([tried(WEATHER, 0, BARE)], (1, 0.0, 0.0, 1, 0)),
        ([tried(WEATHER, 0, OTHER_MEMBER)], (1, 0.0, 0.0, 1, 0)),  # it reads `reasoning` only
        ([tried(WEATHER, 0, OTHER_SCHEMA)], (1, 0.0, 0.0, 0, 0)),
        ([tried(WEATHER, 0, OTHER_SCHEMA, RIGHT)], (1, 0.0, 0.0, 0, 0)),  # the first call decides
        ([tried(WEATHER, 0, OTHER_NAME, RIGHT)], (1, 1.0, 1.0, 0, 0)),  # of those with the name
        ([tried(WEATHER, 0, NO_JSON)], (0, 0.0, 0.0, 0, 1)),  # an exception, which vanishes
        ([tried(WEATHER, 0, exchange(), grade=Grade.ERROR)], (0, 0.0, 0.0, 0, 1)),
        ([tried(WEATHER, 0, exchange(), grade=Grade.ERROR), tried(CHART, 0, ANSWER)], (1, 0.0, 0.0, 0, 1)),
    ],
)
def test_openai_figures_of_one_try(tries, figures):
    assert tuple(legacy_figures(tries)[OPENAI].values()) == figures


def test_openai_figures_of_several_tries():
    error = exchange()
    tries = [
        tried(WEATHER, 0, RIGHT),
        tried(WEATHER, 1, error, grade=Grade.ERROR),  # a missing try is no success
        tried(CHART, 0, error, grade=Grade.ERROR),
        tried(CHART, 1, error, grade=Grade.ERROR),  # a task of errors alone is none
    ]
    assert legacy_figures(tries) == {
        OPENAI: {"tasks": 1, "pass@2": 1.0, "pass^2": 0.0, "invalid responses": 0, "left out": 3}
    }


def requested(number, x):
    task = Task(
        id=f"line {number}", set="requests", kind="requests", request={"messages": [], "tools": TOOLS}, grade={}
    )
    return tried(task, 0, x, grade=Grade.UNGRADED)


def test_kimi_figures():
    oslo = calling("get_weather", '{"city": "Oslo"}')
    answers = [
        oslo,
        calling("get_weather", "{}"),
        calling("weather", '{"city": "Oslo"}'),
        calling("get_weather", "{"),
        exchange({"content": "Sunny."}),
        exchange({"content": "Sun"}, "length"),
        exchange({"content": None}, "tool_calls"),
        exchange(),
    ]
    right = [oslo, ANSWER, oslo, ANSWER, oslo, ANSWER, ANSWER, oslo]
    tries = [requested(number, x) for number, x in enumerate(answers)]
    counts = {
        "success_count": 7,
        "failure_count": 1,
        "finish_stop": 1,
        "finish_tool_calls": 5,
        "finish_others": 1,
        "successful_tool_call_count": 1,
        "schema_validation_error_count": 4,
        "schema_accuracy": 0.2,
    }
    assert legacy_figures(tries) == {KIMI: counts}
    compared = legacy_figures(tries, [requested(number, x) for number, x in enumerate(right)])[KIMI]
    similarity = {"tool_call_precision": 2 / 5, "tool_call_recall": 2 / 4, "tool_call_f1": 4 / 9}
    assert compared == {**counts, **similarity}


def test_a_figure_of_no_call_is_a_dash():
    (shown,) = legacy_lines([requested(0, exchange({"content": "Sunny."}))], ())
    assert shown.startswith("Kimi's vendor verifier, by its own rules: success_count 1, failure_count 0, finish_stop 1")
    assert shown.endswith("schema_accuracy -")


def test_own_tasks_have_no_figures_of_others():
    assert legacy_figures([tried(read_tasks()["tools"][0], 0, RIGHT)]) == {}
