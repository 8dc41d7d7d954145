"""Family `accounting`: judge prompts that the endpoint does not show, by the prompt_tokens of several requests together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harmony_conformance.evidence.exchange import Series
from harmony_conformance.evidence.series_pairs import find_pair, prompt_count
from harmony_conformance.judge.check import MUST, SHOULD, Finding, comparison, mismatch, variant
from harmony_conformance.judge.condition import condition, evidence, series_only
from harmony_conformance.judge.history_conditions import has_allowed_order
from harmony_conformance.prompts.known_mistakes import Mistake
from harmony_conformance.prompts.token_accounting import CountExplanation, RequestSet, explain_counts, nearest_forms
from harmony_conformance.redactable_text import RedactableText, ReportText, quote

BASE_STEP = "plainest"
"""The step that the others are compared with. It is sent again at the end and has to cost the same."""
REPEATED_BASE_STEP = "plainest, again"
_FEWEST = 4
_WHERE = "/usage/prompt_tokens"
_MOST_FORMS = 3


@series_only
@evidence
def has_comparable_counts(series: Series) -> bool:
    """series of requests that compare prompt_tokens, where the repeated request has the same count"""
    counts = _counts(series)
    again = find_pair(series, BASE_STEP, REPEATED_BASE_STEP)
    if again is None or prompt_count(again[0]) != prompt_count(again[1]):
        return False
    return BASE_STEP in counts and len(counts) > _FEWEST


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
        form, wrong = _wrong_counts(series)
        expected = RedactableText(
            "in the form {}: {}", form, ", ".join(f"{name} {wanted}" for name, (_, wanted) in wrong.items())
        )
        actual = quote(", ".join(f"{name} {count}" for name, (count, _) in wrong.items()))
        message = RedactableText("the counts match prompts in which {}", causes)
        yield mismatch(message, _WHERE, expected, actual, exchange=series.exchanges[next(iter(wrong), BASE_STEP)].id)


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
        yield variant(RedactableText("{}, and every prompt has {}", _names(accounts), extra), where=_WHERE)
    elif not accounts[0].is_library_form:
        yield variant(_names(accounts), where=_WHERE)


def _shows_mistake(accounts: Sequence[CountExplanation]) -> bool:
    return bool(accounts) and all(account.mistakes for account in accounts)


def _causes(account: CountExplanation) -> str:
    groups = [" or ".join(map(_describe, group)) for group in account.mistakes]
    return ", and ".join([*groups, *([account.growth] if account.growth else [])])


def _describe(mistake: Mistake) -> str:
    return f"{mistake.description} ({', '.join(mistake.defects)})" if mistake.defects else mistake.description


def _names(accounts: Sequence[CountExplanation]) -> RedactableText:
    forms = [form for account in accounts for form in account.form_names]
    more = RedactableText(" and {} more", len(forms) - _MOST_FORMS) if len(forms) > _MOST_FORMS else RedactableText("")
    return RedactableText("the counts fit the form {}{}", " or ".join(forms[:_MOST_FORMS]), more)


def _findings(series: Series, message: ReportText) -> Iterator[Finding]:
    """Yield a finding for each request whose count differs from the nearest form: their causes may differ."""
    form, wrong = _wrong_counts(series)
    for name, (count, wanted) in wrong.items():
        expected = RedactableText("in the form {}: {}", form, wanted)
        yield mismatch(message, _WHERE, expected, RedactableText("{}", count), exchange=series.exchanges[name].id)


def _wrong_counts(series: Series) -> tuple[str, Mapping[str, tuple[int, int]]]:
    """Return the nearest form, and by step the counts that differ from it: the reported and the expected one.

    Several forms can be equally near. A count that fits one of them is no evidence of a mistake, unless each count fits some.
    """
    requests, counts = counted_requests(series)
    nearest = nearest_forms(requests, counts)
    table, gap = nearest[0]
    rows = zip(requests.names, counts, gap, *(other for _, other in nearest), strict=True)
    wrong = [(name, (count, count - off), all(offs)) for name, count, off, *offs in rows if off]
    certain = [row for row in wrong if row[2]] or wrong
    return table.form_names[0], {name: values for name, values, _ in certain}


def _explanations(series: Series) -> tuple[CountExplanation, ...]:
    return explain_counts(*counted_requests(series))


def counted_requests(series: Series) -> tuple[RequestSet, Sequence[int]]:
    """Return the requests of a series that have a prompt count, and these counts."""
    counts = _counts(series)
    bodies = tuple((name, series.exchanges[name].chat_request_body) for name in counts)
    return RequestSet(bodies=bodies, base_name=BASE_STEP), tuple(counts.values())


def _counts(series: Series) -> dict[str, int]:
    """Return the prompt count of each step, without the repetition."""
    answered = ((step, x) for step, x in series.exchanges.items() if x.turn is not None and has_allowed_order.holds(x))
    counts = ((step, prompt_count(x)) for step, x in answered if step != REPEATED_BASE_STEP)
    return {step: count for step, count in counts if count}
