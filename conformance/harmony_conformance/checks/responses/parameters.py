"""Parameters whose effect is outside the answer: `max_tool_calls`, `truncation`, and those that the response repeats."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from harmony_conformance.apis.registry import RESPONSES
from harmony_conformance.checks.helpers.length_refusal import is_refused_for_length
from harmony_conformance.checks.responses import views
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.json_value import dumps, integer, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, comparison, mismatch, variant
from harmony_conformance.judge.condition import condition, evidence, series_only
from harmony_conformance.prompts.expected_parts import PartKind
from harmony_conformance.redactable_text import Location, RedactableText, quote, shorten
from harmony_conformance.runtime.caching import cached_view
from harmony_ref import encode

_REPEATED = ("max_tool_calls", "metadata", "prompt_cache_key", "truncation")
"""Members that a server has no reason to change. Limits and sampling parameters may be returned as they were applied."""

_BUILT_IN_CALLS = frozenset(
    {"code_interpreter_call", "file_search_call", "image_generation_call", "mcp_call", "web_search_call"}
)
"""Items of calls that the server executes. The client executes the others, and no limit counts them."""

CONTEXT = 131_072
"""Tokens in the context window of gpt-oss."""
_LONG = 1000  # tokens of an input that may exceed the context of a small deployment
_HEADER = 8  # maximum number of tokens of a message without its text


def _repeated(x: Exchange) -> list[str]:
    response = views.response(x)
    return [name for name in _REPEATED if value_at(x.request.json, name) is not None and name in response]


@condition
def repeats_a_parameter(x: Exchange) -> bool:
    """responses with a member that the request has too: `max_tool_calls`, `metadata`, `prompt_cache_key` or `truncation`"""
    return bool(_repeated(x))


@check(SHOULD, spec="responses#repeated-parameters", when=(views.is_responses, on.was_answered, repeats_a_parameter))
def parameters_are_repeated(x: Exchange) -> Iterator[Finding]:
    """The members of a response that name parameters of its request have the values of the request.

    By them a client learns what the server applied. `truncation: disabled` in the answer to `auto` means that the next long input is refused. A member
    that is null says nothing, and is a variant.
    """
    for name in _repeated(x):
        sent, returned = value_at(x.request.json, name), views.response(x)[name]
        if returned is None:
            yield variant("a response has no value for a parameter of its request", where=f"/{name}")
        elif returned != sent:
            message = RedactableText("a response has another `{}` than its request", Location(name))
            yield mismatch(message, f"/{name}", shorten(dumps(sent)), shorten(dumps(returned)))


def _built_in_calls(x: Exchange) -> list[str]:
    kinds = (text(value_at(item, "type")) for item in views.output(x) if value_at(item, "status") != "failed")
    return [kind for kind in kinds if kind in _BUILT_IN_CALLS]


@condition
def limits_built_in_calls(x: Exchange) -> bool:
    """responses to requests with `max_tool_calls` that have calls of the server's own tools"""
    return integer(value_at(x.request.json, "max_tool_calls")) is not None and bool(_built_in_calls(x))


@check(MUST, spec="responses#max-tool-calls", when=(views.is_responses, on.was_answered, limits_built_in_calls))
def tool_limit_is_kept(x: Exchange) -> Iterator[Finding]:
    """A response has at most `max_tool_calls` calls of built-in tools, besides any number of calls of functions.

    Each of these calls costs time and money, and a model in a loop makes many. The client set the limit because it cannot stop them itself.
    """
    most, calls = integer(value_at(x.request.json, "max_tool_calls")) or 0, _built_in_calls(x)
    if len(calls) > most:
        message = "a response has more calls of built-in tools than `max_tool_calls`"
        yield mismatch(message, "/output", RedactableText("at most {}", most), quote(", ".join(calls)))


@cached_view
def _user_tokens(x: Exchange) -> list[int]:
    """Return the number of tokens of each user text; empty for a short input."""
    texts = [part.text for part in x.expected_parts if part.kind is PartKind.USER]
    return [len(encode(one)) for one in texts] if sum(map(len, texts)) >= _LONG else []


def _is_asked(x: Exchange) -> bool:
    return x.api == RESPONSES.name and x.response is not None and value_at(x.request.json, "input") is not None


def _truncates(x: Exchange) -> bool:
    return value_at(x.request.json, "truncation") == "auto"


def _input_count(x: Exchange) -> int | None:
    """Return the tokens of the input that the server reported, with the cached ones, which some servers report apart."""
    usage = value_at(x.response_json, "usage")
    count, cached = integer(value_at(usage, "input_tokens")), value_at(usage, "input_tokens_details", "cached_tokens")
    return count + (integer(cached) or 0) if count else None


@condition
def has_long_input(x: Exchange) -> bool:
    """requests of the Responses API with user texts of over a thousand tokens, and without `truncation: auto`"""
    return _is_asked(x) and not _truncates(x) and sum(_user_tokens(x)) >= _LONG


@evidence
def counts_or_refuses_the_input(x: Exchange) -> bool:
    """inputs that were counted in an answer, or refused for their length"""
    return is_refused_for_length(x) or _input_count(x) is not None


@check(MUST, spec="responses#truncation", when=(has_long_input, counts_or_refuses_the_input))
def long_input_is_not_cut(x: Exchange) -> Iterator[Finding]:
    """An input that exceeds the context is refused with 400, unless `truncation` is `auto`: it is never cut silently.

    The input costs at least the tokens of its user texts. If the answer counts fewer, the model did not see all of the conversation, and the client does
    not learn it. Another status than 400 is a variant.
    """
    count, least = _input_count(x), sum(_user_tokens(x))
    if is_refused_for_length(x):
        if x.response is not None and x.response.status != on.MIN_ERROR_STATUS:
            message = "a long input is refused with another status than 400"
            yield variant(message, where="status", expected="400", actual=quote(x.response.status))
    elif count is not None and count < least:
        message = "a long input was cut, although `truncation` is disabled"
        expected = RedactableText("400, or at least {}", least)
        yield mismatch(message, "/usage/input_tokens", expected, quote(count))


def _accepts_truncation(series: Series) -> bool:
    """Return True if a short input with `truncation: auto` was answered."""
    short = (x for x in series.exchanges.values() if _is_asked(x) and _truncates(x) and not _user_tokens(x))
    return any(x.turn is not None for x in short)


def _exceeding(series: Series) -> Iterator[Exchange]:
    """Yield requests with `truncation: auto` over the context: those refused for their length, and those whose answer counts fewer tokens."""
    for x in series.exchanges.values():
        if not _is_asked(x) or not _truncates(x):
            continue
        count, least = _input_count(x), sum(_user_tokens(x))
        if (is_refused_for_length(x) and least > CONTEXT) or (count is not None and _LONG <= least > count):
            yield x


@series_only
@condition
def has_truncated_input(series: Series) -> bool:
    """inputs over the context with `truncation: auto`, on a server that accepts this value for a short input"""
    return _accepts_truncation(series) and any(True for _ in _exceeding(series))


@comparison(SHOULD, spec="responses#truncation", when=has_truncated_input)
def truncation_drops_the_oldest_items(series: Series) -> Iterator[Finding]:
    """With `truncation: auto`, an input over the context is not refused: it loses items from its beginning.

    Works on a black box: the answer counts the tokens of the last items. A server that drops the newest ones answers another question.
    """
    for x in _exceeding(series):
        if is_refused_for_length(x):
            message = "an input over the context is refused, although the server accepts `truncation: auto`"
            yield mismatch(message, "status", "200", quote(x.response.status if x.response else 0), exchange=x.id)
            continue
        count, sizes, rest = _input_count(x) or 0, _user_tokens(x), _overhead(series)
        kept = [] if rest is None else [one + rest for one in accumulate(sizes[:0:-1])]
        if kept and not any(0 <= count - one <= _HEADER * len(sizes) for one in kept):
            message = "an input over the context lost other items than the oldest"
            wanted = " or ".join(map(str, kept))
            expected = RedactableText("the tokens of the last items: {}, and their headers", wanted)
            yield mismatch(message, "/usage/input_tokens", expected, quote(count), exchange=x.id)


def _overhead(series: Series) -> int | None:
    """Return the tokens of a short prompt without its user texts. None if the server counted none."""
    counted = ((_input_count(x), x) for x in series.exchanges.values() if _is_asked(x) and not _user_tokens(x))
    texts = ((count, "".join(part.text for part in x.expected_parts)) for count, x in counted if count is not None)
    return next((count - len(encode(sent)) for count, sent in texts), None)
