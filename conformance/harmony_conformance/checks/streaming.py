"""Family `streaming`: a stream is a sequence of well-formed events that says what the whole answer says, once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harmony_conformance import conditions as on
from harmony_conformance.check import MUST, Finding, check, comparison, evidence, variant
from harmony_conformance.difference import json_differences
from harmony_conformance.engines import REASONING_FIELDS
from harmony_conformance.exchange import Exchange, Series
from harmony_conformance.json_value import Json, NotJson, at, items, members, number, text
from harmony_conformance.prompt import shorten
from harmony_conformance.turn import Turn, same_calls


@check(MUST, spec="chat#stream", when=(on.is_chat, on.wanted_a_stream))
def is_a_stream(x: Exchange) -> Iterator[Finding]:
    """A request for a stream is answered by server-sent events (`text/event-stream`)."""
    if x.response is not None and not x.response.is_event_stream:
        yield Finding(
            message="a stream was asked for and something else came",
            at="content-type",
            expected="text/event-stream",
            actual=x.response.content_type or "no content type",
        )


@check(MUST, spec="chat#stream-usage", when=(on.is_chat, on.was_streamed))
def ends_with_done(x: Exchange) -> Iterator[Finding]:
    """A stream ends with `data: [DONE]`, once, and nothing follows it; one that breaks off ends with an error event.

    Without it a client cannot tell a finished answer from a broken connection (defects O04, V11, L01).
    """
    if x.stream is None:
        return
    events = x.stream.events
    if events and _is_error(events[-1].value):
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


@check(MUST, spec="chat#chunk", when=(on.is_chat, on.was_streamed))
def events_are_chunks(x: Exchange) -> Iterator[Finding]:
    """Each event is a `chat.completion.chunk` object in JSON, or an error object."""
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
        if event.is_done:
            continue
        try:
            value = event.json
        except NotJson as problem:
            yield Finding(
                message=f"the data of an event is no JSON: {problem}",
                at=f"event {index}",
                expected="a JSON object",
                actual=shorten(event.data),
            )
            continue
        if _is_error(value):
            continue
        if not isinstance(at(value, "choices"), list):
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


@check(MUST, spec="chat#chunk", when=(on.is_chat, on.was_streamed, on.was_answered))
def one_identity(x: Exchange) -> Iterator[Finding]:
    """All chunks of a stream have the same id, model and time of creation."""
    for member in ("id", "model", "created"):
        values = [
            at(chunk, member) for chunk in x.chunks if items(at(chunk, "choices")) or at(chunk, "usage") is not None
        ]
        changed = next((index for index, value in enumerate(values) if value != values[0]), None)
        if changed is not None:
            yield Finding(
                message=f"{member} changes within the stream",
                at=f"chunk {changed}/{member}",
                expected="the same in all chunks",
                actual="another one",
            )


@check(MUST, spec="chat#message", when=(on.is_chat, on.was_streamed, on.ended_well))
def role_comes_first(x: Exchange) -> Iterator[Finding]:
    """The first delta says that the assistant speaks, and no delta says anything else; saying it in each is a variant."""
    roles = [at(delta, "role") for delta in _deltas(x)]
    if not roles:
        return
    if roles[0] != "assistant":
        yield Finding(
            message="the first delta does not name the assistant as its role",
            at="chunk 0/choices/0/delta/role",
            expected="assistant",
            actual=str(roles[0]),
        )
    if any(role not in (None, "assistant") for role in roles):
        yield Finding(
            message="a delta has another role",
            at="choices/0/delta/role",
            expected="assistant",
            actual=str(next(role for role in roles if role not in (None, "assistant"))),
        )
    elif sum(role is not None for role in roles) > 1:
        yield variant("the role is repeated in later deltas", where="choices/0/delta/role")


@check(MUST, spec="chat#finish-reason", when=(on.is_chat, on.was_streamed, on.ended_well))
def one_finish_reason(x: Exchange) -> Iterator[Finding]:
    """Each choice has exactly one finish_reason, and no text or call after it."""
    chosen: dict[int, list[Json]] = {}
    for chunk in x.chunks:
        for choice in items(at(chunk, "choices")):
            chosen.setdefault(number(at(choice, "index")) or 0, []).append(choice)
    for index, choices in sorted(chosen.items()):
        told = [at(choice, "finish_reason") for choice in choices if at(choice, "finish_reason") is not None]
        if len(told) != 1:
            yield Finding(
                message=f"the stream has {len(told)} finish reasons",
                at=f"choices/{index}/finish_reason",
                expected="1",
                actual=", ".join(map(str, told)) or "none",
            )
            continue
        position = next(i for i, choice in enumerate(choices) if at(choice, "finish_reason") is not None)
        later = [at(choice, "delta") for choice in choices[position + 1 :] if _says(at(choice, "delta"))]
        if later:
            yield Finding(
                message="text or calls follow the finish_reason",
                at=f"choices/{index}/delta",
                expected="no more deltas",
                actual=shorten(str(later[0])),
            )


@check(MUST, spec="chat#tool-call", when=(on.is_chat, on.streamed_a_call))
def call_deltas_can_be_joined(x: Exchange) -> Iterator[Finding]:
    """Deltas of a call carry its index; id and name come once, in the first of them; indexes count up from 0; arguments are text.

    Clients join deltas by index: a new id in every delta makes ten calls of one, a constant index makes one of two (defects V13, V14).
    """
    ids: dict[int, str] = {}
    named: set[int] = set()
    expected_next = 0
    for position, delta in enumerate(_deltas(x)):
        for call in items(at(delta, "tool_calls")):
            where = f"chunk {position}/choices/0/delta/tool_calls"
            index = number(at(call, "index"))
            if index is None:
                yield Finding(
                    message="a call delta has no index",
                    at=where,
                    expected="a whole number",
                    actual=str(at(call, "index")),
                )
                return
            if index not in ids and index not in named:
                if index != expected_next:
                    yield Finding(
                        message="call indexes do not count up from 0",
                        at=where + "/index",
                        expected=str(expected_next),
                        actual=str(index),
                    )
                    return
                expected_next += 1
            call_id, name = at(call, "id"), text(at(call, "function", "name"))
            if isinstance(call_id, str) and call_id:
                if index in ids:
                    yield Finding(
                        message="the id of a call comes again in a later delta",
                        at=where + "/id",
                        expected="no id",
                        actual="the same id" if ids[index] == call_id else "another id",
                    )
                    return
                ids[index] = call_id
            elif index not in ids:
                yield Finding(
                    message="the first delta of a call has no id",
                    at=where + "/id",
                    expected="a text",
                    actual=str(call_id),
                )
                return
            if name and index in named:
                yield Finding(
                    message="the name of a call comes again in a later delta",
                    at=where + "/function/name",
                    expected="no name",
                    actual=shorten(name),
                )
                return
            if not name and index not in named:
                yield Finding(
                    message="the first delta of a call has no name",
                    at=where + "/function/name",
                    expected="the function's name",
                    actual="nothing",
                )
                return
            named.add(index)
            arguments = at(call, "function", "arguments")
            if arguments is not None and not isinstance(arguments, str):
                yield Finding(
                    message="the arguments of a call delta are no text",
                    at=where + "/function/arguments",
                    expected="a string",
                    actual=type(arguments).__name__,
                )
                return


@check(MUST, spec="chat#stream-usage", when=(on.is_chat, on.was_streamed, on.should_have_usage))
def usage_comes_last(x: Exchange) -> Iterator[Finding]:
    """A stream that was asked for usage ends with one chunk that holds it, with an empty list of choices."""
    told = [chunk for chunk in x.chunks if isinstance(at(chunk, "usage"), dict)]
    if not told:
        yield Finding(
            message="usage was asked for and is missing in the stream",
            at="usage",
            expected="a last chunk with usage",
            actual="none",
        )
    elif items(at(told[-1], "choices")):
        yield variant("usage comes with a chunk that has choices", where="usage")
    elif len(told) > 1 and not any(items(at(chunk, "choices")) for chunk in told[:-1]):
        yield Finding(
            message="usage comes more than once", at="usage", expected="one chunk", actual=f"{len(told)} chunks"
        )
    elif told[-1] is not x.chunks[-1]:
        yield Finding(
            message="chunks follow the one with usage",
            at="usage",
            expected="the last chunk before [DONE]",
            actual="an earlier one",
        )


_ENOUGH_EVENTS = 20
_ENOUGH_STREAMS = 4
_SLOW = 0.5  # seconds
PACED = "paced"


@evidence
def has_slow_streams(series: Series) -> bool:
    """four streams, sent one after another with nothing beside, of at least 20 deltas and half a second each"""
    return sum(1 for times in _paced(series) if len(times) >= _ENOUGH_EVENTS and times[-1] > _SLOW) >= _ENOUGH_STREAMS


@comparison(MUST, spec="chat#stream", when=has_slow_streams)
def deltas_come_as_generated(series: Series) -> Iterator[Finding]:
    """Deltas arrive as they are generated, not all together when the answer is complete.

    A proxy or a server that buffers makes a stream as slow as a whole answer. A busy machine does so now and then: all of the streams have to.
    """
    streams = _paced(series)
    if all(times[-1] - times[0] < times[-1] / 20 for times in streams if times):
        yield Finding(
            message=f"in each of {len(streams)} streams all deltas arrived together at the end",
            at="stream",
            expected="deltas spread over the time of generation",
            actual="a spread of less than a twentieth of it",
            exchange=next(x.id for step, x in series.exchanges.items() if step.startswith(PACED)),
        )


def _paced(series: Series) -> list[list[float]]:
    paced = (x for step, x in series.exchanges.items() if step.startswith(PACED) and on.ended_well.holds(x))
    return [_delta_times(x) for x in paced if on.was_streamed.holds(x)]


def _delta_times(x: Exchange) -> list[float]:
    events = x.stream.events if x.stream is not None else ()
    return [
        event.at for event in events if any(_says(at(choice, "delta")) for choice in items(at(event.value, "choices")))
    ]


@evidence
def has_same_output_twice(series: Series) -> bool:
    """requests that were sent both streamed and not, and of which the same emitted tokens are known"""
    return any(True for _ in _whole_and_streamed(series))


@comparison(MUST, spec="chat#stream", when=(on.has_whole_and_streamed, has_same_output_twice))
def equals_whole(series: Series) -> Iterator[Finding]:
    """A streamed answer, joined, is the answer that the same request gets without streaming.

    Compared where both rest on the same emitted tokens: text split over chunks is where parsers lose it (defects V12, V14, V15, S04).
    """
    for whole, streamed, streamed_id in _whole_and_streamed(series):
        written_anew = _calls(whole) != _calls(streamed) and same_calls(whole, streamed)
        if written_anew:
            yield replace(
                variant("streamed, the arguments of a call are another text, equal as JSON", where="tool_calls"),
                exchange=streamed_id,
            )
        for found in json_differences(_compared(whole, written_anew), _compared(streamed, written_anew)):
            yield Finding(
                message=f"streamed, {found.path} differs",
                at=found.path,
                expected=found.expected,
                actual=found.actual,
                exchange=streamed_id,
            )


def _whole_and_streamed(series: Series) -> Iterator[tuple[Turn, Turn, str]]:
    """Answers to the same request that rest on the same emitted tokens, and the id of the streamed exchange."""
    for step, whole in series.exchanges.items():
        streamed = series.exchanges.get(step + on.STREAMED)
        if streamed is None or whole.turn is None or streamed.turn is None or not _same_output(whole, streamed):
            continue
        yield whole.turn, streamed.turn, streamed.id


def _same_output(whole: Exchange, streamed: Exchange) -> bool:
    known = whole.output.ids, streamed.output.ids
    if None not in known:
        return known[0] == known[1]
    return whole.script is not None and whole.script == streamed.script


def _compared(turn: Turn, without_arguments: bool) -> Json:
    return {
        "content": turn.content or "",
        "reasoning": turn.reasoning or "",
        "reasoning field": turn.reasoning_field if turn.reasoning else None,
        "tool_calls": [
            {"name": call.name, **({} if without_arguments else {"arguments": call.arguments})}
            for call in turn.tool_calls
        ],
        "finish_reason": turn.finish_reason,
    }


def _calls(turn: Turn) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in turn.tool_calls]


def _deltas(x: Exchange) -> Iterator[Json]:
    for chunk in x.chunks:
        for choice in items(at(chunk, "choices")):
            if number(at(choice, "index")) in (0, None):
                yield at(choice, "delta")


def _is_error(value: Json) -> bool:
    return members(value).get("error") is not None or at(value, "object") == "error"


def _says(delta: Json) -> bool:
    return any(bool(at(delta, member)) for member in ("content", *REASONING_FIELDS, "tool_calls"))
