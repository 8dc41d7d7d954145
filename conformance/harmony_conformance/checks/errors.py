"""Family `errors`: a valid request is answered, an invalid one is refused, and the status shows which."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import LiteralString

from harmony_conformance.apis.registry import RESPONSES
from harmony_conformance.checks.helpers.added_end import with_added_end
from harmony_conformance.checks.helpers.before_after import before_and_after, behaviour_changes
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.levels import REFUSABLE_VALIDITIES, AnsweredBy, Validity
from harmony_conformance.json_value import InvalidJsonError, Json, dumps, items, members, pointer, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, cited, comparison, mismatch, ruled, variant
from harmony_conformance.judge.condition import condition, evidence, series_only
from harmony_conformance.judge.rulings import ANSWERED_WRONG_REQUESTS, ANSWERS_IN_TIME
from harmony_conformance.prompts.request_members import REASONING_FIELDS
from harmony_conformance.redactable_text import Location, RedactableText, ReportText, quote, shorten
from harmony_conformance.transport.messages import FailureKind


@check(MUST, spec="http#status", when=(on.is_valid, on.has_known_script))
def valid_request_is_answered(x: Exchange) -> Iterator[Finding]:
    """A valid request gets a completion: no timeout, no cut connection, no 5xx or 4xx, no malformed body, no error within the stream.

    The output of the model is never a reason for an error (defects V01, V02, V24, O02, O05, P01, P02, J07, S07). A 4xx that names an optional parameter
    of the request declares a limit. For a server that only renders, the prompt is the answer.
    """
    if x.failure is not None:
        yield Finding(
            message=with_added_end(x, RedactableText("the exchange failed ({}): {}", x.failure.kind, x.failure.detail)),
            location=f"after event {len(x.stream.events)}" if x.stream is not None else "connection",
            expected="a whole answer",
            actual=x.failure.kind.value,
            excerpt=shorten(x.events.events[-1].stable_data) if x.events is not None and x.events.events else None,
        )
        return
    if x.response is None:
        return
    if not x.response.is_success:
        blames_the_model = on.blames_the_model(x)
        refused, is_client_error = _refused_parameter(x), x.response.status < on.MIN_SERVER_ERROR_STATUS
        unknown = refused_reasoning_field(x) if not blames_the_model else None
        if unknown is not None:
            how = "under one name only" if len(_sent_reasoning_fields(x)) > 1 else "under another name, or not at all"
            template = f"the server refuses the member {{}} of a message; reasoning goes back {how}"
            yield variant(RedactableText(template, Location(unknown)), where="status")
        elif is_client_error and not blames_the_model and refused is not None:
            limit = RedactableText("the server declares that it does not support {}", refused)
            yield variant(limit, where="status")
        elif x.validity is Validity.VALID or x.response.status >= on.MIN_SERVER_ERROR_STATUS or blames_the_model:
            is_valid = x.validity is Validity.VALID and not on.is_refusable(x)
            valid = "valid " if is_valid else ""
            failed = RedactableText(f"a {valid}request was answered with HTTP {{}}", x.response.status)
            shown = RedactableText("{}: {}", x.response.status, shorten(_reason(x)))
            excerpt = shorten(text(value_at(x.error, "failed_generation"))) or None
            told = with_added_end(x, failed)
            expected = "200" if is_valid else "an answer, or a 4xx status"
            yield Finding(message=told, location="status", expected=expected, actual=shown, excerpt=excerpt)
        return
    if x.answered_by is AnsweredBy.RENDER and x.rendered_prompt is not None:
        return
    if x.stream is not None:
        if x.error is not None:
            errors = (i for i, event in enumerate(x.stream.events) if members(event.value).get("error") is not None)
            where = f"event {next(errors, 0)}"
            carried = with_added_end(x, RedactableText("the stream carries an error"))
            yield mismatch(carried, where, "a whole answer", shorten(_text_of(x.error)))
        elif x.turn is None:
            message = "the stream contains no completion"
            yield mismatch(message, "stream", "chunks with choices", RedactableText("{} events", len(x.stream.events)))
        return
    try:
        _ = x.response.json  # `response_json` is None for null too
    except InvalidJsonError as problem:
        invalid = RedactableText("the body is not valid JSON: {}", problem)
        actual = shorten(x.response.body.decode("utf-8", "replace")) or "an empty body"
        yield mismatch(invalid, "body", "a chat.completion", actual)
        return
    if x.turn is None and members(x.chat_completion).get("error") is None:
        message = "the body is not an answer"
        actual = shorten(x.response.body.decode("utf-8", "replace"))
        yield mismatch(message, "body", x.api_adapter.answer_member, actual)


def _refused_parameter(x: Exchange) -> str | None:
    """Return the optional parameter of the request that a refusal names, or the kind of a content part that is not text. None if it names neither."""
    reason, param = _reason(x), text(value_at(x.error, "param"))
    optional = [name for name in members(x.chat_request) if name not in _ALWAYS_SUPPORTED]
    optional += _FORMAT_MEMBERS if "response_format" in optional else ()
    for message in x.messages:
        kinds = (text(value_at(part, "type")) for part in items(value_at(message, "content")))
        optional += (kind for kind in kinds if kind != "text")
    refused = (name for name in optional if name and (name == param or re.search(rf"\b{re.escape(name)}\b", reason)))
    return next(refused, None)


def refused_reasoning_field(x: Exchange) -> str | None:
    """Return the member of messages with the reasoning that a strict server refuses by name because it does not know it, or None."""
    if x.response is None or x.response.is_success or x.response.status >= on.MIN_SERVER_ERROR_STATUS:
        return None
    reason = " ".join((_reason(x), text(value_at(x.error, "param")), dumps(value_at(x.chat_completion, "detail"))))
    if _UNKNOWN_MEMBER.search(reason) is None:
        return None
    named = (name for name in _sent_reasoning_fields(x) if re.search(rf"(?<![\w ]){name}(?!\w)", reason))
    return next(named, None)


_UNKNOWN_MEMBER = re.compile(
    r"unsupported|not supported|duplicate|unknown|unrecognized|unexpected|not permitted|not allowed|forbidden|invalid property|additional propert",
    re.IGNORECASE,
)


def _sent_reasoning_fields(x: Exchange) -> tuple[str, ...]:
    return tuple(name for name in REASONING_FIELDS if any(name in members(message) for message in x.messages))


_ALWAYS_SUPPORTED = ("model", "messages", "stream")
_FORMAT_MEMBERS = ("output_config.format", "text.format")  # `response_format` over Messages and over Responses


@check(MUST, spec="chat#message", when=(on.is_chat, on.is_complete_answer))
def answer_is_well_formed(x: Exchange) -> Iterator[Finding]:
    """An answer is UTF-8, and each of its messages and deltas an object: role assistant, content and reasoning a text or null.

    A client that finds a number or an object where the text should be shows nothing, or fails.
    """
    body = x.response.body if x.response is not None else b""
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as problem:
        shown = quote(repr(body[problem.start : problem.start + 8]))
        yield mismatch("the body is not UTF-8", f"byte {problem.start}", "UTF-8 text", shown)
    values: Iterable[tuple[int | None, int, Json]]
    if x.stream is not None:
        if all(_problem_of(one.delta, "delta") is None for one in x.joined_choices):
            return  # and so are the pieces
        holder, values = "delta", ((one.chunk_index, one.position, one.delta) for one in x.chunk_choices)
    else:
        choices = enumerate(items(value_at(x.chat_completion, "choices")))
        holder, values = "message", ((None, place, value_at(choice, "message")) for place, choice in choices)
    for where, place, value in values:
        wrong = _problem_of(value, holder)
        if wrong is not None:
            message, there, expected, actual = wrong
            at_choice = ("" if where is None else f"chunk {where}") + pointer("choices", place)
            yield mismatch(message, f"{at_choice}/{there}", expected, shorten(dumps(actual)))
            return


_SURROGATE = re.compile("[\ud800-\udfff]")  # one code of a surrogate pair


def _is_piece_of_text(value: Json) -> bool:
    """Return True for a delta with one text in ASCII, as nearly all are."""
    if not isinstance(value, dict) or len(value) != 1 or "role" in value:
        return False
    (piece,) = value.values()
    return isinstance(piece, str) and piece.isascii()


def _problem_of(value: Json, holder: LiteralString) -> tuple[ReportText, str, ReportText, Json] | None:
    return None if _is_piece_of_text(value) else _shape_problem(value, holder)


def _shape_problem(message: Json, holder: LiteralString) -> tuple[ReportText, str, ReportText, Json] | None:
    """Return the first problem of a message or delta: its description, its path, the expected value, and the actual value."""
    if not isinstance(message, dict):
        return f"a choice has no {holder} that is an object", holder, "an object", message
    role = message.get("role", "assistant")
    if role != "assistant" and not (role is None and holder == "delta"):
        return "the role is not assistant", f"{holder}/role", "assistant", role
    for name in _TEXTS:
        if name not in message:
            continue
        value = message[name]
        if isinstance(value, str):
            if not value.isascii() and _SURROGATE.search(value) is not None:
                return f"{name} contains half of a surrogate pair", f"{holder}/{name}", "whole characters", value
        elif value is not None and not (name == "content" and isinstance(value, list)):
            return f"{name} is not a string", f"{holder}/{name}", "a string or null", value
    return None


_TEXTS = ("content", *REASONING_FIELDS)


@check(MUST, spec="http#status", when=(on.has_response, on.was_sent))
def error_has_error_status(x: Exchange) -> Iterator[Finding]:
    """A body that is an error comes with an error status.

    Clients look at the status: an error under 200 is parsed as an answer (defect V21). A Response that is `failed` or `cancelled` reports it itself.
    """
    kind, status = value_at(x.response_json, "object"), value_at(x.response_json, "status")
    is_failed_response = x.api == RESPONSES.name and ((kind, status) == ("response", "failed") or status == "cancelled")
    if x.response is None or x.stream is not None or x.response.status >= on.MIN_ERROR_STATUS or is_failed_response:
        return
    if x.error is not None:
        message = RedactableText("HTTP {} carries an error", x.response.status)
        actual = RedactableText("{}: {}", x.response.status, shorten(_text_of(x.error)))
        yield mismatch(message, "status", "400 or above", actual)


_NOT_IMPLEMENTED = 501
_KNOWN_METHODS = ("GET", "HEAD", "POST")  # RFC 9110 demands the first two, and the API the third


@evidence
def was_handled_by_api(x: Exchange) -> bool:
    """requests that were refused, or that the API itself answered: a server that only renders leaves the rest to the one that generates"""
    return not (x.answered_by is AnsweredBy.RENDER and x.response is not None and x.response.is_success)


@check(MUST, spec="http#client-error", when=(on.is_invalid, was_handled_by_api))
def wrong_request_is_refused(x: Exchange) -> Iterator[Finding]:
    """An invalid request is refused with a 4xx status: it is neither answered nor reported as a server error.

    A method that the server does not know may also be refused with 501 (RFC 9110, 15.6.2), as a gateway in Python's http.server does.
    """
    if x.response is not None and x.response.status == _NOT_IMPLEMENTED and x.request.method not in _KNOWN_METHODS:
        return
    if x.failure is not None:
        failed = RedactableText("an invalid request failed ({}): {}", x.failure.kind, x.failure.detail)
        yield mismatch(failed, "connection", "a 4xx status", x.failure.kind.value)
    elif x.response is not None and not on.MIN_ERROR_STATUS <= x.response.status < on.MIN_SERVER_ERROR_STATUS:
        message = "an invalid request was not refused with a 4xx status"
        actual = RedactableText("{}: {}", x.response.status, shorten(_reason(x)))
        finding = mismatch(message, "status", "a 4xx status", actual)
        yield ruled(finding, ANSWERED_WRONG_REQUESTS) if x.response.is_success else finding


@check(MUST, spec="http#server-error", when=on.is_questionable)
def questionable_request_is_handled(x: Exchange) -> Iterator[Finding]:
    """An odd request, which servers treat differently, is answered or refused with a 4xx status: it never makes the server fail.

    A 5xx or a cut connection is an unhandled exception, and the state of the server after it is unknown. An answer that does not come in time may be a
    hang, or the work of a slow machine.
    """
    if x.failure is not None and x.failure.kind is FailureKind.TIMEOUT:
        late = RedactableText("an odd request was not answered in time: {}", x.failure.detail)
        finding = mismatch(late, "connection", "an answer, or a 4xx status", x.failure.kind.value)
        yield cited(ruled(finding, ANSWERS_IN_TIME), "http#status")
    elif x.failure is not None:
        failed = RedactableText("an odd request failed ({}): {}", x.failure.kind, x.failure.detail)
        yield mismatch(failed, "connection", "an answer, or a 4xx status", x.failure.kind.value)
    elif x.response is not None and on.is_server_error(x):
        message = "an odd request made the server fail"
        actual = RedactableText("{}: {}", x.response.status, shorten(_reason(x)))
        yield mismatch(message, "status", "an answer, or a 4xx status", actual)


@series_only
@condition
def has_plain_after_odd(series: Series) -> bool:
    """plain requests before and after requests that are invalid or odd on purpose"""
    return any(True for _ in before_and_after(series, _is_odd))


@comparison(MUST, spec="http#client-error", when=has_plain_after_odd)
def server_survives_wrong_requests(series: Series) -> Iterator[Finding]:
    """After invalid or odd requests, a plain one is answered as before them.

    One request must not deny the service to all other clients.
    """
    for one in before_and_after(series, _is_odd):
        yield from behaviour_changes(one, RedactableText("the request {!r}", one.disturbance.step))


def _is_odd(x: Exchange) -> bool:
    return x.validity in REFUSABLE_VALIDITIES


@condition
def has_client_error_status(x: Exchange) -> bool:
    """responses with a 4xx status"""
    return on.was_refused.holds(x) and not on.is_server_error(x)


@check(SHOULD, spec="http#client-error", when=(has_client_error_status, on.was_sent))
def refusal_explains(x: Exchange) -> Iterator[Finding]:
    """A refusal gives its reason: in `error.message`, where clients look for it, or in another form, which is a variant.

    A page of HTML does not count. A 5xx status is no refusal. The checks of valid, invalid and odd requests report it.
    """
    if x.response is None or text(value_at(x.chat_completion, "error", "message")):
        return
    flat = value_at(x.chat_completion, "object") == "error" and text(value_at(x.chat_completion, "message"))
    is_text = x.response.content_type in ("", "text/plain") and bool(x.response.body.strip())
    detail = value_at(x.chat_completion, "detail")  # FastAPI: a text, or a list of problems, each with a `msg`
    has_detail = text(detail) or any(text(value_at(problem, "msg")) for problem in items(detail))
    if flat or is_text or text(value_at(x.chat_completion, "error")) or has_detail:
        yield variant("the reason is in a form of this server, not in error.message", where="body")
        return
    message = RedactableText("HTTP {} has no reason where clients look for it", x.response.status)
    finding = mismatch(message, "body", "error.message", shorten(_reason(x)) or "an empty body")
    yield replace(finding, clause="clients#error") if _reason(x) else finding


def _reason(x: Exchange) -> str:
    body = x.chat_completion
    return (
        text(value_at(body, "error", "message"))
        or text(value_at(body, "error"))
        or text(value_at(body, "message"))
        or (_text_of(value_at(body, "detail")) if value_at(body, "detail") else "")
        or (x.response.body.decode("utf-8", "replace") if x.response is not None else "")
    )


def _text_of(error: Json) -> str:
    return text(value_at(error, "message")) or (error if isinstance(error, str) else str(error))
