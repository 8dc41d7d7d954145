"""A scenario: requests that belong together, what the model is made to say, and which checks they are made for. Data in `golden/scenarios`.

Expansion is pure: a step that is sent both ways becomes two, `name` and `name+stream`; a value `{"$from": "answer#/choices/0/message"}` is taken from the
answer to an earlier step; a value `{"$repeat": "Line {n}. ", "times": 9}` is a long text, and with a list a long list, or more items of the list it stands
in, `{n}` counting from 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from harmony_conformance.apis.api import CHAT
from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS, Api
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.evidence.exchange import ODD, Validity
from harmony_conformance.evidence.expected_output import Expectation, read_row
from harmony_conformance.evidence.recording import read_script
from harmony_conformance.evidence.series_pairs import STREAMED
from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, text
from harmony_conformance.transport.messages import NO_HEADERS

UNSCRIPTED_LIMIT = 2048
"""Tokens allowed where neither the scenario nor a script says it."""


class Send(StrEnum):
    """Whether a step is sent as a stream, as a whole, or both ways."""

    BOTH = "both"
    WHOLE = "whole"
    STREAM = "stream"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One request. `raw` is its body where that is to be exact, `{model}` standing for the model's name; `together` names a group that is sent side by side.

    `shows_ids`: whether token ids are asked for, where they can be. `pace` is the time a scripted token takes, in seconds, on a server that can
    be told (the reference server). `begins` is how an answer begins where the model can be scripted; what follows are the model's own words.
    `chunkings` are numbers of tokens: the step is streamed once more for each, with so many tokens in an event, where that can be asked for;
    `event_tokens` is the one of an expanded step. `past_stop`: its script goes on behind a token that ends the turn. `row` is the id of the hand-written
    row that it is, or is a variety of. `leave_after`: the client closes the connection after so many events. `settles`: this is no request, but asks how
    many requests the server is working on, again and again until there is none or so many seconds have passed.
    `is_native`: the request is in the words of the scenario's API, and not a chat request to be spelled in them.
    """

    name: str
    request: JsonObject
    send: Send = Send.BOTH
    script: tuple[int, ...] | None = None
    forced_prefix: tuple[int, ...] | None = None
    expected: Expectation | None = None
    validity: Validity = Validity.VALID
    raw: Json = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    parallel_group: str | None = None
    path: str = CHAT
    pace: float | None = None
    shows_ids: bool = True
    stream_chunk_sizes: tuple[int, ...] = ()
    event_tokens: int | None = None
    continues_after_stop: bool = False
    row: str | None = None
    leave_after: int | None = None
    wait_until_idle: float | None = None
    is_native: bool = False

    @property
    def is_streamed(self) -> bool:
        """Whether this, expanded, step asks for a stream."""
        return self.send is Send.STREAM


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Steps in order. `exercises` are the ids of the checks it is made for; `needs_script` says that it makes sense only on a scripted model.

    `needs_own_words`: only on a model that speaks for itself. `alone`: nothing else is sent meanwhile, since what it looks at is time.
    `breaks_grammar`: a server that constrains its sampler as the requests ask for could not have emitted the scripts. `api`: the name of the API that it
    goes over.
    """

    name: str
    about: str
    exercises: frozenset[str]
    steps: tuple[Step, ...]
    needs_script: bool = False
    needs_unscripted_model: bool = False
    exclusive: bool = False
    violates_grammar: bool = False
    api: str = CHAT_COMPLETIONS.name

    @property
    def key(self) -> tuple[str, str]:
        """Its name and the API that it goes over."""
        return self.name, self.api


def for_api(scenario: Scenario, api: Api) -> Scenario | None:
    """The scenario as it goes over an API, None where it does not.

    Chat requests that mean a conversation go over every API that takes one, but those that a server has beside another (`option`). What is about the
    words of one API (malformed bodies, other paths), or about time and load, goes over that one alone. Of the varieties of a hand-written row the first
    stands for all.
    """
    if scenario.api != CHAT_COMPLETIONS.name or api is CHAT_COMPLETIONS:
        return scenario if scenario.api == api.name else None
    if api.is_raw or api.option is not None or scenario.exclusive or any(map(_is_of_chat_alone, scenario.steps)):
        return None
    steps = tuple(replace(step, stream_chunk_sizes=()) for step in _one_of_each_row(scenario.steps))
    return replace(scenario, api=api.name, steps=steps)


def _is_of_chat_alone(step: Step) -> bool:
    is_plain = step.raw is None and step.path == CHAT and step.method == "POST" and not step.headers
    return not is_plain or step.validity in ODD or step.wait_until_idle is not None or step.leave_after is not None


def is_of_rows(scenario: Scenario) -> bool:
    """Whether the steps of a scenario are hand-written rows."""
    return all(step.row is not None for step in scenario.steps)


def one_of_each_row(scenario: Scenario) -> Scenario:
    """The scenario with the first variety of each row, whole and streamed as its tokens come."""
    return replace(
        scenario, steps=tuple(replace(step, stream_chunk_sizes=()) for step in _one_of_each_row(scenario.steps))
    )


def _one_of_each_row(steps: Sequence[Step]) -> Iterator[Step]:
    seen: set[str] = set()
    for step in steps:
        if step.row is None or step.row not in seen:
            yield step
        seen |= {step.row} if step.row is not None else set()


_SILENT = frozenset({ScriptMethod.VLLM, ScriptMethod.DERENDER, ScriptMethod.TELEPROMPTER})


def why_not_sent(scenario: Scenario, script_by: ScriptMethod) -> str | None:
    """Why a scenario makes no sense on an endpoint, None where it does. The reference server has words of its own, unscripted."""
    plays_no_script = scenario.needs_script and script_by is ScriptMethod.NONE
    is_silent = scenario.needs_unscripted_model and script_by in _SILENT
    if plays_no_script or is_silent:
        return needed_model(scenario)
    if any(step.continues_after_stop for step in scenario.steps) and not script_by.capabilities.go_past_stop:
        return "needs a script that goes on behind a token that ends the turn"
    if any(step.forced_prefix for step in scenario.steps) and script_by is ScriptMethod.DERENDER:
        return "needs a model that goes on where a script ends"
    asked = {
        name for step in scenario.steps for name in _constraining(step.request)
    } & script_by.capabilities.constrained_by
    if scenario.violates_grammar and asked:
        return (
            f"the server constrains its sampler as {', '.join(sorted(asked))} asks, and the scripts leave the grammar"
        )
    return None


def _constraining(request: JsonObject) -> Iterator[str]:
    """The members of a request by which a server may constrain its sampler."""
    if text(at(request, "response_format", "type")).startswith("json"):
        yield "response_format"
    if request.get("tool_choice") not in (None, "auto", "none"):
        yield "tool_choice"
    if any(at(tool, "function", "strict") is True for tool in items(request.get("tools"))):
        yield "strict"
    if request.get("parallel_tool_calls") is False:
        yield "parallel_tool_calls"


def needed_model(scenario: Scenario) -> str | None:
    """What a scenario needs a model to be, None where any will do."""
    if scenario.needs_script:
        return "needs a model whose output is scripted"
    return "needs a model that speaks for itself" if scenario.needs_unscripted_model else None


class InvalidScenarioError(ValueError):
    """A scenario file that can not be used; says which and why."""


def read_scenario(value: Json, name: str) -> Scenario:
    """A scenario from its JSON form.

    Raises:
        BadScenario: a member is missing or wrong.
    """
    api = text(at(value, "api")) or CHAT_COMPLETIONS.name
    if api not in APIS:
        raise InvalidScenarioError(f"{name}: {api!r} is no API: one of {', '.join(APIS)}")
    is_native = api != CHAT_COMPLETIONS.name
    steps = tuple(replace(_read_step(step, name), is_native=is_native) for step in items(at(value, "steps")))
    if not steps:
        raise InvalidScenarioError(f"{name}: it has no steps")
    return Scenario(
        name=name,
        about=text(at(value, "about")),
        exercises=frozenset(text(check) for check in items(at(value, "exercises"))),
        steps=steps,
        needs_script=at(value, "needs_script") is True,
        needs_unscripted_model=at(value, "needs_own_words") is True,
        exclusive=at(value, "alone") is True,
        violates_grammar=at(value, "breaks_grammar") is True,
        api=api,
    )


def _read_step(value: Json, name: str) -> Step:
    step_name, script, expected, pace = (
        text(at(value, "as")),
        at(value, "script"),
        at(value, "expected"),
        at(value, "pace"),
    )
    if not step_name:
        raise InvalidScenarioError(f"{name}: a step has no name (member `as`)")
    try:
        ids = read_script(script) if script is not None else None
        begins = read_script(at(value, "begins")) if at(value, "begins") is not None else None
        send = Send(text(at(value, "send")) or "both")
        validity = Validity(text(at(value, "validity")) or "valid")
    except ValueError as problem:
        raise InvalidScenarioError(f"{name}, step {step_name}: {problem}") from None
    return Step(
        name=step_name,
        request=members(at(value, "request")),
        send=send,
        script=ids,
        forced_prefix=begins,
        expected=read_row(expected) if expected is not None else None,
        validity=validity,
        raw=at(value, "raw"),
        method=text(at(value, "method")) or "POST",
        headers={name.lower(): text(content) for name, content in members(at(value, "headers")).items()},
        parallel_group=text(at(value, "together")) or None,
        path=text(at(value, "path")) or CHAT,
        pace=_seconds(pace),
        shows_ids=at(value, "shows_ids") is not False,
        leave_after=number(at(value, "leave_after")),
        wait_until_idle=_seconds(at(value, "settles")),
    )


def _seconds(value: Json) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def expand(scenario: Scenario) -> Iterator[Step]:
    """The steps as they are sent: what goes both ways becomes two, the whole answer first, and one more for each chunking."""
    for step in scenario.steps:
        if step.send in (Send.BOTH, Send.WHOLE):
            yield replace(step, send=Send.WHOLE)
        if step.send in (Send.BOTH, Send.STREAM):
            suffix = STREAMED if step.send is Send.BOTH else ""
            yield replace(step, name=step.name + suffix, send=Send.STREAM)
        for count in step.stream_chunk_sizes:
            yield replace(step, name=f"{step.name}{STREAMED} by {count}", send=Send.STREAM, event_tokens=count)


def grouped(steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Steps in the order they are sent, those of one group together."""
    group: list[Step] = []
    for step in steps:
        if group and (step.parallel_group is None or step.parallel_group != group[0].parallel_group):
            yield tuple(group)
            group = []
        group.append(step)
    if group:
        yield tuple(group)
