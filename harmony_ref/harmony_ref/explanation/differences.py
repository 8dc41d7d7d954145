"""The first difference between a prompt and the rendering it is nearest to, named.

What is looked for first is what a careless engine does: markers fed as text, text that became a marker, messages left
out, put in, repeated; only then the fields of a header and the words of a content are compared.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from harmony_ref import tokens
from harmony_ref.explanation.divergence import Part, Problem
from harmony_ref.explanation.forms import PromptForms
from harmony_ref.explanation.message_difference import difference_of_messages
from harmony_ref.explanation.nearest import Candidate
from harmony_ref.explanation.reading import (
    PromptMessage,
    header_fields,
    prompt_messages,
    quoted,
    raw_bytes,
    read_message,
    shown,
)
from harmony_ref.styles.pieces import MessagePart
from harmony_ref.styles.rendering import RenderedMessage

_LOOKAHEAD: Final = 64
"""How many tokens after a difference a marker is looked for."""

_PARTS: Final = {
    MessagePart.START: Part.BETWEEN,
    MessagePart.AUTHOR: Part.ROLE,
    MessagePart.RECIPIENT: Part.RECIPIENT,
    MessagePart.CHANNEL: Part.CHANNEL,
    MessagePart.CONTENT_TYPE: Part.CONTENT_TYPE,
    MessagePart.MESSAGE: Part.HEADER,
    MessagePart.CONTENT: Part.CONTENT,
    MessagePart.END: Part.END,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """A named difference.

    Attributes:
        message: index in the conversation; None for none.
        part: what differs.
        problem: in which way.
        words: a clause that says so.
        expected_rest: what of the rendering comes after what differs.
        actual_rest: what of the prompt does.
    """

    message: int | None
    part: Part
    problem: Problem
    words: str
    expected_rest: Sequence[int] = ()
    actual_rest: Sequence[int] = ()


def first_difference(candidate: Candidate, prompt: Sequence[int], at: int, forms: PromptForms) -> Difference:
    """Name the difference at token `at`, up to which both are equal.

    Args:
        candidate: the rendering.
        prompt: ids.
        at: index of the first token that differs.
        forms: which messages of the prompt are those of the rendering, in the form of another style.
    """
    place = _Place(candidate=candidate, prompt=prompt, at=at, forms=forms)
    found = (look(place) for look in _LOOKS)
    return next(difference for difference in found if difference is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Where a prompt leaves its rendering."""

    candidate: Candidate
    prompt: Sequence[int]
    at: int
    forms: PromptForms

    @property
    def ordinal(self) -> int:
        return self.candidate.ordinal(self.at)

    @property
    def start(self) -> int:
        return self.candidate.starts[self.ordinal]

    @property
    def message(self) -> RenderedMessage | None:
        """The message of the rendering; None in the open header at its end."""
        messages = self.candidate.messages
        return messages[self.ordinal] if self.ordinal < len(messages) else None

    @property
    def index(self) -> int | None:
        return None if self.message is None else self.message.index

    @property
    def part(self) -> Part:
        return Part.NEXT_TURN if self.message is None else _PARTS[self._piece(self.message)[0]]

    @property
    def is_before_part(self) -> bool:
        """Whether nothing of the part stands there yet; the message marker is a part of the header."""
        if self.message is None:
            return False
        part, start = self._piece(self.message)
        return self.at == start and part is not MessagePart.MESSAGE

    def _piece(self, message: RenderedMessage) -> tuple[MessagePart, int]:
        starts = accumulate((len(piece.ids) for piece in message.pieces), initial=self.start)
        return next(
            (piece.part, start)
            for piece, start in zip(message.pieces, starts, strict=False)
            if self.at < start + len(piece.ids)
        )

    @property
    def expected(self) -> Sequence[int]:
        return self.candidate.ids[self.at :]

    @property
    def actual(self) -> Sequence[int]:
        return self.prompt[self.at :]

    def difference(self, problem: Problem, words: str, *, part: Part | None = None) -> Difference:
        """A difference in the part where the place is, after which nothing is compared."""
        return Difference(
            message=self.index,
            part=part or self.part,
            problem=problem,
            words=words,
            expected_rest=(tokens.START,),
        )

    def last_difference(self, problem: Problem, words: str, *, part: Part | None = None) -> Difference:
        """A difference to which all of the rest belongs, of either side."""
        return replace(self.difference(problem, words, part=part), expected_rest=())


def _empty(place: _Place) -> Difference | None:
    if place.prompt:
        return None
    return Difference(
        message=None, part=Part.PROMPT, problem=Problem.EMPTY, words="the prompt is empty", expected_rest=place.expected
    )


def _unknown(place: _Place) -> Difference | None:
    if not place.actual or tokens.is_known(place.actual[0]):
        return None
    where = place.part if place.part is Part.BETWEEN else f"in the {place.part}"
    where = where if place.at else "before the first message"
    is_put_in = place.actual[1:] == place.expected
    return Difference(
        message=place.index,
        part=place.part,
        problem=Problem.UNKNOWN_TOKEN,
        words=f"{place.actual[0]} stands {where}, and is no token of the vocabulary",
        expected_rest=place.expected if is_put_in else place.expected[1:],
        actual_rest=place.actual[1:],
    )


def _without_the_last(place: _Place) -> Difference | None:
    """The last messages left out: the next turn stands where one of them should begin."""
    wanted = place.candidate.messages[place.ordinal :]
    next_turn = place.candidate.ids[place.candidate.starts[-1] :]
    if not wanted or not next_turn or place.prompt[place.start :] != next_turn:
        return None
    return _left_out(place, wanted, len(wanted))


def _cut(place: _Place) -> Difference | None:
    if place.actual:
        return None
    if place.at > place.start:
        where = "before" if place.is_before_part else "inside"
        return place.last_difference(Problem.CUT, f"the prompt ends {where} the {place.part}")
    if place.message is None:
        return place.last_difference(Problem.CUT, f"the prompt ends before {shown(place.expected)}, the next turn")
    return place.last_difference(Problem.CUT, "the prompt ends before this message", part=Part.MESSAGE)


def _marker_spelled(place: _Place) -> Difference | None:
    marker = _spelled(place.expected, place.actual)
    if marker is None:
        return None
    return place.difference(
        Problem.SPELLED_OUT, f"the marker {marker} is spelled out in ordinary tokens instead of its special token"
    )


def _marker_injected(place: _Place) -> Difference | None:
    marker = _spelled(place.actual, place.expected)
    if marker is None:
        return None
    return place.difference(
        Problem.INJECTED, f"the text {marker} of the {place.part} became a special token: a marker was injected"
    )


def _spelled(special: Sequence[int], plain: Sequence[int]) -> str | None:
    """The first marker of one side that the other side has as text, with equal text before it."""
    at = next((at for at, token in enumerate(special[:_LOOKAHEAD]) if tokens.is_special(token)), None)
    if at is None:
        return None
    text = raw_bytes(special[: at + 1])
    found = b""
    for token in plain:
        if tokens.is_special(token) or len(found) >= len(text):
            break
        found += raw_bytes([token])
    return raw_bytes(special[at : at + 1]).decode() if found.startswith(text) else None


def _between(place: _Place) -> Difference | None:
    if place.at > place.start:
        return None
    following = next((at for at, token in enumerate(place.actual) if token == tokens.START), len(place.actual))
    stray = shown(place.actual[:following])
    where = "before the first message" if place.at == 0 else "between two messages, before this one"
    if place.message is None:
        where = "behind the last message"
    is_end = place.actual[0] in tokens.STOP_TOKENS
    words = f"{'one more end marker, ' if is_end else ''}{quoted(stray)} stands {where}"
    return Difference(
        message=place.index,
        part=Part.BETWEEN,
        problem=Problem.EXTRA,
        words=words,
        expected_rest=place.expected,
        actual_rest=place.actual[following:],
    )


def _longer(place: _Place) -> Difference | None:
    if place.expected:
        return None
    if place.actual[0] == tokens.START:
        return _unasked(place, read_message(place.actual, 0))
    words = f"the prompt goes on after {shown(place.candidate.ids[place.start :])}: {quoted(shown(place.actual))}"
    return place.last_difference(Problem.LONGER, words)


def _unasked(place: _Place, first: PromptMessage) -> Difference:
    last = place.candidate.messages[-1] if place.candidate.messages else None
    is_repeated = last is not None and last.ids == tuple(first.ids)
    unasked = f"a message that the conversation does not have stands behind the last: {quoted(shown(first.ids))}"
    return Difference(
        message=None,
        part=Part.MESSAGE,
        problem=Problem.REPEATED if is_repeated else Problem.EXTRA,
        words="the last message stands there twice" if is_repeated else unasked,
        expected_rest=place.expected,
        actual_rest=place.actual[len(first.ids) :],
    )


def _misaligned(place: _Place) -> Difference | None:
    """Messages left out, put in, repeated or moved."""
    if place.index in place.forms.styles:
        return None
    wanted = place.candidate.messages[place.ordinal :]
    found = list(prompt_messages(place.prompt, place.start))
    first = tuple(found[0].ids)
    later = next((number for number, message in enumerate(wanted) if number and message.ids == first), None)
    own = next((n for n, message in enumerate(found) if n and wanted and tuple(message.ids) == wanted[0].ids), None)
    dropped = next((message for message in place.candidate.dropped if message.ids == first), None)
    if later is not None and own is not None:
        return place.difference(Problem.MOVED, f"message {wanted[later].index} stands before it", part=Part.MESSAGE)
    if later is not None:
        return _left_out(place, wanted, later)
    if dropped is not None:
        return _kept(place, dropped)
    if own is not None:
        return _put_in(place, found[:own])
    later = _later_header(found[0], wanted)
    return None if later is None else _left_out(place, wanted, later)


def _later_header(first: PromptMessage, wanted: Sequence[RenderedMessage]) -> int | None:
    """Which later message has the header that stands here, when the content is not that of the expected message."""
    if not wanted:
        return None
    expected = [read_message(message.ids, 0) for message in wanted]
    if tuple(expected[0].header) == tuple(first.header) or _same_content(expected[0], first):
        return None
    headers = ((number, message.header) for number, message in enumerate(expected) if number)
    return next((number for number, header in headers if tuple(header) == tuple(first.header)), None)


def _same_content(one: PromptMessage, other: PromptMessage) -> bool:
    return one.content is not None and other.content is not None and tuple(one.content) == tuple(other.content)


def _left_out(place: _Place, wanted: Sequence[RenderedMessage], number: int) -> Difference:
    missing = wanted[:number]
    is_reasoning = all(_channel_of(message) == "analysis" for message in missing)
    count = "this message is" if number == 1 else f"this message and the {number - 1} after it are"
    problem = Problem.REASONING_DROPPED if is_reasoning else Problem.MISSING
    is_disputed = all(message.index in place.candidate.disputed for message in missing)
    dropped = (
        "reasoning is dropped that this history keeps" if is_disputed else "reasoning that has to be kept is dropped"
    )
    follower = f"message {wanted[number].index}" if number < len(wanted) else "the next turn"
    words = f"{count} missing; {follower} stands in its place"
    rest = place.candidate.starts[place.ordinal + number]
    return Difference(
        message=place.index,
        part=Part.MESSAGE,
        problem=problem,
        words=f"{words}: {dropped}" if is_reasoning else words,
        expected_rest=place.candidate.ids[rest:],
        actual_rest=place.prompt[place.start :],
    )


def _kept(place: _Place, dropped: RenderedMessage) -> Difference:
    is_disputed = dropped.index in place.candidate.disputed
    settled = "reasoning that has to be dropped, because an answer followed it, is kept"
    return Difference(
        message=dropped.index,
        part=Part.MESSAGE,
        problem=Problem.REASONING_KEPT,
        words="reasoning is kept that this history drops" if is_disputed else settled,
        expected_rest=place.candidate.ids[place.start :],
        actual_rest=place.prompt[place.start + len(dropped.ids) :],
    )


def _put_in(place: _Place, found: Sequence[PromptMessage]) -> Difference:
    length = sum(len(message.ids) for message in found)
    previous = place.candidate.messages[place.ordinal - 1] if place.ordinal else None
    is_repeated = previous is not None and previous.ids == tuple(found[0].ids)
    repeated = "the message before it stands there twice"
    unasked = f"a message that the conversation does not have stands before it: {quoted(shown(found[0].ids))}"
    return Difference(
        message=place.index,
        part=Part.MESSAGE,
        problem=Problem.REPEATED if is_repeated else Problem.EXTRA,
        words=repeated if is_repeated else unasked,
        expected_rest=place.candidate.ids[place.start :],
        actual_rest=place.prompt[place.start + length :],
    )


def _next_turn(place: _Place) -> Difference | None:
    if place.message is not None:
        return None
    first = read_message(place.prompt, place.start)
    if first.content is not None:
        return _unasked(replace(place, at=place.start), first)
    words = (
        f"the prompt ends in {quoted(shown(first.ids))} where {shown(place.candidate.ids[place.start :])} was expected"
    )
    return place.last_difference(Problem.DIFFERENT, words)


def _inside(place: _Place) -> Difference:
    """A difference inside one message that stands where it should."""
    assert place.message is not None
    expected, actual = read_message(place.message.ids, 0), read_message(place.prompt, place.start)
    difference = difference_of_messages(expected, actual)
    return Difference(
        message=place.index,
        part=difference.part,
        problem=difference.problem,
        words=difference.words,
        expected_rest=place.candidate.ids[place.start + len(place.message.ids) :],
        actual_rest=place.prompt[place.start + len(actual.ids) :],
    )


def _channel_of(message: RenderedMessage) -> str | None:
    return header_fields(read_message(message.ids, 0).header).channel


_LOOKS: Final[tuple[Callable[[_Place], Difference | None], ...]] = (
    _empty,
    _unknown,
    _without_the_last,
    _cut,
    _longer,
    _marker_spelled,
    _marker_injected,
    _between,
    _misaligned,
    _next_turn,
    _inside,
)
