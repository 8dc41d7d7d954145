"""Differences of a prompt from the nearest accepted rendering: message, part, defect class, and the differing tokens of both sides.

The messages of the prompt are matched with those of each accepted rendering by content, so that differences of form hide none of content.
A difference is a *variant* if only the form differs: header forms, line ends between sections, spelling of types, equal JSON.
It is a *failure* if a text, a role, a name or the order differs. The nearest rendering has the fewest failures, then the fewest variants.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import LiteralString

from harmony_conformance.apis.json_equality import equal_json
from harmony_conformance.checks.helpers.value_diff import argument_difference
from harmony_conformance.checks.rendering import content_placement
from harmony_conformance.checks.rendering.accepted_renderings import (
    INSTRUCTIONS_IN_SYSTEM,
    AcceptedRendering,
    ExpectedMessage,
    library_prompts,
    renderings,
)
from harmony_conformance.checks.rendering.differing_tokens import differing_tokens, tokens_of_text
from harmony_conformance.checks.rendering.system_and_developer import (
    JudgedDifference,
    developer_difference,
    failing_difference,
    system_difference,
    variant_difference,
)
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, items, text, value_at
from harmony_conformance.judge.check import Verdict
from harmony_conformance.prompts.declarations_in_prompt import is_same_function
from harmony_conformance.prompts.expected_parts import (
    INSTRUCTIONS_HEADING,
    ParsedPrompt,
    PartKind,
    PromptMessage,
    Retention,
    expected_parts,
)
from harmony_conformance.prompts.request_members import REASONING_FIELDS
from harmony_conformance.redactable_text import RedactableText, ReportText, shorten
from harmony_ref import tokens
from harmony_ref.explanation import Part, Problem
from harmony_ref.explanation.divergence import Difference
from harmony_ref.explanation.message_difference import difference_of_contents, header_differences

_DATE = re.compile(r"^Current date: (.*)$", re.MULTILINE)
_NO_MESSAGE: LiteralString = "no such message"
_NO_TEXT: LiteralString = "no such text"


@dataclass(frozen=True, kw_only=True)
class PromptDifference:
    """One difference between a prompt and a rendering.

    Attributes:
        difference: The difference, and its verdict.
        message_index: The index of the message in the prompt, from 0; for a missing message, that of the message in its place.
        label: A short name of that message, such as `functions.f to assistant`.
        where: The JSON pointer of the part of the request; empty without a part.
        expected: The token ids of the expected message; empty if none is expected.
        actual: The token ids of the actual message; empty if it is missing.
    """

    difference: JudgedDifference
    message_index: int
    label: str
    where: str
    expected: Sequence[int]
    actual: Sequence[int]

    @property
    def is_failure(self) -> bool:
        """True if more than the form differs."""
        return self.difference.verdict is Verdict.FAIL

    @property
    def sentence(self) -> RedactableText:
        """The place, the defect class, and the difference."""
        one = self.difference
        template = "message {} ({}), {}, {}: {}"
        return RedactableText(template, self.message_index, self.label, one.part, one.problem, one.description)

    @property
    def summary(self) -> str:
        """The part and the defect class."""
        return f"{self.difference.part}: {self.difference.problem}"

    @property
    def tokens(self) -> tuple[ReportText, ReportText]:
        """The differing tokens with text and ids, expected and actual: those of the difference, else the first ones of the message."""
        expected, actual, missing = self.expected, self.actual, _NO_MESSAGE
        if self.difference.texts is not None:
            wanted, shown = self.difference.texts
            expected, actual = tokens_of_text(wanted, expected), tokens_of_text(shown, actual)
            missing = _NO_TEXT
        only_expected, only_actual = differing_tokens(expected, actual)
        return only_expected or missing, only_actual or missing


@dataclass(frozen=True, kw_only=True)
class PromptComparison:
    """The comparison of a prompt with one rendering: its style, its notes, and all differences."""

    style: str
    notes: tuple[str, ...]
    differences: tuple[PromptDifference, ...]

    @property
    def failures(self) -> tuple[PromptDifference, ...]:
        """The differences in more than form, in the order of the prompt."""
        return tuple(sorted((one for one in self.differences if one.is_failure), key=lambda one: one.message_index))

    @property
    def lost_tokens(self) -> int:
        """The tokens that the prompt would have more without its failures; negative if it would have fewer."""
        kept = (one for one in self.failures if one.difference.problem is not Problem.MOVED)
        messages = {(one.message_index, tuple(one.expected), tuple(one.actual)) for one in kept}
        return sum(len(expected) - len(actual) for _, expected, actual in messages)

    @property
    def distance(self) -> tuple[int, int]:
        """The numbers of failures and of variants."""
        failures = len(self.failures)
        return failures, len(self.differences) - failures + len(self.notes)


def compare_with_nearest(
    request: Json, ids: tuple[int, ...], read: ParsedPrompt, preferred: Container[str] = ()
) -> PromptComparison | None:
    """Compare a prompt with the nearest accepted rendering.

    Return None if it is the official library's prompt, or the library cannot render the request.

    Args:
        request: the Chat Completions request.
        ids: its prompt.
        read: the same prompt, parsed into messages.
        preferred: names of styles. One of them is taken if several renderings are equally near.
    """
    system = next((message for message in read.messages if message.role == "system"), None)
    line = _DATE.search(system.content) if system is not None else None
    date = line[1] if line is not None else None
    if ids in library_prompts(request, date):
        return None
    comparisons = (
        PromptComparison(style=one.style, notes=one.notes, differences=tuple(_compare(one, read.messages, request)))
        for one in renderings(request, date)
    )

    def order(one: PromptComparison) -> tuple[tuple[int, int], bool, bool]:
        return one.distance, INSTRUCTIONS_IN_SYSTEM in one.notes, one.style.partition(", ")[0] not in preferred

    return min(comparisons, key=order, default=None)


def _compare(
    rendering: AcceptedRendering, messages: Sequence[PromptMessage], request: Json
) -> Iterator[PromptDifference]:
    first = 1 if messages and messages[0].role == "system" else 0
    developer = tuple(takewhile(lambda message: message.role == "developer", messages[first:]))
    if first:
        for difference in system_difference(rendering.system.content, messages[0].content, request):
            yield _prompt_difference(difference, 0, rendering.system, messages[0])
    else:
        yield _missing_message(0, rendering.system)
    expected, actual = _join_developer_messages(rendering.developer_messages), _join_developer_messages(developer)
    if expected is not None and actual is not None:
        for difference in developer_difference(expected.content, actual.content, request):
            yield _prompt_difference(difference, first, expected, actual)
    elif expected is not None:
        yield _missing_message(first, expected)
    elif actual is not None and actual.content.strip() not in ("", "# Instructions"):
        yield _prompt_difference(failing_difference(Part.MESSAGE, Problem.EXTRA, _NO_SUCH_MESSAGE), first, None, actual)
    yield from _compare_conversation(rendering.conversation, messages, first + len(developer), request)


_NO_SUCH_MESSAGE = "the request has no such message"


def _join_developer_messages(messages: Sequence[PromptMessage]) -> PromptMessage | None:
    """Join consecutive developer messages: a server is free to join them."""
    if not messages:
        return None
    first, *others = (message.content for message in messages)
    content = "\n\n".join([first, *(one.removeprefix(INSTRUCTIONS_HEADING) for one in others)])
    return replace(messages[0], content=content, ids=tuple(token for message in messages for token in message.ids))


def _compare_conversation(
    expected: Sequence[ExpectedMessage], messages: Sequence[PromptMessage], start: int, request: Json
) -> Iterator[PromptDifference]:
    matches = _match(expected, messages, start)
    for place, one in enumerate(expected):
        following = min((index for other, index in matches.items() if other > place), default=len(messages))
        if place in matches:
            shown = messages[matches[place]]
            for difference in _differences(one, shown, request, is_last=matches[place] == len(messages) - 1):
                yield _prompt_difference(difference, matches[place], one.message, shown, one.where)
        elif not (one.is_optional or any(_is_joined_in(one, message) for message in messages[start:])):
            yield _missing_message(following, one.message, one)
        elif one.message.content:
            words = "reasoning is joined, or dropped where the sources disagree on it"
            dropped = variant_difference(Part.MESSAGE, Problem.REASONING_DROPPED, words)
            yield _prompt_difference(dropped, following, one.message, None, one.where)
    for number in (number for number in range(start, len(messages)) if number not in matches.values()):
        yield from _unexpected_message(expected, messages[number], number, request)
    yield from _moved_message(expected, matches, messages)


def _match(expected: Sequence[ExpectedMessage], messages: Sequence[PromptMessage], start: int) -> Mapping[int, int]:
    """Map expected messages to messages of the prompt: first those of equal content, then similar, then those of the same kind."""
    matches: dict[int, int] = {}
    free = list(range(start, len(messages)))
    for is_match in (_is_equal, _is_similar, _is_of_same_kind):
        for place, one in enumerate(expected):
            index = next((i for i in free if is_match(one, messages[i])), None) if place not in matches else None
            if index is not None:
                matches[place] = index
                free.remove(index)
    return matches


def _is_equal(one: ExpectedMessage, shown: PromptMessage) -> bool:
    is_addressed = one.kind in (PartKind.CALL, PartKind.RESULT)
    is_named = not is_addressed or is_same_function(one.message.function, shown.function)
    return _kind(shown) is one.kind and shown.content == one.message.content and is_named


def _is_similar(one: ExpectedMessage, shown: PromptMessage) -> bool:
    """Return True for the same text under another role, name or channel, for joined reasoning, or for equal JSON arguments."""
    content = one.message.content
    if content and shown.content == content:
        return True
    if one.kind is not PartKind.CALL or _kind(shown) is not PartKind.CALL:
        return _is_joined_in(one, shown)
    return equal_json(shown.content, content) and is_same_function(one.message.function, shown.function)


def _is_of_same_kind(one: ExpectedMessage, shown: PromptMessage) -> bool:
    is_empty_result = one.kind is PartKind.RESULT and shown.content == one.message.content
    return _kind(shown) is one.kind and (not one.is_optional or is_empty_result)


def _kind(message: PromptMessage) -> PartKind | None:
    return PartKind.INSTRUCTIONS if message.role == "developer" else content_placement.kind_of(message)


def _is_joined_in(one: ExpectedMessage, shown: PromptMessage) -> bool:
    """Return True if reasoning is contained, as whole lines, in reasoning of the prompt."""
    reasoning = one.message.content.strip()
    is_reasoning = one.kind is PartKind.REASONING and _kind(shown) is one.kind
    return is_reasoning and reasoning != "" and f"\n{reasoning}\n" in f"\n{shown.content.strip()}\n"


def _differences(
    one: ExpectedMessage, shown: PromptMessage, request: Json, *, is_last: bool
) -> Iterator[JudgedDifference]:
    expected = one.message
    if shown.role != expected.role:
        words = f"the role is {shown.role} where {expected.role} was expected"
        yield failing_difference(Part.ROLE, Problem.DIFFERENT, words)
        return
    yield from _header_differences(one, shown)
    if shown.special_count:
        yield failing_difference(Part.CONTENT, Problem.INJECTED, "text of the content became a special token")
    elif shown.content != expected.content and one.kind is PartKind.INSTRUCTIONS:
        yield from developer_difference(expected.content, shown.content, request)
    elif shown.content != expected.content:
        is_form = _is_joined_in(one, shown) or shown.content in _joined_by_white_space(one, request)
        is_form = is_form or (one.kind is PartKind.CALL and equal_json(shown.content, expected.content))
        is_call = one.kind is PartKind.CALL and not is_form
        change = argument_difference(expected.content, shown.content) if is_call else None
        difference = difference_of_contents(expected.content, shown.content, expected.role)
        difference = Difference(Part.CONTENT, Problem.DIFFERENT, change) if change else difference
        judged = variant_difference if is_form else failing_difference
        yield judged(difference.part, difference.problem, difference.description)
    if shown.end != expected.end and not (shown.end is None and is_last):
        is_form = one.kind is PartKind.CALL and shown.end_name == "⟦end⟧"
        words = f"the message ends in {shown.end_name or 'nothing'} where {expected.end_name} was expected"
        yield (variant_difference if is_form else failing_difference)(Part.END, Problem.DIFFERENT, words)


def _header_differences(one: ExpectedMessage, shown: PromptMessage) -> Iterator[JudgedDifference]:
    function = one.part.function if one.part is not None else one.message.function
    if one.kind not in (PartKind.CALL, PartKind.RESULT):
        if shown.name not in (one.message.name, None):
            words = f"the author's name {shorten(shown.name)!r} is in the header"
            yield variant_difference(Part.NAME, Problem.EXTRA, words)
    elif function is not None and shown.function != function:
        part = Part.RECIPIENT if one.kind is PartKind.CALL else Part.NAME
        words = f"the function is {shown.function or shown.name or 'missing'} where {function} was expected"
        judged = variant_difference if is_same_function(function, shown.function) else failing_difference
        yield judged(part, Problem.DIFFERENT, words)
    is_on_analysis = one.kind in (PartKind.CALL, PartKind.PREAMBLE, PartKind.RESULT) and shown.channel == "analysis"
    for difference in header_differences(one.message, shown):
        is_form = difference.problem is Problem.MISPLACED or difference.part is Part.CONTENT_TYPE
        is_form = is_form or (difference.part is Part.CHANNEL and is_on_analysis)
        is_result_name = difference.part is Part.RECIPIENT and one.kind is PartKind.RESULT
        if is_form or is_result_name or difference.part is Part.CHANNEL:
            judged = variant_difference if is_form else failing_difference
            yield judged(difference.part, difference.problem, difference.description)


def _joined_by_white_space(one: ExpectedMessage, request: Json) -> list[str]:
    """Join the parts of a content by each white space that servers use, since no source defines a separator."""
    where = one.where.split("/")
    parts = items(value_at(request, "messages", int(where[2]), "content")) if where[-1] == "content" else []
    return [
        mark.join(text(value_at(part, "text")) for part in parts) for mark in content_placement.PART_SEPARATORS if parts
    ]


def _unexpected_message(
    expected: Sequence[ExpectedMessage], message: PromptMessage, number: int, request: Json
) -> Iterator[PromptDifference]:
    """Yield the difference of an unmatched message of the prompt, unless it is empty."""
    if not (message.content or message.recipient):
        return
    dropped = (
        part for part in expected_parts(request) if part.retention is Retention.ABSENT and part.text == message.content
    )
    reasoning = next(dropped, None) if message.role == "assistant" else None
    problem, words = Problem.EXTRA, _NO_SUCH_MESSAGE
    if (place := content_placement.place_of_empty_text(request, message)) is not None and reasoning is None:
        words = f"the text of the request is empty, and the prompt has {shorten(message.content)!r}"
        difference = failing_difference(Part.CONTENT, Problem.DIFFERENT, words)
        yield _prompt_difference(difference, number, content_placement.without_content(message), message, place)
        return
    if reasoning is not None:
        problem, words = Problem.REASONING_KEPT, "reasoning before an answer has to be dropped, and is retained"
    elif any(one.message.content == message.content and one.kind is _kind(message) for one in expected):
        problem, words = Problem.REPEATED, "it is in the prompt more often than it was sent"
    where = reasoning.where if reasoning is not None else ""
    yield _prompt_difference(failing_difference(Part.MESSAGE, problem, words), number, None, message, where)


def _moved_message(
    expected: Sequence[ExpectedMessage], matches: Mapping[int, int], messages: Sequence[PromptMessage]
) -> Iterator[PromptDifference]:
    """Yield the first message after a later one. Calls and results of one message may come in two orders."""
    order = sorted(matches, key=lambda place: matches[place])
    for number, place in enumerate(order):
        one, passed = expected[place], [expected[before] for before in order[:number] if before > place]
        if passed:
            is_free = all(one.block is not None and one.block == p.block and one.kind is not p.kind for p in passed)
            words = f"it comes after {_label(passed[0].message)}, which was sent after it"
            difference = (variant_difference if is_free else failing_difference)(Part.MESSAGE, Problem.MOVED, words)
            yield _prompt_difference(difference, matches[place], passed[0].message, messages[matches[place]], one.where)
            if not is_free:
                return


def _missing_message(number: int, message: PromptMessage, one: ExpectedMessage | None = None) -> PromptDifference:
    problem = Problem.REASONING_DROPPED if one is not None and one.kind is PartKind.REASONING else Problem.MISSING
    difference = failing_difference(Part.MESSAGE, problem, f"it is missing: {shorten(message.content)!r}")
    if one is not None and one.part is not None and one.kind is PartKind.RESULT and one.part.function is None:
        begin = message.ids.index(tokens.MESSAGE) + 1  # the request does not name the function, and so not the header
        message = replace(message, name=None, recipient=None, ids=message.ids[begin:-1])
    return _prompt_difference(difference, number, message, None, one.where if one is not None else "")


def _prompt_difference(
    difference: JudgedDifference,
    number: int,
    expected: PromptMessage | None,
    shown: PromptMessage | None,
    where: str = "",
) -> PromptDifference:
    return PromptDifference(
        difference=difference,
        message_index=number,
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


def has_renamed_reasoning_field(x: Exchange, where: str) -> bool:
    """Return True if reasoning at a place of the request has another field name than in the answer. Clients send back what they received."""
    own = x.turn.reasoning_field if x.turn is not None and x.turn.reasoning else None
    return own is not None and where.rpartition("/")[2] in REASONING_FIELDS and not where.endswith(f"/{own}")
