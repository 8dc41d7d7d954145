"""Hand-written rows of `golden/scenarios/expectations.json`: a scripted completion and its required, allowed and forbidden output.

The rows of a group are the steps of one scenario and are sent concurrently. Each row refers to a request by name.
A row with `headers` is sent once for each of them, in place of `{header}` in its script.
A row with `limits` is cut at each of these numbers of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle

from harmony_conformance.evidence.exchange_json import InvalidRecordError, read_script
from harmony_conformance.evidence.expected_output import read_expectation
from harmony_conformance.evidence.levels import Validity
from harmony_conformance.golden.scenario import InvalidScenarioError, Scenario, Step
from harmony_conformance.json_value import Json, integer, items, members, text, value_at

_CHUNKINGS = (2, 3, 5, 1000)
"""Tokens in an event. Each row is streamed twice: token by token, and with one of these sizes in turn."""


def has_rows(value: Json) -> bool:
    """Return True if a file of the scenarios' folder contains rows."""
    return "groups" in members(value)


def read_row_scenarios(value: Json) -> Iterator[Scenario]:
    """Yield one scenario for each group of a file of rows.

    Raises:
        InvalidScenarioError: a row is invalid. The message has the row and the reason.
    """
    requests, chunkings = members(value_at(value, "requests")), cycle(_CHUNKINGS)
    for group in items(value_at(value, "groups")):
        name, past_stop = text(value_at(group, "name")), value_at(group, "past_stop") is True
        rows = (step for row in items(value_at(group, "rows")) for step in _steps(row, requests, name))
        steps = [replace(step, parallel_group=name, continues_after_stop=past_stop) for step in rows]
        if not steps:
            raise InvalidScenarioError(f"{name}: no rows")
        yield Scenario(
            name=name,
            description=text(value_at(group, "about")),
            exercises=frozenset(map(text, items(value_at(group, "exercises")))),
            steps=tuple(replace(step, stream_chunk_sizes=(next(chunkings),)) for step in steps),
            needs_script=True,
            violates_grammar=value_at(group, "breaks_grammar") is True,
        )


def _steps(row: Json, requests: Mapping[str, Json], group: str) -> Iterator[Step]:
    name, request = text(value_at(row, "id")), text(value_at(row, "request"))
    where = f"{group}, row {name}"
    if not name:
        raise InvalidScenarioError(f"{group}: a row has no `id`")
    if request not in requests:
        raise InvalidScenarioError(f"{where}: unknown request {request!r}")
    template, headers = value_at(row, "script"), items(value_at(row, "headers"))
    scripts: list[Json] = [text(template).replace("{header}", text(header)) for header in headers] or [template]
    for serial, source in enumerate(scripts, start=1):
        try:
            script = read_script(source)
        except InvalidRecordError as problem:
            raise InvalidScenarioError(f"{where}: {problem}") from None
        full_name = f"{name}, {serial}" if "headers" in members(row) else name
        body = members(requests[request])
        step = Step(name=full_name, request=body, script=script, expected=read_expectation(row), row_id=name)
        step = replace(step, validity=Validity(text(value_at(row, "validity")) or Validity.VALID))
        yield from _cut(step, items(value_at(row, "limits")), where)


def _cut(step: Step, limits: Sequence[Json], where: str) -> Iterator[Step]:
    """Yield the step once for each token limit, or unchanged if it has no limits."""
    script = step.script or ()
    for limit in map(integer, limits):
        if limit is None or not 0 < limit <= len(script):
            raise InvalidScenarioError(f"{where}: invalid limit {limit}: expected 1 to {len(script)} tokens")
        request = {**step.request, "max_tokens": limit}
        yield replace(step, name=f"{step.name}, {limit} tokens", request=request, script=script[:limit])
    if not limits:
        yield step
