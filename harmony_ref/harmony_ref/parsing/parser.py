"""Parsing of completions into messages, whole or as a stream."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from harmony_ref.errors import ParseError
from harmony_ref.json_value import Json
from harmony_ref.list_view import Snapshot
from harmony_ref.messages.events import Delta, Event
from harmony_ref.messages.header import Header
from harmony_ref.messages.message_types import Message, Role
from harmony_ref.messages.unchecked_construction import delta_event, finished_event, started_event
from harmony_ref.parsing.fast_path import read_well_framed
from harmony_ref.parsing.stream_machine import StreamMachine
from harmony_ref.stream_state import StreamState

if TYPE_CHECKING:
    from harmony_ref.lenient.result import LenientParse


@overload
def parse(
    completion: Iterable[int], role: Role | None = None, *, strict: bool = True, lenient: Literal[False] = False
) -> list[Message]: ...


@overload
def parse(completion: Iterable[int], role: Role | None = None, *, lenient: Literal[True]) -> "LenientParse": ...


def parse(
    completion: Iterable[int], role: Role | None = None, *, strict: bool = True, lenient: bool = False
) -> "list[Message] | LenientParse":
    """Return the messages of a whole completion.

    Args:
        completion: the ids, with or without the last stop token.
        role: the role that the prompt had after the last `<|start|>`; None if the tokens begin with `<|start|>`.
        strict: False to accept a message without `<|message|>` as content, as StreamParser does.
        lenient: True to parse any completion, see `lenient.parse.parse_leniently`. Only ValueError is raised then.

    Raises:
        ParseError: the tokens are not Harmony; its `events` hold the messages before the error.
    """
    if lenient:
        from harmony_ref.lenient.parse import parse_leniently  # noqa: PLC0415 - not needed by strict parsing

        return parse_leniently(completion, role)
    run = completion if isinstance(completion, list) else list(completion)
    messages = read_well_framed(run, role)
    if messages is not None:
        return messages
    parser = StreamParser(role, strict=strict)
    events = parser.feed(run)
    try:
        parser.finish()
    except ParseError as error:
        error.events = (*events, *error.events)
        raise
    return list(parser.messages)


class StreamParser(StreamMachine):
    """Reads tokens in chunks of any size, and returns events.

    Events do not depend on how the tokens are split over calls, except that the deltas of one call are merged. After
    each `process` the attributes equal those of the library's StreamableParser after that token.

    After an error the parser is in the state of the library's parser, and accepts further tokens. Tokens after the
    refused one in the same call were not read.
    """

    __slots__ = ("_events",)

    def __init__(self, role: Role | None = None, *, strict: bool = True) -> None:
        """Start before the first token.

        Args:
            role: the role that the prompt had after the last `<|start|>`; None if `<|start|>` comes first.
            strict: False to accept a first message that ends before its `<|message|>` as content without a header,
                its white space reduced to single spaces. Later ones are dropped.
        """
        super().__init__(role, strict=strict)
        self._events: list[Event] = []

    def feed(self, run: Iterable[int]) -> list[Event]:
        """Read tokens.

        Returns:
            Their events in order; consecutive deltas of a message are merged.

        Raises:
            ParseError: a token is invalid in the current state. `error.events` holds the events before it.
        """
        chunk = run if isinstance(run, list) else list(run)
        if len(chunk) == 1:
            return self.process(chunk[0])
        self._events = []
        if chunk:
            try:
                self._read(chunk)
            except ParseError as error:
                error.events = self._events
                raise
        return self._events

    def process(self, token: int) -> list[Event]:
        """Read one token as `feed` does."""
        text = self._plain[token]
        if text:
            self._tokens.append(token)
            self.last_content_delta = text
            return [delta_event(text, self._open_header)]
        self._events = []
        try:
            self._step(token)
        except ParseError as error:
            error.events = self._events
            raise
        return self._events

    def finish(self) -> list[Event]:
        """Read the end of the input, which ends an open message. May be called again.

        Raises:
            UnexpectedEndError: the input ended inside a header.
        """
        self._events = []
        self._read_end()
        return self._events

    @property
    def state(self) -> StreamState:
        """The current state."""
        return self._state

    @property
    def state_data(self) -> Mapping[str, Json]:
        """The library's description of the state, in time proportional to the tokens read since the last call.

        `{"state"}`, and `header_tokens`, or `header` and `content_tokens`. As in the library, the latter are the ids of
        the text that each token completed, not the tokens themselves.
        """
        return self._describe_state()

    @property
    def current_role(self) -> Role | None:
        """The role of the open message, or the one that the prompt had."""
        return self._known_role()

    @property
    def messages(self) -> Sequence[Message]:
        """The finished messages."""
        return Snapshot(self._messages)

    @property
    def tokens(self) -> Sequence[int]:
        """All ids read, including refused ones."""
        return Snapshot(self._tokens)

    def _on_start(self, header: Header) -> None:
        self._events.append(started_event(header))

    def _on_text(self, text: str) -> None:
        newest = self._events[-1] if self._events else None
        if isinstance(newest, Delta):
            self._events[-1] = delta_event(newest.text + text, newest.header)
        else:
            self._events.append(delta_event(text, self._open_header))

    def _on_finish(self, message: Message, stop: int | None) -> None:
        self._events.append(finished_event(message, stop))
