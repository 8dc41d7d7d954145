"""The grammar of the stream: server-sent events, each a chunk in JSON, and one that ends it."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.checks.streaming.views import is_annotation, is_error
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import InvalidJsonError, at, members
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, variant
from harmony_conformance.redactable_text import RedactableText, quote, shorten
from harmony_conformance.transport.sse import Event


@check(MUST, spec="chat#stream", when=(on.is_completion, on.wanted_a_stream))
def is_a_stream(x: Exchange) -> Iterator[Finding]:
    """A request for a stream is answered by server-sent events (`text/event-stream`), which are always UTF-8."""
    charset = _charset(x)
    if charset not in _UTF_8:
        yield variant("the stream names a charset that it can not have", where="content-type", actual=quote(charset))
    if x.response is not None and not x.response.is_event_stream:
        yield Finding(
            message="a stream was asked for and something else came",
            at="content-type",
            expected="text/event-stream",
            actual=quote(x.response.content_type) or "no content type",
        )


_UTF_8 = ("", "utf-8", "utf8")


def _charset(x: Exchange) -> str:
    """The charset in the stream's content type, in lower case; empty where none is named."""
    _, _, named = (x.response.headers.get("content-type", "") if x.response is not None else "").partition("charset=")
    return named.partition(";")[0].strip().strip('"').lower()


@check(MUST, spec="chat#stream-usage", when=(on.is_told_when_done, on.was_streamed))
def ends_with_done(x: Exchange) -> Iterator[Finding]:
    """A stream ends with `data: [DONE]`, once, and nothing follows it; one that breaks off ends with an error event.

    Without it a client cannot tell a finished answer from a broken connection (defects O04, V11, L01).
    """
    if x.stream is None:
        return
    events = x.stream.events
    is_broken = x.error is not None
    broken = next((index for index, event in enumerate(events) if is_error(event.value)), None) if is_broken else None
    if broken is not None:
        later = next((index for index in range(broken + 1, len(events)) if not _may_follow(events[index])), None)
        if later is not None:
            yield Finding(
                message="the stream goes on after an error",
                at=f"event {later}",
                expected="nothing but [DONE] after the error",
                actual=shorten(events[later].telling),
            )
        return
    done = [index for index, event in enumerate(events) if event.is_done]
    if not done:
        yield Finding(
            message="the stream ends without [DONE]",
            at=f"event {len(events)}",
            expected="data: [DONE]",
            actual=shorten(events[-1].telling) if events else "no event at all",
        )
    elif done[0] != len(events) - 1:
        yield Finding(
            message="events follow [DONE]",
            at=f"event {done[0] + 1}",
            expected="the end of the stream",
            actual=shorten(events[done[0] + 1].telling),
        )
    if x.stream.unfinished.strip():
        yield Finding(
            message="the stream ends within an event",
            at=f"event {len(events)}",
            expected="an empty line after each event",
            actual=shorten(x.stream.unfinished),
        )


def _may_follow(event: Event) -> bool:
    """Whether an event may come after an error: the end, or the error again."""
    return event.is_done or is_error(event.value)


@check(MUST, spec="chat#chunk", when=(on.is_completion, on.came_in_chunks))
def events_are_chunks(x: Exchange) -> Iterator[Finding]:
    """Each event is a `chat.completion.chunk` object in JSON, or an error object.

    Events in which Azure tells what its filters found, which have empty members and no text, are a variant: clients that read texts pass over them.
    """
    if x.stream is None:
        return
    for line in x.stream.stray:
        yield Finding(
            message="a line of the stream is no field of the event grammar",
            at="stream",
            expected="data: …",
            actual=shorten(line),
        )
    for index, event in enumerate(x.stream.events):
        told = members(event.value)
        if told.get("object") == "chat.completion.chunk" and isinstance(told.get("choices"), list):
            continue
        if event.is_done:
            continue
        try:
            value = event.json
        except InvalidJsonError as problem:
            yield Finding(
                message=RedactableText("the data of an event is no JSON: {}", problem),
                at=f"event {index}",
                expected="a JSON object",
                actual=shorten(event.data),
            )
            continue
        if is_error(value):
            continue
        if is_annotation(value):
            yield variant("an event tells what a filter found, and is no chunk", where=f"event {index}")
        elif not isinstance(at(value, "choices"), list):
            yield Finding(
                message="a chunk has no list of choices",
                at=f"event {index}",
                expected="choices: […]",
                actual=shorten(event.telling),
            )
        elif at(value, "object") != "chat.completion.chunk":
            yield Finding(
                message="an event is no chat.completion.chunk",
                at=f"event {index}/object",
                expected="chat.completion.chunk",
                actual=shorten(str(at(value, "object"))),
            )
