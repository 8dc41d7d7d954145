"""Where a prompt departs from what is accepted for its request: message, part, defect class, and the tokens of both sides, the fewest that differ.

The messages of the prompt are matched with those of each accepted rendering by what they say, so that a difference of form hides none of content.
A departure is a *variant* where only the form differs: header forms, line ends between sections, spelling of types, JSON that is equal. It is a *failure*
where a text, a role, a name or the order is another one. The nearest rendering is the one with the fewest failures, then the fewest variants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from harmony_conformance.check import Verdict
from harmony_conformance.declaration import is_same_function
from harmony_conformance.engines import REASONING_FIELDS
from harmony_conformance.exchange import Exchange
from harmony_conformance.expectation import Expected, Rendering, library_prompts, renderings
from harmony_conformance.framing import Difference, developer_difference, fails, system_difference, varies
from harmony_conformance.json_value import Json, at, equal_json, items, text
from harmony_conformance.phrase import Phrase, Wording, quote
from harmony_conformance.placement import kind_of
from harmony_conformance.prompt import (
    INSTRUCTIONS,
    Keep,
    Kind,
    Place,
    PromptMessage,
    PromptReading,
    shorten,
    show,
    wanted,
)
from harmony_ref.explanation import Part, Problem
from harmony_ref.explanation.texts import difference_of_contents

_DATE = re.compile(r"^Current date: (.*)$", re.MULTILINE)
_MOST_TOKENS = 8


@dataclass(frozen=True, kw_only=True)
class Departure:
    """One place where a prompt is not the rendering.

    Attributes:
        number: of the message in the prompt, from 0; where one is missing, of the one that stands in its place.
        label: that message in a few words, such as `functions.f to assistant`.
        where: JSON pointer of the part of the request; empty where it is none.
        expected: ids of the message as it should be; empty where there should be none.
        actual: ids of the message as it is; empty where there is none.
    """

    difference: Difference
    number: int
    label: str
    where: str = ""
    expected: tuple[int, ...] = ()
    actual: tuple[int, ...] = ()

    @property
    def is_failure(self) -> bool:
        """Whether more than the form differs."""
        return self.difference.verdict is Verdict.FAIL

    @property
    def sentence(self) -> Phrase:
        """Where and what, and the class of the defect."""
        found = self.difference
        return Phrase("message {} ({}), {}, {}: {}", self.number, self.label, found.part, found.problem, found.words)

    @property
    def summary(self) -> str:
        """The part and the class."""
        return f"{self.difference.part}: {self.difference.problem}"

    @property
    def tokens(self) -> tuple[Wording, Wording]:
        """The tokens that differ, as they should be and as they are: their text and their ids."""
        return _differing(self.expected, self.actual), _differing(self.actual, self.expected)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A prompt beside the rendering that it is nearest to: what that is, and all departures."""

    style: str
    notes: tuple[str, ...]
    departures: tuple[Departure, ...]

    @property
    def failures(self) -> tuple[Departure, ...]:
        """The departures in more than form, in the order of the prompt."""
        return tuple(sorted((one for one in self.departures if one.is_failure), key=lambda one: one.number))

    @property
    def distance(self) -> tuple[int, int]:
        """How many failures, how many variants."""
        failures = len(self.failures)
        return failures, len(self.departures) - failures + len(self.notes)


def nearest(request: Json, ids: tuple[int, ...], read: PromptReading) -> Comparison | None:
    """The prompt beside the nearest accepted rendering; None where it is the official library's, or the library can not render the request.

    Args:
        request: the Chat Completions request.
        ids: its prompt.
        read: the same, read as messages.
    """
    system = next((message for message in read.messages if message.role == "system"), None)
    found = _DATE.search(system.content) if system is not None else None
    date = found[1] if found is not None else None
    if ids in library_prompts(request, date):
        return None
    compared = (
        Comparison(style=one.style, notes=one.notes, departures=tuple(_departures(one, read.messages, request)))
        for one in renderings(request, date)
    )
    return min(compared, key=lambda one: one.distance, default=None)


def _departures(rendering: Rendering, messages: Sequence[PromptMessage], request: Json) -> Iterator[Departure]:
    has_system = bool(messages) and messages[0].role == "system"
    first = 1 if has_system else 0
    framing = tuple(takewhile(lambda message: message.role == "developer", messages[first:]))
    if has_system:
        for difference in system_difference(rendering.system.content, messages[0].content, request):
            yield _of_pair(rendering.system, messages[0], 0, difference)
    else:
        yield _missing(0, rendering.system)
    yield from _framing(_joined(rendering.framing), _joined(framing), first, request)
    yield from _talk(rendering.talk, messages, first + len(framing), request)


def _framing(due: PromptMessage | None, found: PromptMessage | None, number: int, request: Json) -> Iterator[Departure]:
    if due is None and found is not None and found.content.strip() not in ("", "# Instructions"):
        words = "the request has no such message"
        yield _of_pair(None, found, number, fails(Part.MESSAGE, Problem.EXTRA, words))
    elif due is not None and found is None:
        yield _missing(number, due)
    elif due is not None and found is not None:
        for difference in developer_difference(due.content, found.content, request):
            yield _of_pair(due, found, number, difference)


def _joined(messages: Sequence[PromptMessage]) -> PromptMessage | None:
    """Developer messages that follow each other as one: whether a server joins them is its own choice."""
    if not messages:
        return None
    first, *others = (message.content for message in messages)
    content = "\n\n".join([first, *(one.removeprefix(INSTRUCTIONS) for one in others)])
    return replace(messages[0], content=content, ids=tuple(token for message in messages for token in message.ids))


def _talk(
    expected: Sequence[Expected], messages: Sequence[PromptMessage], begun: int, request: Json
) -> Iterator[Departure]:
    seats = _seats(expected, messages, begun)
    for place, one in enumerate(expected):
        following = min((seat for other, seat in seats.items() if other > place), default=len(messages))
        if place in seats:
            yield from _pair(one, messages, seats[place], request)
        elif not one.is_optional and not _is_joined(one, messages[begun:]):
            yield _missing(following, one.message, one)
        elif one.message.content:
            words = "reasoning is joined, or left out where the sources differ on it"
            dropped = _missing(following, one.message, one)
            yield replace(dropped, difference=varies(Part.MESSAGE, Problem.REASONING_DROPPED, words))
    for number in (number for number in range(begun, len(messages)) if number not in seats.values()):
        yield from _unasked(expected, messages[number], number, request)
    yield from _moved(expected, seats, messages)


def _seats(expected: Sequence[Expected], messages: Sequence[PromptMessage], begun: int) -> Mapping[int, int]:
    """Which message of the prompt each expected one is: those that say the same first, in order, then those of the same kind."""
    seats: dict[int, int] = {}
    free = list(range(begun, len(messages)))
    for is_it in (_says_the_same, _says_alike, _is_of_the_kind):
        for place, one in enumerate(expected):
            if place in seats:
                continue
            seat = next((seat for seat in free if is_it(one, messages[seat])), None)
            if seat is not None:
                seats[place] = seat
                free.remove(seat)
    return seats


def _says_the_same(one: Expected, shown: PromptMessage) -> bool:
    is_addressed = one.kind in (Kind.CALL, Kind.RESULT)
    named = not is_addressed or is_same_function(one.message.function, shown.function)
    return _kind(shown) is one.kind and shown.content == one.message.content and named


def _says_alike(one: Expected, shown: PromptMessage) -> bool:
    """The same text under another role, name or channel; reasoning that is joined with other; arguments that are written anew."""
    said = one.message.content
    if said and shown.content == said:
        return True
    if _kind(shown) is not one.kind:
        return False
    match one.kind:
        case Kind.REASONING:
            return _is_whole_line(said, shown.content)
        case Kind.CALL:
            return equal_json(shown.content, said) and is_same_function(one.message.function, shown.function)
        case _:
            return False


def _is_of_the_kind(one: Expected, shown: PromptMessage) -> bool:
    return _kind(shown) is one.kind and not one.is_optional


def _kind(message: PromptMessage) -> Kind | None:
    return Kind.INSTRUCTIONS if message.role == "developer" else kind_of(message)


def _is_joined(one: Expected, messages: Sequence[PromptMessage]) -> bool:
    is_thought = one.kind is Kind.REASONING
    return is_thought and any(_is_whole_line(one.message.content, m.content) for m in messages if _kind(m) is one.kind)


def _is_whole_line(thought: str, content: str) -> bool:
    return bool(thought.strip()) and f"\n{thought.strip()}\n" in f"\n{content.strip()}\n"


def _pair(one: Expected, messages: Sequence[PromptMessage], number: int, request: Json) -> Iterator[Departure]:
    shown, where = messages[number], one.part.where if one.part is not None else ""
    for difference in _differences(one, shown, request, is_last=number == len(messages) - 1):
        yield _of_pair(one.message, shown, number, difference, where)


def _differences(one: Expected, shown: PromptMessage, request: Json, *, is_last: bool) -> Iterator[Difference]:
    expected = one.message
    if shown.role != expected.role:
        words = f"the role is {shown.role} where {expected.role} was expected"
        yield fails(Part.ROLE, Problem.DIFFERENT, words)
        return
    yield from _of_headers(one, shown)
    if shown.specials:
        yield fails(Part.CONTENT, Problem.INJECTED, "text of the content became a special token")
    elif shown.content != expected.content:
        yield from _of_contents(one, shown.content, request)
    if shown.end != expected.end and not (shown.end is None and is_last):
        tell = varies if one.kind is Kind.CALL and shown.end_name == "⟦end⟧" else fails
        words = f"the message ends in {shown.end_name or 'nothing'} where {expected.end_name} was expected"
        yield tell(Part.END, Problem.DIFFERENT, words)


def _of_headers(one: Expected, shown: PromptMessage) -> Iterator[Difference]:
    expected = one.message
    if one.kind in (Kind.CALL, Kind.RESULT):
        yield from _of_functions(one, shown)
    elif shown.name != expected.name and shown.name is not None:
        yield varies(Part.NAME, Problem.EXTRA, f"the author's name {shorten(shown.name)!r} stands in the header")
    if one.kind is Kind.RESULT and shown.recipient != "assistant":
        problem = Problem.MISSING if shown.recipient is None else Problem.DIFFERENT
        words = f"the recipient is {shown.recipient or 'missing'} where assistant was expected"
        yield fails(Part.RECIPIENT, problem, words)
    if shown.channel != expected.channel:
        may_think = one.kind in (Kind.CALL, Kind.PREAMBLE, Kind.RESULT) and shown.channel == "analysis"
        problem = Problem.MISSING if shown.channel is None else Problem.DIFFERENT
        words = f"the channel is {shown.channel or 'missing'} where {expected.channel or 'none'} was expected"
        yield (varies if may_think else fails)(Part.CHANNEL, problem, words)
    if shown.place is not expected.place and Place.NONE not in (shown.place, expected.place):
        yield varies(Part.RECIPIENT, Problem.MISPLACED, f"the {shown.place}")
    if shown.content_type != expected.content_type:
        words = f"it is {shown.content_type or 'missing'} where {expected.content_type or 'none'} was expected"
        yield varies(Part.CONTENT_TYPE, Problem.DIFFERENT, words)


def _of_functions(one: Expected, shown: PromptMessage) -> Iterator[Difference]:
    named = one.part.function if one.part is not None else one.message.function
    if named is None or shown.function == named:
        return
    part = Part.RECIPIENT if one.kind is Kind.CALL else Part.NAME
    words = f"the function is {shown.function or shown.name or 'missing'} where {named} was expected"
    yield (varies if is_same_function(named, shown.function) else fails)(part, Problem.DIFFERENT, words)


def _of_contents(one: Expected, shown: str, request: Json) -> Iterator[Difference]:
    expected = one.message.content
    if one.kind is Kind.INSTRUCTIONS:
        yield from developer_difference(expected, shown, request)
        return
    found = difference_of_contents(expected, shown, one.message.role)
    is_form = one.kind is Kind.REASONING and _is_whole_line(expected, shown)
    is_form = is_form or (one.kind is Kind.CALL and equal_json(shown, expected)) or shown == _on_lines(one, request)
    yield (varies if is_form else fails)(found.part, found.problem, found.words)


def _on_lines(one: Expected, request: Json) -> str | None:
    """The text of a content in parts with a line end between them: no source says what stands there. None where it has no parts."""
    where = one.part.where.split("/") if one.part is not None else []
    parts = items(at(request, "messages", int(where[2]), "content")) if where[-1:] == ["content"] else []
    return "\n".join(text(at(part, "text")) for part in parts) if parts else None


def _unasked(expected: Sequence[Expected], message: PromptMessage, number: int, request: Json) -> Iterator[Departure]:
    """A message of the prompt that is none of the expected ones; an empty one says nothing."""
    if not (message.content or message.recipient):
        return
    thought = next(
        (part for part in wanted(request) if part.keep is Keep.ABSENT and part.text == message.content), None
    )
    if thought is not None and message.role == "assistant":
        words = "reasoning that has to be dropped, because an answer followed it, is kept"
        kept = fails(Part.MESSAGE, Problem.REASONING_KEPT, words)
        yield _of_pair(None, message, number, kept, thought.where)
        return
    is_known = any(one.message.content == message.content and one.kind is _kind(message) for one in expected)
    words = "it stands there more often than it was sent" if is_known else "the request has no such message"
    problem = Problem.REPEATED if is_known else Problem.EXTRA
    yield _of_pair(None, message, number, fails(Part.MESSAGE, problem, words))


def _moved(
    expected: Sequence[Expected], seats: Mapping[int, int], messages: Sequence[PromptMessage]
) -> Iterator[Departure]:
    """The first message that stands after one that was sent after it; calls and results of one message may stand in two orders."""
    placed = [expected[place] for place in sorted(seats, key=lambda place: seats[place])]
    order = sorted(seats, key=lambda place: seats[place])
    for number, one in enumerate(placed):
        passed = [placed[n] for n in range(number) if order[n] > order[number]]
        if passed:
            is_free = all(one.block is not None and one.block == p.block and one.kind is not p.kind for p in passed)
            words = f"it stands after {_label(passed[0].message)}, which was sent after it"
            difference = (varies if is_free else fails)(Part.MESSAGE, Problem.MOVED, words)
            where = one.part.where if one.part is not None else ""
            seat = seats[order[number]]
            yield _of_pair(passed[0].message, messages[seat], seat, difference, where)
            if not is_free:
                return


def _missing(number: int, message: PromptMessage, one: Expected | None = None) -> Departure:
    is_thought = one is not None and one.kind is Kind.REASONING
    problem = Problem.REASONING_DROPPED if is_thought else Problem.MISSING
    return Departure(
        difference=fails(Part.MESSAGE, problem, f"it is missing: {shorten(message.content)!r}"),
        number=number,
        label=_label(message),
        where=one.part.where if one is not None and one.part is not None else "",
        expected=message.ids,
    )


def _of_pair(
    expected: PromptMessage | None, shown: PromptMessage, number: int, difference: Difference, where: str = ""
) -> Departure:
    return Departure(
        difference=difference,
        number=number,
        label=_label(shown),
        where=where,
        expected=expected.ids if expected is not None else (),
        actual=shown.ids,
    )


def _label(message: PromptMessage) -> str:
    name = message.name if message.role == "tool" and message.name else message.role
    if message.recipient is not None:
        return f"{name} to {message.recipient}"
    return name if message.channel is None else f"{name}, {message.channel}"


def _differing(ids: tuple[int, ...], other: tuple[int, ...]) -> Wording:
    """What of one side differs: what both begin and end with is left out, but for a token before it where nothing would be left of one side."""
    if not ids:
        return "no such message"
    begin = _shared(ids, other)
    end = _shared(ids[begin:][::-1], other[begin:][::-1])
    if end in (len(ids) - begin, len(other) - begin):
        begin = max(0, begin - 1)
    stop = min(len(ids) - end, begin + _MOST_TOKENS)
    shown = ids[begin:stop]
    more = " …" if stop < len(ids) - end else ""
    return quote(f"{show(shown)!r}{more}, tokens {', '.join(map(str, shown))}{more}")


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences begin with in common."""
    both = enumerate(zip(one, other, strict=False))
    return next((place for place, (first, second) in both if first != second), min(len(one), len(other)))


def is_under_another_name(x: Exchange, where: str) -> bool:
    """Whether reasoning at a place of the request has another name than in the answer: clients send back the message that they were given."""
    own = x.turn.reasoning_field if x.turn is not None and x.turn.reasoning else None
    return own is not None and where.rpartition("/")[2] in REASONING_FIELDS and not where.endswith(f"/{own}")
