"""Continuation by `previous_response_id`, and calls of the API's built-in tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import LiteralString

from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.checks.responses import views
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.json_value import Json, canonical_json, integer, items, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, comparison, mismatch, variant
from harmony_conformance.judge.condition import condition, series_only
from harmony_conformance.prompts.expected_parts import format_ids
from harmony_conformance.redactable_text import quote, shorten
from harmony_ref import Message, text_of

_Pair = tuple[Exchange, Exchange]


def _pairs(series: Series) -> Iterator[_Pair]:
    """Yield pairs of equal requests: one with `previous_response_id`, the other with the whole conversation."""
    answered = [x for x in series.exchanges.values() if views.is_responses.holds(x) and x.turn is not None]
    by_id = {name: x for x in answered if (name := text(views.response(x).get("id")))}
    for stored in answered:
        before = by_id.get(text(value_at(stored.request.json, "previous_response_id")))
        if before is None:
            continue
        whole = [*map(canonical_json, (*_input(before), *views.output(before), *_input(stored)))]
        for passed_back in answered:
            is_whole = value_at(passed_back.request.json, "previous_response_id") is None
            if is_whole and [*map(canonical_json, _input(passed_back))] == whole:
                yield stored, passed_back
                break


def _input(x: Exchange) -> list[Json]:
    value = value_at(x.request.json, "input")
    return [{"role": "user", "content": value}] if isinstance(value, str) else items(value)


@series_only
@condition
def is_continued_both_ways(series: Series) -> bool:
    """conversations that were continued twice: by `previous_response_id`, and by sending all items back"""
    return any(True for _ in _pairs(series))


@comparison(MUST, spec="responses#previous-response", when=is_continued_both_ways)
def stored_is_as_passed_back(series: Series) -> Iterator[Finding]:
    """A request with `previous_response_id` gives the model the same prompt as one that sends all items back.

    If they differ, the server drops or changes parts of its earlier answer.
    """
    for stored, passed_back in _pairs(series):
        one, other = stored.prompt, passed_back.prompt
        if one.ids is not None and other.ids is not None:
            if one.ids != other.ids:
                expected, actual = text_difference(format_ids(other.ids), format_ids(one.ids))
                message = "the prompt differs from that of the same conversation sent completely"
                yield mismatch(message, "prompt", expected, actual, exchange=stored.id)
        elif one.count and other.count and one.count != other.count:
            message = "the prompt is longer or shorter than that of the same conversation sent completely"
            yield mismatch(message, "/usage/input_tokens", quote(other.count), quote(one.count), exchange=stored.id)


_BUILT_IN: dict[str, LiteralString] = {"browser": "web_search_call", "python": "code_interpreter_call"}


@condition
def called_a_built_in_tool(x: Exchange) -> bool:
    """answers whose output tokens are known to call the browser or Python, which the request declares"""
    return bool(_calls(x))


def _calls(x: Exchange) -> list[Message]:
    """Return the complete calls to declared built-in tools in the model's output, up to `max_tool_calls`."""
    most = integer(value_at(x.request.json, "max_tool_calls"))
    declared = [text(name) for name in items(value_at(x.chat_request, "chat_template_kwargs", "builtin_tools"))]
    if not declared or not x.reached_stop:
        return []
    calls = [one for one in views.output_messages(x) if (one.recipient or "").partition(".")[0] in declared]
    return calls[:most] if most is None or most > 0 else []


@check(
    SHOULD,
    spec="responses#built-in",
    when=(views.is_responses, on.is_complete_answer, views.has_response_object, called_a_built_in_tool),
)
def built_in_calls_are_items(x: Exchange) -> Iterator[Finding]:
    """A call of the browser or of Python is returned as an item of that tool.

    A function call item requests a function that does not exist. If the call is dropped, the answer ends empty and without a reason.
    """
    types = [text(value_at(item, "type")) for item in views.output(x)]
    for call in _calls(x):
        expected = _BUILT_IN.get((call.recipient or "").partition(".")[0], "")
        if expected in types:
            types.remove(expected)
            continue
        if x.turn is not None and text_of(call).strip() and text_of(call).strip() in (x.turn.reasoning or ""):
            yield variant("a call of a built-in tool is shown as reasoning", where="/output")
            continue
        message = "a call of a built-in tool is not an item of the output"
        actual = quote(", ".join(types)) or "no item"
        excerpt = shorten(text_of(call))
        yield Finding(message=message, location="/output", expected=expected, actual=actual, excerpt=excerpt)
