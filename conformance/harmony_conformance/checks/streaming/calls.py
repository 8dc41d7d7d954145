"""The deltas of calls."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from harmony_conformance.checks.streaming.views import deltas
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import at, items, number, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, variant
from harmony_conformance.redactable_text import quote, shorten


@check(MUST, spec="chat#tool-call", when=(on.is_chat, on.streamed_a_call))
def call_deltas_can_be_joined(x: Exchange) -> Iterator[Finding]:
    """Deltas of a call carry its index; id and name come once, in the first of them; indexes count up from 0; arguments are text.

    Deltas of several calls in turns are a variant: joined by index they are right, and clients that look at one call at a time close the first too soon.

    Clients join deltas by index: a new id in every delta makes ten calls of one, a constant index makes one of two (defects V13, V14).
    """
    order = [
        index
        for index, _ in groupby(number(at(call, "index")) for d in deltas(x) for call in items(at(d, "tool_calls")))
    ]
    if len(order) > len(set(order)) and None not in order:
        yield variant("the deltas of several calls come in turns", where="choices/0/delta/tool_calls")
    ids: dict[int, str] = {}
    named: set[int] = set()
    expected_next = 0
    for position, delta in enumerate(deltas(x)):
        for call in items(at(delta, "tool_calls")):
            where = f"chunk {position}/choices/0/delta/tool_calls"
            index = number(at(call, "index"))
            if index is None:
                yield Finding(
                    message="a call delta has no index",
                    at=where,
                    expected="a whole number",
                    actual=quote(at(call, "index")),
                )
                return
            if index not in ids and index not in named:
                if index != expected_next:
                    yield Finding(
                        message="call indexes do not count up from 0",
                        at=where + "/index",
                        expected=quote(expected_next),
                        actual=quote(index),
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
                    actual=quote(call_id),
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
                    actual=quote(type(arguments).__name__),
                )
                return
