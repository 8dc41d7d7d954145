"""Tokens of the model → messages, at once or as they come."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from harmony_ref.errors import ParseError
from harmony_ref.json_value import Json
from harmony_ref.messages.construction import delta, finished, started
from harmony_ref.messages.events import Delta, Event
from harmony_ref.messages.header import Header
from harmony_ref.messages.message_types import Message, Role
from harmony_ref.parsing.fast_path import read_well_framed
from harmony_ref.parsing.stream_machine import StreamMachine
from harmony_ref.snapshot import Snapshot
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
    """The messages of a whole completion.

    Args:
        completion: the ids, with or without the last stop token.
        role: the role that stood in the prompt after the last `<|start|>`; None when the tokens begin with `<|start|>`.
        strict: False to take a message without `<|message|>` as content, as StreamParser does.
        lenient: True for all that can be made of it, whatever it is; then nothing but ValueError is raised. See
            `lenient.parse_leniently`.

    Raises:
        ParseError: the tokens are not Harmony; its `events` hold the messages before the error.
    """
    if lenient:
        from harmony_ref.lenient.parse import parse_leniently  # noqa: PLC0415 - strict parsing does not pay for it

        return parse_leniently(completion, role)
    run = completion if isinstance(completion, list) else list(completion)
    messages = read_well_framed(run, role)
    return _read_as_stream(run, role, strict=strict) if messages is None else messages


def _read_as_stream(run: list[int], role: Role | None, *, strict: bool) -> list[Message]:
    parser = StreamParser(role, strict=strict)
    events = parser.feed(run)
    try:
        parser.finish()
    except ParseError as error:
        error.events = (*events, *error.events)
        raise
    return list(parser.messages)


class StreamParser(StreamMachine):
    """Takes tokens as they come and says what they begin, continue and end.

    Events do not depend on how the tokens are split over calls, but for the deltas: those of one call are merged. The
    attributes after each `process` equal those of the library's StreamableParser after each of its tokens.

    After an error the parser is where the library's would be, and can be fed further tokens; those that followed the
    refused token in the same call were not read.
    """

    __slots__ = ("_events",)

    def __init__(self, role: Role | None = None, *, strict: bool = True) -> None:
        """Start before the first token.

        Args:
            role: the role that stood in the prompt after the last `<|start|>`; None when `<|start|>` comes first.
            strict: False to take a first message that stops before its `<|message|>` as content without a header,
                its white space reduced to single spaces. Later ones vanish.
        """
        super().__init__(role, strict=strict)
        self._events: list[Event] = []

    def feed(self, run: Iterable[int]) -> list[Event]:
        """Read tokens.

        Returns:
            What they brought, in order; the deltas of a message merged into one.

        Raises:
            ParseError: a token that cannot stand where it does. `error.events` are those of the tokens before it.
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
        """Read one token; otherwise as `feed`."""
        text = self._plain[token]
        if text:
            self._tokens.append(token)
            self._delta = text
            return [delta(text, self._open_header)]
        self._events = []
        try:
            self._step(token)
        except ParseError as error:
            error.events = self._events
            raise
        return self._events

    def finish(self) -> list[Event]:
        """Read the end of the input, which ends a message that is still open. May be called again.

        Raises:
            UnexpectedEndError: the input ended inside a header.
        """
        self._events = []
        self._end()
        return self._events

    @property
    def state(self) -> StreamState:
        """Where the parser stands."""
        return self._state

    @property
    def state_data(self) -> Mapping[str, Json]:
        """The library's description of the state; takes time in proportion to what was read since the last time.

        `{"state"}`, and `header_tokens`, or `header` and `content_tokens`. The latter are not the ids that were fed but
        those of the text that each of them completed, as in the library.
        """
        return self._described()

    @property
    def current_role(self) -> Role | None:
        """The role of the open message, or the one known beforehand."""
        return self._known_role()

    @property
    def messages(self) -> Sequence[Message]:
        """The finished messages."""
        return Snapshot(self._messages)

    @property
    def tokens(self) -> Sequence[int]:
        """Every id that was read, a refused one included."""
        return Snapshot(self._tokens)

    def _started(self, header: Header) -> None:
        self._events.append(started(header))

    def _continued(self, text: str) -> None:
        newest = self._events[-1] if self._events else None
        if isinstance(newest, Delta):
            self._events[-1] = delta(newest.text + text, newest.header)
        else:
            self._events.append(delta(text, self._open_header))

    def _finished(self, message: Message, stop: int | None) -> None:
        self._events.append(finished(message, stop))
