"""The order of reasoning and content in a stream."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from harmony_conformance.checks.streaming.views import deltas
from harmony_conformance.evidence.emitted_ids import strip_endoftext
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import parse_output
from harmony_conformance.json_value import members
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, mismatch
from harmony_conformance.judge.condition import evidence
from harmony_conformance.prompts.request_members import REASONING_FIELDS
from harmony_conformance.redactable_text import quote
from harmony_ref import Message, Role, parse, text_of

_REASONING, _CONTENT, _PREAMBLE, _BOTH = "reasoning", "content", "preamble", "both"
_PATTERNS = {_REASONING: "r+", _CONTENT: "c+", _BOTH: "[rc]*"}  # a delta with both has no order


@evidence
def order_is_known(x: Exchange) -> bool:
    """answers whose output tokens are known to be well-formed, with reasoning and text for the user"""
    written = _output_kinds(x.output.ids) if x.output.ids else ()
    return _REASONING in written and (_CONTENT in written or _PREAMBLE in written)


@check(
    MUST, spec="chat#stream", when=(on.is_conversation, on.has_full_api_stream, on.is_complete_answer, order_is_known)
)
def order_is_kept(x: Exchange) -> Iterator[Finding]:
    """Reasoning and content arrive in the order of the model's output: the reasoning before the answer that follows it.

    A client closes the reasoning when the answer begins, and cannot display later reasoning.
    If messages of the output are lost, only the order of the remaining ones is checked.
    """
    written, streamed = _output_kinds(x.output.ids or ()), _delta_kinds(x)
    if _BOTH not in streamed and set(streamed) != {_REASONING, _CONTENT}:
        return
    shown_as = (_CONTENT, _REASONING)
    orders = [_without_repeats(shown if kind == _PREAMBLE else kind for kind in written) for shown in shown_as]
    if _has_lost_text(x) and any(_is_subsequence(streamed, order) for order in orders):
        return
    pattern = "".join(_PATTERNS[kind] for kind in streamed)
    if not any(re.fullmatch(pattern, "".join(kind[0] for kind in order)) for order in orders):
        message = "reasoning and content come in another order than in the model's output"
        yield mismatch(message, "stream", quote(", ".join(orders[0])), quote(", ".join(streamed)))


def _output_kinds(ids: Sequence[int]) -> tuple[str, ...]:
    """Return the kinds of the output's messages without calls; empty if it is malformed."""
    kinds = {"analysis": _REASONING, "final": _CONTENT, "commentary": _PREAMBLE}
    return _without_repeats(kinds[one.channel or ""] for one in _messages(ids) if text_of(one).strip())


def _messages(ids: Sequence[int]) -> tuple[Message, ...]:
    ids = strip_endoftext(ids)
    if parse_output(ids) is None:
        return ()
    return tuple(one for one in parse(ids, role=Role.ASSISTANT) if one.recipient is None or one.channel == "final")


def _has_lost_text(x: Exchange) -> bool:
    """Return True if the client received less text than the model wrote, white space ignored."""
    written = "".join(text_of(one) for one in _messages(x.output.ids or ()))
    received = (x.turn.reasoning or "") + (x.turn.content or "") if x.turn is not None else ""
    return len("".join(received.split())) < len("".join(written.split()))


def _is_subsequence(part: Sequence[str], whole: Sequence[str]) -> bool:
    rest = iter(whole)
    return all(kind in rest for kind in part)


def _delta_kinds(x: Exchange) -> tuple[str, ...]:
    """Return the kinds of the stream's deltas, blank ones left out."""
    kinds: list[str] = []
    for delta in deltas(x):
        names = {name for name, value in members(delta).items() if isinstance(value, str) and value.strip()}
        of_delta = {_REASONING if name in REASONING_FIELDS else name for name in names} & {_REASONING, _CONTENT}
        kinds += [_BOTH] if len(of_delta) > 1 else of_delta
    return _without_repeats(kinds)


def _without_repeats(kinds: Iterable[str]) -> tuple[str, ...]:
    return tuple(kind for kind, _ in groupby(kinds))
