"""The state machine of streams (openai-harmony 0.0.8, encoding.rs:1118-1315), the base of every strict parser here.

    EXPECT_START --<|start|>--> HEADER --<|message|>--> CONTENT --<|end|>, <|call|>, <|return|>, end--> EXPECT_START

It equals the library even where data is lost. A header includes everything up to the next `<|message|>`. Every special
token other than a stop token is text inside content. A message that was cut off equals a finished one, except for its
stop token.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from harmony_ref.errors import (
    HarmonyError,
    HeaderError,
    HeaderFault,
    HeaderProblem,
    UnexpectedEndError,
    UnexpectedTokenError,
)
from harmony_ref.json_value import Json
from harmony_ref.list_view import Snapshot
from harmony_ref.messages.content_decoder import NO_TEXT, PLAIN_TEXT, ContentDecoder, ContentTokens, TokenTexts
from harmony_ref.messages.header import Header, read_header, split_channel, words_of
from harmony_ref.messages.message_types import Author, Message, Role
from harmony_ref.messages.unchecked_construction import message_of
from harmony_ref.messages.wire_shapes import without_none
from harmony_ref.stream_state import StreamState
from harmony_ref.tokenizer import tokens

_FIRST_WINDOW: Final = 32  # tokens read first; doubled as long as none is refused
_HEADER_END: Final = frozenset({tokens.MESSAGE})
_LENIENT_HEADER_END: Final = _HEADER_END | tokens.STOP_TOKENS
_SHORT_RUN: Final = 16  # up to this length, looking each token up is faster than decoding them together


class StreamMachine:
    """The states and transitions. A subclass defines how tokens are fed and which events are reported."""

    __slots__ = (
        "_content_start",
        "_content_tokens",
        "_decoder",
        "_header",
        "_header_tokens",
        "_known",
        "_messages",
        "_next_role",
        "_pieces",
        "_plain",
        "_plain_start",
        "_state",
        "_strict",
        "_text",
        "_tokens",
        "last_content_delta",
    )

    def __init__(self, role: Role | None, *, strict: bool) -> None:
        self._strict = strict
        self._next_role = role
        self._state = StreamState.EXPECT_START if role is None else StreamState.HEADER
        self._tokens: list[int] = []
        self._header_tokens: list[int] = []
        self._header: Header | None = None
        self._decoder = ContentDecoder()
        # The text of the next token by itself, whatever the state; "" if the state has to decide.
        self._plain: TokenTexts = NO_TEXT
        self._known = NO_TEXT.table
        # The open message's content: text, pieces of text that follow it, and tokens from `_plain_start` on. The short
        # cut through `_plain` took the latter; they are decoded on demand.
        self._text = ""
        self._pieces: list[str] = []
        self._plain_start = 0
        self._content_start = 0
        self._content_tokens: ContentTokens | None = None
        self._messages: list[Message] = []
        #: The text that the last token completed, if any. No property: a call would take a sixth of the time per token.
        self.last_content_delta: str | None = None

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
        self._decode_plain()
        if self._pieces:
            # With one reference the text grows in place: reading it after every token takes linear time.
            text, self._text = self._text, ""
            text += "".join(self._pieces)
            self._text = text
            self._pieces.clear()
        return self._text

    def _on_start(self, header: Header) -> None:
        """Handle a header that was read."""

    def _on_text(self, text: str) -> None:
        """Handle text added to the open message, except by the short cut through `_plain`."""

    def _on_finish(self, message: Message, stop: int | None) -> None:
        """Handle a message that a stop token or the end of the input ended."""

    def _known_role(self) -> Role | None:
        return self._next_role if self._header is None else self._header.author.role

    def _describe_state(self) -> Mapping[str, Json]:
        """Return the library's description of the state."""
        match self._state:
            case StreamState.EXPECT_START:
                return {"state": self._state.value}
            case StreamState.HEADER:
                return {"state": self._state.value, "header_tokens": Snapshot(self._header_tokens)}
            case StreamState.CONTENT:
                if self._content_tokens is None:
                    self._content_tokens = ContentTokens(self._content_start)
                self._content_tokens.read(self._tokens)
                header = self._open_header
                return {
                    "state": self._state.value,
                    "header": {
                        "author": without_none({"role": header.author.role.value, "name": header.author.name}),
                        "recipient": header.recipient,
                        "channel": header.channel,
                        "content_type": header.content_type,
                    },
                    "content_tokens": Snapshot(self._content_tokens.ids),
                }

    @property
    def _open_header(self) -> Header:
        assert self._header is not None, "there is a header in CONTENT and only there"
        return self._header

    def _decode_plain(self) -> None:
        """Decode the tokens that the short cut took."""
        if self._plain_start < len(self._tokens):
            run = self._tokens[self._plain_start :]
            short = len(run) <= _SHORT_RUN
            self._pieces.append("".join(map(PLAIN_TEXT.__getitem__, run)) if short else tokens.decode_utf8(run))
            self._plain_start = len(self._tokens)

    def _step(self, token: int) -> None:
        """Read one token of any kind."""
        self._decode_plain()
        self._tokens.append(token)
        self._plain_start += 1
        self.last_content_delta = None
        match self._state:
            case StreamState.CONTENT:
                if token in tokens.STOP_TOKENS:
                    self._finish_message(token)
                    return
                text = self._decoder.push(token)
                self.last_content_delta = text or None
                self._add(text)
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

    def _read(self, chunk: list[int]) -> None:
        """Read tokens in windows; each is looked at a fixed number of times, independent of the framing.

        One window for all would be slow: tokens after a refused one would be looked at again when they are fed again.
        """
        if self._plain is PLAIN_TEXT and len(chunk) <= _SHORT_RUN:
            texts = list(map(PLAIN_TEXT.__getitem__, chunk))
            if all(texts):
                self._tokens += chunk
                self.last_content_delta = texts[-1]
                self._on_text("".join(texts))
                return
        if self._state is StreamState.CONTENT and tokens.STOP_TOKENS.isdisjoint(chunk):
            self._extend(chunk)
            return
        start, window = 0, _FIRST_WINDOW
        while start < len(chunk):
            self._read_window(chunk[start : start + window])
            start += window
            window *= 2

    def _read_window(self, chunk: list[int]) -> None:
        size = len(chunk)
        marks = [index for index, token in enumerate(chunk) if token in _LENIENT_HEADER_END]
        marks.append(size)
        mark = 0
        index = 0
        header_end = _HEADER_END if self._strict else _LENIENT_HEADER_END
        while index < size:
            if self._state is not StreamState.EXPECT_START:
                ends = tokens.STOP_TOKENS if self._state is StreamState.CONTENT else header_end
                while marks[mark] < index or (marks[mark] < size and chunk[marks[mark]] not in ends):
                    mark += 1
                end = marks[mark]
                if end > index:
                    self._extend(chunk[index:end])
                    index = end
                    continue
            self._step(chunk[index])
            index += 1

    def _extend(self, run: list[int]) -> None:
        """Read tokens that do not end the current header or content."""
        self._decode_plain()
        self._tokens += run
        self._plain_start += len(run)
        if self._state is StreamState.HEADER:
            self._header_tokens += run
            self.last_content_delta = None
            return
        text, newest = self._decode_run(run)
        self.last_content_delta = newest or None
        self._add(text)

    def _decode_run(self, run: list[int]) -> tuple[str, str]:
        """Return the text that these tokens complete, and the part of it that the last one completes."""
        if self._plain is PLAIN_TEXT and len(run) <= _SHORT_RUN:
            texts = list(map(PLAIN_TEXT.__getitem__, run))
            if all(texts):
                return "".join(texts), texts[-1]
        elif self._plain is PLAIN_TEXT and (newest := PLAIN_TEXT[run[-1]]):
            try:
                return tokens.decode_utf8(run), newest
            except HarmonyError:
                # The decoder handles a part of a character, or an unknown id.
                pass
        earlier = self._decoder.push_run(run[:-1])
        newest = self._decoder.push(run[-1])
        return earlier + newest, newest

    def _read_end(self) -> None:
        """Read the end of the input."""
        self.last_content_delta = None
        if self._state is StreamState.HEADER:
            raise UnexpectedEndError(
                "Unexpected EOS while waiting for message header to complete",
                position=len(self._tokens),
                state=self._state,
                expected="<|message|>",
            )
        if self._state is StreamState.CONTENT:
            self._finish_message(None)

    def _finish_header(self) -> None:
        # The library leaves the header before it reads it, and retains the expected role when that fails.
        self._state = StreamState.EXPECT_START
        header = read_header(self._header_tokens, role=self._next_role, position=len(self._tokens) - 1)
        self._next_role = None
        self._start_message(header)

    def _start_message(self, header: Header) -> None:
        self._state = StreamState.CONTENT
        self._header = header
        self._content_start = len(self._tokens)
        self._content_tokens = None
        if not self._decoder.is_clear:
            self._decoder = ContentDecoder()
        self._plain = PLAIN_TEXT
        self._known = PLAIN_TEXT.table
        self._on_start(header)

    def _add(self, text: str) -> None:
        """Add text of the decoder, and update the table for the next token."""
        self._plain = PLAIN_TEXT if self._decoder.is_clear else NO_TEXT
        self._known = self._plain.table
        if text:
            self._pieces.append(text)
            self._on_text(text)

    def _finish_message(self, stop: int | None) -> None:
        if not self._decoder.is_clear:
            self._add(self._decoder.flush())
        message = message_of(self._open_header, self.current_content)
        self._messages.append(message)
        self._on_finish(message, stop)
        self._header = None
        self._text = ""
        self._plain = NO_TEXT
        self._known = NO_TEXT.table
        self._state = StreamState.EXPECT_START

    def _recover(self, stop: int) -> None:
        """Accept a header that a stop token ended as content, if it is the first message's (openai/harmony#80)."""
        role = self._next_role
        if role is not None and self._header_tokens:
            header, text = _content_in_header(self._header_tokens, role, len(self._tokens) - 1)
            self._start_message(header)
            self._add(text)
            self._finish_message(stop)
        self._state = StreamState.EXPECT_START
        self._next_role = None


def _content_in_header(raw: Sequence[int], role: Role, position: int) -> tuple[Header, str]:
    try:
        text = tokens.decode_utf8(raw)
    except HarmonyError as error:
        fault = HeaderFault(HeaderProblem.NOT_TEXT, str(error), "known tokens that are UTF-8")
        raise HeaderError(fault, header=raw, position=position) from None
    split = split_channel(text)
    if isinstance(split, HeaderFault):
        raise HeaderError(split, header=raw, position=position)
    channel, rest = split
    words = words_of(rest)
    if words and words[0] == role.value:
        del words[0]
    return Header(author=Author(role=role), channel=channel), " ".join(words)
