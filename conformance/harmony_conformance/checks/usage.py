"""Family `usage`: the reported usage is what the model read and wrote."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.series_pairs import prompt_count, same_request_pairs
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, comparison, mismatch, ruled, variant
from harmony_conformance.judge.condition import condition, evidence
from harmony_conformance.judge.rulings import COUNTS_OF_ENDPOINTS
from harmony_conformance.redactable_text import Location, RedactableText, quote


@check(MUST, spec="chat#usage", when=(on.api_reports_usage, on.should_have_usage))
def is_reported(x: Exchange) -> Iterator[Finding]:
    """Usage is reported, with whole numbers that are not all zero.

    Zeros and missing counts make costs, limits and every check of counts meaningless (defects V26, V27, O20).
    """
    usage = x.turn.usage if x.turn is not None else None
    if usage is None:
        expected = "prompt_tokens, completion_tokens, total_tokens"
        yield mismatch("no usage is reported", "/usage", expected, "nothing")
        return
    # of an empty answer only a stop token was emitted, which need not be counted
    is_empty = x.turn is not None and not x.turn.has_answer and not x.turn.reasoning
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        count: int | None = getattr(usage, name)
        if count is None:
            message = RedactableText("{} is missing or not a whole number", Location(name))
            yield mismatch(message, f"/usage/{name}", "a whole number", "something else")
        elif count <= 0 and not (name == "completion_tokens" and (is_empty or x.max_output_tokens == 0)):
            message = RedactableText("{} is {}", Location(name), count)
            yield mismatch(message, f"/usage/{name}", "more than 0", quote(count))


@check(MUST, spec="chat#usage", when=(on.is_generation, on.is_complete_answer, on.has_usage))
def adds_up(x: Exchange) -> Iterator[Finding]:
    """total_tokens is prompt_tokens plus completion_tokens, and no part exceeds its whole or is below zero.

    `reasoning.reasoning_tokens_agree` compares the number of reasoning tokens with the reasoning.
    """
    usage = x.turn.usage if x.turn is not None else None
    if usage is None or usage.prompt_tokens is None or usage.completion_tokens is None:
        return
    total = usage.prompt_tokens + usage.completion_tokens
    if usage.total_tokens is not None and usage.total_tokens != total:
        message = "total_tokens is not the sum of its parts"
        yield mismatch(message, "/usage/total_tokens", quote(total), quote(usage.total_tokens))
    if (usage.reasoning_tokens or 0) > usage.completion_tokens:
        message = "more reasoning tokens than completion tokens"
        expected = RedactableText("at most {}", usage.completion_tokens)
        yield mismatch(message, "/usage", expected, quote(usage.reasoning_tokens))
    for name, count in (("reasoning_tokens", usage.reasoning_tokens), ("cached_tokens", usage.cached_tokens)):
        if count is not None and count < 0:
            yield mismatch(RedactableText("{} is below zero", Location(name)), "/usage", "0 or more", quote(count))
    if (usage.cached_tokens or 0) > usage.prompt_tokens:
        message = "more cached tokens than prompt tokens"
        yield mismatch(message, "/usage", RedactableText("at most {}", usage.prompt_tokens), quote(usage.cached_tokens))


@condition
def is_first_choice(x: Exchange) -> bool:
    """whole answers, not each of their further choices"""
    return x.choice == 0


@evidence
def end_is_known(x: Exchange) -> bool:
    """answers whose end of generation is known: after a stop string, only those with token ids"""
    return not x.has_stop_string or (x.turn is not None and x.turn.output_ids is not None)


@check(
    MUST,
    spec="chat#usage",
    when=(on.is_generation, on.is_complete_answer, on.has_usage, on.output_is_known, end_is_known, is_first_choice),
)
def counts_the_output(x: Exchange) -> Iterator[Finding]:
    """completion_tokens is the number of tokens that the model emitted, in all choices; a server may count stop tokens or not."""
    usage = x.turn.usage if x.turn is not None else None
    emitted = [one.output.ids for one in (x, *x.other_choices)]
    if usage is None or usage.completion_tokens is None or None in emitted or len(emitted) < x.choice_count:
        return
    spent = sum(len(ids) for ids in emitted if ids is not None)
    if usage.completion_tokens == spent - len(emitted) and all(one.reached_stop for one in (x, *x.other_choices)):
        yield variant("the stop token is not counted", where="/usage/completion_tokens")
    elif usage.completion_tokens != spent:
        message = "completion_tokens is not the number of emitted tokens"
        yield mismatch(message, "/usage/completion_tokens", quote(spent), quote(usage.completion_tokens))


@check(MUST, spec="chat#usage", when=(on.is_conversation, on.is_complete_answer, on.has_usage, on.prompt_was_rendered))
def counts_the_prompt(x: Exchange) -> Iterator[Finding]:
    """prompt_tokens is the number of tokens that the model was fed; an endpoint that renders or counts prompts returns the same number.

    A tokenizer endpoint that ignores a field of the request shows another prompt than the model gets (defects O20, V42). If a server shows the prompt as
    text, the suite tokenizes it with the vocabulary that the model was trained on. A server with another tokenizer feeds other tokens.
    """
    usage, ids = (x.turn.usage, x.prompt.ids) if x.turn is not None else (None, None)
    if ids is None and x.rendered_prompt is not None:
        ids = x.rendered_prompt.ids
    if usage is None or usage.prompt_tokens is None:
        return
    actual, endpoint = quote(usage.prompt_tokens), x.counted_prompt
    if endpoint is not None and usage.prompt_tokens != endpoint.tokens:
        by_endpoint = RedactableText("prompt_tokens is not what {} counts", endpoint.source)
        both = RedactableText("answer: {}, {}: {}", actual, endpoint.source, endpoint.tokens)
        finding = mismatch(by_endpoint, "/usage/prompt_tokens", "the same in both", both)
        yield ruled(finding, COUNTS_OF_ENDPOINTS)
    if ids is None or usage.prompt_tokens == len(ids):
        return
    shown = x.rendered_prompt if x.prompt.ids is None else None
    if shown is not None:
        template = "prompt_tokens is not the number of tokens that {} shows for the same request"
        if shown.is_text:
            template = (
                "prompt_tokens is not the number of tokens that the model's vocabulary gives the prompt text of {}"
            )
        both = RedactableText("answer: {}, {}: {}", actual, shown.source, len(ids))
        finding = mismatch(RedactableText(template, shown.source), "/usage/prompt_tokens", "the same in both", both)
        yield ruled(finding, COUNTS_OF_ENDPOINTS)
    else:
        message = "prompt_tokens is not the number of tokens in the prompt"
        yield mismatch(message, "/usage/prompt_tokens", quote(len(ids)), actual)


@comparison(MUST, spec="chat#usage", when=on.has_same_request_twice)
def prompt_count_is_steady(series: Series) -> Iterator[Finding]:
    """The same request has the same prompt_tokens whether it is streamed or not, and each time it is sent.

    A count that depends on the cache or on streaming cannot be billed, and hides a different prompt (defects O09, O20).
    """
    for first, second in same_request_pairs(series):
        counts = prompt_count(first), prompt_count(second)
        if None not in counts and counts[0] != counts[1]:
            message = RedactableText("the same request has another prompt count ({})", second.step)
            is_mixed = second.wants_stream and not first.wants_stream
            template = "whole: {}, streamed: {}" if is_mixed else "first: {}, again: {}"
            both = RedactableText(template, *counts)
            yield mismatch(message, "/usage/prompt_tokens", "the same in both", both, exchange=second.id)
