"""The deltas of tool calls."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, islice
from typing import LiteralString

from harmony_conformance.checks.helpers.fitting_clauses import ARGUMENTS, CALL_ID, CALL_NAME
from harmony_conformance.checks.streaming.views import deltas
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, integer, items, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, cited, mismatch, variant
from harmony_conformance.judge.condition import condition
from harmony_conformance.redactable_text import ReportText, quote, shorten


@condition
def streamed_a_call(x: Exchange) -> bool:
    """streamed answers with a tool call"""
    return on.has_full_stream.holds(x) and on.called_a_tool.holds(x)


@check(MUST, spec="chat#tool-call", when=(on.is_chat, streamed_a_call))
def call_deltas_can_be_joined(x: Exchange) -> Iterator[Finding]:
    """Each delta of a call has its index; only the first one has id and name; indexes count up from 0; arguments are strings.

    Clients join deltas by index: a new id in every delta splits one call into ten, a constant index merges two (defects V13, V14).
    Interleaved deltas of several calls are a variant. Joined by index they are correct, but some clients close the first call too soon.
    """
    indexes = (integer(value_at(call, "index")) for delta in deltas(x) for call in items(value_at(delta, "tool_calls")))
    order = [index for index, _ in groupby(indexes)]
    if len(order) > len(set(order)) and None not in order:
        yield variant("the deltas of several calls are interleaved", where="choices/0/delta/tool_calls")
    yield from islice(_problems(x), 1)


def _problems(x: Exchange) -> Iterator[Finding]:
    ids: dict[int, Json] = {}
    for position, delta in enumerate(deltas(x)):
        for call in items(value_at(delta, "tool_calls")):
            where = f"chunk {position}/choices/0/delta/tool_calls"
            index = integer(value_at(call, "index"))
            if index is None:
                yield _problem("a call delta has no index", where, "a whole number", quote(value_at(call, "index")))
                return
            is_first = index not in ids
            if is_first and index != len(ids):
                yield _problem("call indexes do not count up from 0", f"{where}/index", quote(len(ids)), quote(index))
            call_id, name = value_at(call, "id"), text(value_at(call, "function", "name"))
            has_id = isinstance(call_id, str) and call_id != ""
            if has_id and not is_first:
                actual = "the same id" if ids[index] == call_id else "another id"
                yield _problem("the id of a call is repeated in a later delta", f"{where}/id", "no id", actual)
            if is_first and not has_id:
                missing = _problem("the first delta of a call has no id", f"{where}/id", "a string", quote(call_id))
                yield cited(missing, CALL_ID)
            where = f"{where}/function"
            if name and not is_first:
                message = "the name of a call is repeated in a later delta"
                yield _problem(message, f"{where}/name", "no name", shorten(name))
            if is_first and not name:
                message = "the first delta of a call has no name"
                yield cited(_problem(message, f"{where}/name", "the function's name", "nothing"), CALL_NAME)
            arguments = value_at(call, "function", "arguments")
            if arguments is not None and not isinstance(arguments, str):
                message = "the arguments of a call delta are not a string"
                kind = quote(type(arguments).__name__)
                yield cited(_problem(message, f"{where}/arguments", "a string", kind), ARGUMENTS)
            if is_first:
                ids[index] = call_id


def _problem(message: LiteralString, where: str, expected: ReportText, actual: ReportText) -> Finding:
    return mismatch(message, where, expected, actual)
