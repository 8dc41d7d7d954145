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

from harmony_conformance.checks.rendering.accepted_renderings import (
    AcceptedRendering,
    Expected,
    library_prompts,
    renderings,
)
from harmony_conformance.checks.rendering.content_placement import kind_of
from harmony_conformance.checks.rendering.system_and_developer import (
    JudgedDifference,
    developer_difference,
    fails,
    system_difference,
    varies,
)
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, at, equal_json, items, text
from harmony_conformance.judge.check import Verdict
from harmony_conformance.prompts.chat_request import REASONING_FIELDS
from harmony_conformance.prompts.prompt_parser import (
    INSTRUCTIONS,
    ParsedPrompt,
    PartKind,
    PromptMessage,
    Retention,
    expected_parts,
    show,
)
from harmony_conformance.prompts.tool_declarations import is_same_function
from harmony_conformance.redactable_text import RedactableText, ReportText, quote, shorten
from harmony_ref.explanation import Part, Problem
from harmony_ref.explanation.message_difference import difference_of_contents, header_differences
from harmony_ref.explanation.nearest_rendering import shared_length

_DATE = re.compile(r"^Current date: (.*)$", re.MULTILINE)
_MOST_TOKENS = 8


@dataclass(frozen=True, kw_only=True)
class PromptDifference:
    """One place where a prompt is not the rendering.

    Attributes:
        difference: what differs, and whether that is a failure.
        number: of the message in the prompt, from 0; where one is missing, of the one in its place.
        label: that message in a few words, such as `functions.f to assistant`.
        where: JSON pointer of the part of the request; empty where it is none.
        expected: ids of the message as it should be; empty where there should be none.
        actual: ids of the message as it is; empty where there is none.
    """

    difference: JudgedDifference
    number: int
    label: str
    where: str
    expected: tuple[int, ...]
    actual: tuple[int, ...]

    @property
    def is_failure(self) -> bool:
        """Whether more than the form differs."""
        return self.difference.verdict is Verdict.FAIL

    @property
    def sentence(self) -> RedactableText:
        """The place, the difference, and the class of the defect."""
        found = self.difference
        return RedactableText(
            "message {} ({}), {}, {}: {}", self.number, self.label, found.part, found.problem, found.words
        )

    @property
    def summary(self) -> str:
        """The part and the class."""
        return f"{self.difference.part}: {self.difference.problem}"

    @property
    def tokens(self) -> tuple[ReportText, ReportText]:
        """The tokens that differ, as they should be and as they are: their text and their ids."""
        return _differing(self.expected, self.actual), _differing(self.actual, self.expected)


@dataclass(frozen=True, kw_only=True)
class PromptComparison:
    """A prompt beside the rendering that it is nearest to: what that is, and all departures."""

    style: str
    notes: tuple[str, ...]
    differences: tuple[PromptDifference, ...]

    @property
    def failures(self) -> tuple[PromptDifference, ...]:
        """The departures in more than form, in the order of the prompt."""
        return tuple(sorted((one for one in self.differences if one.is_failure), key=lambda one: one.number))

    @property
    def distance(self) -> tuple[int, int]:
        """How many failures, how many variants."""
        failures = len(self.failures)
        return failures, len(self.differences) - failures + len(self.notes)


def nearest(request: Json, ids: tuple[int, ...], read: ParsedPrompt) -> PromptComparison | None:
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
        PromptComparison(style=one.style, notes=one.notes, differences=tuple(_departures(one, read.messages, request)))
        for one in renderings(request, date)
    )
    return min(compared, key=lambda one: one.distance, default=None)


def _departures(
    rendering: AcceptedRendering, messages: Sequence[PromptMessage], request: Json
) -> Iterator[PromptDifference]:
    first = 1 if messages and messages[0].role == "system" else 0
    framing = tuple(takewhile(lambda message: message.role == "developer", messages[first:]))
    if first:
        for difference in system_difference(rendering.system.content, messages[0].content, request):
            yield _departure(difference, 0, rendering.system, messages[0])
    else:
        yield _missing(0, rendering.system)
    due, found = _joined(rendering.developer_messages), _joined(framing)
    if due is not None and found is not None:
        for difference in developer_difference(due.content, found.content, request):
            yield _departure(difference, first, due, found)
    elif due is not None:
        yield _missing(first, due)
    elif found is not None and found.content.strip() not in ("", "# Instructions"):
        yield _departure(fails(Part.MESSAGE, Problem.EXTRA, _NO_SUCH_MESSAGE), first, None, found)
    yield from _talk(rendering.conversation, messages, first + len(framing), request)


_NO_SUCH_MESSAGE = "the request has no such message"


def _joined(messages: Sequence[PromptMessage]) -> PromptMessage | None:
    """Developer messages that follow each other as one: whether a server joins them is its own choice."""
    if not messages:
        return None
    first, *others = (message.content for message in messages)
    content = "\n\n".join([first, *(one.removeprefix(INSTRUCTIONS) for one in others)])
    return replace(messages[0], content=content, ids=tuple(token for message in messages for token in message.ids))


def _talk(
    expected: Sequence[Expected], messages: Sequence[PromptMessage], begun: int, request: Json
) -> Iterator[PromptDifference]:
    seats = _seats(expected, messages, begun)
    for place, one in enumerate(expected):
        following = min((seat for other, seat in seats.items() if other > place), default=len(messages))
        if place in seats:
            shown = messages[seats[place]]
            for difference in _differences(one, shown, request, is_last=seats[place] == len(messages) - 1):
                yield _departure(difference, seats[place], one.message, shown, one.where)
        elif not (one.is_optional or any(_joins(one, message) for message in messages[begun:])):
            yield _missing(following, one.message, one)
        elif one.message.content:
            words = "reasoning is joined, or left out where the sources differ on it"
            dropped = varies(Part.MESSAGE, Problem.REASONING_DROPPED, words)
            yield _departure(dropped, following, one.message, None, one.where)
    for number in (number for number in range(begun, len(messages)) if number not in seats.values()):
        yield from _unasked(expected, messages[number], number, request)
    yield from _moved(expected, seats, messages)


def _seats(expected: Sequence[Expected], messages: Sequence[PromptMessage], begun: int) -> Mapping[int, int]:
    """Which message of the prompt each expected one is: those that say the same first, in order, then those of the same kind."""
    seats: dict[int, int] = {}
    free = list(range(begun, len(messages)))
    for is_it in (_says_the_same, _says_alike, _is_of_the_kind):
        for place, one in enumerate(expected):
            seat = next((seat for seat in free if is_it(one, messages[seat])), None) if place not in seats else None
            if seat is not None:
                seats[place] = seat
                free.remove(seat)
    return seats


def _says_the_same(one: Expected, shown: PromptMessage) -> bool:
    is_addressed = one.kind in (PartKind.CALL, PartKind.RESULT)
    named = not is_addressed or is_same_function(one.message.function, shown.function)
    return _kind(shown) is one.kind and shown.content == one.message.content and named


def _says_alike(one: Expected, shown: PromptMessage) -> bool:
    """The same text under another role, name or channel; reasoning that is joined with other; arguments that are written anew."""
    said = one.message.content
    if said and shown.content == said:
        return True
    if one.kind is not PartKind.CALL or _kind(shown) is not PartKind.CALL:
        return _joins(one, shown)
    return equal_json(shown.content, said) and is_same_function(one.message.function, shown.function)


def _is_of_the_kind(one: Expected, shown: PromptMessage) -> bool:
    return _kind(shown) is one.kind and not one.is_optional


def _kind(message: PromptMessage) -> PartKind | None:
    return PartKind.INSTRUCTIONS if message.role == "developer" else kind_of(message)


def _joins(one: Expected, shown: PromptMessage) -> bool:
    """Whether a reasoning stands in the prompt as whole lines of a reasoning."""
    thought = one.message.content.strip()
    is_reasoning = one.kind is PartKind.REASONING and _kind(shown) is one.kind
    return is_reasoning and thought != "" and f"\n{thought}\n" in f"\n{shown.content.strip()}\n"


def _differences(one: Expected, shown: PromptMessage, request: Json, *, is_last: bool) -> Iterator[JudgedDifference]:
    expected = one.message
    if shown.role != expected.role:
        words = f"the role is {shown.role} where {expected.role} was expected"
        yield fails(Part.ROLE, Problem.DIFFERENT, words)
        return
    yield from _header_differences(one, shown)
    if shown.specials:
        yield fails(Part.CONTENT, Problem.INJECTED, "text of the content became a special token")
    elif shown.content != expected.content and one.kind is PartKind.INSTRUCTIONS:
        yield from developer_difference(expected.content, shown.content, request)
    elif shown.content != expected.content:
        found = difference_of_contents(expected.content, shown.content, expected.role)
        is_form = _joins(one, shown) or shown.content == _on_lines(one, request)
        is_form = is_form or (one.kind is PartKind.CALL and equal_json(shown.content, expected.content))
        yield (varies if is_form else fails)(found.part, found.problem, found.words)
    if shown.end != expected.end and not (shown.end is None and is_last):
        is_form = one.kind is PartKind.CALL and shown.end_name == "⟦end⟧"
        words = f"the message ends in {shown.end_name or 'nothing'} where {expected.end_name} was expected"
        yield (varies if is_form else fails)(Part.END, Problem.DIFFERENT, words)


def _header_differences(one: Expected, shown: PromptMessage) -> Iterator[JudgedDifference]:
    named = one.part.function if one.part is not None else one.message.function
    if one.kind not in (PartKind.CALL, PartKind.RESULT):
        if shown.name not in (one.message.name, None):
            yield varies(Part.NAME, Problem.EXTRA, f"the author's name {shorten(shown.name)!r} stands in the header")
    elif named is not None and shown.function != named:
        part = Part.RECIPIENT if one.kind is PartKind.CALL else Part.NAME
        words = f"the function is {shown.function or shown.name or 'missing'} where {named} was expected"
        yield (varies if is_same_function(named, shown.function) else fails)(part, Problem.DIFFERENT, words)
    may_think = one.kind in (PartKind.CALL, PartKind.PREAMBLE, PartKind.RESULT) and shown.channel == "analysis"
    for found in header_differences(one.message, shown):
        is_form = found.problem is Problem.MISPLACED or found.part is Part.CONTENT_TYPE
        is_form = is_form or (found.part is Part.CHANNEL and may_think)
        if is_form or found.part is Part.CHANNEL or (found.part is Part.RECIPIENT and one.kind is PartKind.RESULT):
            yield (varies if is_form else fails)(found.part, found.problem, found.words)


def _on_lines(one: Expected, request: Json) -> str | None:
    """The text of a content in parts with a line end between them: no source says what stands there. None where it has no parts."""
    where = one.where.split("/")
    parts = items(at(request, "messages", int(where[2]), "content")) if where[-1] == "content" else []
    return "\n".join(text(at(part, "text")) for part in parts) if parts else None


def _unasked(
    expected: Sequence[Expected], message: PromptMessage, number: int, request: Json
) -> Iterator[PromptDifference]:
    """A message of the prompt that is none of the expected ones; an empty one says nothing."""
    if not (message.content or message.recipient):
        return
    dropped = (
        part for part in expected_parts(request) if part.retention is Retention.ABSENT and part.text == message.content
    )
    thought = next(dropped, None) if message.role == "assistant" else None
    problem, words = Problem.EXTRA, _NO_SUCH_MESSAGE
    if thought is not None:
        problem, words = (
            Problem.REASONING_KEPT,
            "reasoning that has to be dropped, because an answer followed it, is kept",
        )
    elif any(one.message.content == message.content and one.kind is _kind(message) for one in expected):
        problem, words = Problem.REPEATED, "it stands there more often than it was sent"
    where = thought.where if thought is not None else ""
    yield _departure(fails(Part.MESSAGE, problem, words), number, None, message, where)


def _moved(
    expected: Sequence[Expected], seats: Mapping[int, int], messages: Sequence[PromptMessage]
) -> Iterator[PromptDifference]:
    """The first message that stands after one that was sent after it; calls and results of one message may stand in two orders."""
    order = sorted(seats, key=lambda place: seats[place])
    for number, place in enumerate(order):
        one, passed = expected[place], [expected[before] for before in order[:number] if before > place]
        if passed:
            is_free = all(one.block is not None and one.block == p.block and one.kind is not p.kind for p in passed)
            words = f"it stands after {_label(passed[0].message)}, which was sent after it"
            difference = (varies if is_free else fails)(Part.MESSAGE, Problem.MOVED, words)
            yield _departure(difference, seats[place], passed[0].message, messages[seats[place]], one.where)
            if not is_free:
                return


def _missing(number: int, message: PromptMessage, one: Expected | None = None) -> PromptDifference:
    problem = Problem.REASONING_DROPPED if one is not None and one.kind is PartKind.REASONING else Problem.MISSING
    difference = fails(Part.MESSAGE, problem, f"it is missing: {shorten(message.content)!r}")
    return _departure(difference, number, message, None, one.where if one is not None else "")


def _departure(
    difference: JudgedDifference,
    number: int,
    expected: PromptMessage | None,
    shown: PromptMessage | None,
    where: str = "",
) -> PromptDifference:
    return PromptDifference(
        difference=difference,
        number=number,
        label=_label(shown or expected),
        where=where,
        expected=expected.ids if expected is not None else (),
        actual=shown.ids if shown is not None else (),
    )


def _label(message: PromptMessage | None) -> str:
    if message is None:
        return ""
    name = message.name if message.role == "tool" and message.name else message.role
    if message.recipient is not None:
        return f"{name} to {message.recipient}"
    return name if message.channel is None else f"{name}, {message.channel}"


def _differing(ids: tuple[int, ...], other: tuple[int, ...]) -> ReportText:
    """What of one side differs: what both begin and end with is left out, but for a token before it where nothing would be left of one side."""
    if not ids:
        return "no such message"
    begin = shared_length(ids, other)
    end = shared_length(ids[begin:][::-1], other[begin:][::-1])
    if end in (len(ids) - begin, len(other) - begin):
        begin = max(0, begin - 1)
    stop = min(len(ids) - end, begin + _MOST_TOKENS)
    shown = ids[begin:stop]
    more = " …" if stop < len(ids) - end else ""
    return quote(f"{show(shown)!r}{more}, tokens {', '.join(map(str, shown))}{more}")


def is_under_another_name(x: Exchange, where: str) -> bool:
    """Whether reasoning at a place of the request has another name than in the answer: clients send back the message that they were given."""
    own = x.turn.reasoning_field if x.turn is not None and x.turn.reasoning else None
    return own is not None and where.rpartition("/")[2] in REASONING_FIELDS and not where.endswith(f"/{own}")
