"""Where a defect takes hold: one pure change at one stage between request and answer.

request -> conversation -> prompt -> own words -> sampling -> events -> answer
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import TypeAlias, TypeVar

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.model.generation import Sampling, Words
from harmony_conformance.reference_server.model.output_events import ClientCapabilities
from harmony_conformance.reference_server.model.output_parser import Event
from harmony_conformance.reference_server.requests.chat_request import ChatRequest
from harmony_conformance.reference_server.requests.conversation import drop_finished_reasoning
from harmony_conformance.reference_server.requests.errors import Reply
from harmony_ref import Message

_Value = TypeVar("_Value")


class ApiFamily(StrEnum):
    """The API whose JSON a change is written for; what lies between request and answer is the same for all of them."""

    CHAT = "chat"
    RESPONSES = "responses"
    COMPLETIONS = "completions"
    OLLAMA = "ollama"
    TGI = "tgi"
    SGLANG = "sglang"


@dataclass(frozen=True)
class OnRequest:
    """Changes the body of a request before it is read."""

    apply: Callable[[JsonObject], JsonObject]
    api: ApiFamily = ApiFamily.CHAT


@dataclass(frozen=True)
class OnNeighbour:
    """Changes the body of a request that has a neighbour: the body of one that is answered at the same time."""

    apply: Callable[[JsonObject, JsonObject], JsonObject]


@dataclass(frozen=True)
class OnCrowd:
    """Changes the body of a request that comes while eight or more others are being answered."""

    apply: Callable[[JsonObject], JsonObject]


@dataclass(frozen=True)
class OnOutage:
    """Tells the requests that bring the engine down: the server refuses them and every later one, and blames itself."""

    apply: Callable[[JsonObject], bool]


@dataclass(frozen=True, kw_only=True)
class DisconnectBehaviour:
    """What the server does when the client of a stream has left: stop generating, or go on; and whether the engine outlives it."""

    stops: bool = True
    survives: bool = True


@dataclass(frozen=True)
class OnDeparture:
    """Changes what happens when the client of a stream has left."""

    apply: Callable[[DisconnectBehaviour], DisconnectBehaviour]


@dataclass(frozen=True)
class OnHistory:
    """Chooses which messages of the history the model is shown, instead of the right choice."""

    apply: Callable[[Sequence[Message]], tuple[Message, ...]]


@dataclass(frozen=True)
class OnConversation:
    """Changes the conversation that is rendered."""

    apply: Callable[[tuple[Message, ...]], tuple[Message, ...]]


@dataclass(frozen=True)
class OnPrompt:
    """Changes the token ids of the prompt."""

    apply: Callable[[tuple[int, ...]], tuple[int, ...]]


@dataclass(frozen=True)
class OnWords:
    """Changes what the model says in its own words; it sees the request that they answer. A script is not touched."""

    apply: Callable[[ChatRequest, Words], Words]


@dataclass(frozen=True)
class OnFeeding:
    """Changes the token ids of the prompt by what the request's body, as it was sent, says: what the renderer wrote without reading it."""

    apply: Callable[[JsonObject, tuple[int, ...]], tuple[int, ...]]


@dataclass(frozen=True)
class OnSampling:
    """Changes what ends a generation."""

    apply: Callable[[Sampling], Sampling]


@dataclass(frozen=True)
class OnOffer:
    """Changes what the answer may hold."""

    apply: Callable[[ClientCapabilities], ClientCapabilities]


@dataclass(frozen=True)
class OnEvents:
    """Changes what was read from the generated tokens; raising an ApiError fails the request."""

    apply: Callable[[Iterator[Event]], Iterator[Event]]


@dataclass(frozen=True)
class OnJson:
    """Changes the body of an answer, and likewise each chunk of a stream."""

    apply: Callable[[JsonObject], JsonObject]
    api: ApiFamily = ApiFamily.CHAT


@dataclass(frozen=True)
class OnStream:
    """Changes the data of a stream's events: chunks, errors and the last one, `[DONE]`."""

    apply: Callable[[Iterator[Json]], Iterator[Json]]
    api: ApiFamily = ApiFamily.CHAT


@dataclass(frozen=True)
class OnReply:
    """Changes the status and the body of an answer that is no stream."""

    apply: Callable[[Reply], Reply]
    api: ApiFamily = ApiFamily.CHAT


CROWD = 8
"""Requests; the suite sends as many at a time when it is not about crowds, so that one more is under way then."""

Change: TypeAlias = (
    OnRequest
    | OnNeighbour
    | OnOutage
    | OnCrowd
    | OnDeparture
    | OnHistory
    | OnConversation
    | OnPrompt
    | OnWords
    | OnFeeding
    | OnSampling
    | OnOffer
    | OnEvents
    | OnJson
    | OnStream
    | OnReply
)


WORDED = (OnRequest, OnJson, OnStream, OnReply)
"""The changes that are written for the words of one API."""

READING = (OnSampling, OnOffer, OnEvents)
"""The changes that make something else of the model's output: of some scripts, and not of others."""


@dataclass(frozen=True, kw_only=True)
class Defect:
    """Something a real server did wrong.

    Attributes:
        catalogue: ids of the catalogue of defects it is taken from; none where no thread reports it alone.
        summary: what the server did, in one sentence.
        change: what it changes; several where one stage lets through what another writes.
    """

    id: str
    catalogue: tuple[str, ...]
    summary: str
    change: Change | tuple[Change, ...]


class Changes:
    """The defects that are switched on, by stage; several at one stage apply in the order given."""

    def __init__(self, defects: Iterable[Defect] = ()) -> None:
        self._changes = tuple(change for defect in defects for change in _all(defect.change))
        self._sent: JsonObject = {}

    def for_body(self, sent: JsonObject) -> "Changes":
        """The same for one request, of which the body is known as it was sent."""
        changes = Changes()
        changes._changes, changes._sent = self._changes, sent
        return changes

    @property
    def crosses_requests(self) -> bool:
        """Whether some defect mixes requests that are answered at the same time."""
        return any(isinstance(change, OnNeighbour) for change in self._changes)

    def crowded(self, body: JsonObject, others: int) -> JsonObject:
        """The body as a server reads it that is answering so many others."""
        changes = [change.apply for change in self._changes if isinstance(change, OnCrowd)]
        return _chain(changes if others >= CROWD else [], body)

    def brings_down(self, body: JsonObject) -> bool:
        """Whether a request is the last that the engine sees."""
        return any(change.apply(body) for change in self._changes if isinstance(change, OnOutage))

    def departure(self) -> DisconnectBehaviour:
        """What happens when the client of a stream has left."""
        return _chain(
            [change.apply for change in self._changes if isinstance(change, OnDeparture)], DisconnectBehaviour()
        )

    def request(
        self, body: JsonObject, neighbour: "JsonObject | None" = None, api: ApiFamily = ApiFamily.CHAT
    ) -> JsonObject:
        """The body as the server reads it."""
        if neighbour is not None:
            crossed = [change.apply for change in self._changes if isinstance(change, OnNeighbour)]
            body = reduce(lambda value, apply: apply(value, neighbour), crossed, body)
        return _chain(
            [change.apply for change in self._changes if isinstance(change, OnRequest) and change.api is api], body
        )

    def conversation(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """The messages that the model is shown."""
        choosing = [change.apply for change in self._changes if isinstance(change, OnHistory)]
        kept = choosing[-1](messages) if choosing else drop_finished_reasoning(messages)
        return _chain([change.apply for change in self._changes if isinstance(change, OnConversation)], kept)

    def prompt(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """The prompt that the model is given."""
        ids = _chain([change.apply for change in self._changes if isinstance(change, OnPrompt)], ids)
        writing = [change.apply for change in self._changes if isinstance(change, OnFeeding)]
        return reduce(lambda current, apply: apply(self._sent, current), writing, ids)

    def words(self, request: ChatRequest, words: Words) -> Words:
        """What the model says in its own words."""
        changing = [change.apply for change in self._changes if isinstance(change, OnWords)]
        return reduce(lambda said, apply: apply(request, said), changing, words)

    def sampling(self, sampling: Sampling) -> Sampling:
        """What ends the generation."""
        return _chain([change.apply for change in self._changes if isinstance(change, OnSampling)], sampling)

    def offer(self, offer: ClientCapabilities) -> ClientCapabilities:
        """What the answer may hold."""
        return _chain([change.apply for change in self._changes if isinstance(change, OnOffer)], offer)

    def events(self, events: Iterator[Event]) -> Iterator[Event]:
        """What was read from the generated tokens."""
        return _chain([change.apply for change in self._changes if isinstance(change, OnEvents)], events)

    def json(self, body: JsonObject, api: ApiFamily = ApiFamily.CHAT) -> JsonObject:
        """An answer's body, or one chunk."""
        return _chain(
            [change.apply for change in self._changes if isinstance(change, OnJson) and change.api is api], body
        )

    def stream(self, data: Iterator[Json], api: ApiFamily = ApiFamily.CHAT) -> Iterator[Json]:
        """The data of a stream's events."""
        return _chain(
            [change.apply for change in self._changes if isinstance(change, OnStream) and change.api is api], data
        )

    def reply(self, reply: Reply, api: ApiFamily = ApiFamily.CHAT) -> Reply:
        """Status and body of an answer in one piece."""
        return _chain(
            [change.apply for change in self._changes if isinstance(change, OnReply) and change.api is api], reply
        )


def _all(change: Change | tuple[Change, ...]) -> tuple[Change, ...]:
    return change if isinstance(change, tuple) else (change,)


def _chain(functions: Iterable[Callable[[_Value], _Value]], value: _Value) -> _Value:
    return reduce(lambda current, function: function(current), functions, value)
