"""The grammar of a stream: server-sent events, each a JSON chunk, and a final `[DONE]`."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.checks.streaming.views import ends_with_done_alone, is_content_filter_event, is_error
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import AnsweredBy
from harmony_conformance.json_value import InvalidJsonError, Json, members, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, mismatch, variant
from harmony_conformance.judge.condition import condition
from harmony_conformance.judge.stream_conditions import api_streams_events, api_streams_on_request, is_over_http
from harmony_conformance.redactable_text import RedactableText, quote, shorten


@condition
def asks_for_no_stream(x: Exchange) -> bool:
    """answered requests without `stream: true`"""
    is_whole = not x.wants_stream and x.request.method == "POST" and not x.from_log
    return is_whole and x.response is not None and x.response.is_success and x.answered_by is AnsweredBy.API


@check(MUST, spec="chat#stream", when=(api_streams_events, on.is_accepted_stream_request, is_over_http))
def is_a_stream(x: Exchange) -> Iterator[Finding]:
    """A request for a stream is answered by server-sent events (`text/event-stream`), which are always UTF-8."""
    header = x.response.headers.get("content-type", "") if x.response is not None else ""
    charset = header.partition("charset=")[2].partition(";")[0].strip().strip('"').lower()
    if charset not in ("", "utf-8", "utf8"):
        yield variant("the stream declares a charset other than UTF-8", where="content-type", actual=quote(charset))
    if x.response is not None and not x.response.is_event_stream:
        message = "a stream was requested, and the response is not an event stream"
        actual = quote(x.response.content_type) or "no content type"
        yield mismatch(message, "content-type", "text/event-stream", actual)


@check(MUST, spec="chat#stream", when=(api_streams_on_request, asks_for_no_stream))
def stream_is_asked_for(x: Exchange) -> Iterator[Finding]:
    """A response is a stream only if the request asks for one: `stream` defaults to false.

    A client that asked for a whole answer parses its body as JSON, and fails at the first event.
    """
    if x.response is not None and x.response.is_event_stream:
        message = "a whole answer was requested, and the response is an event stream"
        yield mismatch(message, "content-type", "application/json", quote(x.response.content_type))


@check(MUST, spec="chat#stream-usage", when=(on.api_sends_done, on.has_full_api_stream))
def ends_with_done(x: Exchange) -> Iterator[Finding]:
    """A stream ends with one `data: [DONE]` and nothing after it; an interrupted stream ends with an error event.

    Without it a client cannot distinguish a finished answer from a broken connection (defects O04, V11, L01).
    """
    if x.stream is None:
        return
    events = x.stream.events
    errors = [index for index, event in enumerate(events) if is_error(event.value)] if x.error is not None else []
    if errors:
        later = next((i for i in range(errors[0] + 1, len(events)) if i not in errors and not events[i].is_done), None)
        if later is not None:
            message = "the stream continues after an error"
            expected = "nothing but [DONE] after the error"
            yield mismatch(message, f"event {later}", expected, shorten(events[later].stable_data))
        return
    done = (
        [len(events) - 1]
        if ends_with_done_alone(x)
        else [index for index, event in enumerate(events) if event.data[:1] != "{" and event.is_done]
    )
    if not done:
        message = "the stream ends without [DONE]"
        actual = shorten(events[-1].stable_data) if events else "no event at all"
        yield mismatch(message, f"event {len(events)}", "data: [DONE]", actual)
    elif done[0] != len(events) - 1:
        message = "events follow [DONE]"
        actual = shorten(events[done[0] + 1].stable_data)
        yield mismatch(message, f"event {done[0] + 1}", "the end of the stream", actual)
    if x.stream.unfinished_data.strip():
        message = "the stream ends inside an event"
        actual = shorten(x.stream.unfinished_data)
        yield mismatch(message, f"event {len(events)}", "an empty line after each event", actual)


@check(MUST, spec="chat#chunk", when=(on.is_completion, on.has_full_stream))
def events_are_chunks(x: Exchange) -> Iterator[Finding]:
    """Each event is a `chat.completion.chunk` object in JSON, or an error object.

    Events with the results of Azure's content filters are a variant: they have empty members and no text, and clients that read texts skip them.
    """
    if x.stream is None:
        return
    for line in x.stream.unrecognized_lines:
        yield mismatch("a line of the stream is not a field of a server-sent event", "stream", "data: …", shorten(line))
    if ends_with_done_alone(x) and all(map(_is_chunk, x.joined_chunks)):
        return  # what is joined differs in a piece of text alone
    for index, event in enumerate(x.stream.events):
        if _is_chunk(event.value) or event.is_done:
            continue
        try:
            value = event.json
        except InvalidJsonError as problem:
            invalid = RedactableText("the data of an event is not valid JSON: {}", problem)
            yield mismatch(invalid, f"event {index}", "a JSON object", shorten(event.data))
            continue
        if is_error(value):
            continue
        if is_content_filter_event(value):
            yield variant("an event has the results of a content filter, and is not a chunk", where=f"event {index}")
        elif not isinstance(value_at(value, "choices"), list):
            message = "a chunk has no list of choices"
            yield mismatch(message, f"event {index}", "choices: […]", shorten(event.stable_data))
        elif value_at(value, "object") != "chat.completion.chunk":
            message = "an event is not a chat.completion.chunk"
            actual = shorten(str(value_at(value, "object")))
            yield mismatch(message, f"event {index}/object", "chat.completion.chunk", actual)


def _is_chunk(value: Json) -> bool:
    chunk = members(value)
    return chunk.get("object") == "chat.completion.chunk" and isinstance(chunk.get("choices"), list)
