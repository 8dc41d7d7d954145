"""The deltas of tool calls."""

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
    """Each delta of a call has its index; only the first one has id and name; indexes count up from 0; arguments are strings.

    Clients join deltas by index: a new id in every delta splits one call into ten, a constant index merges two (defects V13, V14).
    Interleaved deltas of several calls are a variant. Joined by index they are correct, but some clients close the first call too soon.
    """
    indexes = (number(at(call, "index")) for delta in deltas(x) for call in items(at(delta, "tool_calls")))
    order = [index for index, _ in groupby(indexes)]
    if len(order) > len(set(order)) and None not in order:
        yield variant("the deltas of several calls are interleaved", where="choices/0/delta/tool_calls")
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
                        message="the id of a call is repeated in a later delta",
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
                    expected="a string",
                    actual=quote(call_id),
                )
                return
            if name and index in named:
                yield Finding(
                    message="the name of a call is repeated in a later delta",
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
                    message="the arguments of a call delta are not a string",
                    at=where + "/function/arguments",
                    expected="a string",
                    actual=quote(type(arguments).__name__),
                )
                return
