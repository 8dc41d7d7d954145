"""Every task is valid, and its examples have their grade."""

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from harmony_conformance.sampling.graders import GRADERS, Grade, grade
from harmony_conformance.sampling.task import read_tasks

GOLDEN = Path(__file__).parents[3] / "golden"
TASKS = [task for tasks in read_tasks().values() for task in tasks]


@pytest.mark.parametrize("file", sorted((GOLDEN / "tasks").iterdir()), ids=lambda file: file.name)
def test_file_follows_its_schema(file):
    schema = json.loads((GOLDEN / "schema" / "tasks.schema.json").read_text("utf-8"))
    document = json.loads(file.read_text("utf-8"))
    Draft202012Validator(schema).validate(document)
    assert document["set"] == file.stem


def test_ids_are_unique():
    ids = [task.id for task in TASKS]
    assert len(ids) == len(set(ids)) >= 60
    assert len(read_tasks()["hierarchy"]) >= 12


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_examples_of_a_task_have_their_grade(task):
    assert [grade(task, example) for example in task.right] == [Grade.SOLVED] * len(task.right)
    assert Grade.SOLVED not in [grade(task, example) for example in task.wrong]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_functions_with_results_are_offered(task):
    offered = {tool["function"]["name"] for tool in task.request.get("tools", [])}
    assert task.results.keys() <= offered
    assert {name for example in task.right for name, _ in example.calls} <= offered


def test_each_grader_is_used_and_decides():
    used = {name for task in TASKS for name in task.grade}
    assert used == GRADERS.keys()
    for name in used:
        deciding = [task for task in TASKS if name in task.grade]
        verdicts = {
            GRADERS[name](example, task.grade[name]) for task in deciding for example in (*task.right, *task.wrong)
        }
        assert verdicts == {True, False}, name
