"""Stages at which a defect changes the server: each change is one pure function between request and response.

request -> conversation -> prompt -> unscripted text -> sampling -> events -> response
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import Generic, TypeAlias, TypeVar

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.model.generation import Sampling, UnscriptedOutput
from harmony_conformance.reference_server.model.output_deltas import ClientCapabilities
from harmony_conformance.reference_server.model.output_parser import OutputEvent
from harmony_conformance.reference_server.requests.chat_request import ChatRequest
from harmony_conformance.reference_server.requests.conversation import drop_finished_reasoning
from harmony_conformance.reference_server.requests.errors import Reply
from harmony_ref import Message

_Value = TypeVar("_Value")
_Kind = TypeVar("_Kind")
_ApiKind = TypeVar("_ApiKind", bound="OnRequest | OnOutage | OnJson | OnStream | OnReply")


class ApiFamily(StrEnum):
    """The API whose JSON a change is written for. The stages between request and response are common to all APIs."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"
    COMPLETIONS = "completions"
    OLLAMA = "ollama"
    TGI = "tgi"
    SGLANG = "sglang"


@dataclass(frozen=True)
class _Stage(Generic[_Value]):
    apply: Callable[[_Value], _Value]


@dataclass(frozen=True)
class _ApiStage(_Stage[_Value]):
    api: ApiFamily = ApiFamily.CHAT


class OnRequest(_ApiStage[JsonObject]):
    """Changes the body of a request before it is parsed."""


@dataclass(frozen=True)
class OnNeighbour:
    """Changes the body of a request by the body of another request that is processed at the same time."""

    apply: Callable[[JsonObject, JsonObject], JsonObject]


class OnOverload(_Stage[JsonObject]):
    """Changes the body of a request that arrives while `OVERLOAD_REQUESTS` or more others are processed."""


@dataclass(frozen=True)
class OnOutage:
    """Returns True for a request that crashes the engine: this one and every later one gets a 500."""

    apply: Callable[[JsonObject], bool]
    api: ApiFamily = ApiFamily.CHAT


@dataclass(frozen=True, kw_only=True)
class DisconnectBehaviour:
    """Behaviour after the client of a stream disconnects.

    Attributes:
        stops: True if the generation is aborted.
        survives: True if the engine keeps running.
    """

    stops: bool = True
    survives: bool = True


class OnDisconnect(_Stage[DisconnectBehaviour]):
    """Changes the behaviour after the client of a stream disconnects."""


def _unchanged_error(event: JsonObject) -> JsonObject:
    return event


def _unchanged_events(events: Iterator[Json], _earlier: tuple[Json, ...]) -> Iterator[Json]:
    return events


@dataclass(frozen=True, kw_only=True)
class WebSocketBehaviour:
    """Behaviour of a WebSocket connection.

    Attributes:
        remembers: True if the last response of the connection can be continued without a store.
        survives_errors: True if the connection stays open after an error.
        is_sequential: True if a request waits until the answer before it is complete.
        warms_up: True if a request with `generate: false` generates nothing.
        error: Changes an error event.
        events: Changes the events of a turn, given those of the turn before.
    """

    remembers: bool = True
    survives_errors: bool = True
    is_sequential: bool = True
    warms_up: bool = True
    error: Callable[[JsonObject], JsonObject] = _unchanged_error
    events: Callable[[Iterator[Json], tuple[Json, ...]], Iterator[Json]] = _unchanged_events


class OnWebSocket(_Stage[WebSocketBehaviour]):
    """Changes the behaviour of a WebSocket connection."""


@dataclass(frozen=True)
class OnHistory:
    """Replaces the selection of the messages of the history that the model sees."""

    apply: Callable[[Sequence[Message]], tuple[Message, ...]]


class OnStoredItems(_Stage[tuple[Json, ...]]):
    """Changes the items of the response or the conversation that a request continues."""


class OnConversation(_Stage[tuple[Message, ...]]):
    """Changes the conversation that is rendered."""


class OnPrompt(_Stage[tuple[int, ...]]):
    """Changes the token ids of the prompt."""


@dataclass(frozen=True)
class OnUnscriptedOutput:
    """Changes the output of the model when no script is played; receives the parsed request too."""

    apply: Callable[[ChatRequest, UnscriptedOutput], UnscriptedOutput]


@dataclass(frozen=True)
class OnPromptAndBody:
    """Changes the token ids of the prompt by the raw body of the request: text that the renderer inserts unvalidated."""

    apply: Callable[[JsonObject, tuple[int, ...]], tuple[int, ...]]


class OnSampling(_Stage[Sampling]):
    """Changes the conditions that end a generation."""


class OnClientCapabilities(_Stage[ClientCapabilities]):
    """Changes the kinds of output that the answer may contain."""


class OnEvents(_Stage[Iterator[OutputEvent]]):
    """Changes the parser's events for the generated tokens. An `ApiError` raised by it fails the request."""


class OnJson(_ApiStage[JsonObject]):
    """Changes the body of a response, and each chunk of a stream."""


class OnStream(_ApiStage[Iterator[Json]]):
    """Changes the data of the events of a stream: chunks, errors and the final `[DONE]`."""


class OnReply(_ApiStage[Reply]):
    """Changes the status and the body of a response that is not a stream."""


OVERLOAD_REQUESTS = 8
"""Number of other requests under way that `OnOverload` needs. The suite sends at most 8 at a time, except where a scenario is about load."""

Change: TypeAlias = (
    OnRequest
    | OnNeighbour
    | OnOutage
    | OnOverload
    | OnDisconnect
    | OnWebSocket
    | OnHistory
    | OnStoredItems
    | OnConversation
    | OnPrompt
    | OnUnscriptedOutput
    | OnPromptAndBody
    | OnSampling
    | OnClientCapabilities
    | OnEvents
    | OnJson
    | OnStream
    | OnReply
)

API_STAGES = (OnRequest, OnOutage, OnJson, OnStream, OnReply)
"""The kinds of change that are written for the JSON of one API."""

OUTPUT_PARSING_STAGES = (OnSampling, OnClientCapabilities, OnEvents)
"""The kinds of change to the interpretation of the model's output. They show with some scripts only."""


@dataclass(frozen=True)
class Defect:
    """An error that a real server made.

    Attributes:
        summary: The behaviour of the server, in one sentence.
        change: One change, or several if two stages are involved.
        catalogue: Ids in the catalogue `golden/defects.json`. Empty if no report describes this defect alone.
    """

    id: str
    summary: str
    change: Change | tuple[Change, ...]
    catalogue: tuple[str, ...] = ()


class Changes:
    """The changes of the active defects. Those of one stage apply in the order of the defects."""

    def __init__(self, defects: Iterable[Defect] = ()) -> None:
        self._changes = tuple(
            change
            for defect in defects
            for change in (defect.change if isinstance(defect.change, tuple) else (defect.change,))
        )
        self._raw_body: JsonObject = {}

    def for_body(self, raw_body: JsonObject) -> "Changes":
        """Return a copy for one request, with the body as the client sent it."""
        changes = Changes()
        changes._changes, changes._raw_body = self._changes, raw_body
        return changes

    @property
    def crosses_requests(self) -> bool:
        """True if a defect mixes up requests that are processed at the same time."""
        return bool(self._of(OnNeighbour))

    def overload_request(self, body: JsonObject, others: int) -> JsonObject:
        """Return the body as a server reads it while it processes `others` more requests."""
        return _chain(self._of(OnOverload) if others >= OVERLOAD_REQUESTS else (), body)

    def is_crash_request(self, body: JsonObject, api: ApiFamily = ApiFamily.CHAT) -> bool:
        """Return True if the request crashes the engine."""
        return any(change.apply(body) for change in self._of_api(OnOutage, api))

    def disconnect_behaviour(self) -> DisconnectBehaviour:
        """Return the behaviour after the client of a stream disconnects."""
        return _chain(self._of(OnDisconnect), DisconnectBehaviour())

    def websocket_behaviour(self) -> WebSocketBehaviour:
        """Return the behaviour of a WebSocket connection."""
        return _chain(self._of(OnWebSocket), WebSocketBehaviour())

    def request(
        self, body: JsonObject, neighbour: "JsonObject | None" = None, api: ApiFamily = ApiFamily.CHAT
    ) -> JsonObject:
        """Return the body as the server reads it."""
        if neighbour is not None:
            for change in self._of(OnNeighbour):
                body = change.apply(body, neighbour)
        return _chain(self._of_api(OnRequest, api), body)

    def stored_items(self, entries: tuple[Json, ...]) -> tuple[Json, ...]:
        """Return the items of the response or the conversation that a request continues."""
        return _chain(self._of(OnStoredItems), entries)

    def conversation(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the messages that the model sees. Without a defect, the reasoning of finished turns is dropped."""
        selections = self._of(OnHistory)
        history = selections[-1].apply(messages) if selections else drop_finished_reasoning(messages)
        return _chain(self._of(OnConversation), history)

    def prompt(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Return the token ids of the prompt."""
        ids = _chain(self._of(OnPrompt), ids)
        return reduce(lambda current, change: change.apply(self._raw_body, current), self._of(OnPromptAndBody), ids)

    def unscripted_output(self, request: ChatRequest, words: UnscriptedOutput) -> UnscriptedOutput:
        """Return the unscripted output of the model."""
        return reduce(lambda current, change: change.apply(request, current), self._of(OnUnscriptedOutput), words)

    def sampling(self, sampling: Sampling) -> Sampling:
        """Return the conditions that end the generation."""
        return _chain(self._of(OnSampling), sampling)

    def client_capabilities(self, offer: ClientCapabilities) -> ClientCapabilities:
        """Return the kinds of output that the answer may contain."""
        return _chain(self._of(OnClientCapabilities), offer)

    def events(self, events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
        """Return the parser's events for the generated tokens."""
        return _chain(self._of(OnEvents), events)

    def json(self, body: JsonObject, api: ApiFamily = ApiFamily.CHAT) -> JsonObject:
        """Return the body of a response, or one chunk of a stream."""
        return _chain(self._of_api(OnJson, api), body)

    def stream(self, data: Iterator[Json], api: ApiFamily = ApiFamily.CHAT) -> Iterator[Json]:
        """Return the data of the events of a stream."""
        yield from _chain(
            self._of_api(OnStream, api), data
        )  # only when the stream is read: a defect may read all of it

    def reply(self, reply: Reply, api: ApiFamily = ApiFamily.CHAT) -> Reply:
        """Return the status and the body of a response that is not a stream."""
        return _chain(self._of_api(OnReply, api), reply)

    def _of(self, kind: type[_Kind]) -> Sequence[_Kind]:
        return [change for change in self._changes if isinstance(change, kind)]

    def _of_api(self, kind: type[_ApiKind], api: ApiFamily) -> Sequence[_ApiKind]:
        return [change for change in self._of(kind) if change.api is api]


def _chain(changes: Iterable[_Stage[_Value]], value: _Value) -> _Value:
    return reduce(lambda current, change: change.apply(current), changes, value)
