"""A scenario: requests that belong together, what the model is made to say, and which checks they are made for. Data in `golden/scenarios`.

Expansion is pure: a step that is sent both ways becomes two, `name` and `name+stream`; a value `{"$from": "answer#/choices/0/message"}` is taken from the
answer to an earlier step; a value `{"$repeat": "Line {n}. ", "times": 9}` is a long text, and with a list a long list, `{n}` counting from 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from harmony_conformance.conditions import ODD, STREAMED
from harmony_conformance.engines import CHAT, Gauge, Reveals, ScriptBy
from harmony_conformance.exchange import Validity
from harmony_conformance.json_value import Json, JsonObject, at, dumps, items, members, number, resolve, text
from harmony_conformance.meaning import Expectation, read_row
from harmony_conformance.recording import read_script
from harmony_conformance.scripting import Scripting, with_beginning, with_script, with_some_words
from harmony_conformance.wire import NO_HEADERS, Request

_SPARE = 16  # tokens allowed beyond a script, so that the limit is not what ends it
_OWN_WORDS = 64  # tokens for what a model adds to the beginning of an answer; random weights may find no end
UNSCRIPTED_LIMIT = 2048
_LIMIT_OF_THE_ODD = 16  # what is said to a wrong request, should it be answered, is of no interest


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
    """

    name: str
    request: JsonObject
    send: Send = Send.BOTH
    script: tuple[int, ...] | None = None
    begins: tuple[int, ...] | None = None
    expected: Expectation | None = None
    validity: Validity = Validity.VALID
    raw: Json = None
    method: str = "POST"
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)
    together: str | None = None
    path: str = CHAT
    pace: float | None = None
    shows_ids: bool = True
    chunkings: tuple[int, ...] = ()
    event_tokens: int | None = None
    past_stop: bool = False
    row: str | None = None
    leave_after: int | None = None
    settles: float | None = None

    @property
    def is_streamed(self) -> bool:
        """Whether this, expanded, step asks for a stream."""
        return self.send is Send.STREAM


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Steps in order. `exercises` are the ids of the checks it is made for; `needs_script` says that it makes sense only on a scripted model.

    `needs_own_words`: only on a model that speaks for itself. `alone`: nothing else is sent meanwhile, since what it looks at is time.
    `breaks_grammar`: a server that constrains its sampler as the requests ask for could not have emitted the scripts.
    """

    name: str
    about: str
    exercises: frozenset[str]
    steps: tuple[Step, ...]
    needs_script: bool = False
    needs_own_words: bool = False
    alone: bool = False
    breaks_grammar: bool = False


_SILENT = frozenset({ScriptBy.VLLM, ScriptBy.DERENDER, ScriptBy.TELEPROMPTER})


def why_not_sent(scenario: Scenario, script_by: ScriptBy) -> str | None:
    """Why a scenario makes no sense on an endpoint, None where it does. The reference server has words of its own, unscripted."""
    plays_no_script = scenario.needs_script and script_by is ScriptBy.NONE
    is_silent = scenario.needs_own_words and script_by in _SILENT
    if plays_no_script or is_silent:
        return needed_model(scenario)
    if any(step.past_stop for step in scenario.steps) and not script_by.can.go_past_stop:
        return "needs a script that goes on behind a token that ends the turn"
    if any(step.begins for step in scenario.steps) and script_by is ScriptBy.DERENDER:
        return "needs a model that goes on where a script ends"
    asked = {name for step in scenario.steps for name in _constraining(step.request)} & script_by.can.constrained_by
    if scenario.breaks_grammar and asked:
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
    return "needs a model that speaks for itself" if scenario.needs_own_words else None


class BadScenario(ValueError):  # noqa: N818 - it names what the file is
    """A scenario file that can not be used; says which and why."""


def read_scenario(value: Json, name: str) -> Scenario:
    """A scenario from its JSON form.

    Raises:
        BadScenario: a member is missing or wrong.
    """
    steps = tuple(_read_step(step, name) for step in items(at(value, "steps")))
    if not steps:
        raise BadScenario(f"{name}: it has no steps")
    return Scenario(
        name=name,
        about=text(at(value, "about")),
        exercises=frozenset(text(check) for check in items(at(value, "exercises"))),
        steps=steps,
        needs_script=at(value, "needs_script") is True,
        needs_own_words=at(value, "needs_own_words") is True,
        alone=at(value, "alone") is True,
        breaks_grammar=at(value, "breaks_grammar") is True,
    )


def _read_step(value: Json, name: str) -> Step:
    step_name, script, expected, pace = (
        text(at(value, "as")),
        at(value, "script"),
        at(value, "expected"),
        at(value, "pace"),
    )
    if not step_name:
        raise BadScenario(f"{name}: a step has no name (member `as`)")
    try:
        ids = read_script(script) if script is not None else None
        begins = read_script(at(value, "begins")) if at(value, "begins") is not None else None
        send = Send(text(at(value, "send")) or "both")
        validity = Validity(text(at(value, "validity")) or "valid")
    except ValueError as problem:
        raise BadScenario(f"{name}, step {step_name}: {problem}") from None
    return Step(
        name=step_name,
        request=members(at(value, "request")),
        send=send,
        script=ids,
        begins=begins,
        expected=read_row(expected) if expected is not None else None,
        validity=validity,
        raw=at(value, "raw"),
        method=text(at(value, "method")) or "POST",
        headers={name.lower(): text(content) for name, content in members(at(value, "headers")).items()},
        together=text(at(value, "together")) or None,
        path=text(at(value, "path")) or CHAT,
        pace=_seconds(pace),
        shows_ids=at(value, "shows_ids") is not False,
        leave_after=number(at(value, "leave_after")),
        settles=_seconds(at(value, "settles")),
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
        for count in step.chunkings:
            yield replace(step, name=f"{step.name}{STREAMED} by {count}", send=Send.STREAM, event_tokens=count)


def grouped(steps: Sequence[Step]) -> Iterator[tuple[Step, ...]]:
    """Steps in the order they are sent, those of one group together."""
    group: list[Step] = []
    for step in steps:
        if group and (step.together is None or step.together != group[0].together):
            yield tuple(group)
            group = []
        group.append(step)
    if group:
        yield tuple(group)


@dataclass(frozen=True, kw_only=True)
class Asking:
    """How requests are put to one endpoint: the model, the script's way, the field that asks for token ids, members added to each request, its gauge.

    `trailers`: for a teleprompter, see `Scripting`. `reasoning_field`: how the endpoint calls the reasoning of a message, which scenarios call `reasoning`.
    """

    model: str
    script_by: ScriptBy = ScriptBy.NONE
    trailers: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    reasoning_field: str = "reasoning"
    ids_field: str | None = None
    ids_in_streams: bool = True
    reveals: Reveals | None = None
    extra: JsonObject
    seed: int | None = None
    gauge: Gauge | None = None

    @property
    def scripting(self) -> Scripting:
        """The way of scripts."""
        return Scripting(by=self.script_by, trailers=self.trailers)

    @property
    def unscripted(self) -> Asking:
        """The same, for requests that go without a script."""
        return replace(self, script_by=ScriptBy.NONE)


class NotSent(Exception):  # noqa: N818 - it says what happened
    """A step that can not be sent, since an earlier answer lacks what it takes from it, or the server is not known to have what it asks for."""


def build(step: Step, asking: Asking, answers: Mapping[str, Json]) -> Request:
    """The request of an expanded step.

    Raises:
        NotSent: an earlier answer lacks what the step takes from it, the endpoint chunks its streams as it likes, or it has no known gauge.
        NotCarried: it has no place for the script.
    """
    if step.event_tokens is not None and not asking.script_by.can.choose_chunks:
        raise NotSent("the server chooses how many tokens an event of a stream has")
    if step.settles is not None:
        return _look_at(asking.gauge)
    if step.raw is not None:
        exact = _joined(_filled(step.raw, answers)).replace("{model}", asking.model)
        return _request(step, exact.encode("utf-8", "surrogateescape"))
    filled = members(_filled(step.request, answers))
    body: JsonObject = {"model": asking.model, **_respelled(filled, asking.reasoning_field)}
    if step.is_streamed and "stream" not in step.request:
        body["stream"] = True
        body.setdefault("stream_options", {"include_usage": True})
    if step.validity is Validity.VALID:
        body.setdefault("temperature", 0)
        if asking.seed is not None:
            body.setdefault("seed", asking.seed)
    shows_ids = step.shows_ids and step.validity not in ODD and (asking.ids_in_streams or not step.is_streamed)
    if asking.reveals is not None and shows_ids:
        body = {**dict.fromkeys(asking.reveals.members, True), **body}
    if asking.ids_field is not None and shows_ids:
        body.setdefault(asking.ids_field, True)
    body = _scripted(step, asking, body)
    if "max_tokens" not in body and "max_completion_tokens" not in body:
        body["max_tokens"] = _limit(step, scripted=asking.script_by is not ScriptBy.NONE)
    return _request(step, dumps({**body, **asking.extra}).encode("utf-8", "backslashreplace"))


def _scripted(step: Step, asking: Asking, body: JsonObject) -> JsonObject:
    """The request with what makes the model emit what the step says, at its pace and in its chunks."""
    if asking.script_by is ScriptBy.NONE:
        return body
    if step.begins is not None:
        return with_beginning(body, step.begins, asking.scripting)
    if step.script is None:
        return with_some_words(body, asking.scripting)
    body = with_script(body, step.script, asking.scripting)
    if step.pace is not None and asking.script_by is ScriptBy.REFERENCE:
        body["harmony_token_delay"] = step.pace
    if step.event_tokens is not None and asking.script_by is ScriptBy.REFERENCE:
        body["harmony_event_tokens"] = step.event_tokens
    if step.past_stop:
        body["ignore_eos"] = True
    return body


def _look_at(gauge: Gauge | None) -> Request:
    if gauge is None:
        raise NotSent("this kind of server is not known to tell how many requests it is working on")
    return Request(path=gauge.path, method="GET", body=b"")


def _request(step: Step, body: bytes) -> Request:
    return Request(path=step.path, method=step.method, headers=step.headers, body=body)


def _joined(raw: Json) -> str:
    """The exact text of a body: a text, or a list of texts and of `{"bytes": …}` in hexadecimal."""
    if isinstance(raw, list):
        return "".join(map(_joined, raw))
    return text(raw) or bytes.fromhex(text(at(raw, "bytes"))).decode("utf-8", "surrogateescape")


def _limit(step: Step, *, scripted: bool) -> int:
    """How many tokens are allowed where the scenario does not say it."""
    if scripted and step.script is not None:
        return len(step.script) + _SPARE
    if scripted and step.begins is not None:
        return len(step.begins) + _OWN_WORDS
    return _LIMIT_OF_THE_ODD if step.validity in ODD else UNSCRIPTED_LIMIT


def _filled(value: Json, answers: Mapping[str, Json]) -> Json:
    if isinstance(value, list):
        return [_filled(item, answers) for item in value]
    if not isinstance(value, dict):
        return value
    source, times = value.get("$from"), number(value.get("times"))
    if "$repeat" in value and times is not None:
        return _repeated(value["$repeat"], times)
    if not isinstance(source, str):
        return {name: _filled(member, answers) for name, member in value.items()}
    step, _, where = source.partition("#")
    if step not in answers:
        raise NotSent(f"there is no answer to {step}")
    try:
        return resolve(answers[step], where)
    except LookupError as missing:
        raise NotSent(f"the answer to {step} has {missing}") from None


def _respelled(request: JsonObject, name: str) -> JsonObject:
    """A request with the reasoning of its messages under another name."""
    messages = request.get("messages")
    if not isinstance(messages, list):
        return request
    renamed: list[Json] = [
        _renamed(message, name) if "reasoning" in members(message) else message for message in messages
    ]
    return {**request, "messages": renamed}


def _renamed(message: Json, name: str) -> JsonObject:
    return {name if member == "reasoning" else member: value for member, value in members(message).items()}


def _repeated(value: Json, times: int) -> Json:
    """A text or a list that many times, the number of each repetition written for `{n}`."""
    if isinstance(value, str):
        return "".join(value.replace("{n}", str(count)) for count in range(1, times + 1))
    return [_counted(item, count) for count in range(1, times + 1) for item in items(value)]


def _counted(value: Json, count: int) -> Json:
    match value:
        case str():
            return value.replace("{n}", str(count))
        case list():
            return [_counted(item, count) for item in value]
        case dict():
            return {name: _counted(member, count) for name, member in value.items()}
        case _:
            return value
