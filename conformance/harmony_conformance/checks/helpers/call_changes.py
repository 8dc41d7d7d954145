"""Differences between a call that the model made and the call that arrived for it."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.apis.chat_completion import ToolCall
from harmony_conformance.apis.json_equality import equal_as_doubles, equal_json, has_added_fractions
from harmony_conformance.apis.registry import RESPONSES
from harmony_conformance.checks.helpers.call_alignment import is_completed
from harmony_conformance.checks.helpers.fitting_clauses import ARGUMENTS
from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import FunctionCall
from harmony_conformance.json_value import canonical_json, parse_object
from harmony_conformance.judge.check import Finding, cited, mismatch, ruled, variant
from harmony_conformance.judge.rulings import EMPTY_ARGUMENTS, NUMBERS_IN_OBJECTS
from harmony_conformance.redactable_text import quote, shorten


def call_changes(x: Exchange, call: FunctionCall, arrived: ToolCall, where: str) -> Iterator[Finding]:
    """Yield the differences between a call of the model and the one that arrived for it."""
    if arrived.name != call.name:
        message = "a call arrived under another name"
        yield mismatch(message, where + "/function/name", quote(call.name), shorten(arrived.name))
    if arrived.arguments == call.arguments or is_same_object(x, arrived.arguments, call.arguments):
        return
    is_equal, where = equal_json(arrived.arguments, call.arguments), where + "/function/arguments"
    if is_equal and not has_added_fractions(call.arguments, arrived.arguments):
        yield variant("the arguments were rewritten: equal as JSON, another text", where=where)
    else:
        expected, actual = text_difference(call.arguments, arrived.arguments)
        fraction = "a whole number of the arguments was rewritten with a fraction"
        message = fraction if is_equal else "the arguments differ from what the model wrote"
        yield _ruled_arguments(cited(mismatch(message, where, expected, actual), ARGUMENTS), x, call, arrived)


def _ruled_arguments(finding: Finding, x: Exchange, call: FunctionCall, arrived: ToolCall) -> Finding:
    """Return the finding with the ruling on what the API makes of the arguments, if there is one."""
    if x.api == RESPONSES.name and is_completed(call.arguments, arrived.arguments):
        return ruled(finding, EMPTY_ARGUMENTS)
    has_other_digits = not equal_json(call.arguments, arrived.arguments)
    is_same = has_other_digits and equal_as_doubles(call.arguments, arrived.arguments)
    return ruled(finding, NUMBERS_IN_OBJECTS) if is_same and not x.api_adapter.has_text_arguments else finding


def is_same_object(x: Exchange, arguments: str, written: str) -> bool:
    """Return True if the API has arguments as an object, and they are what the model wrote."""
    is_equal = canonical_json(parse_object(arguments)) == canonical_json(parse_object(written))
    return is_equal and not x.api_adapter.has_text_arguments
