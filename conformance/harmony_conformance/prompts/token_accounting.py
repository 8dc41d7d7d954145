"""Token accounting: infer mistakes in hidden prompts from the prompt token counts of several requests.

A server may add the same text to every prompt, so a single count proves nothing. The counts of all requests are compared with those of
every accepted form. A form fits if the difference is the same for all requests: that is the size of the added text.
If no form fits, the smallest set of mistakes that explains the differences exactly is searched. Mistakes with equal counts are reported together.

Counts cannot show what all prompts share: identity, dates, effort (each level is one token), order of messages and of header fields,
a missing `<|start|>assistant`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import chain, combinations, product
from operator import sub

from harmony_conformance.json_value import loads
from harmony_conformance.prompts import known_mistakes
from harmony_conformance.prompts.conversation import ALLOWED_RETENTIONS, REQUIRED_RETENTIONS, ConversationOptions
from harmony_conformance.runtime.caching import cached_property
from harmony_ref import DeveloperContent, Role, developer_text
from harmony_ref.styles import HARMONY_0_0_8, HF_TEMPLATE, OSS_HARMONY_0_0_11, STYLES, ContentTypeForm, JsonForm, Style
from harmony_ref.styles.styled_rendering import rendered_messages

_MOST_CAUSES = 2
_LIBRARY_STYLES = (HARMONY_0_0_8.name, OSS_HARMONY_0_0_11.name)
_GENERATION_PROMPT = 2  # tokens of `<|start|>assistant`


@dataclass(frozen=True, kw_only=True)
class PromptForm:
    """An accepted form of prompts: a style, a reading that the sources allow, and two freedoms.

    Calls may have a content type, and `commentary` may be a valid channel only of requests with functions.
    """

    style: Style
    options: ConversationOptions
    has_call_types: bool = True
    always_has_commentary: bool = True

    def __str__(self) -> str:
        """Return the properties that a count can show."""
        types = "" if self.has_call_types else ", calls without content type"
        place = ", instructions in the system message" if self.options.instructions_role is Role.SYSTEM else ""
        channel = "" if self.always_has_commentary else ", commentary only with functions"
        return f"{self.style.name}{types}{channel}{place}"


@dataclass(frozen=True, kw_only=True)
class MistakeGroup:
    """Mistakes that change all counts equally. `changes` has the tokens per request, relative to the base request."""

    mistakes: tuple[known_mistakes.Mistake, ...]
    changes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RequestSet:
    """Request bodies by name. All count vectors have this order. `base` is the simplest request, to which others are compared."""

    bodies: tuple[tuple[str, bytes], ...]
    base_name: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the requests."""
        return tuple(name for name, _ in self.bodies)

    def relative(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Subtract the base request's count from each count."""
        base = counts[self.names.index(self.base_name)]
        return tuple(count - base for count in counts)


@dataclass(frozen=True, kw_only=True)
class PromptCostTable:
    """The prompt token counts of the requests in one form, or in several forms (by name) with equal counts."""

    requests: RequestSet
    form: PromptForm
    form_names: tuple[str, ...]
    expected_counts: tuple[int, ...]

    @cached_property
    def groups(self) -> tuple[MistakeGroup, ...]:
        """The mistakes that change a count, grouped by their changes. Needed only for wrong counts."""
        requests = self.requests
        by_changes: dict[tuple[int, ...], list[known_mistakes.Mistake]] = {}
        for mistake in known_mistakes.MISTAKES:
            wrong = tuple(count_in_form(body, self.form, mistake) for _, body in requests.bodies)
            changes = tuple(map(sub, requests.relative(wrong), requests.relative(self.expected_counts)))
            if any(changes):
                by_changes.setdefault(changes, []).append(mistake)
        return tuple(MistakeGroup(mistakes=tuple(group), changes=changes) for changes, group in by_changes.items())

    @cached_property
    def growths(self) -> tuple[tuple[known_mistakes.Growth, tuple[int, ...]], ...]:
        """The occurrences of each growth in each request, relative to the base request."""
        conversations = [_correct_conversation(body, self.form.options) for _, body in self.requests.bodies]
        return tuple(
            (growth, self.requests.relative(list(map(growth.count_occurrences, conversations))))
            for growth in known_mistakes.GROWTHS
        )


@dataclass(frozen=True, kw_only=True)
class CountExplanation:
    """An explanation of the reported counts, valid for some forms (by name).

    Attributes:
        extra_tokens: The tokens of every prompt that are not in the form; negative if tokens are missing.
        mistakes: Groups of mistakes, which explain the counts together. Mistakes of one group are indistinguishable.
        growth: A sentence about a part that is larger or smaller than in any form, or an empty text.
    """

    form_names: tuple[str, ...]
    extra_tokens: int
    mistakes: tuple[tuple[known_mistakes.Mistake, ...], ...] = ()
    growth: str = ""

    @property
    def is_library_form(self) -> bool:
        """True if the official library's form is one of `form_names`."""
        return FORMS[0].style.name in self.form_names


def _with_blank_line(content: DeveloperContent) -> str:
    return developer_text(content) + ("" if content.tools else "\n\n")


def _without_blank_line(content: DeveloperContent) -> str:
    return HF_TEMPLATE.developer_text(content).removesuffix("\n\n")


ACCEPTED_STYLES = (
    *STYLES.values(),
    replace(HARMONY_0_0_8, name="harmony_0_0_8, a blank line after instructions", developer_text=_with_blank_line),
    replace(HF_TEMPLATE, name="hf_template, no blank line after instructions", developer_text=_without_blank_line),
)
"""The named styles, and known small variants of them."""


def _forms() -> Iterator[PromptForm]:
    forms = tuple(_forms_with_all_channels())
    yield from forms
    # a chat template names the channels always, and openai-harmony those that its caller gives it
    yield from (
        replace(form, always_has_commentary=False) for form in forms if form.style.name.startswith(_LIBRARY_STYLES)
    )


def _forms_with_all_channels() -> Iterator[PromptForm]:
    axes = product((Role.DEVELOPER, Role.SYSTEM), (REQUIRED_RETENTIONS, ALLOWED_RETENTIONS), (True, False))
    readings = [
        ConversationOptions(instructions_role=role, retentions=keeps, joins_instructions=joins)
        for role, keeps, joins in axes
    ]
    for reading, style in product(readings, ACCEPTED_STYLES):
        yield PromptForm(style=style, options=reading)
        if style.arguments is JsonForm.AS_GIVEN:
            spaced = f"{style.name}, arguments reformatted"
            yield PromptForm(style=replace(style, name=spaced, arguments=JsonForm.PYTHON), options=reading)
        if style.content_type is not ContentTypeForm.PLAIN:
            plain = f"{style.name}, content type without marker"
            yield PromptForm(style=replace(style, name=plain, content_type=ContentTypeForm.PLAIN), options=reading)
        yield PromptForm(style=replace(style, call_type=None), options=reading, has_call_types=False)


FORMS = tuple(_forms())
"""All forms, that of the official library first."""


def explain_counts(requests: RequestSet, counts: Sequence[int]) -> tuple[CountExplanation, ...]:
    """Return all explanations of the reported counts with the fewest causes, or an empty tuple.

    Explanations of an accepted form have no cause. A growth has a free number, so it is tried after as many mistakes.
    """
    base = requests.names.index(requests.base_name)
    gaps = [(table, _gap(requests, counts, table)) for table in cost_tables(requests)]
    for size, explain in product(range(_MOST_CAUSES + 1), (_by_mistakes, _by_growth)):
        explanations = tuple(
            replace(explanation, extra_tokens=counts[base] - table.expected_counts[base])
            for table, gap in gaps
            for explanation in explain(table, gap, size)
        )
        if explanations:
            return explanations
    return ()


def fits_library_form(requests: RequestSet, counts: Sequence[int]) -> bool:
    """Return True if each count is that of the official library's form, so that nothing is left to explain. One form costs far less than all."""
    return _expected(requests, FORMS[0]) == tuple(counts)


def nearest_forms(requests: RequestSet, counts: Sequence[int]) -> tuple[tuple[PromptCostTable, tuple[int, ...]], ...]:
    """Return the forms that fit most requests, each with the difference in tokens for each request."""
    gaps = [(table, _gap(requests, counts, table)) for table in cost_tables(requests)]
    fewest = min(sum(map(bool, gap)) for _, gap in gaps)
    return tuple((table, gap) for table, gap in gaps if sum(map(bool, gap)) == fewest)


@lru_cache(maxsize=64)
def cost_tables(requests: RequestSet) -> tuple[PromptCostTable, ...]:
    """Return one table for all forms with equal counts for these requests, in the order of the forms."""
    by_counts: dict[tuple[int, ...], list[PromptForm]] = {}
    for form in FORMS:
        by_counts.setdefault(requests.relative(_expected(requests, form)), []).append(form)
    return tuple(
        PromptCostTable(
            requests=requests,
            form=forms[0],
            form_names=tuple(dict.fromkeys(map(str, forms))),
            expected_counts=_expected(requests, forms[0]),
        )
        for forms in by_counts.values()
    )


def count_in_form(body: bytes, form: PromptForm, mistake: known_mistakes.Mistake | None = None) -> int:
    """Return the number of prompt tokens of a request in a form, optionally with a mistake."""
    reading = form.options
    messages = (
        _correct_conversation(body, reading)
        if mistake is None
        else mistake.build_conversation(loads(body.decode()), reading)
    )
    if not form.has_call_types:
        messages = tuple(
            replace(message, content_type=None) if known_mistakes.is_call(message) else message for message in messages
        )
    if not form.always_has_commentary:
        messages = known_mistakes.without_unused_commentary(messages)
    ids = list(chain.from_iterable(rendered.ids for rendered in rendered_messages(messages, form.style)))
    return len(ids if mistake is None else mistake.change_tokens(ids)) + _GENERATION_PROMPT


def _expected(requests: RequestSet, form: PromptForm) -> tuple[int, ...]:
    return tuple(count_in_form(body, form) for _, body in requests.bodies)


@lru_cache(maxsize=512)
def _correct_conversation(body: bytes, reading: ConversationOptions) -> known_mistakes.Messages:
    return known_mistakes.reference_conversation(loads(body.decode()), reading)


def _gap(requests: RequestSet, counts: Sequence[int], table: PromptCostTable) -> tuple[int, ...]:
    return tuple(map(sub, requests.relative(counts), requests.relative(table.expected_counts)))


def _by_mistakes(table: PromptCostTable, gap: Sequence[int], size: int) -> Iterator[CountExplanation]:
    for groups in combinations(table.groups if size else (), size):
        if not any(_remainder(gap, groups)):
            mistakes = tuple(one.mistakes for one in groups)
            yield CountExplanation(form_names=table.form_names, extra_tokens=0, mistakes=mistakes)


def _by_growth(table: PromptCostTable, gap: Sequence[int], size: int) -> Iterator[CountExplanation]:
    for groups in combinations(table.groups, size - 1) if size else ():
        mistakes = tuple(group.mistakes for group in groups)
        remainder = _remainder(gap, groups)
        for growth in filter(None, (_describe_growth(remainder, *growth) for growth in table.growths)):
            yield CountExplanation(form_names=table.form_names, extra_tokens=0, mistakes=mistakes, growth=growth)


def _remainder(gap: Sequence[int], groups: Sequence[MistakeGroup]) -> tuple[int, ...]:
    changes = (group.changes for group in groups)
    return tuple(value - sum(explained) for value, *explained in zip(gap, *changes, strict=True))


def _describe_growth(remainder: Sequence[int], growth: known_mistakes.Growth, numbers: Sequence[int]) -> str:
    """Return a sentence about the growth if one whole number of tokens per occurrence explains the remainder, else an empty text."""
    pairs = (pair for pair in zip(remainder, numbers, strict=True) if any(pair))
    rates = {Fraction(value, number) if number else None for value, number in pairs}
    rate = rates.pop() if len(rates) == 1 else None
    if not rate or rate.denominator != 1:
        return ""
    return f"each {growth.occurrence} has {abs(rate.numerator)} tokens {'more' if rate > 0 else 'fewer'} than in any accepted form"
