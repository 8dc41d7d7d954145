"""Errors in the envelope of the API, and the endpoint that counts tokens."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus

from harmony_conformance.apis.messages.stream_reader import error_of
from harmony_conformance.apis.registry import MESSAGES
from harmony_conformance.checks.messages.views import COUNT_TOKENS
from harmony_conformance.checks.responses.views import json_events
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.series_pairs import prompt_count
from harmony_conformance.json_value import JsonObject, dumps, integer, members, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, cited, comparison, mismatch
from harmony_conformance.judge.condition import condition, only_on, series_only
from harmony_conformance.redactable_text import RedactableText, quote, shorten

_TYPES: dict[int, tuple[str, ...]] = {
    400: ("invalid_request_error",),
    401: ("authentication_error",),
    402: ("billing_error",),
    403: ("permission_error",),
    404: ("not_found_error",),
    413: ("request_too_large",),
    429: ("rate_limit_error",),
    500: ("api_error",),
    503: ("api_error", "overloaded_error"),
    504: ("timeout_error",),
    529: ("overloaded_error",),
}
"""The types of an error by status. With any other status every type of these is right."""


@only_on(MESSAGES.name)
@condition
def has_messages_error(x: Exchange) -> bool:
    """requests to Messages that were refused, and streams with an error"""
    has_failed = on.was_refused.holds(x) or _error_event(x) is not None
    return x.api == MESSAGES.name and on.was_sent.holds(x) and has_failed and not _lacks_endpoint(x)


def _lacks_endpoint(x: Exchange) -> bool:
    """Return True if the server does not count tokens at all: then the API does not answer."""
    is_unknown = x.response is not None and x.response.status == HTTPStatus.NOT_FOUND and x.response_json is None
    return x.request.path.endswith(COUNT_TOKENS) and is_unknown


def _error_event(x: Exchange) -> JsonObject | None:
    return next((event for event in json_events(x) if error_of(event) is not None), None)


@check(SHOULD, spec="messages#errors", when=has_messages_error)
def error_is_in_its_envelope(x: Exchange) -> Iterator[Finding]:
    """An error is `{"type": "error", "error": {"type": …, "message": …}}`, and its type is the one for the status.

    Clients decide by the type whether to send the request again, and show the message.
    """
    event = _error_event(x)
    body = event if event is not None else members(x.response_json)
    kind, reason = value_at(body, "error", "type"), value_at(body, "error", "message")
    if body.get("type") != "error" or not text(kind) or not text(reason):
        expected = '{"type": "error", "error": {"type": …, "message": …}}'
        actual = shorten(dumps(body) if body or x.response is None else x.response.body.decode("utf-8", "replace"))
        shape = "messages#error-shape" if text(kind) and text(reason) else ""  # it lacks the outer type alone
        yield cited(mismatch("an error is not in the envelope of the API", "body", expected, actual), shape)
        return
    known = tuple(name for names in _TYPES.values() for name in names)
    status = x.response.status if x.response is not None and event is None else 0
    if kind not in (valid := _TYPES.get(status, known)):
        message = RedactableText("an error has another type than its status {}", status)
        if not status:
            message = RedactableText("an error in a stream has a type that the API does not have")
        yield mismatch(message, "/error/type", quote(" or ".join(dict.fromkeys(valid))), shorten(dumps(kind)))


_COUNTED = ("messages", "system", "tools", "tool_choice", "thinking", "output_config")
"""The members of a request that make its prompt."""


def _pairs(series: Series) -> Iterator[tuple[Exchange, int]]:
    """Yield answers, each with the number of tokens that the count endpoint returned for the same prompt."""
    for one in series.exchanges.values():
        count = integer(value_at(one.response_json, "input_tokens"))
        if one.api != MESSAGES.name or not one.request.path.endswith(COUNT_TOKENS) or count is None:
            continue
        for x in series.exchanges.values():
            bodies = [[value_at(request.json, name) for name in _COUNTED] for request in (x.request, one.request)]
            if x.api == MESSAGES.name and prompt_count(x) is not None and bodies[0] == bodies[1]:
                yield x, count


@series_only
@condition
def has_counted_answer(series: Series) -> bool:
    """an answer that reports usage, and the answer of /v1/messages/count_tokens for the same prompt"""
    return any(True for _ in _pairs(series))


@comparison(MUST, spec="messages#count-tokens", when=has_counted_answer)
def count_tokens_is_the_bill(series: Series) -> Iterator[Finding]:
    """`/v1/messages/count_tokens` returns the number of input tokens that the same request is billed.

    Clients compact a conversation by this count. One by the number of characters is wrong by half in code and in other languages.
    """
    for x, count in _pairs(series):
        billed = prompt_count(x)
        if billed != count:
            message = "/count_tokens returns another number than the answer bills"
            yield mismatch(message, "/input_tokens", quote(billed), quote(count), exchange=x.id)
