"""Family `errors`: a valid request is answered, a wrong one is refused, and the status says which."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import LiteralString

from harmony_conformance.apis.registry import RESPONSES
from harmony_conformance.checks.helpers.before_after import aftermaths, differences
from harmony_conformance.evidence.exchange import ODD, AnsweredBy, Exchange, Series, Validity
from harmony_conformance.json_value import InvalidJsonError, Json, at, dumps, items, members, pointer, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import (
    MUST,
    SHOULD,
    Finding,
    check,
    comparison,
    condition,
    evidence,
    series_only,
    variant,
)
from harmony_conformance.prompts.chat_request import REASONING_FIELDS
from harmony_conformance.redactable_text import RedactableText, ReportText, quote, shorten
from harmony_conformance.transport.sse import EventStream


@check(MUST, spec="http#server-error", when=on.is_valid)
def valid_request_is_answered(x: Exchange) -> Iterator[Finding]:
    """A valid request gets a completion: no timeout, no cut connection, no 5xx or 4xx, no malformed body, no error within the stream.

    What the model wrote is never a reason for an error (defects V01, V02, V24, O02, O05, P01, P02, J07, S07). A 4xx that names an optional parameter
    of the request declares a limit. Of a server that only renders, the prompt is the answer.
    """
    if x.failure is not None:
        yield Finding(
            message=RedactableText("the exchange ended badly ({}): {}", x.failure.kind, x.failure.detail),
            at=f"after event {len(x.stream.events)}" if x.stream is not None else "connection",
            expected="a whole answer",
            actual=x.failure.kind.value,
            excerpt=shorten(x.stream.events[-1].telling) if x.stream is not None and x.stream.events else None,
        )
        return
    if x.response is None:
        return
    if not x.response.is_success:
        blames_the_model = on.blames_the_model(x)
        if x.response.status < on.SERVER_ERROR and not blames_the_model and _refused_parameter(x) is not None:
            yield variant(
                RedactableText("the server declares that it does not support {}", _refused_parameter(x)), where="status"
            )
        elif x.validity is Validity.VALID or x.response.status >= on.SERVER_ERROR or blames_the_model:
            valid = "valid " if x.validity is Validity.VALID else ""
            yield Finding(
                message=RedactableText(f"a {valid}request was answered with HTTP {{}}", x.response.status),
                at="status",
                expected="200",
                actual=RedactableText("{}: {}", x.response.status, shorten(_reason(x))),
                excerpt=shorten(text(at(x.error, "failed_generation"))) or None,
            )
        return
    if x.answered_by is AnsweredBy.RENDER and x.rendered_prompt is not None:
        return
    if x.stream is not None:
        if x.error is not None:
            yield Finding(
                message="the stream carries an error",
                at=f"event {_place_of_error(x.stream)}",
                expected="a whole answer",
                actual=shorten(_said(x.error)),
            )
        elif x.turn is None:
            yield Finding(
                message="the stream holds no completion",
                at="stream",
                expected="chunks with choices",
                actual=RedactableText("{} events", len(x.stream.events)),
            )
        return
    try:
        _ = x.response.json  # None would not tell no JSON from null
    except InvalidJsonError as problem:
        yield Finding(
            message=RedactableText("the body is no JSON: {}", problem),
            at="body",
            expected="a chat.completion",
            actual=shorten(x.response.body.decode("utf-8", "replace")) or "an empty body",
        )
        return
    if x.turn is None and members(x.chat_completion).get("error") is None:
        yield Finding(
            message="the body is no answer",
            at="body",
            expected=x.api_adapter.answer_member,
            actual=shorten(x.response.body.decode("utf-8", "replace")),
        )


def _place_of_error(stream: EventStream) -> int:
    errors = (index for index, event in enumerate(stream.events) if members(event.value).get("error") is not None)
    return next(errors, 0)


def _refused_parameter(x: Exchange) -> str | None:
    """The optional parameter of the request that a refusal names, or the kind of a content part that is no plain text."""
    reason, named = _reason(x), text(at(x.error, "param"))
    optional = [name for name in members(x.chat_request) if name not in _ALWAYS_SUPPORTED]
    for message in x.messages:
        optional += (kind for part in items(at(message, "content")) if (kind := text(at(part, "type"))) != "text")
    told = (name for name in optional if name and (name == named or re.search(rf"\b{re.escape(name)}\b", reason)))
    return next(told, None)


_ALWAYS_SUPPORTED = ("model", "messages", "stream")


@check(MUST, spec="chat#message", when=(on.is_chat, on.ended_well))
def answer_is_well_formed(x: Exchange) -> Iterator[Finding]:
    """An answer is UTF-8, and each of its messages and deltas an object: role assistant, content and reasoning a text or null.

    A client that finds a number or an object where the text should be shows nothing, or fails.
    """
    body = x.response.body if x.response is not None else b""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as problem:
        yield Finding(
            message="the body is not UTF-8",
            at=f"byte {problem.start}",
            expected="UTF-8 text",
            actual=quote(repr(body[problem.start : problem.start + 8])),
        )
    said: Iterable[tuple[str, int, Json]]
    if x.stream is not None:
        holder, said = "delta", ((f"chunk {told.chunk}", told.place, told.delta) for told in x.chunk_choices)
    else:
        choices = enumerate(items(at(x.chat_completion, "choices")))
        holder, said = "message", (("", place, at(choice, "message")) for place, choice in choices)
    for where, place, value in said:
        wrong = _misshapen(value, holder)
        if wrong is not None:
            message, there, expected, actual = wrong
            at_choice = where + pointer("choices", place)
            yield Finding(message=message, at=f"{at_choice}/{there}", expected=expected, actual=shorten(dumps(actual)))
            return


_HALF = re.compile("[\ud800-\udfff]")  # one code of a surrogate pair


def _misshapen(said: Json, holder: LiteralString) -> tuple[ReportText, str, ReportText, Json] | None:
    """What is first wrong with a message or delta: in words, where, what was expected, and what stands there."""
    if not isinstance(said, dict):
        return f"a choice has no {holder} that is an object", holder, "an object", said
    role = said.get("role", "assistant")
    if role != "assistant" and not (role is None and holder == "delta"):
        return "the speaker is not the assistant", f"{holder}/role", "assistant", role
    for name in _TEXTS:
        value = said.get(name)
        if isinstance(value, str):
            if not value.isascii() and _HALF.search(value) is not None:
                return f"{name} holds half of a surrogate pair", f"{holder}/{name}", "whole characters", value
        elif value is not None and not (name == "content" and isinstance(value, list)):
            return f"{name} is no text", f"{holder}/{name}", "a text or null", value
    return None


_TEXTS = ("content", *REASONING_FIELDS)


@check(MUST, spec="http#server-error", when=(on.has_response, on.was_sent))
def error_has_error_status(x: Exchange) -> Iterator[Finding]:
    """A body that is an error comes with an error status.

    Clients look at the status: an error under 200 is parsed as an answer (defect V21). A Response that has the status `failed` is one that says so itself.
    """
    if x.response is None or x.stream is not None or x.response.status >= on.REFUSED or _is_failed_response(x):
        return
    if x.error is not None:
        yield Finding(
            message=RedactableText("HTTP {} carries an error", x.response.status),
            at="status",
            expected="400 or above",
            actual=RedactableText("{}: {}", x.response.status, shorten(_said(x.error))),
        )


def _is_failed_response(x: Exchange) -> bool:
    """Whether it is an object of the Responses API, in whose words a generation that failed is told."""
    return x.api == RESPONSES.name and (at(x.response_json, "object"), at(x.response_json, "status")) == (
        "response",
        "failed",
    )


@evidence
def was_settled(x: Exchange) -> bool:
    """requests that were refused, or that the API itself answered: what only renders leaves the rest to what generates"""
    is_passed_on = x.answered_by is AnsweredBy.RENDER and x.response is not None and x.response.is_success
    return not is_passed_on


@check(MUST, spec="http#client-error", when=(on.is_invalid, was_settled))
def wrong_request_is_refused(x: Exchange) -> Iterator[Finding]:
    """A request that is wrong is refused with a 4xx status: it is neither answered nor blamed on the server."""
    if x.failure is not None:
        yield Finding(
            message=RedactableText("a wrong request ended badly ({}): {}", x.failure.kind, x.failure.detail),
            at="connection",
            expected="a 4xx status",
            actual=x.failure.kind.value,
        )
    elif x.response is not None and not on.REFUSED <= x.response.status < on.SERVER_ERROR:
        yield Finding(
            message="a wrong request was not refused as such",
            at="status",
            expected="a 4xx status",
            actual=RedactableText("{}: {}", x.response.status, shorten(_reason(x))),
        )


@check(MUST, spec="http#server-error", when=on.is_questionable)
def questionable_request_is_handled(x: Exchange) -> Iterator[Finding]:
    """A request that is odd, in a way that servers settle differently, is answered or refused with a 4xx status: it is never a failure of the server.

    A 5xx, a hang or a cut connection is an exception that nobody foresaw, and what it leaves behind is anybody's guess.
    """
    if x.failure is not None:
        yield Finding(
            message=RedactableText("an odd request ended badly ({}): {}", x.failure.kind, x.failure.detail),
            at="connection",
            expected="an answer, or a 4xx status",
            actual=x.failure.kind.value,
        )
    elif x.response is not None and on.is_server_error(x):
        yield Finding(
            message="an odd request is a failure of the server",
            at="status",
            expected="an answer, or a 4xx status",
            actual=RedactableText("{}: {}", x.response.status, shorten(_reason(x))),
        )


@series_only
@condition
def has_plain_after_odd(series: Series) -> bool:
    """plain requests before and after requests that are wrong or odd on purpose"""
    return any(True for _ in aftermaths(series, _is_odd))


@comparison(MUST, spec="http#client-error", when=has_plain_after_odd)
def server_survives_wrong_requests(series: Series) -> Iterator[Finding]:
    """After requests that are wrong or odd, a plain one is answered as it was before them.

    Whoever can send one request must not be able to take the service from all others.
    """
    for one in aftermaths(series, _is_odd):
        yield from differences(one, RedactableText("the request {!r}", one.last.step))


def _is_odd(x: Exchange) -> bool:
    return x.validity in ODD


@check(SHOULD, spec="http#client-error", when=(on.was_refused, on.was_sent))
def refusal_explains(x: Exchange) -> Iterator[Finding]:
    """A refusal says why, in JSON, where clients look for it (`error.message`, or the server's own known form)."""
    if x.response is None or text(at(x.chat_completion, "error", "message")):
        return
    flat = at(x.chat_completion, "object") == "error" and text(at(x.chat_completion, "message"))
    if flat or text(at(x.chat_completion, "error")) or _told_in_detail(x.chat_completion):
        yield variant("the reason stands in the server's own form, not in error.message", where="body")
        return
    yield Finding(
        message=RedactableText("HTTP {} does not say why where clients look for it", x.response.status),
        at="body",
        expected="error.message",
        actual=shorten(_reason(x)) or "an empty body",
    )


def _told_in_detail(body: Json) -> str:
    """What a FastAPI server says: in `detail` a text, or a list of what is wrong with the request, each with its `msg`."""
    detail = at(body, "detail")
    return text(detail) or next(filter(None, (text(at(problem, "msg")) for problem in items(detail))), "")


def _reason(x: Exchange) -> str:
    return _reason_in(x.chat_completion) or (
        x.response.body.decode("utf-8", "replace") if x.response is not None else ""
    )


def _reason_in(body: Json) -> str:
    return (
        text(at(body, "error", "message"))
        or text(at(body, "error"))
        or text(at(body, "message"))
        or (_said(at(body, "detail")) if at(body, "detail") else "")
    )


def _said(error: Json) -> str:
    return text(at(error, "message")) or (error if isinstance(error, str) else str(error))
