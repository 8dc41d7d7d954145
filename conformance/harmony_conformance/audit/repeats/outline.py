"""The outline of a shell: what each leaf is, if the record is a plain exchange on Chat Completions.

A plain exchange has no other members than those in the tables of this module. It has one choice with a text or calls, and no token ids.
Any other exchange has no outline and is judged each time. Members whose value is null or empty may have any name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from harmony_conformance.audit.readers.records.pairs import PAIR
from harmony_conformance.audit.readers.records.shapes import AUTO, find_shape
from harmony_conformance.audit.repeats.shells import PLACEHOLDER, Shell
from harmony_conformance.checks.helpers.json_schema import violation_finder
from harmony_conformance.evidence.exchange_json import NotAnExchangeError
from harmony_conformance.json_value import (
    MAX_LINE_DEPTH,
    InvalidJsonError,
    Json,
    JsonObject,
    integer,
    items,
    loads,
    members,
    text,
    value_at,
)
from harmony_conformance.transport.sse import EventDecoder

TIMES = ("started", "timestamp", "time", "created_at")
"""Names of the time of a record, in the order in which the reader of pairs looks for them."""
_RECORD = frozenset({"id", "model", "provider", "user", "request", "response", *TIMES})
_REQUEST = frozenset(
    {
        *("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stream", "stream_options", "user"),
        *("temperature", "top_p", "seed", "max_tokens", "max_completion_tokens", "presence_penalty"),
        *("frequency_penalty", "reasoning_effort", "n"),
    }
)
_MESSAGE = frozenset({"role", "content"})
_ROLES = {
    "system": ("instructions", _MESSAGE),
    "developer": ("instructions", _MESSAGE),
    "user": ("questions", _MESSAGE),
    "assistant": ("earlier", frozenset({*_MESSAGE, "tool_calls", "reasoning", "reasoning_content"})),
    "tool": ("results", frozenset({*_MESSAGE, "tool_call_id"})),
}
"""The kind of the texts of a message by its role, and its members."""
_CALL = frozenset({"id", "type", "index", "function"})
_FUNCTION = frozenset({"name", "arguments"})
_ANSWER = frozenset({"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"})
_CHOICE = frozenset({"index", "message", "delta", "finish_reason"})
_TURN = frozenset({"role", "content", "reasoning", "reasoning_content", "tool_calls"})
_THOUGHTS = ("reasoning", "reasoning_content")
_USAGE = frozenset({"prompt_tokens", "completion_tokens", "total_tokens"})
_DETAILS = {"completion_tokens_details": "reasoning_tokens", "prompt_tokens_details": "cached_tokens"}
_ENDS = (None, "stop", "tool_calls")

_AROUND_A_LEAF = "\ue000"
_TOKEN = re.compile(f"{_AROUND_A_LEAF}([0-9]{{1,3}}){_AROUND_A_LEAF}")
_FIRST_NUMBER = 10**30


@dataclass(frozen=True, kw_only=True)
class CallOutline:
    """A call of the answer: the pieces of its arguments, and what finds a violation of the schema of its function."""

    arguments: tuple[int | str, ...]
    find_violation: Callable[[Json], tuple[str, str] | None]


@dataclass(frozen=True, kw_only=True)
class Outline:
    """The leaves of a shell by their meaning, as indexes.

    Attributes:
        instructions: The texts of system and developer messages, and other texts of the request.
        questions: The texts of user messages.
        earlier: The texts of earlier answers, and their reasoning.
        results: The texts of results of calls.
        answered: The ids that name the calls of these results.
        given: The arguments of earlier calls.
        calls: The calls of the answer.
        call_ids: Their ids.
        content: The pieces of the answer; a text is a piece that belongs to the shell.
        thought: The pieces of its reasoning.
        usage: The counts by name.
        started: The time of the record, None without one.
        created: The time in the answer, None without one.
        models: The names of the model.
        provider: The name of the provider, a text if it belongs to the shell.
        limit: The most output tokens that the request allows, None for any number.
        has_tools: True if the request offers tools.
    """

    instructions: tuple[int, ...]
    questions: tuple[int, ...]
    earlier: tuple[int, ...]
    results: tuple[int, ...]
    answered: tuple[int, ...]
    given: tuple[int, ...]
    calls: tuple[CallOutline, ...]
    call_ids: tuple[int, ...]
    content: tuple[int | str, ...]
    thought: tuple[int | str, ...]
    usage: dict[str, int]
    started: int | None
    created: int | None
    models: tuple[int, ...]
    provider: int | str
    limit: int | None
    has_tools: bool


class _NotPlainError(Exception):
    """The exchange has a part that no table of this module has."""


def find_outline(shell: Shell) -> Outline | None:
    """Return the outline of a shell, None if the exchange is not plain."""
    if _AROUND_A_LEAF in shell.text:
        return None
    try:
        record = loads(PLACEHOLDER.sub(_write_token, shell.text), max_depth=MAX_LINE_DEPTH)
        if not isinstance(record, dict) or find_shape(record, AUTO) is not PAIR:
            return None
        reader = _Reader()
        outline = reader.read(record)
    except (InvalidJsonError, NotAnExchangeError, _NotPlainError):
        return None
    return outline if reader.leaves == {*range(len(shell.leaves))} else None


def _write_token(placeholder: re.Match[str]) -> str:
    kind, leaf = placeholder.groups()
    if kind == "n":
        return str(_FIRST_NUMBER + int(leaf))
    quote = f'{kind[1:]}"' if kind.startswith("q") else ""
    return f"{quote}{_AROUND_A_LEAF}{leaf}{_AROUND_A_LEAF}"


class _Reader:
    """Reads a record, and collects the leaves that it came to. Each leaf must have its place; only names and times may have several."""

    def __init__(self) -> None:
        self.leaves: set[int] = set()
        kinds = ("instructions", "questions", "earlier", "results", "answered", "given", "call_ids")
        self._texts: dict[str, list[int]] = {kind: [] for kind in kinds}
        self._calls: dict[int, _Call] = {}
        self._pieces: dict[str, list[int | str]] = {name: [] for name in ("content", *_THOUGHTS)}
        self._usage: dict[str, int] = {}
        self._created: dict[int | str, int | None] = {}
        self._models: set[int] = set()

    def read(self, record: JsonObject) -> Outline:
        """Return the outline of a record, whose leaves are tokens."""
        _expect_members(record, _RECORD)
        request, response = record.get("request"), record.get("response")
        if not isinstance(request, dict):
            raise _NotPlainError
        started = [self._leaf(record[name]) for name in TIMES if name in record]
        if len(started) > 1 or None in started:
            raise _NotPlainError
        for name in ("id", "user"):
            self._leaf(record.get(name))
        self._read_model(record)
        provider = self._leaf(record.get("provider"))
        limit = self._read_request(request)
        answers = list(_answers(response))
        for answer in answers:
            self._read_answer(answer)
        thoughts = [pieces for name in _THOUGHTS if set(pieces := self._pieces[name]) - {""}]
        if (
            len(self._created) > 1
            or len(thoughts) > 1
            or not (self._calls or any(isinstance(piece, int) for piece in self._pieces["content"]))
        ):
            raise _NotPlainError
        return Outline(
            **{kind: tuple(leaves) for kind, leaves in self._texts.items()},
            calls=tuple([_outline_of(call, items(request.get("tools"))) for call in self._calls.values()]),
            content=tuple(self._pieces["content"]),
            thought=tuple(thoughts[0] if thoughts else ()),
            usage=self._usage,
            started=started[0] if started else None,
            created=next(iter(self._created.values()), None),
            models=tuple(sorted(self._models)),
            provider=text(record.get("provider")) if provider is None else provider,
            limit=limit,
            has_tools=bool(request.get("tools")),
        )

    def _own_leaf(self, value: Json) -> int | None:
        """Return the index of the leaf that a value is and no other value, None if it is no leaf."""
        number = len(self.leaves)
        leaf = self._leaf(value)
        if leaf is not None and len(self.leaves) == number:
            raise _NotPlainError
        return leaf

    def _leaf(self, value: Json) -> int | None:
        """Return the index of the leaf that a value is, None if it is no leaf."""
        found = _TOKEN.fullmatch(value) if isinstance(value, str) else None
        if found is not None:
            leaf = int(found[1])
        elif (whole := integer(value)) is not None and whole >= _FIRST_NUMBER:
            leaf = whole - _FIRST_NUMBER
        else:
            return None
        self.leaves.add(leaf)
        return leaf

    def _read_model(self, value: JsonObject) -> None:
        if (model := self._leaf(value.get("model"))) is not None:
            self._models.add(model)

    def _read_request(self, request: JsonObject) -> int | None:
        _expect_members(request, _REQUEST)
        self._read_model(request)
        for name in ("temperature", "top_p", "seed"):
            self._own_leaf(request.get(name))
        if (user := self._leaf(request.get("user"))) is not None:
            self._texts["instructions"].append(user)
        for message in items(request.get("messages")):
            self._read_message(message)
        limits = [request[name] for name in ("max_completion_tokens", "max_tokens") if request.get(name) is not None]
        limit = integer(limits[0]) if limits else None
        if request.get("n") not in (None, 1) or len(limits) > 1 or (limits and limit is None):
            raise _NotPlainError
        return limit

    def _read_message(self, message: Json) -> None:
        kind, known = _ROLES.get(str(value_at(message, "role")), ("", _MESSAGE))
        _expect_members(message, known)
        calls, content = items(value_at(message, "tool_calls")), value_at(message, "content")
        if not kind or not (isinstance(content, str) or (calls and content is None)):
            raise _NotPlainError
        for name in ("content", *_THOUGHTS):
            if (leaf := self._own_leaf(value_at(message, name))) is not None:
                self._texts[kind].append(leaf)
        if (answered := self._leaf(value_at(message, "tool_call_id"))) is not None:
            self._texts["answered"].append(answered)
        for call in calls:
            arguments, _ = self._read_call(call)
            if (leaf := self._own_leaf(arguments)) is not None:
                self._texts["given"].append(leaf)

    def _read_call(self, call: Json) -> tuple[Json, int | None]:
        """Return the arguments of a call, and the leaf that is its id."""
        _expect_members(call, _CALL)
        function = value_at(call, "function")
        _expect_members(function, _FUNCTION)
        return value_at(function, "arguments"), self._leaf(value_at(call, "id"))

    def _read_calls(self, calls: Json, *, is_delta: bool) -> None:
        """Read the calls of an answer, or their pieces in an event."""
        for place, call in enumerate(items(calls)):
            arguments, name_of_call = self._read_call(call)
            index, name = integer(value_at(call, "index")), value_at(call, "function", "name")
            if is_delta and index is None:
                raise _NotPlainError
            known = self._calls.setdefault(index if is_delta and index is not None else place, _Call())
            if (known.name and name is not None) or not isinstance(name, str | None):
                raise _NotPlainError
            known.name = name or known.name
            if name_of_call is not None:
                self._texts["call_ids"].append(name_of_call)
            self._add_piece(arguments, known.pieces)

    def _add_piece(self, piece: Json, pieces: list[int | str]) -> None:
        if (leaf := self._own_leaf(piece)) is not None:
            pieces.append(leaf)
        elif isinstance(piece, str):
            pieces.append(piece)
        elif piece is not None:
            raise _NotPlainError

    def _read_answer(self, answer: Json) -> None:
        _expect_members(answer, _ANSWER)
        self._leaf(value_at(answer, "id"))
        self._read_model(members(answer))
        choices = items(value_at(answer, "choices"))
        created = self._leaf(value_at(answer, "created"))
        self._created.setdefault(str(value_at(answer, "created")) if created is None else created, created)
        if len(choices) > 1:
            raise _NotPlainError
        for choice in choices:
            _expect_members(choice, _CHOICE)
            is_delta = "message" not in members(choice)
            turn = value_at(choice, "delta" if is_delta else "message")
            _expect_members(turn, _TURN)
            number = value_at(choice, "index")
            if value_at(choice, "finish_reason") not in _ENDS or (number is not None and integer(number) != 0):
                raise _NotPlainError
            for name, pieces in self._pieces.items():
                self._add_piece(value_at(turn, name), pieces)
            self._read_calls(value_at(turn, "tool_calls"), is_delta=is_delta)
        if (usage := value_at(answer, "usage")) is not None:
            self._read_usage(usage)

    def _read_usage(self, usage: Json) -> None:
        _expect_members(usage, _USAGE | _DETAILS.keys())
        counts: JsonObject = {name: value_at(usage, name) for name in _USAGE}
        for details, name in _DETAILS.items():
            found = members(value_at(usage, details))
            counts[name] = found.get(name)
            if any(value not in (None, 0) for other, value in found.items() if other != name):
                raise _NotPlainError
        for name, value in counts.items():
            leaf = self._own_leaf(value)
            if name in self._usage or (leaf is None and not (value is None or (name not in _USAGE and value == 0))):
                raise _NotPlainError
            if leaf is not None:
                self._usage[name] = leaf


@dataclass
class _Call:
    """State: the name of a call, and the pieces of its arguments so far."""

    name: str = ""
    pieces: list[int | str] = field(default_factory=list[int | str])


def _outline_of(call: _Call, tools: Iterable[Json]) -> CallOutline:
    functions = (value_at(tool, "function") for tool in tools)
    schema = next((value_at(one, "parameters") for one in functions if value_at(one, "name") == call.name), None)
    return CallOutline(arguments=tuple(call.pieces), find_violation=violation_finder(schema))


def _expect_members(value: Json, known: frozenset[str]) -> None:
    if not isinstance(value, dict):
        raise _NotPlainError
    if not value.keys() <= known and any(value[name] not in (None, [], {}) for name in value.keys() - known):
        raise _NotPlainError


def _answers(response: Json) -> Iterator[Json]:
    """Yield a complete response, or the chunks of a stream."""
    match response:
        case dict():
            yield response
        case list():
            yield from response
        case str() if response.startswith("{"):
            yield loads(response)
        case str():
            decoder = EventDecoder()
            for event in decoder.feed(response.encode("utf-8", "replace")):
                if event.name != "message" or (event.value is None and not event.is_done):
                    raise _NotPlainError
                if not event.is_done:
                    yield event.value
            if decoder.unfinished_data() or decoder.unrecognized_lines:
                raise _NotPlainError
        case _:
            raise _NotPlainError
