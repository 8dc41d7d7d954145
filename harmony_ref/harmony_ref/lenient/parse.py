"""Lenient parsing: every completion is read for what it means, nothing is raised and no token is lost.

Where nothing is wrong the result is that of `parse`. Where something is, one of these rules applies, and an error of
`lenient_errors` says which. Strict parsing is that of openai-harmony 0.0.8. A source is one of its issues (`#80`), or of
the entries of `golden/defects.json` (`V04`); without a source the rule follows from what strict parsing does there.

| rule | what is made of it | source |
| --- | --- | --- |
| junk between messages | what begins no message (a doubled stop token, white space, text) is a junk segment | V02, V03 |
| missing start | `<|channel|>`, `<|message|>`, or a role, channel or `to=` before one, begins a header | V02, #60, #68 |
| | text that no marker precedes, at the very beginning, is a message of the assistant, whatever it begins with | V06 |
| doubled start | the last `<|start|>` counts; also when the role was given and the prompt's is repeated | #33 |
| abandoned header | one that `<|start|>` ends, or a stop token when it says nothing, is junk | |
| missing message marker | the words that a header can have are header, the rest is content, white space kept | #80, V06 |
| | also where the rest follows the assistant, one of the three channels or a content type without a blank | #80 |
| missing end | a special `<|start|>` in content begins the next message | #72, P12 |
| | so does `<|channel|>` with one of the three channels and a header in order; text that only looks so is text | P12 |
| missing role | the role that was given, else the assistant, speaks | header matrix, no-role |
| misspelt role | letter case, repetition (`assistantassistant`) and a glued channel are seen through | header matrix |
| named author | `user:bob` is the user bob, as it was rendered | |
| tool without a recipient | an unknown first word is the name of a tool; there is no recipient | #62 |
| empty channel | no channel | #48 |
| space before the channel | the next word is the channel | |
| doubled channel | among those with a marker the first of the three channels counts, else the first; the other is junk | V04, V05 |
| channel without its marker | a lone `analysis`, `commentary` or `final` is the channel | V02, header matrix, no-role |
| recipient without to= | one bare word, or the first of two, as strict parsing takes it | |
| space in to= | the next word is the recipient | |
| doubled recipient | the first counts; the other is junk | V01 |
| content type without a recipient | `<|constrain|>json`, `json` and `code` are content types, never recipients | #144 |
| space after constrain | `<|constrain|> json`, which the guide prints, is `<|constrain|>json` | the guide's function call |
| doubled content type | the first counts, one with `<|constrain|>` before any other; the other is junk | |
| content type is not last | it is the content type all the same | |
| extra words | they are junk inside the header | V01, header matrix, space-name |
| white space that does not separate words | it does | |
| stray special token in a header | it is left out | |
| header that is not text | unknown ids and invalid bytes are U+FFFD | |
| stray special token in content | it is text, as for strict parsing | P12 |
| unknown token id | one U+FFFD, and what follows is read | |
| content that is not UTF-8 | U+FFFD for each maximal invalid part, as for strict parsing | |
| cut header | it is the remainder | #33, #38, V07 |

A role that was given counts for the first header only. Input that ends right after `<|start|>` and a role is a
prompt, whose open turn is the remainder and no error. Input that ends inside content is no error either, for servers
strip the last stop token; the message is the remainder, and the last of `LenientParse.closed`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import index
from typing import Final

from harmony_ref.lenient.errors import RULES, UNREAD, RecoveredError, RecoveryRule
from harmony_ref.lenient.header_words import CHANNELS
from harmony_ref.lenient.result import LenientParse, Remainder, Segment, SegmentKind, message_of
from harmony_ref.lenient.token_text import (
    TracedFault,
    TracedHeader,
    TracedText,
    clean,
    place_of_recipient,
    read_header_and_text,
    read_header_tokens,
    text_of_tokens,
)
from harmony_ref.messages.header import Header
from harmony_ref.messages.message_types import Author, Message, Role
from harmony_ref.stream_state import StreamState
from harmony_ref.tokenizer import tokens

_FRAME: Final = tokens.STOP_TOKENS | {tokens.START, tokens.MESSAGE}
_OPENS_HEADER: Final = frozenset({tokens.CHANNEL, tokens.CONSTRAIN, tokens.MESSAGE})
_ROLES: Final = frozenset(role.value for role in Role)
_HEADER_LIMIT: Final = 64
"""Tokens of a header that begins inside content: a limit keeps the time linear."""

_QUOTED: Final = 40
"""Characters of the input that an error quotes."""


def parse_leniently(completion: Iterable[int], role: Role | None = None) -> LenientParse:
    """All that can be made of a completion, in time proportional to its length.

    Args:
        completion: any ids, in or outside the vocabulary.
        role: the role that stood in the prompt after the last `<|start|>`; None when the tokens begin with `<|start|>`
            or when it is not known.

    Raises:
        ValueError: something in the completion is not an integer. Nothing else is raised.
    """
    try:
        ids = tuple(map(index, completion))
    except TypeError as error:
        raise ValueError(f"a completion is a sequence of token ids: {error}") from None
    return _Reader(ids, role).read()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Opening:
    """Where a header begins.

    Attributes:
        begin: the place of its `<|start|>`, or `start` where there is none.
        start: the place of its first token.
        role: the role that stood in the prompt.
        excused: rules whose breach another error reports already.
    """

    begin: int
    start: int
    role: Role | None = None
    excused: AbstractSet[RecoveryRule] = frozenset()


_SAID_ALREADY: Final = frozenset({RecoveryRule.MISSING_ROLE})
"""The marker and the role are left out together; one error is enough."""


class _Reader:
    def __init__(self, ids: Sequence[int], role: Role | None) -> None:
        self._ids = ids
        self._given = role
        self._fallback = Author(role=role or Role.ASSISTANT)
        self._odd = [place for place, token in enumerate(ids) if not 0 <= token < tokens.FIRST_SPECIAL]
        self._frames = [place for place in self._odd if ids[place] in _FRAME]
        self._excused: int | None = None
        self._messages: list[Message] = []
        self._errors: list[RecoveredError] = []
        self._segments: list[Segment] = []
        self._remainder: Remainder | None = None

    def read(self) -> LenientParse:
        at = 0
        if self._given is not None:
            at = self._read_header(_Opening(begin=0, start=0, role=self._given))
        elif self._begins_as_text():
            self._error(RecoveryRule.MISSING_START, 0, 0)
            at = self._read_header(_Opening(begin=0, start=0, role=Role.ASSISTANT))
        while at < len(self._ids):
            at = self._read_between(at)
        self._errors.sort(key=lambda error: error.position)
        return LenientParse(
            messages=tuple(self._messages),
            remainder=self._remainder,
            errors=tuple(self._errors),
            segments=tuple(self._segments),
        )

    def _next_odd(self, at: int) -> int:
        place = bisect_left(self._odd, at)
        return self._odd[place] if place < len(self._odd) else len(self._ids)

    def _next_frame(self, at: int) -> int:
        place = bisect_left(self._frames, at)
        return self._frames[place] if place < len(self._frames) else len(self._ids)

    def _token(self, at: int) -> int | None:
        return self._ids[at] if at < len(self._ids) else None

    def _begins_as_text(self) -> bool:
        """Whether the input is text that no marker precedes, and that a stop token or the end follows."""
        end = self._next_frame(0)
        head = self._ids[:end]
        if self._token(end) in {tokens.START, tokens.MESSAGE} or tokens.CHANNEL in head or tokens.CONSTRAIN in head:
            return False
        return bool(text_of_tokens([token for token in head if 0 <= token < tokens.FIRST_SPECIAL]).strip())

    def _read_between(self, begin: int) -> int:
        """Read up to and including the next message; returns the place after it."""
        at = begin
        while True:
            odd = self._next_odd(at)
            token = self._token(odd)
            if token is None:
                self._junk(RecoveryRule.JUNK, begin, odd)
                return odd
            if token == tokens.START:
                self._junk(RecoveryRule.JUNK, begin, odd)
                return self._read_header(_Opening(begin=odd, start=odd + 1))
            if token in _OPENS_HEADER and self._opens_header(odd):
                start = self._header_start(at, odd)
                self._junk(RecoveryRule.JUNK, begin, start)
                if self._excused != start:
                    self._error(RecoveryRule.MISSING_START, start, start)
                return self._read_header(_Opening(begin=start, start=start, excused=_SAID_ALREADY))
            at = odd + 1

    def _opens_header(self, at: int) -> bool:
        # `<|constrain|>` alone is too little to tell a header from junk.
        return self._ids[at] != tokens.CONSTRAIN or self._token(self._next_frame(at)) in {None, tokens.MESSAGE}

    def _header_start(self, first: int, end: int) -> int:
        """Where in the text before a marker its header begins: at the last role, else channel, else `to=`."""
        run = self._ids[first:end]
        words = [text_of_tokens((token,)).strip() for token in run]
        for known in (_ROLES, CHANNELS | {"comment"}):
            for place in reversed(range(len(words))):
                # After `=` it is a recipient.
                if words[place] in known and not (place and words[place - 1].endswith("=")):
                    return first + place
        return first + place_of_recipient(run)

    def _read_header(self, opening: _Opening) -> int:
        """Read a header and what belongs to it; returns the place after it."""
        begin, start = opening.begin, opening.start
        end = self._next_frame(start)
        if self._token(end) != tokens.MESSAGE:
            return self._read_without_marker(opening)
        read = read_header_tokens(self._ids[start:end], role=opening.role, fallback=self._fallback)
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
            self._remainder = Remainder(
                state=StreamState.CONTENT, header=header, text=text, tokens=self._ids[begin:], start=begin
            )
            return end
        if token not in tokens.STOP_TOKENS:
            self._error(RecoveryRule.MISSING_END, end, end)
            self._excused = end
            self._messages.append(message_of(header, text))
            return end
        self._segment(SegmentKind.STOP, end, end + 1)
        self._messages.append(message_of(header, text))
        return end + 1

    def _content_end(self, start: int) -> int:
        place = bisect_left(self._odd, start)
        while place < len(self._odd):
            at = self._odd[place]
            token = self._ids[at]
            if token in tokens.STOP_TOKENS or token == tokens.START:
                return at
            if token == tokens.CHANNEL and self._is_next_header(at):
                has_role = text_of_tokens((self._ids[at - 1],)) == Role.ASSISTANT
                return at - 1 if has_role else at
            place += 1
        return len(self._ids)

    def _is_next_header(self, at: int) -> bool:
        """Whether a whole header of one of the three channels begins at this `<|channel|>` inside content."""
        end = self._next_frame(at)
        if self._token(end) != tokens.MESSAGE or end - at > _HEADER_LIMIT:
            return False
        read = read_header_tokens(self._ids[at:end], role=Role.ASSISTANT, fallback=self._fallback)
        return read.header.channel in CHANNELS and not read.faults

    def _content_text(self, start: int, end: int) -> str:
        """The text, after its faults have been reported."""
        run = self._ids[start:end]
        faulty = self._odd[bisect_left(self._odd, start) : bisect_left(self._odd, end)]
        for known in (True, False):
            rule = RecoveryRule.STRAY_IN_CONTENT if known else RecoveryRule.UNKNOWN_ID
            for first, after in _runs([place for place in faulty if tokens.is_special(self._ids[place]) is known]):
                self._error(rule, first, after)
        traced = TracedText(run)
        for first, after in traced.invalid_runs(is_cut=end == len(self._ids)):
            self._error(RecoveryRule.INVALID_UTF8, start + first, start + after)
        return clean(traced.text)

    def _read_without_marker(self, opening: _Opening) -> int:
        """Read a header that a stop token, `<|start|>` or the end of the input ended."""
        end = self._next_frame(opening.start)
        token = self._token(end)
        run = self._ids[opening.start : end]
        read, text = read_header_and_text(run, role=opening.role, fallback=self._fallback, is_cut=token is None)
        if token is None:
            self._cut(opening, read, text)
            return end
        if not text and (token == tokens.START or not read.says_something):
            return self._abandon(opening, end)
        self._header_errors(read.faults, opening)
        self._error(RecoveryRule.MISSING_MESSAGE, opening.start + read.stop, end)
        self._content_text(opening.start + read.stop, end)
        self._segment(SegmentKind.START, opening.begin, opening.start)
        self._header_segments(read, opening.start)
        self._segment(SegmentKind.CONTENT, opening.start + read.stop, end)
        if token in tokens.STOP_TOKENS:
            self._segment(SegmentKind.STOP, end, end + 1)
        self._messages.append(message_of(read.header, text))
        return end + 1 if token in tokens.STOP_TOKENS else end

    def _abandon(self, opening: _Opening, end: int) -> int:
        """Leave a header that has no message; returns where reading goes on."""
        begin = opening.begin
        if self._token(end) in tokens.STOP_TOKENS:
            self._junk(RecoveryRule.ABANDONED_HEADER, begin, end + 1)
            return end + 1
        if text_of_tokens(self._ids[opening.start : end]).strip():
            self._junk(RecoveryRule.ABANDONED_HEADER, begin, end)
        elif begin == end:
            self._error(RecoveryRule.DOUBLED_START, end, end + 1)
            self._excused = end
        elif self._excused == begin:
            self._segment(SegmentKind.JUNK, begin, end)
        else:
            self._junk(RecoveryRule.DOUBLED_START, begin, end)
        return end

    def _cut(self, opening: _Opening, read: TracedHeader, text: str) -> None:
        begin, start, end = opening.begin, opening.start, len(self._ids)
        words = text_of_tokens(self._ids[start:]).strip()
        is_open_turn = words in _ROLES if opening.role is None else words in {"", opening.role.value}
        if not is_open_turn:
            # What further words might have put right is no fault yet.
            faults = [
                fault for fault in read.faults if fault.stop < read.stop and fault.rule is not RecoveryRule.TOOL_ALONE
            ]
            self._header_errors(faults, opening)
            self._errors.append(
                RULES[RecoveryRule.CUT_HEADER].kind(rule=RecoveryRule.CUT_HEADER, span=(begin, end), position=end)
            )
        self._content_text(start + read.stop, end)
        self._segment(SegmentKind.START, begin, start)
        self._segment(SegmentKind.HEADER, start, start + read.stop)
        self._segment(SegmentKind.CONTENT, start + read.stop, end)
        is_known = opening.role is not None or read.says_something or text != ""
        self._remainder = Remainder(
            state=StreamState.HEADER,
            header=read.header if is_known else None,
            text=text,
            tokens=self._ids[begin:],
            start=begin,
        )

    def _header_errors(self, faults: Iterable[TracedFault], opening: _Opening) -> None:
        for fault in faults:
            if fault.rule not in opening.excused:
                self._error(fault.rule, opening.start + fault.start, opening.start + fault.stop)

    def _header_segments(self, read: TracedHeader, start: int) -> None:
        """The header in one segment, or cut by the words of it that mean nothing."""
        at = start
        for fault in read.faults:
            if fault.rule in UNREAD and start + fault.stop > at:
                first = max(at, start + fault.start)
                self._segment(SegmentKind.HEADER, at, first)
                self._segment(SegmentKind.JUNK, first, start + fault.stop)
                at = start + fault.stop
        self._segment(SegmentKind.HEADER, at, start + read.stop)

    def _junk(self, rule: RecoveryRule, start: int, end: int) -> None:
        if start < end:
            self._error(rule, start, end)
            self._segment(SegmentKind.JUNK, start, end)

    def _segment(self, kind: SegmentKind, start: int, end: int) -> None:
        if start < end:
            run = self._ids[start:end]
            message = None if kind is SegmentKind.JUNK else len(self._messages)
            self._segments.append(
                Segment(kind=kind, start=start, tokens=run, text=text_of_tokens(run), message=message)
            )

    def _error(self, rule: RecoveryRule, start: int, end: int) -> None:
        found = text_of_tokens(self._ids[start : min(end, start + _QUOTED)])
        quoted = found if len(found) <= _QUOTED and end - start <= _QUOTED else f"{found[:_QUOTED]}…"
        self._errors.append(RULES[rule].kind(rule=rule, span=(start, end), found=quoted and repr(quoted)))


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring places as spans."""
    first = 0
    for number, place in enumerate(places):
        if number + 1 == len(places) or places[number + 1] != place + 1:
            yield places[first], place + 1
            first = number + 1
