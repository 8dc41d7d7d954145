"""Figures that older tools would print for the same answers, by their own rules.

- OpenAI's compatibility test: a try succeeds if a call matches the schema and some message has a member `reasoning`.
  A try that ended in an error is left out, and a task whose tries all did is no task.
- Kimi's vendor verifier: it counts finish reasons, and answers with calls that match their schemas.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from harmony_conformance.checks.helpers.json_schema import first_violation
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import InvalidJsonError, JsonObject, loads, text, value_at
from harmony_conformance.sampling.graders import Grade
from harmony_conformance.sampling.rates import function_schemas
from harmony_conformance.sampling.request_file import REQUESTS
from harmony_conformance.sampling.sampler import TaskTry
from harmony_conformance.sampling.task import COMPATIBILITY, Task


def legacy_figures(samples: Sequence[TaskTry], against: Sequence[TaskTry] = ()) -> JsonObject:
    """Return the figures by tool. `against`: the tries of a second endpoint, which Kimi's verifier takes for the right ones."""
    compatibility = [sample for sample in samples if sample.task.set == COMPATIBILITY]
    requests = [sample for sample in samples if sample.task.set == REQUESTS]
    figures: JsonObject = {}
    if compatibility:
        figures["OpenAI's compatibility test"] = _openai(compatibility)
    if requests:
        figures["Kimi's vendor verifier"] = {**_kimi(requests), **_kimi_similarity(requests, against)}
    return figures


def _openai(samples: Sequence[TaskTry]) -> JsonObject:
    successes: dict[str, dict[int, bool]] = defaultdict(dict)
    invalid = 0
    for sample in samples:
        if sample.grade is Grade.ERROR:
            continue
        try:
            called = _first_call_matches(sample)
        except InvalidJsonError:
            continue
        valid = any(text(value_at(x.response_json, "choices", 0, "message", "reasoning")) for x in sample.exchanges)
        invalid += not valid
        successes[sample.task.id][sample.attempt] = valid and called
    tries = range(max(sample.attempt for sample in samples) + 1)
    solved = [[attempts.get(attempt, False) for attempt in tries] for attempts in successes.values()]
    k, tasks = len(tries), len(solved)
    return {
        "tasks": tasks,
        f"pass@{k}": sum(map(any, solved)) / tasks if tasks else 0.0,
        f"pass^{k}": sum(map(all, solved)) / tasks if tasks else 0.0,
        "invalid responses": invalid,
        "left out": len(samples) - sum(map(len, successes.values())),
    }


def _first_call_matches(sample: TaskTry) -> bool:
    """Return True if the first call of the task's function matches its schema.

    Raises:
        InvalidJsonError: Its arguments are no JSON.
    """
    schemas = function_schemas(sample.task)
    calls = [call for x in sample.exchanges for call in (x.turn.tool_calls if x.turn is not None else ())]
    made = next((call for call in calls if call.name in schemas), None)
    return made is not None and first_violation(loads(made.arguments), schemas[made.name]) is None


def _kimi(samples: Sequence[TaskTry]) -> JsonObject:
    answers = [(sample.task, sample.exchanges[0]) for sample in samples]
    reasons = [_finish_reason(x) for _, x in answers]
    called = [(task, x) for (task, x), reason in zip(answers, reasons, strict=True) if reason == "tool_calls"]
    matching = sum(_matches_schemas(task, x) for task, x in called)
    return {
        "success_count": sum(x.turn is not None and x.failure is None for _, x in answers),
        "failure_count": sum(x.turn is None or x.failure is not None for _, x in answers),
        "finish_stop": reasons.count("stop"),
        "finish_tool_calls": len(called),
        "finish_others": sum(reason not in (None, "stop", "tool_calls") for reason in reasons),
        "successful_tool_call_count": matching,
        "schema_validation_error_count": len(called) - matching,
        "schema_accuracy": matching / len(called) if called else None,
    }


def _matches_schemas(task: Task, x: Exchange) -> bool:
    calls, schemas = x.turn.tool_calls if x.turn is not None else (), function_schemas(task)
    try:
        return bool(calls) and all(
            call.name in schemas and first_violation(loads(call.arguments), schemas[call.name]) is None
            for call in calls
        )
    except InvalidJsonError:
        return False


def _kimi_similarity(samples: Sequence[TaskTry], against: Sequence[TaskTry]) -> JsonObject:
    """Compare which requests were answered by calls: precision, recall and F1, with the second endpoint as the right one."""
    right = {(one.task.id, one.attempt): _finish_reason(one.exchanges[0]) == "tool_calls" for one in against}
    both = [
        (_finish_reason(one.exchanges[0]) == "tool_calls", right[one.task.id, one.attempt])
        for one in samples
        if (one.task.id, one.attempt) in right
    ]
    agreed = sum(one and other for one, other in both)
    called, wanted = (sum(pair[side] for pair in both) for side in (0, 1))
    if not both or not called + wanted:
        return {}
    return {
        "tool_call_precision": agreed / called if called else 0.0,
        "tool_call_recall": agreed / wanted if wanted else 0.0,
        "tool_call_f1": 2 * agreed / (called + wanted),
    }


def _finish_reason(x: Exchange) -> str | None:
    return x.turn.finish_reason if x.turn is not None else None
