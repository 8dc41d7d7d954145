"""The reason why a message ended, and the token counts of a stream."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.checks.messages import views
from harmony_conformance.checks.responses.views import json_events
from harmony_conformance.evidence.emitted_ids import strip_endoftext
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import parse_output
from harmony_conformance.json_value import dumps, integer, members, text, value_at
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, mismatch
from harmony_conformance.judge.condition import condition
from harmony_conformance.redactable_text import RedactableText, quote, shorten

_STOP_SEQUENCE = "stop_sequence"
_REASONS = (
    *("end_turn", "max_tokens", _STOP_SEQUENCE, "tool_use", "pause_turn", "refusal"),
    "model_context_window_exceeded",
)


@check(MUST, spec="messages#stop-reason", when=views.ANSWERED)
def stop_reason_fits_the_content(x: Exchange) -> Iterator[Finding]:
    """`stop_reason` is a reason of the API: `tool_use` if the model ended its turn with calls, and `end_turn` only without one.

    Agents run the calls when they read `tool_use`. At `end_turn` they stop, and the call is never run (litellm#34692).
    """
    reason = views.message(x).get("stop_reason")
    has_call = any(block.get("type") == "tool_use" for block in views.blocks(x))
    if reason is not None and reason not in _REASONS:
        message = "`stop_reason` is unknown to the API"
        yield mismatch(message, "/stop_reason", quote(" or ".join(_REASONS)), shorten(dumps(reason)))
    elif reason == "end_turn" and has_call:
        yield mismatch("an answer with a call ends with another stop_reason", "/stop_reason", "tool_use", quote(reason))
    elif reason == "tool_use" and not has_call:
        message = "the stop_reason is tool_use, and the answer has no call"
        yield mismatch(message, "/stop_reason", "end_turn", quote(reason))


@condition
def has_stop_sequences(x: Exchange) -> bool:
    """requests with `stop_sequences`"""
    return bool(x.stop_strings)


@check(MUST, spec="messages#stop-sequence", when=(*views.ANSWERED, has_stop_sequences))
def stop_sequence_is_named(x: Exchange) -> Iterator[Finding]:
    """An answer that a stop sequence ended has `stop_reason: stop_sequence` and names the sequence; any other answer names none.

    A client that waits for its sequence takes `end_turn` for an answer that the model finished.
    """
    message = views.message(x)
    reason, named = message.get("stop_reason"), message.get(_STOP_SEQUENCE)
    if reason == _STOP_SEQUENCE and named not in x.stop_strings:
        expected = RedactableText("one of {}", shorten(dumps([*x.stop_strings])))
        yield mismatch("the stop sequence is not named", "/stop_sequence", expected, shorten(dumps(named)))
    elif reason != _STOP_SEQUENCE and named in x.stop_strings:
        problem = "a stop sequence is named, and the stop_reason is another"
        yield mismatch(problem, "/stop_reason", _STOP_SEQUENCE, shorten(dumps(reason)))
    elif reason != _STOP_SEQUENCE and named is not None:
        problem = "a stop sequence is named, and it is not the stop_reason"
        yield mismatch(problem, "/stop_sequence", "null", shorten(dumps(named)))
    elif reason == "end_turn" and (sequence := _cut_at(x)) is not None:
        problem = RedactableText("the stop sequence '{}' ended the answer", quote(sequence))
        yield mismatch(problem, "/stop_reason", _STOP_SEQUENCE, quote(reason))


def _cut_at(x: Exchange) -> str | None:
    """Return the stop sequence in the scripted texts for the user that the answer lacks. None without a script."""
    output = parse_output(strip_endoftext(x.script or ()))
    shown = "".join(text(block.get("text")) for block in views.blocks(x))
    written = "".join(output.user_texts) if output is not None else ""
    return next((stop for stop in x.stop_strings if stop in written and stop not in shown), None)


@check(MUST, spec="messages#cumulative-usage", when=views.STREAMED)
def message_delta_has_the_usage(x: Exchange) -> Iterator[Finding]:
    """The `message_delta` that has the stop reason has the number of output tokens too.

    That of `message_start` is a count before the output: clients that read only it bill nothing.
    """
    deltas = [event for event in json_events(x) if event.get("type") == "message_delta"]
    ends = [event for event in deltas if value_at(event, "delta", "stop_reason") is not None]
    last = ends[-1] if ends else members(None)
    if deltas and integer(value_at(last, "usage", "output_tokens")) is None:
        message = "the last message_delta has no number of output tokens"
        yield mismatch(message, "/usage/output_tokens", "a whole number", shorten(dumps(last.get("usage"))))


_INPUT = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


@check(SHOULD, spec="messages#cumulative-usage", when=views.STREAMED)
def input_count_is_steady(x: Exchange) -> Iterator[Finding]:
    """A stream has one number of input tokens, those of the cache included: that of `message_start` is the one of `message_delta`.

    Clients show the first and bill the last. Ollama estimates the first by the number of characters.
    """
    counts: dict[str, int] = {}
    for event in json_events(x):
        usage = members(value_at(event, "message", "usage")) or members(event.get("usage"))
        count = sum(integer(usage.get(name)) or 0 for name in _INPUT)
        if count:
            counts[text(event.get("type"))] = count
    if len(set(counts.values())) > 1:
        first, *_, last = counts.values()
        message = "message_start and message_delta have another number of input tokens"
        both = RedactableText("message_start: {}, message_delta: {}", first, last)
        yield mismatch(message, "/usage/input_tokens", "the same in both", both)
