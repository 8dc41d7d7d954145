"""Token accounting: what the numbers of prompt tokens of several requests say about prompts that nobody shows.

A server may put the same text before every prompt, so a count alone says nothing; what counts is how they differ. The counts of all requests are compared
with those of every accepted form. Where the difference is the same number for all, the form fits, and the number is the size of what the server adds.
Where none fits, the smallest set of mistakes is sought that explains the differences exactly; mistakes with the same counts are named together.

What every prompt has alike can not be seen by counts: the identity, dates, the effort (each level is one token), the order of messages and of header
fields, and whether the prompt ends with `<|start|>assistant`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import chain, combinations, product
from operator import sub

from harmony_conformance.json_value import loads
from harmony_conformance.prompts.conversation import MAY_BE_KEPT, MUST_BE_KEPT, RequestReading
from harmony_conformance.prompts.known_mistakes import (
    GROWTHS,
    MISTAKES,
    Growth,
    Messages,
    Mistake,
    is_call,
    reference_conversation,
)
from harmony_conformance.runtime.caching import cached_property
from harmony_ref import DeveloperContent, Role, developer_text
from harmony_ref.styles import HARMONY_0_0_8, HF_TEMPLATE, STYLES, ContentTypeForm, JsonForm, Style
from harmony_ref.styles.styled_rendering import rendered_messages

_MOST_CAUSES = 2
_GENERATION_PROMPT = 2  # tokens of `<|start|>assistant`


@dataclass(frozen=True, kw_only=True)
class PromptForm:
    """One accepted form of prompts: a style, what header calls have, and one of the readings that the sources allow."""

    style: Style
    reading: RequestReading
    types_calls: bool = True

    def __str__(self) -> str:
        """What of it a count shows."""
        types = "" if self.types_calls else ", calls without content type"
        place = ", instructions in the system message" if self.reading.instructs is Role.SYSTEM else ""
        return f"{self.style.name}{types}{place}"


@dataclass(frozen=True, kw_only=True)
class Group:
    """Mistakes that change all counts alike, and by how many tokens they change each, more than the base's."""

    mistakes: tuple[Mistake, ...]
    changes: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Requests:
    """Bodies of requests by name, in the order of all vectors here; `base` names the plainest, which the others are compared with."""

    bodies: tuple[tuple[str, bytes], ...]
    base: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names."""
        return tuple(name for name, _ in self.bodies)

    def relative(self, counts: Sequence[int]) -> tuple[int, ...]:
        """Counts without what the base has already."""
        base = counts[self.names.index(self.base)]
        return tuple(count - base for count in counts)


@dataclass(frozen=True, kw_only=True)
class PromptCostTable:
    """What the requests cost in one form, or in several that cost the same, and what the mistakes would change.

    Attributes:
        requests: the requests.
        form: the first of the forms.
        forms: the names of the forms.
        expected: the count of each request.
    """

    requests: Requests
    form: PromptForm
    forms: tuple[str, ...]
    expected: tuple[int, ...]

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The mistakes that can be seen. Only looked at where counts are wrong."""
        requests = self.requests
        seen: dict[tuple[int, ...], list[Mistake]] = {}
        for mistake in MISTAKES:
            wrong = tuple(count_in_form(body, self.form, mistake) for _, body in requests.bodies)
            changes = tuple(map(sub, requests.relative(wrong), requests.relative(self.expected)))
            if any(changes):
                seen.setdefault(changes, []).append(mistake)
        return tuple(Group(mistakes=tuple(group), changes=changes) for changes, group in seen.items())

    @cached_property
    def growths(self) -> tuple[tuple[Growth, tuple[int, ...]], ...]:
        """How often each thing that may grow stands in each request, more often than in the base."""
        return tuple((growth, _numbers(self.requests, self.form, growth)) for growth in GROWTHS)


@dataclass(frozen=True, kw_only=True)
class CountExplanation:
    """How counts are explained.

    Attributes:
        forms: the names of the forms that this holds for.
        preamble: tokens that every prompt has besides the conversation; negative where it has fewer.
        mistakes: all together they explain the counts; those of one group have the same counts. Empty where there is none.
        growth: what else explains them: a part of the prompt is larger or smaller than in any form. Empty where there is none.
    """

    forms: tuple[str, ...]
    preamble: int
    mistakes: tuple[tuple[Mistake, ...], ...] = ()
    growth: str = ""

    @property
    def is_of_the_library(self) -> bool:
        """Whether the official library's form is among them."""
        return FORMS[0].style.name in self.forms


def _with_blank_line(content: DeveloperContent) -> str:
    return developer_text(content) + ("" if content.tools else "\n\n")


def _without_blank_line(content: DeveloperContent) -> str:
    return HF_TEMPLATE.developer_text(content).removesuffix("\n\n")


ACCEPTED_STYLES = (
    *STYLES.values(),
    replace(
        HARMONY_0_0_8,
        name="harmony_0_0_8, a blank line after instructions",
        developer_text=_with_blank_line,
    ),
    replace(
        HF_TEMPLATE,
        name="hf_template, no blank line after instructions",
        developer_text=_without_blank_line,
    ),
)
"""The named styles, and those that servers are known to change a little."""


def _forms() -> Iterator[PromptForm]:
    axes = product((Role.DEVELOPER, Role.SYSTEM), (MUST_BE_KEPT, MAY_BE_KEPT), (True, False))
    readings = [RequestReading(instructs=role, keeps=keeps, joins=joins) for role, keeps, joins in axes]
    for reading, style in product(readings, ACCEPTED_STYLES):
        yield PromptForm(style=style, reading=reading)
        if style.arguments is JsonForm.AS_GIVEN:
            spaced = f"{style.name}, arguments written anew"
            yield PromptForm(style=replace(style, name=spaced, arguments=JsonForm.PYTHON), reading=reading)
        if style.content_type is not ContentTypeForm.PLAIN:
            plain = f"{style.name}, content type without marker"
            yield PromptForm(style=replace(style, name=plain, content_type=ContentTypeForm.PLAIN), reading=reading)
        yield PromptForm(style=replace(style, call_type=None), reading=reading, types_calls=False)


FORMS = tuple(_forms())
"""Every form whose counts are looked at, the library's first."""


def explain_counts(requests: Requests, counts: Sequence[int]) -> tuple[CountExplanation, ...]:
    """Every account of the reported counts that has the fewest causes, none where the form is an accepted one. Empty where there is no account.

    A growth has a free number, so it is only looked at where as many mistakes explain nothing.
    """
    found = [(ledger, _gap(requests, counts, ledger)) for ledger in cost_tables(requests)]
    for size, explain in product(range(_MOST_CAUSES + 1), (_by_mistakes, _by_growth)):
        accounts = tuple(
            replace(account, preamble=_preamble(requests, counts, ledger))
            for ledger, gap in found
            for account in explain(ledger, gap, size)
        )
        if accounts:
            return accounts
    return ()


def nearest(requests: Requests, counts: Sequence[int]) -> tuple[PromptCostTable, tuple[int, ...]]:
    """The form that fits most requests, and by how many tokens each is off in it."""
    found = ((ledger, _gap(requests, counts, ledger)) for ledger in cost_tables(requests))
    return min(found, key=lambda ledger_and_gap: sum(map(bool, ledger_and_gap[1])))


@lru_cache(maxsize=64)
def cost_tables(requests: Requests) -> tuple[PromptCostTable, ...]:
    """The ledgers of all forms that differ in what these requests cost, in the order of the forms."""
    alike: dict[tuple[int, ...], list[PromptForm]] = {}
    for form in FORMS:
        alike.setdefault(requests.relative(_expected(requests, form)), []).append(form)
    return tuple(
        PromptCostTable(
            requests=requests,
            form=forms[0],
            forms=tuple(dict.fromkeys(map(str, forms))),
            expected=_expected(requests, forms[0]),
        )
        for forms in alike.values()
    )


def count_in_form(body: bytes, form: PromptForm, mistake: Mistake | None = None) -> int:
    """The number of prompt tokens of a request in a form, with a mistake or none."""
    messages = _right(body, form.reading) if mistake is None else mistake.change(loads(body.decode()), form.reading)
    if not form.types_calls:
        messages = tuple(replace(message, content_type=None) if is_call(message) else message for message in messages)
    ids = list(chain.from_iterable(rendered.ids for rendered in rendered_messages(messages, form.style)))
    return len(ids if mistake is None else mistake.feed(ids)) + _GENERATION_PROMPT


def _expected(requests: Requests, form: PromptForm) -> tuple[int, ...]:
    return tuple(count_in_form(body, form) for _, body in requests.bodies)


def _numbers(requests: Requests, form: PromptForm, growth: Growth) -> tuple[int, ...]:
    return requests.relative([growth.number(_right(body, form.reading)) for _, body in requests.bodies])


@lru_cache(maxsize=512)
def _right(body: bytes, reading: RequestReading) -> Messages:
    """The conversation as it should be: it has many forms."""
    return reference_conversation(loads(body.decode()), reading)


def _gap(requests: Requests, counts: Sequence[int], ledger: PromptCostTable) -> tuple[int, ...]:
    return tuple(map(sub, requests.relative(counts), requests.relative(ledger.expected)))


def _preamble(requests: Requests, counts: Sequence[int], ledger: PromptCostTable) -> int:
    base = requests.names.index(requests.base)
    return counts[base] - ledger.expected[base]


def _by_mistakes(ledger: PromptCostTable, gap: Sequence[int], size: int) -> Iterator[CountExplanation]:
    for chosen in combinations(ledger.groups if size else (), size):
        if not any(_left(gap, chosen)):
            yield CountExplanation(forms=ledger.forms, preamble=0, mistakes=_mistakes(chosen))


def _by_growth(ledger: PromptCostTable, gap: Sequence[int], size: int) -> Iterator[CountExplanation]:
    for chosen in combinations(ledger.groups, size - 1) if size else ():
        left = _left(gap, chosen)
        for grown in filter(None, (_grown(left, *growth) for growth in ledger.growths)):
            yield CountExplanation(forms=ledger.forms, preamble=0, mistakes=_mistakes(chosen), growth=grown)


def _mistakes(chosen: Sequence[Group]) -> tuple[tuple[Mistake, ...], ...]:
    return tuple(group.mistakes for group in chosen)


def _left(gap: Sequence[int], chosen: Sequence[Group]) -> tuple[int, ...]:
    return tuple(
        value - sum(changed) for value, *changed in zip(gap, *(group.changes for group in chosen), strict=True)
    )


def _grown(left: Sequence[int], growth: Growth, numbers: Sequence[int]) -> str:
    """What grew and by how much, where one whole number of tokens for each explains what is left."""
    rates = {
        Fraction(value, number) if number else None
        for value, number in zip(left, numbers, strict=True)
        if value or number
    }
    rate = rates.pop() if len(rates) == 1 else None
    if not rate or rate.denominator != 1:
        return ""
    return f"each {growth.each} has {abs(rate.numerator)} tokens {'more' if rate > 0 else 'fewer'} than in any accepted form"
