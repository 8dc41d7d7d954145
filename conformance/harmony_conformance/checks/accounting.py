"""Family `accounting`: judge prompts that the endpoint does not show, by the prompt_tokens of several requests together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from harmony_conformance.checks.helpers.counted_requests import BASE_STEP, counted_requests, has_comparable_counts
from harmony_conformance.checks.rendering.accepted_renderings import has_predictable_prompt
from harmony_conformance.checks.rendering.prompt_diff import PromptComparison, compare_with_nearest
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.json_value import strings
from harmony_conformance.judge.check import MUST, SHOULD, Finding, comparison, mismatch, variant
from harmony_conformance.judge.condition import condition
from harmony_conformance.prompts.expected_parts import PartKind
from harmony_conformance.prompts.known_mistakes import Mistake
from harmony_conformance.prompts.token_accounting import (
    FORMS,
    CountExplanation,
    explain_counts,
    fits_library_form,
    nearest_forms,
)
from harmony_conformance.prompts.token_injection import SPECIAL_TOKEN
from harmony_conformance.redactable_text import RedactableText, ReportText, quote
from harmony_ref.styles import HF_TEMPLATE

_WHERE = "/usage/prompt_tokens"
_MOST_FORMS = 3


@condition
def is_no_known_mistake(series: Series) -> bool:
    """counts that can be explained without a known mistake, or not at all"""
    return not _shows_mistake(_explanations(series))


@comparison(MUST, spec="harmony#message-format", when=has_comparable_counts)
def counts_show_no_known_mistake(series: Series) -> Iterator[Finding]:
    """Taken together, the prompt_tokens of several requests do not match prompts with a known mistake.

    Works on a black box. Text that a provider puts before every prompt cancels out, and every accepted form is tried first. A mistake is named only if it
    explains each count to the token and nothing simpler does. Mistakes that cost the same are named together (defects V17, V31, V41, J01, J02, J05, J10,
    J11, L04, L08, M14).
    """
    accounts = _explanations(series)
    if _shows_mistake(accounts):
        causes = ", or in which ".join(dict.fromkeys(map(_causes, accounts)))
        wrong = _wrong_counts(series)
        form = next((one.form for one in wrong), "")
        wanted = ", ".join(f"{one.step} {one.wanted}" for one in wrong)
        actual = quote(", ".join(f"{one.step} {one.count}" for one in wrong))
        message = RedactableText("the counts match prompts in which {}", causes)
        first = series.exchanges[next((one.step for one in wrong), BASE_STEP)].id
        yield mismatch(
            message,
            _WHERE,
            RedactableText("in the nearest accepted form, {}: {}", _described(form, series), wanted),
            actual,
            exchange=first,
        )


@comparison(SHOULD, spec="harmony#message-format", when=(has_comparable_counts, is_no_known_mistake))
def counts_fit_a_form(series: Series) -> Iterator[Finding]:
    """Taken together, the prompt_tokens of several requests match one accepted form of prompts, plus the same number for each.

    That number is the size of the text that the provider adds to every prompt. If nothing fits, the prompt has a part that Harmony does not define, or a
    part is missing (defect T03).
    """
    accounts = _explanations(series)
    growths = dict.fromkeys(account.growth for account in accounts if not account.mistakes and account.growth)
    if not accounts:
        yield from _findings(series, "the counts fit no accepted form, and no one or two known mistakes explain them")
    elif growths:
        yield from _findings(series, quote(", or ".join(growths)))
    elif accounts[0].extra_tokens:
        size, more = abs(accounts[0].extra_tokens), RedactableText("more" if accounts[0].extra_tokens > 0 else "fewer")
        extra = RedactableText("{} tokens {} than the conversation with its date", size, more)
        yield variant(RedactableText("{}, and every prompt has {}", _names(accounts, series), extra), where=_WHERE)
    elif not accounts[0].is_library_form:
        yield variant(_names(accounts, series), where=_WHERE)


def _shows_mistake(accounts: Sequence[CountExplanation]) -> bool:
    return bool(accounts) and all(account.mistakes for account in accounts)


def _causes(account: CountExplanation) -> str:
    groups = [" or ".join(map(_describe, group)) for group in account.mistakes]
    return ", and ".join([*groups, *([account.growth] if account.growth else [])])


def _describe(mistake: Mistake) -> str:
    return f"{mistake.description} ({', '.join(mistake.defects)})" if mistake.defects else mistake.description


def _names(accounts: Sequence[CountExplanation], series: Series) -> RedactableText:
    forms = [_described(form, series) for account in accounts for form in account.form_names]
    more = RedactableText(" and {} more", len(forms) - _MOST_FORMS) if len(forms) > _MOST_FORMS else RedactableText("")
    return RedactableText("the counts fit the form {}{}", " or ".join(forms[:_MOST_FORMS]), more)


def _described(form: str, series: Series) -> str:
    """Return the name of a form. The published chat template quotes results, the style of its name does not."""
    style, *others = form.split(", ")
    has_results = any(part.kind is PartKind.RESULT for x in series.exchanges.values() for part in x.expected_parts)
    notes = ["results raw"] if style == HF_TEMPLATE.name and has_results else []
    return ", ".join([style, *notes, *others])


@dataclass(frozen=True, kw_only=True)
class _WrongCount:
    """The prompt count of a step, and the count in a form of prompts, which has a name."""

    step: str
    count: int
    wanted: int
    form: str


def _findings(series: Series, message: ReportText) -> Iterator[Finding]:
    """Yield a finding for each request with a wrong count: their causes may differ."""
    for one in _wrong_counts(series):
        expected = RedactableText("in the nearest accepted form, {}: {}", _described(one.form, series), one.wanted)
        actual = RedactableText("{}", one.count)
        yield mismatch(message, _WHERE, expected, actual, exchange=series.exchanges[one.step].id)


def _wrong_counts(series: Series) -> tuple[_WrongCount, ...]:
    """Return the counts that differ from the nearest form.

    Several forms can be equally near. A count that fits one of them is no evidence of a mistake, unless each count fits some.
    Where the prompts are shown too, they decide which counts are wrong, and by how many tokens.
    """
    requests, counts = counted_requests(series)
    nearest = nearest_forms(requests, counts)
    table, gap = nearest[0]
    form = table.form_names[0]
    styles = frozenset(name.partition(", ")[0] for near, _ in nearest for name in near.form_names)
    wrong, possible = list[_WrongCount](), list[_WrongCount]()
    for name, count, off, *others in zip(
        requests.names, counts, gap, *(other for _, other in nearest[1:]), strict=True
    ):
        row, x = _WrongCount(step=name, count=count, wanted=count - off, form=form), series.exchanges[name]
        possible += [row] if off else []
        if not _is_shown(x, count):
            wrong += [row] if all((off, *others)) else []
        elif any((off, *others)) and (compared := _compare(x, styles)) is not None and compared.lost_tokens:
            wrong.append(replace(row, wanted=count + compared.lost_tokens, form=compared.style))
    return tuple(wrong or possible)


def _is_shown(x: Exchange, count: int) -> bool:
    """Return True if the prompt is shown with as many tokens as are counted, and is predictable.

    A text with markers can part a message of the prompt in several.
    """
    is_marked = any(map(SPECIAL_TOKEN.search, strings(x.chat_request)))
    return len(x.prompt.ids or ()) == count and not is_marked and has_predictable_prompt(x.chat_request)


def _compare(x: Exchange, styles: frozenset[str]) -> PromptComparison | None:
    """Compare a shown prompt with the nearest rendering, if possible one of a style of the nearest forms."""
    read = x.parsed_prompt
    return compare_with_nearest(x.chat_request, x.prompt.ids or (), read, styles) if read is not None else None


def _explanations(series: Series) -> tuple[CountExplanation, ...]:
    requests, counts = counted_requests(series)
    if fits_library_form(requests, counts):
        return (CountExplanation(form_names=(str(FORMS[0]),), extra_tokens=0),)
    return explain_counts(requests, counts)
