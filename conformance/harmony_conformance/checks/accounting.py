"""Family `accounting`: what the numbers of prompt tokens of several requests, taken together, say about prompts that the endpoint does not show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harmony_conformance.evidence.exchange import Series
from harmony_conformance.evidence.series_pairs import pair, prompt_count
from harmony_conformance.judge.check import MUST, SHOULD, Finding, comparison, condition, evidence, series_only, variant
from harmony_conformance.prompts.known_mistakes import Mistake
from harmony_conformance.prompts.token_accounting import CountExplanation, Requests, explain_counts, nearest
from harmony_conformance.redactable_text import RedactableText, ReportText, quote

PLAINEST = "plainest"
"""The step that the others are compared with; it is sent again at the end, and has to cost the same."""
AGAIN = "plainest, again"
_FEWEST = 4
_WHERE = "/usage/prompt_tokens"
_FORMS_TOLD = 3


@series_only
@evidence
def has_accounts(series: Series) -> bool:
    """series of requests made to be compared by their prompt_tokens, where the same request is counted the same"""
    counted = _counted(series)
    again = pair(series, PLAINEST, AGAIN)
    return (
        again is not None
        and PLAINEST in counted
        and len(counted) > _FEWEST
        and prompt_count(again[0]) == prompt_count(again[1])
    )


@condition
def is_no_known_mistake(series: Series) -> bool:
    """counts that can be explained without a known mistake, or not at all"""
    return not _shows_mistake(_accounts(series))


@comparison(MUST, spec="harmony#message-format", when=has_accounts)
def counts_show_no_known_mistake(series: Series) -> Iterator[Finding]:
    """Taken together, the prompt_tokens of several requests are not those of prompts with a known mistake.

    Works on a black box. What a provider puts before every prompt cancels out, every accepted form is tried first, and a mistake is only named where it
    explains each count to the token and nothing simpler does; mistakes that cost the same are named together (defects V17, V31, V41, J01, J02, J05, J10,
    J11, L04, L08, M14).
    """
    accounts = _accounts(series)
    if _shows_mistake(accounts):
        told = dict.fromkeys(map(_causes, accounts))
        yield _finding(
            series, RedactableText("the counts are those of prompts in which {}", ", or in which ".join(told))
        )


@comparison(SHOULD, spec="harmony#message-format", when=(has_accounts, is_no_known_mistake))
def counts_fit_a_form(series: Series) -> Iterator[Finding]:
    """Taken together, the prompt_tokens of several requests are those of one accepted form of prompts, and the same number more for each.

    That number is the size of what the provider adds to every prompt. Where nothing fits, something is written that Harmony does not have, or something is
    missing (defect T03).
    """
    accounts = _accounts(series)
    grown = dict.fromkeys(account.growth for account in accounts if not account.mistakes and account.growth)
    if not accounts:
        yield _finding(series, "the counts fit no accepted form, and no known mistake explains them")
    elif grown:
        yield _finding(series, quote(", or ".join(grown)))
    elif accounts[0].preamble:
        fit = RedactableText("{}, and every prompt has {}", _names(accounts), _signed(accounts[0].preamble))
        yield variant(fit, where=_WHERE)
    elif not accounts[0].is_of_the_library:
        yield variant(_names(accounts), where=_WHERE)


def _shows_mistake(accounts: Sequence[CountExplanation]) -> bool:
    return bool(accounts) and all(account.mistakes for account in accounts)


def _causes(account: CountExplanation) -> str:
    groups = [" or ".join(map(_told, group)) for group in account.mistakes]
    return ", and ".join([*groups, *([account.growth] if account.growth else [])])


def _told(mistake: Mistake) -> str:
    return f"{mistake.description} ({', '.join(mistake.defects)})" if mistake.defects else mistake.description


def _names(accounts: Sequence[CountExplanation]) -> RedactableText:
    forms = [form for account in accounts for form in account.forms]
    more = RedactableText(" and {} more", len(forms) - _FORMS_TOLD) if len(forms) > _FORMS_TOLD else RedactableText("")
    return RedactableText("the counts fit the form {}{}", " or ".join(forms[:_FORMS_TOLD]), more)


def _signed(tokens: int) -> RedactableText:
    more = RedactableText("more" if tokens > 0 else "fewer")
    return RedactableText("{} tokens {} than the conversation with its date", abs(tokens), more)


def _finding(series: Series, message: ReportText) -> Finding:
    requests, counts = counted_requests(series)
    ledger, gap = nearest(requests, counts)
    shown = [(name, count, count - off) for name, count, off in zip(requests.names, counts, gap, strict=True) if off]
    first = shown[0][0] if shown else PLAINEST
    return Finding(
        message=message,
        at=_WHERE,
        expected=RedactableText(
            "in the form {}: {}", ledger.forms[0], ", ".join(f"{one[0]} {one[2]}" for one in shown)
        ),
        actual=quote(", ".join(f"{name} {count}" for name, count, _ in shown)),
        exchange=series.exchanges[first].id,
    )


def _accounts(series: Series) -> tuple[CountExplanation, ...]:
    return explain_counts(*counted_requests(series))


def counted_requests(series: Series) -> tuple[Requests, Sequence[int]]:
    """The requests of a series that were counted, and their counts."""
    counted = _counted(series)
    bodies = tuple((name, series.exchanges[name].chat_request_body) for name in counted)
    return Requests(bodies=bodies, base=PLAINEST), tuple(counted.values())


def _counted(series: Series) -> dict[str, int]:
    """The prompt counts by step, the repetition left out."""
    counts = ((step, prompt_count(x)) for step, x in series.exchanges.items() if step != AGAIN and x.turn is not None)
    return {step: count for step, count in counts if count}
