"""Hand-written rows, one a scripted completion: what must reach the client, what may, and what must never. `golden/scenarios/expectations.json`.

The rows of a group are the steps of one scenario, sent side by side. A row names its request. One with `headers` is sent once with each of them where
its script has `{header}`; one with `limits` is cut at each of these numbers of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle

from harmony_conformance.evidence.expected_output import read_row
from harmony_conformance.evidence.recording import InvalidRecordError, read_script
from harmony_conformance.golden.scenario import InvalidScenarioError, Scenario, Step
from harmony_conformance.json_value import Json, at, items, members, number, text

_CHUNKINGS = (2, 3, 5, 1000)
"""Tokens in an event: each row is streamed as its tokens come, and once more in one of these, in turn."""


def holds_rows(value: Json) -> bool:
    """Whether a file of the scenarios' folder is one of rows."""
    return "groups" in members(value)


def read_expectations(value: Json) -> Iterator[Scenario]:
    """The scenarios that the groups of a file of rows stand for.

    Raises:
        BadScenario: a row can not be used; says which and why.
    """
    requests, chunkings = members(at(value, "requests")), cycle(_CHUNKINGS)
    for group in items(at(value, "groups")):
        name = text(at(group, "name"))
        steps = [step for row in items(at(group, "rows")) for step in _steps(row, requests, name)]
        if not steps:
            raise InvalidScenarioError(f"{name}: it has no rows")
        yield Scenario(
            name=name,
            about=text(at(group, "about")),
            exercises=frozenset(text(check) for check in items(at(group, "exercises"))),
            steps=tuple(
                replace(
                    step,
                    parallel_group=name,
                    stream_chunk_sizes=(next(chunkings),),
                    continues_after_stop=at(group, "past_stop") is True,
                )
                for step in steps
            ),
            needs_script=True,
            violates_grammar=at(group, "breaks_grammar") is True,
        )


def _steps(row: Json, requests: Mapping[str, Json], group: str) -> Iterator[Step]:
    name, asked = text(at(row, "id")), text(at(row, "request"))
    where = f"{group}, row {name}"
    if not name:
        raise InvalidScenarioError(f"{group}: a row has no `id`")
    if asked not in requests:
        raise InvalidScenarioError(f"{where}: there is no request {asked!r}")
    for number_of_header, written in enumerate(_scripts(row), start=1):
        try:
            script = read_script(written)
        except InvalidRecordError as problem:
            raise InvalidScenarioError(f"{where}: {problem}") from None
        suffix = f", {number_of_header}" if "headers" in members(row) else ""
        step = Step(
            name=name + suffix, request=members(requests[asked]), script=script, expected=read_row(row), row=name
        )
        yield from _cut(step, items(at(row, "limits")), where)


def _scripts(row: Json) -> Iterator[Json]:
    """The row's script, once with each of its headers."""
    script, headers = at(row, "script"), items(at(row, "headers"))
    if headers:
        yield from (text(script).replace("{header}", text(header)) for header in headers)
    else:
        yield script


def _cut(step: Step, limits: Sequence[Json], where: str) -> Iterator[Step]:
    """The step, or instead of it one for each number of tokens that its answer is limited to."""
    script = step.script or ()
    for limit in map(number, limits):
        if limit is None or not 0 < limit <= len(script):
            raise InvalidScenarioError(f"{where}: a script of {len(script)} tokens is not cut at {limit}")
        request = {**step.request, "max_tokens": limit}
        yield replace(step, name=f"{step.name}, {limit} tokens", request=request, script=script[:limit])
    if not limits:
        yield step
