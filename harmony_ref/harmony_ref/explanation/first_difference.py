"""Name the first difference between a prompt and the rendering it is nearest to.

Typical mistakes of engines are detected first: markers as text, text as markers, missing, extra and repeated messages.
Only then are the fields of a header and the texts of a content compared.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final

from harmony_ref.explanation.divergence import Difference, Part, Problem
from harmony_ref.explanation.message_difference import difference_of_messages
from harmony_ref.explanation.nearest_rendering import PromptForms
from harmony_ref.explanation.prompt_reader import (
    PromptMessage,
    format_ids,
    prompt_messages,
    quote_shortened,
    raw_bytes,
    read_message,
)
from harmony_ref.styles import Rendering
from harmony_ref.styles.message_pieces import MessagePart
from harmony_ref.styles.styled_rendering import RenderedMessage
from harmony_ref.tokenizer import tokens

_LOOKAHEAD: Final = 64
"""Number of tokens after a difference that are searched for a marker."""

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
    """A difference and the index of its message in the conversation, None if it concerns no message.

    `is_only`: True if everything after the difference is as expected.
    """

    difference: Difference
    message_index: int | None
    is_only: bool


def first_difference(rendering: Rendering, prompt: tuple[int, ...], at: int, forms: PromptForms) -> LocatedDifference:
    """Name the difference at token `token_index`, the first token that differs.

    Args:
        rendering: the expected prompt.
        prompt: token ids.
        at: index of the first token that differs.
        forms: the messages of the prompt that are those of the rendering in the form of another style.
    """
    ordinal = max(0, bisect_right(rendering.message_starts, at) - 1)
    start, wanted = rendering.message_starts[ordinal], rendering.messages[ordinal:]
    pieces = wanted[0].pieces if wanted else ()
    piece_starts = list(accumulate((len(piece.ids) for piece in pieces), initial=start))
    number = bisect_right(piece_starts, at) - 1
    piece = pieces[number].part if wanted else None
    place = _DifferenceContext(
        rendering=rendering,
        prompt=prompt,
        token_index=at,
        forms=forms,
        ordinal=ordinal,
        start=start,
        expected_messages=wanted,
        next_turn=rendering.ids[rendering.message_starts[-1] :],
        part=Part.NEXT_TURN if piece is None else _PARTS[piece],
        is_before_part=piece not in (None, MessagePart.MESSAGE) and piece_starts[number] == at,
        expected=rendering.ids[at:],
        actual=prompt[at:],
    )
    return next(located for detect in _DETECTORS if (located := detect(place)) is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class _DifferenceContext:
    """The place of the first difference.

    Attributes:
        ordinal: number of the message in the rendering; the count of messages for the open header at the end.
        start: index of the first token of that message.
        wanted: that message and the later ones; empty in the open header.
        part: the part of the message.
        is_before_part: True if the part has not begun yet; the message marker is a part of the header.
        expected: the rest of the rendering.
        actual: the rest of the prompt.
    """

    rendering: Rendering
    prompt: tuple[int, ...]
    token_index: int
    forms: PromptForms
    ordinal: int
    start: int
    expected_messages: Sequence[RenderedMessage]
    next_turn: tuple[int, ...]
    part: Part
    is_before_part: bool
    expected: tuple[int, ...]
    actual: tuple[int, ...]

    def locate(
        self, problem: Problem, words: str, *, part: Part | None = None, rest: tuple[int, int] | None = None
    ) -> LocatedDifference:
        """Return a difference at this place.

        Args:
            problem: the kind of difference.
            words: a clause that describes it.
            part: the part that differs; None for the part at this place.
            rest: indices in the rendering and in the prompt of the tokens after it; None to compare nothing after it.
        """
        is_only = rest is not None and self.rendering.ids[rest[0] :] == self.prompt[rest[1] :]
        difference = Difference(part or self.part, problem, words)
        message = self.expected_messages[0].index if self.expected_messages else None
        return LocatedDifference(difference=difference, message_index=message, is_only=is_only)

    def locate_to_end(self, problem: Problem, words: str, *, part: Part | None = None) -> LocatedDifference:
        """Return a difference that extends to the end of both sides."""
        return self.locate(problem, words, part=part, rest=(len(self.rendering.ids), len(self.prompt)))


def _empty(place: _DifferenceContext) -> LocatedDifference | None:
    if place.prompt:
        return None
    found = place.locate(Problem.EMPTY, "the prompt is empty", part=Part.PROMPT, rest=(0, 0))
    return replace(found, message_index=None)


def _detect_unknown_token(place: _DifferenceContext) -> LocatedDifference | None:
    if not place.actual or tokens.is_known(place.actual[0]):
        return None
    where = place.part if place.part is Part.BETWEEN else f"in the {place.part}"
    words = (
        f"token {place.actual[0]} {where if place.token_index else 'before the first message'} is not in the vocabulary"
    )
    is_inserted = place.actual[1:] == place.expected
    rest = (place.token_index + (not is_inserted), place.token_index + 1)
    return place.locate(Problem.UNKNOWN_TOKEN, words, rest=rest)


def _detect_missing_last_messages(place: _DifferenceContext) -> LocatedDifference | None:
    """Detect that the last messages are missing: the next turn begins in place of one of them."""
    if not place.expected_messages or not place.next_turn or place.prompt[place.start :] != place.next_turn:
        return None
    return _missing_messages(place, len(place.expected_messages))


def _detect_truncated_prompt(place: _DifferenceContext) -> LocatedDifference | None:
    if place.actual:
        return None
    if place.token_index > place.start:
        where = "before" if place.is_before_part else "inside"
        return place.locate_to_end(Problem.CUT, f"the prompt ends {where} the {place.part}")
    if not place.expected_messages:
        return place.locate_to_end(Problem.CUT, f"the prompt ends before {format_ids(place.expected)}, the next turn")
    return place.locate_to_end(Problem.CUT, "the prompt ends before this message", part=Part.MESSAGE)


def _detect_longer_prompt(place: _DifferenceContext) -> LocatedDifference | None:
    if place.expected:
        return None
    if place.actual[0] == tokens.START:
        return _extra_messages(place, place.token_index, [read_message(place.prompt, place.token_index)])
    words = f"the prompt continues after {format_ids(place.rendering.ids[place.start :])}: {quote_shortened(format_ids(place.actual))}"
    return place.locate_to_end(Problem.LONGER, words)


def _marker_spelled(place: _DifferenceContext) -> LocatedDifference | None:
    marker = _first_marker_as_text(place.expected, place.actual)
    words = f"the marker {marker} is spelled out in ordinary tokens instead of its special token"
    return None if marker is None else place.locate(Problem.SPELLED_OUT, words)


def _marker_injected(place: _DifferenceContext) -> LocatedDifference | None:
    marker = _first_marker_as_text(place.actual, place.expected)
    words = f"the text {marker} of the {place.part} became a special token: a marker was injected"
    return None if marker is None else place.locate(Problem.INJECTED, words)


def _first_marker_as_text(special: Sequence[int], plain: Sequence[int]) -> str | None:
    """Return the first marker of one side that the other side has as text, with equal text before it."""
    at = next((at for at, token in enumerate(special[:_LOOKAHEAD]) if tokens.is_special(token)), None)
    if at is None:
        return None
    text = raw_bytes(special[: at + 1])
    plain_text = b""
    for token in plain:
        if tokens.is_special(token) or len(plain_text) >= len(text):
            break
        plain_text += raw_bytes([token])
    return raw_bytes(special[at : at + 1]).decode() if plain_text.startswith(text) else None


def _detect_tokens_between_messages(place: _DifferenceContext) -> LocatedDifference | None:
    if place.token_index > place.start:
        return None
    following = next((at for at, token in enumerate(place.actual) if token == tokens.START), len(place.actual))
    where = "between two messages, before this one" if place.expected_messages else "after the last message"
    where = where if place.token_index or not place.expected_messages else "before the first message"
    more = " (one more end marker)" if place.actual[0] in tokens.STOP_TOKENS else ""
    words = f"unexpected {quote_shortened(format_ids(place.actual[:following]))}{more} {where}"
    rest = (place.token_index, place.token_index + following)
    return place.locate(Problem.EXTRA, words, part=Part.BETWEEN, rest=rest)


def _detect_misaligned_messages(place: _DifferenceContext) -> LocatedDifference | None:
    """Detect missing, extra, repeated and moved messages."""
    if place.expected_messages and place.expected_messages[0].index in place.forms.styles:
        return None
    actual = list(prompt_messages(place.prompt, place.start))
    first = actual[0].ids
    same = (number for number, message in enumerate(place.expected_messages) if number and message.ids == first)
    later = next(same, None)
    next_ids = place.expected_messages[0].ids if place.expected_messages else None
    own = next((number for number, message in enumerate(actual) if number and message.ids == next_ids), None)
    dropped = next((message for message in place.rendering.dropped_messages if message.ids == first), None)
    if later is not None and own is not None:
        words = f"message {place.expected_messages[later].index} comes before it"
        return place.locate(Problem.MOVED, words, part=Part.MESSAGE)
    if later is None and dropped is not None:
        is_disputed = dropped.index in place.rendering.disputed_indices
        settled = "reasoning before an answer has to be dropped, and is retained"
        words = "reasoning that this history drops is retained" if is_disputed else settled
        rest = (place.start, place.start + len(first))
        located = place.locate(Problem.REASONING_KEPT, words, part=Part.MESSAGE, rest=rest)
        return replace(located, message_index=dropped.index)
    if later is None and own is not None:
        return _extra_messages(place, place.start, actual[:own])
    later = _later_header(place, actual[0]) if later is None else later
    return None if later is None else _missing_messages(place, later)


def _later_header(place: _DifferenceContext, first: PromptMessage) -> int | None:
    """Find the later message that has this header, unless the content is that of the expected message."""
    expected = [read_message(message.ids) for message in place.expected_messages]
    same = [message.header_ids == first.header_ids for message in expected]
    if not expected or same[0] or None is not expected[0].content_ids == first.content_ids:
        return None
    return same.index(True) if True in same else None


def _missing_messages(place: _DifferenceContext, number: int) -> LocatedDifference:
    missing = place.expected_messages[:number]
    count = "this message is" if number == 1 else f"this message and the {number - 1} after it are"
    following = place.expected_messages[number:]
    follower = f"message {following[0].index}" if following else "the next turn"
    problem, words = Problem.MISSING, f"{count} missing; {follower} is in its place"
    if all(read_message(message.ids).channel == "analysis" for message in missing):
        problem = Problem.REASONING_DROPPED
        is_disputed = place.rendering.disputed_indices.issuperset(message.index for message in missing)
        settled = "reasoning that has to be retained is dropped"
        words += f": {'reasoning that this history retains is dropped' if is_disputed else settled}"
    rest = (place.rendering.message_starts[place.ordinal + number], place.start)
    return place.locate(problem, words, part=Part.MESSAGE, rest=rest)


def _extra_messages(place: _DifferenceContext, at: int, extra: Sequence[PromptMessage]) -> LocatedDifference:
    """Report messages from token `token_index` on that the conversation does not have."""
    where, repeated = (
        ("before it", "the message before it") if place.expected_messages else ("after the last", "the last message")
    )
    problem, words = Problem.REPEATED, f"{repeated} is in the prompt twice"
    if place.ordinal == 0 or extra[0].ids != place.rendering.messages[place.ordinal - 1].ids:
        shown = quote_shortened(format_ids(extra[0].ids))
        problem, words = Problem.EXTRA, f"the conversation has no such message {where}: {shown}"
    rest = (at, at + sum(len(message.ids) for message in extra))
    return place.locate(problem, words, part=Part.MESSAGE, rest=rest)


def _next_turn(place: _DifferenceContext) -> LocatedDifference | None:
    if place.expected_messages:
        return None
    first = read_message(place.prompt, place.start)
    if first.content_ids is not None:
        return _extra_messages(place, place.start, [first])
    words = (
        f"the prompt ends in {quote_shortened(format_ids(first.ids))} where {format_ids(place.next_turn)} was expected"
    )
    return place.locate_to_end(Problem.DIFFERENT, words)


def _compare_message(place: _DifferenceContext) -> LocatedDifference:
    """Compare the message at this place with the expected one."""
    actual = read_message(place.prompt, place.start)
    difference = difference_of_messages(read_message(place.expected_messages[0].ids), actual)
    rest = (place.start + len(place.expected_messages[0].ids), place.start + len(actual.ids))
    return place.locate(difference.problem, difference.description, part=difference.part, rest=rest)


_DETECTORS: Final[tuple[Callable[[_DifferenceContext], LocatedDifference | None], ...]] = (
    _empty,
    _detect_unknown_token,
    _detect_missing_last_messages,
    _detect_truncated_prompt,
    _detect_longer_prompt,
    _marker_spelled,
    _marker_injected,
    _detect_tokens_between_messages,
    _detect_misaligned_messages,
    _next_turn,
    _compare_message,
)
