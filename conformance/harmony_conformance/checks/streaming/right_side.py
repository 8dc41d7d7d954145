"""Find the right one of two answers with the same output, by the checks of single answers."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from harmony_conformance.checks import channels, headers, reasoning, stop_tokens, tool_calls
from harmony_conformance.checks.responses.objects import status_says_how_it_ended
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.judge.check import Check, Verdict
from harmony_conformance.prompts.request_members import REASONING_FIELDS

CONTENT, REASONING, CALLS, FINISH = "content", "reasoning", "tool_calls", "finish_reason"


class RightSide(Enum):
    """The answer that passes the checks which the other one fails, if there is one."""

    WHOLE = "whole"
    STREAM = "stream"
    UNKNOWN = "unknown"


def find_right_side(whole: Exchange, streamed: Exchange, part: str) -> RightSide:
    """Return the right one of a whole and a streamed answer, for a part in which they differ."""
    fails = _fails(whole, part), _fails(streamed, part)
    return {(False, True): RightSide.WHOLE, (True, False): RightSide.STREAM}.get(fails, RightSide.UNKNOWN)


def _fails(x: Exchange, part: str) -> bool:
    """Return True if a check of single answers fails on a part of an answer."""
    return any(
        finding.verdict is Verdict.FAIL and finding.location.strip("/").startswith(PLACES[part])
        for check in _CHECKS[part]
        if check.first_unmet(x) is None
        for finding in check.run(x)
    )


_ANYWHERE = "any field"
_CALL_PLACES = (CALLS, "function_call", "tool_use")
PLACES: Mapping[str, tuple[str, ...]] = {
    CONTENT: (CONTENT, _ANYWHERE),
    REASONING: (*REASONING_FIELDS, _ANYWHERE),
    CALLS: (*_CALL_PLACES, _ANYWHERE),
    FINISH: (
        FINISH,
        "stop_reason",
        "done_reason",
        "status",
        "incomplete_details",
        "output",
        "the last event",
        *_CALL_PLACES,
    ),
}
"""The beginnings of the locations that findings about each part have."""
_LEAKS = (
    channels.no_marker_leak,
    channels.no_channel_words,
    channels.nobody_else_speaks,
    channels.characters_are_whole,
    headers.broken_output_leaks_nothing,
    headers.broken_output_loses_nothing,
)
_CALLS = (
    tool_calls.calls_arrive,
    tool_calls.name_is_declared,
    tool_calls.none_means_none,
    tool_calls.only_allowed_tools,
    headers.broken_output_leaks_nothing,
    headers.broken_output_loses_nothing,
)
_CHECKS: Mapping[str, tuple[Check, ...]] = {
    CONTENT: (
        *_LEAKS,
        channels.no_reasoning_in_content,
        channels.content_is_the_answer,
        channels.preamble_is_shown,
        channels.nothing_is_lost,
        stop_tokens.stop_string_is_cut,
    ),
    REASONING: (*_LEAKS, reasoning.analysis_is_reasoning, reasoning.reasoning_holds_no_answer),
    CALLS: _CALLS,
    FINISH: (*_CALLS, tool_calls.finish_reason_agrees, stop_tokens.limit_is_kept, status_says_how_it_ended),
}
