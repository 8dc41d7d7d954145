"""What goes on from one response to the next, and what the model said to the tools that the API itself has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import LiteralString

from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.checks.responses.views import is_responses, output, response, told_a_response
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.expected_output import strip_endoftext
from harmony_conformance.json_value import Json, at, canonical, items, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, comparison, condition, series_only, variant
from harmony_conformance.prompts.prompt_parser import show
from harmony_conformance.redactable_text import quote, shorten
from harmony_ref import HarmonyError, Message, Role, parse, text_of

_Pair = tuple[Exchange, Exchange]


def _pairs(series: Series) -> Iterator[_Pair]:
    """Requests that say the same twice: one names the response that it goes on from, the other has the whole conversation."""
    told = [x for x in series.exchanges.values() if is_responses.holds(x) and x.turn is not None]
    by_id = {name: x for x in told if (name := text(response(x).get("id")))}
    for stored in told:
        before = by_id.get(text(at(stored.request.json, "previous_response_id")))
        if before is None:
            continue
        whole = [*_input(before), *output(before), *_input(stored)]
        for passed_back in told:
            if at(passed_back.request.json, "previous_response_id") is None and _same(_input(passed_back), whole):
                yield stored, passed_back
                break


def _input(x: Exchange) -> list[Json]:
    said = at(x.request.json, "input")
    return [{"role": "user", "content": said}] if isinstance(said, str) else items(said)


def _same(one: list[Json], other: list[Json]) -> bool:
    return [canonical(item) for item in one] == [canonical(item) for item in other]


@series_only
@condition
def goes_on_both_ways(series: Series) -> bool:
    """conversations that go on by `previous_response_id`, and once more by sending all items back, both answered"""
    return any(True for _ in _pairs(series))


@comparison(MUST, spec="responses#previous-response", when=goes_on_both_ways)
def stored_is_as_passed_back(series: Series) -> Iterator[Finding]:
    """A request that names the response before it gives the model the same prompt as one that sends all items of both back.

    Where they differ, the server forgets, or remembers in another form, what it said itself.
    """
    for stored, passed_back in _pairs(series):
        one, other = stored.prompt, passed_back.prompt
        if one.ids is not None and other.ids is not None:
            if one.ids != other.ids:
                expected, actual = text_difference(show(other.ids), show(one.ids))
                yield Finding(
                    message="the prompt is not the one of the same conversation sent whole",
                    at="prompt",
                    expected=expected,
                    actual=actual,
                    exchange=stored.id,
                )
        elif one.count and other.count and one.count != other.count:
            yield Finding(
                message="the prompt is longer or shorter than that of the same conversation sent whole",
                at="/usage/input_tokens",
                expected=quote(other.count),
                actual=quote(one.count),
                exchange=stored.id,
            )


_BUILT_IN: dict[str, LiteralString] = {"browser": "web_search_call", "python": "code_interpreter_call"}


@condition
def called_a_built_in_tool(x: Exchange) -> bool:
    """answers whose emitted tokens are known to call the browser or Python, which the request offers"""
    return bool(_calls(x))


def _calls(x: Exchange) -> list[Message]:
    """The calls that the model wrote whole to a built-in tool that is offered."""
    offered = [text(name) for name in items(at(x.chat_request, "chat_template_kwargs", "builtin_tools"))]
    if not offered or not x.output.ids or not x.reached_stop:
        return []
    try:
        said = parse(strip_endoftext(x.output.ids), role=Role.ASSISTANT)
    except HarmonyError:
        return []
    return [message for message in said if (message.recipient or "").partition(".")[0] in offered]


@check(SHOULD, spec="responses#built-in", when=(is_responses, on.ended_well, told_a_response, called_a_built_in_tool))
def built_in_calls_are_items(x: Exchange) -> Iterator[Finding]:
    """A call of the browser or of Python is told as an item of that tool.

    As a function call it asks the client for a function that nobody has; left out, the answer ends with nothing and no reason.
    """
    told = [text(at(item, "type")) for item in output(x)]
    for call in _calls(x):
        wanted = _BUILT_IN.get((call.recipient or "").partition(".")[0], "")
        if wanted in told:
            told.remove(wanted)
            continue
        if x.turn is not None and text_of(call).strip() and text_of(call).strip() in (x.turn.reasoning or ""):
            yield variant("a call of a built-in tool is shown as reasoning", where="/output")
            continue
        yield Finding(
            message="a call of a built-in tool is no item of the output",
            at="/output",
            expected=wanted,
            actual=quote(", ".join(told)) or "no item",
            excerpt=shorten(text_of(call)),
        )
