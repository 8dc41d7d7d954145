"""Scenarios: a series of requests, the scripted output of the model and the checks they exercise. Data in `golden/scenarios`.

Values of a request that the request builder replaces:

- `{"$from": "answer#/choices/0/message"}`: a value of the response to an earlier step. With `"optional": true`, a member is omitted if the response
  lacks its value.
- `{"$repeat": "Line {n}. ", "times": 9}`: a long text; `{n}` counts from 1.
- `$repeat` with a list: a long list, or more items of the list that contains it.

A step that is sent with and without streaming is expanded to two, `name` and `name+stream`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from harmony_conformance.apis.api import CHAT_PATH
from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS, MESSAGES, Api
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.evidence.exchange_json import read_script
from harmony_conformance.evidence.expected_output import Expectation, read_expectation
from harmony_conformance.evidence.levels import REFUSABLE_VALIDITIES, Validity
from harmony_conformance.evidence.series_pairs import STREAM_SUFFIX
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at
from harmony_conformance.transport.messages import NO_HEADERS

UNSCRIPTED_LIMIT = 2048
"""Token limit if neither the scenario nor a script determines it."""


class SendMode(StrEnum):
    """Mode of a step: streamed, not streamed, or both."""

    BOTH = "both"
    WHOLE = "whole"
    STREAM = "stream"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One request of a scenario.

    Attributes:
        script: Token ids that the model is made to emit.
        forced_prefix: Token ids at the start of the answer; the model continues freely after them.
        raw_body: Exact body, with `{model}` as a placeholder of the model's name. None: the body is built from `request`.
        parallel_group: Name of a group of steps that are sent concurrently.
        pace: Seconds for each scripted token, on a server that supports it (the reference server).
        requests_token_ids: True if token ids are requested, where the server supports that.
        stream_chunk_sizes: Numbers of tokens in an event. The step is streamed once more for each, where supported.
        stream_chunk_size: The chunk size of an expanded step.
        continues_after_stop: True if the script continues after a token that ends the turn.
        row_id: Id of the hand-written row that the step is made from.
        disconnect_after_events: The client closes the connection after this number of events.
        wait_until_idle: Poll the server's number of running requests until it is 0 or these seconds have passed.
            Such a step sends no request.
        wait_until_done: Repeat the request until the response is neither queued nor in progress, or these seconds have passed.
        is_native: True if the request is in the format of the scenario's API, not a chat request to convert.
        keeps_reasoning_name: True if `reasoning` in messages is sent under this name, whatever the server's name is.
    """

    name: str
    request: JsonObject
    send_mode: SendMode = SendMode.BOTH
    script: tuple[int, ...] | None = None
    forced_prefix: tuple[int, ...] | None = None
    expected: Expectation | None = None
    validity: Validity = Validity.VALID
    raw_body: Json = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    parallel_group: str | None = None
    path: str = CHAT_PATH
    pace: float | None = None
    requests_token_ids: bool = True
    stream_chunk_sizes: tuple[int, ...] = ()
    stream_chunk_size: int | None = None
    continues_after_stop: bool = False
    row_id: str | None = None
    disconnect_after_events: int | None = None
    wait_until_idle: float | None = None
    wait_until_done: float | None = None
    is_native: bool = False
    keeps_reasoning_name: bool = False

    @property
    def is_streamed(self) -> bool:
        """True if this expanded step requests a stream."""
        return self.send_mode is SendMode.STREAM


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Steps in order, and the ids of the checks that they are written for (`exercises`).

    Attributes:
        exclusive: True if no other request may run at the same time, because the scenario measures time.
        apis_at_once: True for an exclusive scenario that is sent over all its APIs at the same time.
        violates_grammar: True if a server with grammar-constrained sampling could not emit the scripts.
        over_websocket: True if it is about a WebSocket connection, which its streamed requests share.
    """

    name: str
    description: str
    exercises: frozenset[str]
    steps: tuple[Step, ...]
    needs_script: bool = False
    needs_unscripted_model: bool = False
    exclusive: bool = False
    apis_at_once: bool = False
    violates_grammar: bool = False
    over_websocket: bool = False
    api: str = CHAT_COMPLETIONS.name

    @property
    def key(self) -> tuple[str, str]:
        """The name and the API."""
        return self.name, self.api


def for_api(scenario: Scenario, api: Api) -> Scenario | None:
    """Convert a scenario to another API. Return None if it cannot use that API.

    Plain chat requests use every API that takes a conversation, except optional extra APIs of a server (`option`).
    Scenarios about time, load or a client that leaves use Chat Completions and Messages, which coding agents speak.
    Scenarios about the format of one API (malformed bodies, other paths) use that API only.
    Only the first variant of each hand-written row is sent.
    """
    if scenario.api != CHAT_COMPLETIONS.name or api is CHAT_COMPLETIONS:
        return scenario if scenario.api == api.name else None
    if api.is_raw or api.option is not None or any(map(_is_chat_only, scenario.steps)):
        return None
    if api is not MESSAGES and (scenario.exclusive or any(map(_is_about_time, scenario.steps))):
        return None
    return replace(one_of_each_row(scenario), api=api.name)


def _is_chat_only(step: Step) -> bool:
    is_plain = step.raw_body is None and step.path == CHAT_PATH and step.method == "POST" and not step.headers
    return not is_plain or step.validity in REFUSABLE_VALIDITIES


def _is_about_time(step: Step) -> bool:
    return step.wait_until_idle is not None or step.disconnect_after_events is not None


def has_only_rows(scenario: Scenario) -> bool:
    """Return True if all steps of a scenario are hand-written rows."""
    return all(step.row_id is not None for step in scenario.steps)


def one_of_each_row(scenario: Scenario) -> Scenario:
    """Reduce a scenario to the first variant of each row, without streaming and streamed token by token."""
    rows: set[str] = set()
    steps: list[Step] = []
    for step in scenario.steps:
        if step.row_id is None or step.row_id not in rows:
            steps.append(replace(step, stream_chunk_sizes=()))
        rows |= {step.row_id} if step.row_id is not None else set()
    return replace(scenario, steps=tuple(steps))


_SCRIPT_ONLY = frozenset({ScriptMethod.VLLM, ScriptMethod.DERENDER, ScriptMethod.TELEPROMPTER})


def skip_reason(scenario: Scenario, script_by: ScriptMethod) -> str | None:
    """Return the reason to skip a scenario on an endpoint, or None. The reference server also answers without a script."""
    needs_script = scenario.needs_script and script_by is ScriptMethod.NONE
    if needs_script or (scenario.needs_unscripted_model and script_by in _SCRIPT_ONLY):
        return model_requirement(scenario)
    if any(step.continues_after_stop for step in scenario.steps) and not script_by.capabilities.can_ignore_stop:
        return "needs a script that continues after a token that ends the turn"
    if any(step.forced_prefix for step in scenario.steps) and script_by is ScriptMethod.DERENDER:
        return "needs a model that continues after the end of a script"
    constraints = {name for step in scenario.steps for name in _sampling_constraints(step.request)}
    constraints &= script_by.capabilities.grammar_members
    if scenario.violates_grammar and constraints:
        names = ", ".join(sorted(constraints))
        return f"the server constrains its sampler by {names}, and the scripts violate that grammar"
    return None


def _sampling_constraints(request: JsonObject) -> Iterator[str]:
    """Yield the members of a request by which a server may constrain its sampler."""
    if text(value_at(request, "response_format", "type")).startswith("json"):
        yield "response_format"
    if request.get("tool_choice") not in (None, "auto", "none"):
        yield "tool_choice"
    if any(value_at(tool, "function", "strict") is True for tool in items(request.get("tools"))):
        yield "strict"
    if request.get("parallel_tool_calls") is False:
        yield "parallel_tool_calls"


def model_requirement(scenario: Scenario) -> str | None:
    """Return the requirement of a scenario on the model, or None if any model fits."""
    if scenario.needs_script:
        return "needs a scripted model"
    return "needs an unscripted model" if scenario.needs_unscripted_model else None


class InvalidScenarioError(ValueError):
    """A scenario file is invalid. The message has the place and the reason."""


def read_scenario(value: Json, name: str) -> Scenario:
    """Parse the JSON form of a scenario.

    Raises:
        InvalidScenarioError: a member is missing or wrong.
    """
    api = text(value_at(value, "api")) or CHAT_COMPLETIONS.name
    if api not in APIS:
        raise InvalidScenarioError(f"{name}: invalid API {api!r}: expected one of {', '.join(APIS)}")
    is_native = api != CHAT_COMPLETIONS.name
    steps = tuple(replace(_read_step(step, name), is_native=is_native) for step in items(value_at(value, "steps")))
    if not steps:
        raise InvalidScenarioError(f"{name}: no steps")
    return Scenario(
        name=name,
        description=text(value_at(value, "about")),
        exercises=frozenset(map(text, items(value_at(value, "exercises")))),
        steps=steps,
        needs_script=value_at(value, "needs_script") is True,
        needs_unscripted_model=value_at(value, "needs_own_words") is True,
        exclusive=value_at(value, "alone") is True,
        apis_at_once=value_at(value, "apis_at_once") is True,
        violates_grammar=value_at(value, "breaks_grammar") is True,
        over_websocket=value_at(value, "websocket") is True,
        api=api,
    )


def _read_step(value: Json, name: str) -> Step:
    step_name, expected = text(value_at(value, "as")), value_at(value, "expected")
    if not step_name:
        raise InvalidScenarioError(f"{name}: a step has no name (member `as`)")
    try:
        texts = value_at(value, "script"), value_at(value, "begins")
        script, prefix = (None if one is None else read_script(one) for one in texts)
        send = SendMode(text(value_at(value, "send")) or "both")
        validity = Validity(text(value_at(value, "validity")) or "valid")
    except ValueError as problem:
        raise InvalidScenarioError(f"{name}, step {step_name}: {problem}") from None
    return Step(
        name=step_name,
        request=members(value_at(value, "request")),
        send_mode=send,
        script=script,
        forced_prefix=prefix,
        expected=read_expectation(expected) if expected is not None else None,
        validity=validity,
        raw_body=value_at(value, "raw"),
        method=text(value_at(value, "method")) or "POST",
        headers={name.lower(): text(content) for name, content in members(value_at(value, "headers")).items()},
        parallel_group=text(value_at(value, "together")) or None,
        path=text(value_at(value, "path")) or CHAT_PATH,
        pace=_seconds(value_at(value, "pace")),
        requests_token_ids=value_at(value, "shows_ids") is not False,
        disconnect_after_events=integer(value_at(value, "leave_after")),
        wait_until_idle=_seconds(value_at(value, "settles")),
        wait_until_done=_seconds(value_at(value, "polls")),
        keeps_reasoning_name=value_at(value, "keeps_names") is True,
    )


def _seconds(value: Json) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def expand(scenario: Scenario) -> Iterator[Step]:
    """Yield the steps as they are sent: without streaming first, then streamed, then once for each chunk size."""
    for step in scenario.steps:
        if step.send_mode in (SendMode.BOTH, SendMode.WHOLE):
            yield replace(step, send_mode=SendMode.WHOLE)
        if step.send_mode in (SendMode.BOTH, SendMode.STREAM):
            name = step.name + (STREAM_SUFFIX if step.send_mode is SendMode.BOTH else "")
            yield replace(step, name=name, send_mode=SendMode.STREAM)
        for count in step.stream_chunk_sizes:
            name = f"{step.name}{STREAM_SUFFIX} by {count}"
            yield replace(step, name=name, send_mode=SendMode.STREAM, stream_chunk_size=count)


def group_parallel_steps(steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Group the steps of each parallel group, in the order in which they are sent."""
    group: list[Step] = []
    for step in steps:
        if group and (step.parallel_group is None or step.parallel_group != group[0].parallel_group):
            yield tuple(group)
            group = []
        group.append(step)
    if group:
        yield tuple(group)
