"""State that the server stores: responses in the background, stored responses, conversations, encrypted reasoning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http import HTTPStatus
from urllib.parse import parse_qs, unquote, urlsplit

from harmony_conformance.apis.registry import RESPONSES
from harmony_conformance.apis.responses.request_reader import reasoning_text
from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.checks.responses import views
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, members, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, comparison, mismatch, variant
from harmony_conformance.judge.condition import condition, evidence, series_only
from harmony_conformance.redactable_text import RedactableText, quote, shorten

_PENDING = ("queued", "in_progress")
_STORED_PATH = re.compile(r"/responses/([^/?]+)(/cancel)?$")


def _exchanges(series: Series) -> list[Exchange]:
    return [x for x in series.exchanges.values() if x.api == RESPONSES.name and x.response is not None]


def _target(x: Exchange) -> tuple[str, bool]:
    """Return the id of the stored response that a request is about, and True if it cancels; empty for another request."""
    found = _STORED_PATH.search(urlsplit(x.request.path).path)
    return (unquote(found[1]), found[2] is not None) if found else ("", False)


def _created(series: Series) -> dict[str, Exchange]:
    """Return the successful requests that created a response, by the id of the response."""
    made = [x for x in _exchanges(series) if not _target(x)[0] and x.response is not None and x.response.is_success]
    return {name: x for x in made if (name := _response_id(x))}


def _response_id(x: Exchange) -> str:
    streamed = (text(value_at(event, "response", "id")) for event in views.json_events(x))
    return text(value_at(x.response_json, "id")) or next((name for name in streamed if name), "")


def _about(series: Series, *, cancels: bool) -> Iterator[tuple[Exchange, Exchange]]:
    """Yield each request about a stored response, without streams, after the request that created it."""
    created = _created(series)
    for x in _exchanges(series):
        name, is_cancel = _target(x)
        if name in created and is_cancel is cancels and "stream" not in parse_qs(urlsplit(x.request.path).query):
            yield created[name], x


def _is_background(x: Exchange) -> bool:
    return value_at(x.request.json, "background") is True


def _texts(response: Json) -> str:
    """Return the visible texts of a response object."""
    output = (item for item in items(value_at(response, "output")) if value_at(item, "type") == "message")
    parts = (part for item in output for part in items(value_at(item, "content")))
    return "\n".join(text(value_at(part, "text")) for part in parts if value_at(part, "type") == "output_text")


def _polled(series: Series) -> list[tuple[Exchange, Exchange]]:
    cancelled = {_target(x)[0] for _, x in _about(series, cancels=True)}
    pairs = _about(series, cancels=False)
    return [(one, x) for one, x in pairs if _is_background(one) and _target(x)[0] not in cancelled]


@series_only
@condition
def has_polled_response(series: Series) -> bool:
    """responses in the background that were accepted, and asked for later"""
    return bool(_polled(series))


@comparison(MUST, spec="responses#background", when=has_polled_response)
def background_response_completes(series: Series) -> Iterator[Finding]:
    """A response in the background can be retrieved by its id until it is complete, with the text that the model wrote.

    The client has nothing but the id: an answer that cannot be retrieved is lost, and paid for.
    """
    for created, x in _polled(series):
        status = text(value_at(x.response_json, "status"))
        if x.response is not None and not x.response.is_success:
            message = "a response in the background cannot be retrieved"
            yield mismatch(message, "status", "200", quote(x.response.status), exchange=x.id)
        elif status in _PENDING:
            message = "a response in the background does not end"
            yield mismatch(message, "/status", "completed", quote(status), exchange=x.id)
        elif status != "completed":
            message = "a response in the background ends without an answer"
            yield mismatch(message, "/status", "completed", quote(status) or "nothing", exchange=x.id)
        elif (wanted := _expected_text(created)) and wanted not in _texts(x.response_json):
            expected, actual = text_difference(wanted, _texts(x.response_json))
            message = "a response in the background has not the text that the model wrote"
            yield mismatch(message, "/output", expected, actual, exchange=x.id)


def _expected_text(created: Exchange) -> str:
    """Return the text for the user in the script of a request, which a receipt does not show yet."""
    finals = created.expected.required_output.finals if created.expected is not None and created.script else ()
    return finals[0] if finals and not created.script_not_played else ""


def _resumed(series: Series) -> Iterator[tuple[Exchange, Exchange, int]]:
    """Yield streams of stored responses: the exchange that created the response, the stream, and the number to start after."""
    created = _created(series)
    for x in _exchanges(series):
        query = parse_qs(urlsplit(x.request.path).query)
        after = query.get("starting_after", [""])[0]
        if query.get("stream") == ["true"] and after.isdecimal() and _target(x)[0] in created:
            yield created[_target(x)[0]], x, int(after)


@series_only
@condition
def has_resumed_stream(series: Series) -> bool:
    """streams of a response in the background that were asked for again by `starting_after`"""
    return any(True for _ in _resumed(series))


@comparison(MUST, spec="responses#starting-after", when=has_resumed_stream)
def stream_is_resumed(series: Series) -> Iterator[Finding]:
    """A stream that is resumed by `starting_after` has every later event once, up to the one that ends the response.

    A client that lost its connection adds these events to what it has. A server that refuses is a variant.
    """
    for created, x, after in _resumed(series):
        events = views.json_events(x)
        if x.response is not None and not x.response.is_success:
            yield variant("a stream cannot be resumed", where="status", actual=quote(x.response.status))
            continue
        if x.stream is None:
            message = "a request to resume a stream is answered without a stream"
            actual = shorten(dumps(x.response_json))
            yield mismatch(message, "body", "the later events of the stream", actual, exchange=x.id)
            continue
        numbers = [integer(event.get("sequence_number")) for event in events]
        if numbers != [*range(after + 1, after + 1 + len(numbers))]:
            wrong = next(
                (got for got, right in enumerate(range(after + 1, after + 1 + len(numbers))) if numbers[got] != right),
                0,
            )
            message = "a resumed stream does not go on with the next event"
            yield mismatch(message, f"event {wrong}", quote(after + 1 + wrong), quote(numbers[wrong]), exchange=x.id)
        elif not events or text(events[-1].get("type")) not in views.STATUS_BY_FINAL_EVENT:
            last = text(events[-1].get("type")) if events else "no event"
            message = "a resumed stream ends before the response"
            yield mismatch(message, "the last event", "response.completed", quote(last), exchange=x.id)
        else:
            yield from _lost_text(created, x, after)


def _lost_text(created: Exchange, x: Exchange, after: int) -> Iterator[Finding]:
    before = [event for event in views.json_events(created) if (integer(event.get("sequence_number")) or 0) <= after]
    events = [*before, *views.json_events(x)]
    deltas = (text(event.get("delta")) for event in events if event.get("type") == "response.output_text.delta")
    joined, whole = "".join(deltas), _texts(events[-1].get("response"))
    if joined != whole.replace("\n", "") and joined != whole:
        expected, actual = text_difference(whole, joined)
        message = "the deltas before and after the break are not the text of the response"
        yield mismatch(message, "response.output_text.delta", expected, actual, exchange=x.id)


@series_only
@condition
def has_cancelled_response(series: Series) -> bool:
    """responses in the background that were cancelled, and asked for later"""
    return any(x.response is not None and x.response.is_success for _, x in _about(series, cancels=True))


@comparison(SHOULD, spec="responses#cancel", when=has_cancelled_response)
def cancelled_response_stays_cancelled(series: Series) -> Iterator[Finding]:
    """Cancelling a response ends it: the answer is the response, `cancelled` or already over, and it stays so.

    A server that only says so generates on, and the client pays.
    """
    for created, x in _about(series, cancels=True):
        status = text(value_at(x.response_json, "status"))
        if x.response is None or not x.response.is_success:
            continue
        if (
            status
            and status not in _PENDING
            and text(value_at(x.response_json, "id")) not in ("", _response_id(created))
        ):
            message = "cancelling returns the response under another id"
            yield mismatch(message, "/id", "the id that was cancelled", "another id", exchange=x.id)
            continue
        if value_at(x.response_json, "id") != _response_id(created) or not status or status in _PENDING:
            message = "cancelling does not return the response as it ended"
            expected = RedactableText("{}, cancelled", _response_id(created))
            yield mismatch(message, "body", expected, shorten(dumps(x.response_json)), exchange=x.id)
            continue
        for _, later in _about(series, cancels=False):
            now = text(value_at(later.response_json, "status"))
            if _target(later)[0] == _target(x)[0] and now and now != status:
                message = "a response has another status after it was cancelled"
                yield mismatch(message, "/status", quote(status), quote(now), exchange=later.id)


def _stored_pairs(series: Series, *, is_stored: bool) -> Iterator[tuple[Exchange, Exchange]]:
    """Yield answered requests with this `store`, each with the request that retrieves the response."""
    for created, x in _about(series, cancels=False):
        reports = views.response(created).get("store", is_stored) is is_stored or not is_stored
        if value_at(created.request.json, "store") is is_stored and reports and not _is_background(created):
            yield created, x


@series_only
@condition
def has_retrieved_response(series: Series) -> bool:
    """answers to requests with `store: true` that the server did not answer with `store: false`, and that were asked for later"""
    return any(True for _ in _stored_pairs(series, is_stored=True))


@comparison(SHOULD, spec="responses#store", when=has_retrieved_response)
def stored_response_is_retrieved(series: Series) -> Iterator[Finding]:
    """A stored response is retrieved by its id, with the same items.

    A client that stores only the id reads the answer there. A server without a store reports `store: false`.
    """
    for created, x in _stored_pairs(series, is_stored=True):
        if x.response is not None and not x.response.is_success:
            message = "a response that should be stored cannot be retrieved"
            yield mismatch(message, "status", "200", quote(x.response.status), exchange=x.id)
        elif items(value_at(x.response_json, "output")) != views.output(created):
            expected, actual = text_difference(dumps(views.output(created)), dumps(value_at(x.response_json, "output")))
            message = "a retrieved response has other items than the answer"
            yield mismatch(message, "/output", expected, actual, exchange=x.id)


@series_only
@condition
def has_unstored_response(series: Series) -> bool:
    """answers to requests with `store: false` that were asked for later"""
    return any(True for _ in _stored_pairs(series, is_stored=False))


@comparison(SHOULD, spec="responses#store", when=has_unstored_response)
def unstored_response_is_forgotten(series: Series) -> Iterator[Finding]:
    """A response to a request with `store: false` cannot be retrieved: the client asked for it not to be kept."""
    for _, x in _stored_pairs(series, is_stored=False):
        if x.response is not None and x.response.status == HTTPStatus.OK and value_at(x.response_json, "output"):
            message = "a response that must not be stored can be retrieved"
            yield mismatch(message, "status", "404", quote(x.response.status), exchange=x.id)


def _continued(series: Series) -> Iterator[tuple[Exchange, list[Json]]]:
    """Yield answered requests that continue a response or a conversation, each with the items that the server has of it."""
    kept: dict[str, list[Json]] = {}
    for x in _exchanges(series):
        body = members(x.request.json)
        if x.request.path.endswith("/conversations") and x.response is not None and x.response.is_success:
            kept[text(value_at(x.response_json, "id"))] = items(body.get("items"))
        if not views.is_responses.holds(x) or x.turn is None:
            continue
        name = text(body.get("previous_response_id")) or text(body.get("conversation"))
        before = kept.get(name, []) if name else []
        if before:
            yield x, before
        given = body.get("input")
        new: list[Json] = [{"role": "user", "content": given}] if isinstance(given, str) else items(given)
        whole = [*before, *new, *views.output(x)]
        kept[text(views.response(x).get("id"))] = whole
        if text(body.get("conversation")) in kept:
            kept[name] = whole


@series_only
@evidence
def has_continued_prompt(series: Series) -> bool:
    """answers to requests that continue a response or a conversation of the server, with a known prompt"""
    return any(x.prompt.ids is not None for x, _ in _continued(series))


@comparison(MUST, spec="responses#previous-response", when=has_continued_prompt)
def stored_context_reaches_the_model(series: Series) -> Iterator[Finding]:
    """A request that continues a response or a conversation gives the model everything in it: messages, calls, results.

    A server that keeps the messages and drops calls and results makes the model call again (vllm#43244).
    """
    for x, before in _continued(series):
        if x.prompt.ids is None:
            continue
        prompt = "\n".join(message.content for message in x.prompt_messages)
        for item in before:
            content = _content(members(item))
            lost = next((word for word in _WORD.findall(content) if word not in prompt), None)
            if lost is not None:
                kind = text(value_at(item, "type")) or "message"
                message = RedactableText("a stored {} is not in the prompt", kind)
                actual = RedactableText("no {!r} in the prompt", lost)
                yield mismatch(message, "prompt", shorten(content.strip()), actual, exchange=x.id)
                break


_WORD = re.compile(r"[A-Za-z0-9]{2,}")


def _content(item: JsonObject) -> str:
    """Return the texts of a message, of a call or of a result; a prompt may leave out reasoning."""
    if text(item.get("type")) == "reasoning":
        return ""
    texts = [item.get(name) for name in ("content", "arguments", "input", "output")]
    parts = [value_at(part, "text") for value in texts for part in items(value)]
    return " ".join(map(text, (*texts, *parts)))


@condition
def asks_for_encrypted_reasoning(x: Exchange) -> bool:
    """answers with reasoning to requests that include `reasoning.encrypted_content`"""
    included = items(value_at(x.request.json, "include"))
    return "reasoning.encrypted_content" in included and any(True for _ in _reasoning_items(x))


def _reasoning_items(x: Exchange) -> Iterator[JsonObject]:
    return (members(item) for item in views.output(x) if value_at(item, "type") == "reasoning")


@check(
    SHOULD,
    spec="responses#encrypted-reasoning",
    when=(views.is_responses, on.is_complete_answer, views.has_response_object, asks_for_encrypted_reasoning),
)
def encrypted_reasoning_is_returned(x: Exchange) -> Iterator[Finding]:
    """If the request includes `reasoning.encrypted_content`, each reasoning item has it.

    Agents that let nothing be stored send this member back, and lose the reasoning without it. A server may show the reasoning itself: a variant.
    """
    for item in _reasoning_items(x):
        if not text(item.get("encrypted_content")):
            message = "a reasoning item has no encrypted_content, although the request includes it"
            if items(item.get("content")):
                yield variant(message, where="/output")
            else:
                yield mismatch(message, "/output", "encrypted_content", quote(", ".join(item)))


def _decrypted(series: Series) -> Iterator[tuple[Exchange, str]]:
    """Yield answered requests that send encrypted reasoning back alone, each with its text."""
    texts: dict[str, str] = {}
    for x in _exchanges(series):
        if not views.is_responses.holds(x):
            continue
        for entry in map(members, items(value_at(x.request.json, "input"))):
            sealed = text(entry.get("encrypted_content"))
            if sealed in texts and not reasoning_text(entry) and x.turn is not None and x.prompt.ids is not None:
                yield x, texts[sealed]
        texts |= {
            sealed: reasoning_text(item)
            for item in _reasoning_items(x)
            if (sealed := text(item.get("encrypted_content"))) and reasoning_text(item)
        }


@series_only
@evidence
def has_decrypted_prompt(series: Series) -> bool:
    """answers to requests that send encrypted reasoning back alone, in a tool loop, with a known prompt"""
    return any(True for _ in _decrypted(series))


@comparison(MUST, spec="responses#encrypted-reasoning", when=has_decrypted_prompt)
def encrypted_reasoning_reaches_the_model(series: Series) -> Iterator[Finding]:
    """Reasoning that the client sends back encrypted is in the prompt as the model wrote it.

    The client has no other copy: without it, every step of a tool loop begins without the reasoning for the call.
    """
    for x, thought in _decrypted(series):
        if not any(thought.strip() in message.content for message in x.prompt_messages):
            message = "encrypted reasoning that was sent back is not in the prompt"
            yield mismatch(message, "prompt", shorten(thought), "no such text", exchange=x.id)
