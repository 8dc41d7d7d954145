"""The first difference between a prompt and the rendering it is nearest to, named.

The mistakes of careless engines are looked for first: markers fed as text, text that became a marker, messages left
out, put in, repeated; only then the fields of a header and the words of a content are compared.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from harmony_ref.explanation.divergence import Difference, Part, Problem
from harmony_ref.explanation.message_difference import difference_of_messages
from harmony_ref.explanation.nearest_rendering import PromptForms
from harmony_ref.explanation.prompt_reader import PromptMessage, prompt_messages, quoted, raw_bytes, read_message, show
from harmony_ref.styles import Rendering
from harmony_ref.styles.message_pieces import MessagePart
from harmony_ref.styles.styled_rendering import RenderedMessage
from harmony_ref.tokenizer import tokens

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
class LocatedDifference:
    """A difference and the message that it concerns.

    Attributes:
        difference: the difference.
        message: index in the conversation; None for none.
        is_only: whether everything after it is as expected.
    """

    difference: Difference
    message: int | None
    is_only: bool


def first_difference(rendering: Rendering, prompt: tuple[int, ...], at: int, forms: PromptForms) -> LocatedDifference:
    """Name the difference at token `at`, up to which both are equal.

    Args:
        rendering: what the prompt should be.
        prompt: ids.
        at: index of the first token that differs.
        forms: which messages of the prompt are those of the rendering, in the form of another style.
    """
    ordinal = max(0, bisect_right(rendering.starts, at) - 1)
    start, wanted = rendering.starts[ordinal], rendering.messages[ordinal:]
    pieces = wanted[0].pieces if wanted else ()
    piece_starts = list(accumulate((len(piece.ids) for piece in pieces), initial=start))
    number = bisect_right(piece_starts, at) - 1
    piece = pieces[number].part if wanted else None
    place = _Place(
        rendering=rendering,
        prompt=prompt,
        at=at,
        forms=forms,
        ordinal=ordinal,
        start=start,
        wanted=wanted,
        previous=rendering.messages[ordinal - 1].ids if ordinal else None,
        next_turn=rendering.ids[rendering.starts[-1] :],
        part=Part.NEXT_TURN if piece is None else _PARTS[piece],
        is_before_part=piece not in (None, MessagePart.MESSAGE) and piece_starts[number] == at,
        expected=rendering.ids[at:],
        actual=prompt[at:],
    )
    return next(found for look in _LOOKS if (found := look(place)) is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """The place where a prompt leaves its rendering.

    Attributes:
        ordinal: number of the message of the rendering; their count for the open header at the end.
        start: where that message begins.
        wanted: that message and those after it; none in the open header.
        previous: ids of the message before.
        part: the part of the message.
        is_before_part: whether nothing of the part is there yet; the message marker is a part of the header.
        expected: the rendering from here on.
        actual: the prompt from here on.
    """

    rendering: Rendering
    prompt: tuple[int, ...]
    at: int
    forms: PromptForms
    ordinal: int
    start: int
    wanted: Sequence[RenderedMessage]
    previous: tuple[int, ...] | None
    next_turn: tuple[int, ...]
    part: Part
    is_before_part: bool
    expected: tuple[int, ...]
    actual: tuple[int, ...]

    def named(
        self, problem: Problem, words: str, *, part: Part | None = None, rest: tuple[int, int] | None = None
    ) -> LocatedDifference:
        """A difference at this place.

        Args:
            problem: in which way it differs.
            words: a clause that says so.
            part: what differs; None for the part at this place.
            rest: where the rendering and the prompt go on after it; None to compare nothing after it.
        """
        is_only = rest is not None and self.rendering.ids[rest[0] :] == self.prompt[rest[1] :]
        difference = Difference(part or self.part, problem, words)
        return LocatedDifference(
            difference=difference, message=self.wanted[0].index if self.wanted else None, is_only=is_only
        )

    def last(self, problem: Problem, words: str, *, part: Part | None = None) -> LocatedDifference:
        """A difference to which all of the rest belongs, of either side."""
        return self.named(problem, words, part=part, rest=(len(self.rendering.ids), len(self.prompt)))


def _empty(place: _Place) -> LocatedDifference | None:
    if place.prompt:
        return None
    found = place.named(Problem.EMPTY, "the prompt is empty", part=Part.PROMPT, rest=(0, 0))
    return replace(found, message=None)


def _unknown(place: _Place) -> LocatedDifference | None:
    if not place.actual or tokens.is_known(place.actual[0]):
        return None
    where = place.part if place.part is Part.BETWEEN else f"in the {place.part}"
    words = f"{place.actual[0]} stands {where if place.at else 'before the first message'}, and is no token of the vocabulary"
    is_put_in = place.actual[1:] == place.expected
    return place.named(Problem.UNKNOWN_TOKEN, words, rest=(place.at + (not is_put_in), place.at + 1))


def _without_the_last(place: _Place) -> LocatedDifference | None:
    """The last messages left out: the next turn is where one of them should begin."""
    if not place.wanted or not place.next_turn or place.prompt[place.start :] != place.next_turn:
        return None
    return _left_out(place, len(place.wanted))


def _cut(place: _Place) -> LocatedDifference | None:
    if place.actual:
        return None
    if place.at > place.start:
        where = "before" if place.is_before_part else "inside"
        return place.last(Problem.CUT, f"the prompt ends {where} the {place.part}")
    if not place.wanted:
        return place.last(Problem.CUT, f"the prompt ends before {show(place.expected)}, the next turn")
    return place.last(Problem.CUT, "the prompt ends before this message", part=Part.MESSAGE)


def _longer(place: _Place) -> LocatedDifference | None:
    if place.expected:
        return None
    if place.actual[0] == tokens.START:
        return _unasked(place, place.at, [read_message(place.prompt, place.at)])
    words = f"the prompt goes on after {show(place.rendering.ids[place.start :])}: {quoted(show(place.actual))}"
    return place.last(Problem.LONGER, words)


def _marker_spelled(place: _Place) -> LocatedDifference | None:
    marker = _spelled(place.expected, place.actual)
    words = f"the marker {marker} is spelled out in ordinary tokens instead of its special token"
    return None if marker is None else place.named(Problem.SPELLED_OUT, words)


def _marker_injected(place: _Place) -> LocatedDifference | None:
    marker = _spelled(place.actual, place.expected)
    words = f"the text {marker} of the {place.part} became a special token: a marker was injected"
    return None if marker is None else place.named(Problem.INJECTED, words)


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


def _between(place: _Place) -> LocatedDifference | None:
    if place.at > place.start:
        return None
    following = next((at for at, token in enumerate(place.actual) if token == tokens.START), len(place.actual))
    where = "between two messages, before this one" if place.wanted else "behind the last message"
    where = where if place.at or not place.wanted else "before the first message"
    more = "one more end marker, " if place.actual[0] in tokens.STOP_TOKENS else ""
    words = f"{more}{quoted(show(place.actual[:following]))} stands {where}"
    return place.named(Problem.EXTRA, words, part=Part.BETWEEN, rest=(place.at, place.at + following))


def _misaligned(place: _Place) -> LocatedDifference | None:
    """Messages left out, put in, repeated or moved."""
    if place.wanted and place.wanted[0].index in place.forms.styles:
        return None
    found = list(prompt_messages(place.prompt, place.start))
    first = found[0].ids
    later = next((number for number, message in enumerate(place.wanted) if number and message.ids == first), None)
    own = next(
        (n for n, message in enumerate(found) if n and place.wanted and message.ids == place.wanted[0].ids), None
    )
    dropped = next((message for message in place.rendering.dropped if message.ids == first), None)
    if later is not None and own is not None:
        return place.named(Problem.MOVED, f"message {place.wanted[later].index} stands before it", part=Part.MESSAGE)
    if later is None and dropped is not None:
        return _kept(place, dropped)
    if later is None and own is not None:
        return _unasked(place, place.start, found[:own])
    later = _later_header(place, found[0]) if later is None else later
    return None if later is None else _left_out(place, later)


def _later_header(place: _Place, first: PromptMessage) -> int | None:
    """The later message with the header that is here, when the content is not that of the expected message."""
    expected = [read_message(message.ids) for message in place.wanted]
    same = [message.header_ids == first.header_ids for message in expected]
    if not expected or same[0] or None is not expected[0].content_ids == first.content_ids:
        return None
    return same.index(True) if True in same else None


def _left_out(place: _Place, number: int) -> LocatedDifference:
    missing = place.wanted[:number]
    count = "this message is" if number == 1 else f"this message and the {number - 1} after it are"
    follower = f"message {place.wanted[number].index}" if number < len(place.wanted) else "the next turn"
    words = f"{count} missing; {follower} stands in its place"
    problem = Problem.MISSING
    if all(read_message(message.ids).channel == "analysis" for message in missing):
        problem = Problem.REASONING_DROPPED
        is_disputed = place.rendering.disputed.issuperset(message.index for message in missing)
        settled = "reasoning that has to be kept is dropped"
        words += f": {'reasoning is dropped that this history keeps' if is_disputed else settled}"
    rest = (place.rendering.starts[place.ordinal + number], place.start)
    return place.named(problem, words, part=Part.MESSAGE, rest=rest)


def _kept(place: _Place, dropped: RenderedMessage) -> LocatedDifference:
    settled = "reasoning that has to be dropped, because an answer followed it, is kept"
    is_disputed = dropped.index in place.rendering.disputed
    words = "reasoning is kept that this history drops" if is_disputed else settled
    rest = (place.start, place.start + len(dropped.ids))
    return replace(place.named(Problem.REASONING_KEPT, words, part=Part.MESSAGE, rest=rest), message=dropped.index)


def _unasked(place: _Place, at: int, found: Sequence[PromptMessage]) -> LocatedDifference:
    """Messages from token `at` on that the conversation does not have."""
    where, repeated = (
        ("before it", "the message before it") if place.wanted else ("behind the last", "the last message")
    )
    problem, words = Problem.REPEATED, f"{repeated} stands there twice"
    if found[0].ids != place.previous:
        shown = quoted(show(found[0].ids))
        problem, words = Problem.EXTRA, f"a message that the conversation does not have stands {where}: {shown}"
    rest = (at, at + sum(len(message.ids) for message in found))
    return place.named(problem, words, part=Part.MESSAGE, rest=rest)


def _next_turn(place: _Place) -> LocatedDifference | None:
    if place.wanted:
        return None
    first = read_message(place.prompt, place.start)
    if first.content_ids is not None:
        return _unasked(place, place.start, [first])
    words = f"the prompt ends in {quoted(show(first.ids))} where {show(place.next_turn)} was expected"
    return place.last(Problem.DIFFERENT, words)


def _inside(place: _Place) -> LocatedDifference:
    """A difference inside one message that is where it should be."""
    actual = read_message(place.prompt, place.start)
    found = difference_of_messages(read_message(place.wanted[0].ids), actual)
    rest = (place.start + len(place.wanted[0].ids), place.start + len(actual.ids))
    return place.named(found.problem, found.words, part=found.part, rest=rest)


_LOOKS: Final[tuple[Callable[[_Place], LocatedDifference | None], ...]] = (
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
