"""Tokens of the model → messages, at once or as they come (openai-harmony 0.0.8, encoding.rs:1118-1315).

    EXPECT_START --<|start|>--> HEADER --<|message|>--> CONTENT --<|end|>, <|call|>, <|return|>, end--> EXPECT_START

Strict parsing does what the library does, also where that loses data: a header swallows everything up to the next
`<|message|>`; every special token that is not a stop token is text inside content; a message that was cut off is as
good as a finished one, but for its stop token.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, Literal, overload

from harmony_ref import tokens
from harmony_ref.content import ContentDecoder
from harmony_ref.errors import (
    HarmonyError,
    HeaderError,
    HeaderFault,
    HeaderProblem,
    ParseError,
    UnexpectedEndError,
    UnexpectedTokenError,
)
from harmony_ref.events import Delta, Event, MessageFinished, MessageStarted
from harmony_ref.header import Header, read_header, split_channel, words_of
from harmony_ref.json_value import Json
from harmony_ref.messages import Author, Message, Role
from harmony_ref.stream_state import StreamState

if TYPE_CHECKING:
    from harmony_ref.lenient_result import LenientParse

_HEADER_END: Final = frozenset({tokens.MESSAGE})
_LENIENT_HEADER_END: Final = _HEADER_END | tokens.STOP_TOKENS


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
        from harmony_ref.lenient import parse_leniently  # noqa: PLC0415 - strict parsing does not pay for it

        return parse_leniently(completion, role)
    parser = StreamParser(role, strict=strict)
    events = parser.feed(completion)
    try:
        parser.finish()
    except ParseError as error:
        error.events = (*events, *error.events)
        raise
    return list(parser.messages)


class StreamParser:
    """Takes tokens as they come and says what they begin, continue and end.

    Events do not depend on how the tokens are split over calls, but for the deltas: those of one call are merged. The
    attributes after each `process` equal those of the library's StreamableParser after each of its tokens.

    After an error the parser is where the library's would be, and can be fed further tokens; those that followed the
    refused token in the same call were not read.
    """

    def __init__(self, role: Role | None = None, *, strict: bool = True) -> None:
        """Start before the first token.

        Args:
            role: the role that stood in the prompt after the last `<|start|>`; None when `<|start|>` comes first.
            strict: False to take a first message that stops before its `<|message|>` as content without a header,
                its white space reduced to single spaces. Later ones vanish.
        """
        self._strict = strict
        self._next_role = role
        self._state = StreamState.EXPECT_START if role is None else StreamState.HEADER
        self._tokens: list[int] = []
        self._header_tokens: list[int] = []
        self._content_start = 0
        self._header: Header | None = None
        self._decoder = ContentDecoder()
        self._content: list[str] = []
        self._delta: str | None = None
        self._messages: list[Message] = []
        self._events: list[Event] = []

    def feed(self, run: Iterable[int]) -> list[Event]:
        """Read tokens.

        Returns:
            What they brought, in order; the deltas of a message merged into one.

        Raises:
            ParseError: a token that cannot stand where it does. `error.events` are those of the tokens before it.
        """
        self._events = []
        try:
            self._read(list(run))
        except ParseError as error:
            error.events = self._events
            raise
        return self._events

    def process(self, token: int) -> list[Event]:
        """Read one token; otherwise as `feed`."""
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
        self._delta = None
        match self._state:
            case StreamState.EXPECT_START:
                pass
            case StreamState.HEADER:
                raise UnexpectedEndError(
                    "Unexpected EOS while waiting for message header to complete",
                    position=len(self._tokens),
                    state=self._state,
                    expected="<|message|>",
                )
            case StreamState.CONTENT:
                self._finish_message(None)
        return self._events

    @property
    def state(self) -> StreamState:
        """Where the parser stands."""
        return self._state

    @property
    def state_data(self) -> Mapping[str, Json]:
        """The library's description of the state; takes time in proportion to the open header or content.

        `{"state"}`, and `header_tokens`, or `header` and `content_tokens`. The latter are not the ids that were fed but
        those of the text that each of them completed, as in the library.
        """
        match self._state:
            case StreamState.EXPECT_START:
                return {"state": self._state.value}
            case StreamState.HEADER:
                return {"state": self._state.value, "header_tokens": list(self._header_tokens)}
            case StreamState.CONTENT:
                return {
                    "state": self._state.value,
                    "header": _header_data(self._open_header),
                    "content_tokens": self._content_tokens(),
                }

    @property
    def current_role(self) -> Role | None:
        """The role of the open message, or the one known beforehand."""
        return self._next_role if self._header is None else self._header.author.role

    @property
    def current_channel(self) -> str | None:
        """The channel of the open message, once its header is complete."""
        return None if self._header is None else self._header.channel

    @property
    def current_recipient(self) -> str | None:
        """The recipient of the open message, once its header is complete."""
        return None if self._header is None else self._header.recipient

    @property
    def current_content_type(self) -> str | None:
        """The content type of the open message, once its header is complete."""
        return None if self._header is None else self._header.content_type

    @property
    def current_content(self) -> str:
        """The text of the open message so far, whole characters only."""
        if len(self._content) > 1:
            self._content = ["".join(self._content)]
        return self._content[0] if self._content else ""

    @property
    def last_content_delta(self) -> str | None:
        """The text that the last token completed, if any."""
        return self._delta

    @property
    def messages(self) -> Sequence[Message]:
        """The finished messages."""
        return tuple(self._messages)

    @property
    def tokens(self) -> Sequence[int]:
        """Every id that was read, a refused one included."""
        return tuple(self._tokens)

    @property
    def _open_header(self) -> Header:
        assert self._header is not None, "there is a header in CONTENT and only there"
        return self._header

    def _read(self, chunk: list[int]) -> None:
        """Read tokens run by run; each is looked at once, so the time is linear however they are framed."""
        marks = [index for index, token in enumerate(chunk) if token in _LENIENT_HEADER_END]
        marks.append(len(chunk))
        mark = 0
        index = 0
        header_end = _HEADER_END if self._strict else _LENIENT_HEADER_END
        while index < len(chunk):
            if self._state is not StreamState.EXPECT_START:
                wanted = tokens.STOP_TOKENS if self._state is StreamState.CONTENT else header_end
                while marks[mark] < index or (marks[mark] < len(chunk) and chunk[marks[mark]] not in wanted):
                    mark += 1
                end = marks[mark]
                if end > index:
                    self._extend(chunk[index:end])
                    index = end
                    continue
            self._step(chunk[index])
            index += 1

    def _extend(self, run: list[int]) -> None:
        """Read tokens that do not end the present header or content."""
        self._tokens += run
        if self._state is StreamState.HEADER:
            self._header_tokens += run
            self._delta = None
            return
        *before, last = run
        earlier = self._decoder.push_run(before)
        newest = self._decoder.push(last)
        self._delta = newest or None
        self._add_text(earlier + newest)

    def _step(self, token: int) -> None:
        self._tokens.append(token)
        self._delta = None
        match self._state:
            case StreamState.CONTENT:
                if token in tokens.STOP_TOKENS:
                    self._finish_message(token)
                    return
                text = self._decoder.push(token)
                self._delta = text or None
                self._add_text(text)
            case StreamState.HEADER:
                if token == tokens.MESSAGE:
                    self._finish_header()
                elif not self._strict and token in tokens.STOP_TOKENS:
                    self._recover(token)
                else:
                    self._header_tokens.append(token)
            case StreamState.EXPECT_START:
                if token != tokens.START:
                    raise UnexpectedTokenError(
                        f"Unexpected token {token} while expecting start token {tokens.START}",
                        token=token,
                        position=len(self._tokens) - 1,
                        expected="<|start|>",
                    )
                self._state = StreamState.HEADER
                self._header_tokens = []

    def _finish_header(self) -> None:
        position = len(self._tokens) - 1
        # The library leaves the header before it reads it, and keeps the expected role when that fails.
        self._state = StreamState.EXPECT_START
        header = read_header(self._header_tokens, role=self._next_role, position=position)
        self._next_role = None
        self._start_message(header)

    def _start_message(self, header: Header) -> None:
        self._state = StreamState.CONTENT
        self._header = header
        self._content_start = len(self._tokens)
        self._decoder = ContentDecoder()
        self._content = []
        self._events.append(MessageStarted(header=header))

    def _add_text(self, text: str) -> None:
        if not text:
            return
        self._content.append(text)
        newest = self._events[-1] if self._events else None
        if isinstance(newest, Delta):
            self._events[-1] = Delta(text=newest.text + text, header=newest.header)
        else:
            self._events.append(Delta(text=text, header=self._open_header))

    def _finish_message(self, stop: int | None) -> None:
        header = self._open_header
        self._add_text(self._decoder.flush())
        message = Message(
            author=header.author,
            content=self.current_content,
            channel=header.channel,
            recipient=header.recipient,
            content_type=header.content_type,
        )
        self._messages.append(message)
        self._events.append(MessageFinished(message=message, stop=stop))
        self._header = None
        self._content = []
        self._state = StreamState.EXPECT_START

    def _recover(self, stop: int) -> None:
        """Take a header that a stop token ended as content, if it is the first message's (openai/harmony#80)."""
        position = len(self._tokens) - 1
        role = self._next_role
        if role is not None and self._header_tokens:
            header, text = _content_in_header(self._header_tokens, role, position)
            self._start_message(header)
            self._add_text(text)
            self._finish_message(stop)
        self._state = StreamState.EXPECT_START
        self._next_role = None

    def _content_tokens(self) -> list[int]:
        decoder = ContentDecoder()
        pieces = chain.from_iterable(map(decoder.push_apart, self._tokens[self._content_start :]))
        return [token for piece in pieces for token in tokens.encode(piece)]


def _content_in_header(raw: Sequence[int], role: Role, position: int) -> tuple[Header, str]:
    try:
        text = tokens.decode_utf8(raw)
    except HarmonyError as error:
        fault = HeaderFault(problem=HeaderProblem.NOT_TEXT, text=str(error), expected="known tokens that are UTF-8")
        raise HeaderError(fault, header=raw, position=position) from None
    split = split_channel(text)
    if isinstance(split, HeaderFault):
        raise HeaderError(split, header=raw, position=position)
    channel, rest = split
    words = words_of(rest)
    if words and words[0] == role.value:
        del words[0]
    return Header(author=Author(role=role), channel=channel), " ".join(words)


def _header_data(header: Header) -> Mapping[str, Json]:
    author: dict[str, Json] = {"role": header.author.role.value}
    if header.author.name is not None:
        author["name"] = header.author.name
    return {
        "author": author,
        "recipient": header.recipient,
        "channel": header.channel,
        "content_type": header.content_type,
    }
