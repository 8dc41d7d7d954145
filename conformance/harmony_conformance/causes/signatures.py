"""Signatures of defects: what each switchable defect of the reference server makes fail. Data: `golden/signatures.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import NamedTuple

from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import Json, JsonObject, dumps, items, loads, members, text, value_at
from harmony_conformance.judge.check import Outcome, Verdict
from harmony_conformance.judge.judge import Result
from harmony_conformance.redactable_text import RedactableText, ReportText

SIGNATURES = "signatures.json"
"""File name in the golden data."""


class FailureKey(NamedTuple):
    """The key of like failures: a check, the scenario, its step, and the message without its values. The step of a whole series is empty."""

    check: str
    scenario: str
    step: str
    message: str


Signature = Mapping[str, frozenset[FailureKey]]
"""Failures of a defect by evidence level: `ids`, and `counts` if the token counts of prompts give other failures."""


def message_kind(message: ReportText) -> str:
    """Return a message without its values."""
    return message.template if isinstance(message, RedactableText) else message


def step_of(exchange: str) -> str:
    """Return the step in the id of an exchange, `scenario/api/step/try`."""
    return exchange.partition("/")[2].partition("/")[2].rpartition("/")[0]


def failures_of(results: Iterable[Result]) -> frozenset[FailureKey]:
    """Return the kinds of failures in results."""
    return frozenset(
        FailureKey(result.check, result.scenario, step_of(finding.exchange), message_kind(finding.message))
        for result in results
        if result.outcome is Outcome.FAIL
        for finding in result.findings
        if finding.verdict is Verdict.FAIL
    )


def write_signatures(signatures: Mapping[str, Signature]) -> str:
    """Return the text of the file: messages are numbered, since many defects share them."""
    messages = sorted({failure.message for levels in signatures.values() for one in levels.values() for failure in one})
    numbers = {message: number for number, message in enumerate(messages)}

    def level_json(failures: frozenset[FailureKey]) -> JsonObject:
        checks: dict[str, dict[str, dict[str, list[Json]]]] = {}
        for check, scenario, step, message in sorted(failures):
            by_message = checks.setdefault(check, {}).setdefault(scenario, {})
            by_message.setdefault(str(numbers[message]), []).append(step)
        return {check: {name: {**steps} for name, steps in scenarios.items()} for check, scenarios in checks.items()}

    lines = [
        f"    {dumps(name)}: {dumps({level: level_json(one) for level, one in levels.items()})}"
        for name, levels in signatures.items()
    ]
    told = ",\n".join(f"    {dumps(message)}" for message in messages)
    body = ",\n".join(lines)
    return f'{{\n  "schema": "signatures",\n  "messages": [\n{told}\n  ],\n  "signatures": {{\n{body}\n  }}\n}}\n'


@cache
def read_signatures() -> Mapping[str, Signature]:
    """Read the signatures of all defects."""
    document = loads((golden.root() / SIGNATURES).read_text(encoding="utf-8"))
    messages = [text(message) for message in items(value_at(document, "messages"))]
    return {
        name: {
            level: frozenset(
                FailureKey(check, scenario, text(step), messages[int(number)])
                for check, scenarios in members(failures).items()
                for scenario, by_message in members(scenarios).items()
                for number, steps in members(by_message).items()
                for step in items(steps)
            )
            for level, failures in members(levels).items()
        }
        for name, levels in members(value_at(document, "signatures")).items()
    }
