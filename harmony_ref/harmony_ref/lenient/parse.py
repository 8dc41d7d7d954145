"""Lenient parsing: every completion is interpreted, no parse error is raised and no token is lost.

For valid Harmony the result is that of `parse`. Otherwise one of these rules applies, and an error of
`lenient.errors` names it. Strict parsing is that of openai-harmony 0.0.8. A source is one of its issues (`#80`) or an
entry of `golden/defects.json` (`V04`). A rule without a source follows from strict parsing.

| rule | recovery | source |
| --- | --- | --- |
| junk between messages | a doubled stop token, white space or text that begins no message is junk | V02, V03 |
| missing start | `<|channel|>`, `<|message|>`, or a role, channel or `to=` before it, is a header | V02, #60, #68 |
| | text at the beginning without a marker before it is a message of the assistant, whatever its first words | V06 |
| doubled start | the last `<|start|>` counts; also if the caller's role is repeated in the completion | #33 |
| abandoned header | junk, if `<|start|>` ends it, or a stop token before any word that is understood | |
| missing message marker | possible header words are header, the rest is content with its white space | #80, V06 |
| | also if the rest follows the assistant, one of the three channels or a content type without a blank | #80 |
| missing end | a special `<|start|>` in content begins the next message | #72, P12 |
| | so does `<|channel|>` with one of the three channels and a valid header; lookalike text is text | P12 |
| missing role | the caller's role, else the assistant, is the author | header matrix, no-role |
| misspelt role | letter case, repetition (`assistantassistant`) and a glued channel are ignored | header matrix |
| named author | `user:bob` is the user bob, as rendered | |
| tool without a recipient | an unknown first word is the name of a tool, without a recipient | #62 |
| empty channel | no channel | #48 |
| space before the channel | the next word is the channel | |
| doubled channel | with markers, the first of the three channels counts, else the first; the other is junk | V04, V05 |
| channel without its marker | a lone `analysis`, `commentary` or `final` is the channel | V02, header matrix, no-role |
| recipient without to= | one bare word, or the first of two, as in strict parsing | |
| space in to= | the next word is the recipient | |
| doubled recipient | the first counts; the other is junk | V01 |
| content type without a recipient | `<|constrain|>json`, `json` and `code` are content types, never recipients | #144 |
| space after constrain | `<|constrain|> json` is `<|constrain|>json` | function call in the guide |
| doubled content type | the first counts, one with `<|constrain|>` before any other; the other is junk | |
| content type is not last | the content type, wherever it is | |
| extra words | junk inside the header | V01, header matrix, space-name |
| white space that does not separate words | a separator | |
| stray special token in a header | left out | |
| header that is not text | unknown ids and invalid bytes are U+FFFD | |
| stray special token in content | text, as in strict parsing | P12 |
| unknown token id | one U+FFFD, and the text after it is read | |
| content that is not UTF-8 | U+FFFD for each maximal invalid part, as in strict parsing | |
| cut header | the remainder | #33, #38, V07 |

The caller's role counts for the first header only. Input that ends after `<|start|>` and a role is a prompt: its open
turn is the remainder, without an error. Input that ends inside content is not an error either, because servers strip
the last stop token. That message is the remainder, and the last of `LenientParse.closed_messages`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import index
from typing import Final

from harmony_ref.lenient import token_text
from harmony_ref.lenient.errors import JUNK_WORD_RULES, RULES, RecoveredError, RecoveryRule
from harmony_ref.lenient.header import Fault, HeaderReading
from harmony_ref.lenient.header_words import CHANNELS
from harmony_ref.lenient.result import LenientParse, Remainder, Segment, SegmentKind
from harmony_ref.messages.header import Header
from harmony_ref.messages.message_types import Author, Message, Role
from harmony_ref.messages.unchecked_construction import message_of
from harmony_ref.stream_state import StreamState
from harmony_ref.tokenizer import tokens

_FRAME: Final = tokens.STOP_TOKENS | {tokens.START, tokens.MESSAGE}
_OPENS_HEADER: Final = frozenset({tokens.CHANNEL, tokens.CONSTRAIN, tokens.MESSAGE})
_ROLES: Final = frozenset(role.value for role in Role)
_HEADER_LIMIT: Final = 64  # maximum tokens of a header that begins inside content; the limit keeps the time linear
_QUOTED: Final = 40  # maximum characters of the input that an error quotes


def parse_leniently(completion: Iterable[int], role: Role | None = None) -> LenientParse:
    """Read all messages of a completion, valid or not, in time proportional to its length.

    Args:
        completion: any ids, in or outside the vocabulary.
        role: the role that the prompt had after the last `<|start|>`. None if the tokens begin with `<|start|>` or the
            role is unknown.

    Raises:
        ValueError: an item of the completion is not an integer. No other error is raised.
    """
    try:
        ids = tuple(map(index, completion))
    except TypeError as error:
        raise ValueError(f"invalid completion: expected token ids: {error}") from None
    return _Reader(ids, role).read()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Opening:
    """The beginning of a header: the index of its `<|start|>` and of its first token, and its context."""

    begin: int  # equal to `start` if `<|start|>` is missing
    start: int
    role: Role | None = None  # of the prompt
    ignored_rules: AbstractSet[RecoveryRule] = frozenset()  # another error reports their breach


class _Reader:
    def __init__(self, ids: Sequence[int], role: Role | None) -> None:
        self._ids = ids
        self._role = role
        self._fallback = Author(role=role or Role.ASSISTANT)
        self._non_text = [place for place, token in enumerate(ids) if not 0 <= token < tokens.FIRST_SPECIAL]
        self._frames = [place for place in self._non_text if ids[place] in _FRAME]
        self._reported_at: int | None = None
        self._messages: list[Message] = []
        self._errors: list[RecoveredError] = []
        self._segments: list[Segment] = []
        self._remainder: Remainder | None = None

    def read(self) -> LenientParse:
        at = 0
        if self._role is not None:
            at = self._read_header(_Opening(begin=0, start=0, role=self._role))
        elif self._begins_as_text():
            self._error(RecoveryRule.MISSING_START, 0, 0)
            at = self._read_header(_Opening(begin=0, start=0, role=Role.ASSISTANT))
        while at < len(self._ids):
            at = self._read_next_message(at)
        self._errors.sort(key=lambda error: error.position)
        messages, errors, segments = tuple(self._messages), tuple(self._errors), tuple(self._segments)
        return LenientParse(messages=messages, remainder=self._remainder, errors=errors, segments=segments)

    def _next_non_text(self, at: int) -> int:
        place = bisect_left(self._non_text, at)
        return self._non_text[place] if place < len(self._non_text) else len(self._ids)

    def _next_frame(self, at: int) -> int:
        place = bisect_left(self._frames, at)
        return self._frames[place] if place < len(self._frames) else len(self._ids)

    def _token(self, at: int) -> int | None:
        return self._ids[at] if at < len(self._ids) else None

    def _begins_as_text(self) -> bool:
        """Return True if the input begins with text that a stop token or the end follows, without a marker before."""
        end = self._next_frame(0)
        head = self._ids[:end]
        if self._token(end) in {tokens.START, tokens.MESSAGE} or tokens.CHANNEL in head or tokens.CONSTRAIN in head:
            return False
        return bool(token_text.text_of_tokens([token for token in head if 0 <= token < tokens.FIRST_SPECIAL]).strip())

    def _read_next_message(self, begin: int) -> int:
        """Read up to and including the next message; return the index after it."""
        at = begin
        while True:
            place = self._next_non_text(at)
            token = self._token(place)
            if token is None:
                self._junk(RecoveryRule.JUNK, begin, place)
                return place
            if token == tokens.START:
                self._junk(RecoveryRule.JUNK, begin, place)
                return self._read_header(_Opening(begin=place, start=place + 1))
            # `<|constrain|>` alone is too little to distinguish a header from junk.
            if token in _OPENS_HEADER and (
                token != tokens.CONSTRAIN or self._token(self._next_frame(place)) in {None, tokens.MESSAGE}
            ):
                start = self._header_start(at, place)
                self._junk(RecoveryRule.JUNK, begin, start)
                if self._reported_at != start:
                    self._error(RecoveryRule.MISSING_START, start, start)
                # The marker and the role are left out together; one error is enough.
                reported = frozenset({RecoveryRule.MISSING_ROLE})
                return self._read_header(_Opening(begin=start, start=start, ignored_rules=reported))
            at = place + 1

    def _header_start(self, first: int, end: int) -> int:
        """Return where the header in the text before a marker begins: at the last role, else channel, else `to=`."""
        run = self._ids[first:end]
        words = [token_text.text_of_tokens((token,)).strip() for token in run]
        for known in (_ROLES, CHANNELS | {"comment"}):
            for place in reversed(range(len(words))):
                # After `=` it is a recipient.
                if words[place] in known and not (place and words[place - 1].endswith("=")):
                    return first + place
        return first + token_text.find_recipient(run)

    def _read_header(self, opening: _Opening) -> int:
        """Read a header and its message; return the index after it."""
        begin, start = opening.begin, opening.start
        end = self._next_frame(start)
        if self._token(end) != tokens.MESSAGE:
            return self._read_without_marker(opening)
        read = token_text.read_header_tokens(self._ids[start:end], role=opening.role, fallback=self._fallback)
        self._header_errors(read.faults, opening)
        self._segment(SegmentKind.START, begin, start)
        self._header_segments(read, start)
        self._segment(SegmentKind.MESSAGE, end, end + 1)
        return self._read_content(begin, end + 1, read.header)

    def _read_content(self, begin: int, start: int, header: Header) -> int:
        end = self._content_end(start)
        token = self._token(end)
        text = self._content_text(start, end)
        self._segment(SegmentKind.CONTENT, start, end)
        if token is None:
            state, rest = StreamState.CONTENT, self._ids[begin:]
            self._remainder = Remainder(state=state, header=header, text=text, tokens=rest, start=begin)
            return end
        if token not in tokens.STOP_TOKENS:
            self._error(RecoveryRule.MISSING_END, end, end)
            self._reported_at = end
        return self._finish_message(header, text, end)

    def _finish_message(self, header: Header, text: str, end: int) -> int:
        after = end + (self._token(end) in tokens.STOP_TOKENS)
        self._segment(SegmentKind.STOP, end, after)
        self._messages.append(message_of(header, text))
        return after

    def _content_end(self, start: int) -> int:
        for place in range(bisect_left(self._non_text, start), len(self._non_text)):
            at = self._non_text[place]
            token = self._ids[at]
            if token in tokens.STOP_TOKENS or token == tokens.START:
                return at
            if token == tokens.CHANNEL and self._is_next_header(at):
                has_role = token_text.text_of_tokens((self._ids[at - 1],)) == Role.ASSISTANT
                return at - 1 if has_role else at
        return len(self._ids)

    def _is_next_header(self, at: int) -> bool:
        """Return True if a valid header of one of the three channels begins at this `<|channel|>` inside content."""
        end = self._next_frame(at)
        if self._token(end) != tokens.MESSAGE or end - at > _HEADER_LIMIT:
            return False
        read = token_text.read_header_tokens(self._ids[at:end], role=Role.ASSISTANT, fallback=self._fallback)
        return read.header.channel in CHANNELS and not read.faults

    def _content_text(self, start: int, end: int) -> str:
        """Report the faults of the content, and return its text."""
        run = self._ids[start:end]
        faulty = self._non_text[bisect_left(self._non_text, start) : bisect_left(self._non_text, end)]
        for known in (True, False):
            rule = RecoveryRule.STRAY_IN_CONTENT if known else RecoveryRule.UNKNOWN_ID
            for first, after in _runs([place for place in faulty if tokens.is_special(self._ids[place]) is known]):
                self._error(rule, first, after)
        traced = token_text.TracedText(run)
        for first, after in traced.invalid_runs(is_cut=end == len(self._ids)):
            self._error(RecoveryRule.INVALID_UTF8, start + first, start + after)
        return token_text.replace_invalid(traced.text)

    def _read_without_marker(self, opening: _Opening) -> int:
        """Read a header that a stop token, `<|start|>` or the end of the input ended."""
        end = self._next_frame(opening.start)
        token = self._token(end)
        run = self._ids[opening.start : end]
        read, text = token_text.read_header_and_text(
            run, role=opening.role, fallback=self._fallback, is_cut=token is None
        )
        if token is None:
            self._finish_cut_header(opening, read, text)
            return end
        if not text and (token == tokens.START or not read.is_understood):
            return self._skip_header(opening, end)
        self._header_errors(read.faults, opening)
        self._error(RecoveryRule.MISSING_MESSAGE, opening.start + read.length, end)
        self._content_text(opening.start + read.length, end)
        self._segment(SegmentKind.START, opening.begin, opening.start)
        self._header_segments(read, opening.start)
        self._segment(SegmentKind.CONTENT, opening.start + read.length, end)
        return self._finish_message(read.header, text, end)

    def _skip_header(self, opening: _Opening, end: int) -> int:
        """Skip a header without a message; return the index after it."""
        begin = opening.begin
        if self._token(end) in tokens.STOP_TOKENS:
            self._junk(RecoveryRule.ABANDONED_HEADER, begin, end + 1)
            return end + 1
        if token_text.text_of_tokens(self._ids[opening.start : end]).strip():
            self._junk(RecoveryRule.ABANDONED_HEADER, begin, end)
        elif begin == end:
            self._error(RecoveryRule.DOUBLED_START, end, end + 1)
            self._reported_at = end
        elif self._reported_at == begin:
            self._segment(SegmentKind.JUNK, begin, end)
        else:
            self._junk(RecoveryRule.DOUBLED_START, begin, end)
        return end

    def _finish_cut_header(self, opening: _Opening, read: HeaderReading, text: str) -> None:
        begin, start, end = opening.begin, opening.start, len(self._ids)
        words = token_text.text_of_tokens(self._ids[start:]).strip()
        is_open_turn = words in _ROLES if opening.role is None else words in {"", opening.role.value}
        if not is_open_turn:
            # Faults that further words could have corrected are not reported.
            inside = (fault for fault in read.faults if fault.end < read.length)
            faults = [fault for fault in inside if fault.rule is not RecoveryRule.TOOL_ALONE]
            self._header_errors(faults, opening)
            rule = RecoveryRule.CUT_HEADER
            self._errors.append(RULES[rule].kind(rule=rule, span=(begin, end), position=end))
        self._content_text(start + read.length, end)
        self._segment(SegmentKind.START, begin, start)
        self._segment(SegmentKind.HEADER, start, start + read.length)
        self._segment(SegmentKind.CONTENT, start + read.length, end)
        is_known = opening.role is not None or read.is_understood or text != ""
        self._remainder = Remainder(
            state=StreamState.HEADER,
            header=read.header if is_known else None,
            text=text,
            tokens=self._ids[begin:],
            start=begin,
        )

    def _header_errors(self, faults: Iterable[Fault], opening: _Opening) -> None:
        for fault in faults:
            if fault.rule not in opening.ignored_rules:
                self._error(fault.rule, opening.start + fault.start, opening.start + fault.end)

    def _header_segments(self, read: HeaderReading, start: int) -> None:
        """Add the header as one segment, or split by its junk words."""
        at = start
        for fault in read.faults:
            if fault.rule in JUNK_WORD_RULES and start + fault.end > at:
                first = max(at, start + fault.start)
                self._segment(SegmentKind.HEADER, at, first)
                self._segment(SegmentKind.JUNK, first, start + fault.end)
                at = start + fault.end
        self._segment(SegmentKind.HEADER, at, start + read.length)

    def _junk(self, rule: RecoveryRule, start: int, end: int) -> None:
        if start < end:
            self._error(rule, start, end)
            self._segment(SegmentKind.JUNK, start, end)

    def _segment(self, kind: SegmentKind, start: int, end: int) -> None:
        if start < end:
            run = self._ids[start:end]
            message = None if kind is SegmentKind.JUNK else len(self._messages)
            segment = Segment(kind=kind, start=start, tokens=run, text=token_text.text_of_tokens(run), message=message)
            self._segments.append(segment)

    def _error(self, rule: RecoveryRule, start: int, end: int) -> None:
        text = token_text.text_of_tokens(self._ids[start : min(end, start + _QUOTED)])
        quoted = text if len(text) <= _QUOTED and end - start <= _QUOTED else f"{text[:_QUOTED]}…"
        self._errors.append(RULES[rule].kind(rule=rule, span=(start, end), quotation=quoted and repr(quoted)))


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield neighbouring places as spans."""
    first = 0
    for number, place in enumerate(places):
        if number + 1 == len(places) or places[number + 1] != place + 1:
            yield places[first], place + 1
            first = number + 1
