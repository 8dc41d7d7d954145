"""The order in which a stream tells what the model wrote."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from harmony_conformance.checks.streaming.views import deltas
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import read_ids, strip_endoftext
from harmony_conformance.json_value import members
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check, evidence
from harmony_conformance.prompts.chat_request import REASONING_FIELDS
from harmony_conformance.redactable_text import quote
from harmony_ref import Message, Role, parse, text_of

_REASONING, _CONTENT, _PREAMBLE, _BOTH = "reasoning", "content", "preamble", "both"
_PATTERNS = {_REASONING: "r+", _CONTENT: "c+", _BOTH: "[rc]*"}  # a delta that has both tells no order


@evidence
def order_is_known(x: Exchange) -> bool:
    """answers whose emitted tokens are known to be well-formed, with reasoning and text for the user among them"""
    written = _written(x.output.ids or ())
    return _REASONING in written and (_CONTENT in written or _PREAMBLE in written)


@check(MUST, spec="chat#stream", when=(on.is_conversation, on.was_streamed, on.ended_well, order_is_known))
def order_is_kept(x: Exchange) -> Iterator[Finding]:
    """Reasoning and content arrive in the order in which the model wrote them: the thoughts before the answer that they lead to.

    A client closes the thoughts when the answer begins, and has no place for those that come later. What is left of an answer that lost some of its
    messages is in order where those that arrived are.
    """
    written, told = _written(x.output.ids or ()), _told(x)
    if _BOTH not in told and set(told) != {_REASONING, _CONTENT}:
        return
    readings = [
        _collapsed(shown if kind == _PREAMBLE else kind for kind in written) for shown in (_CONTENT, _REASONING)
    ]
    if _has_lost_text(x) and any(_is_part(told, reading) for reading in readings):
        return
    pattern = "".join(_PATTERNS[kind] for kind in told)
    if not any(re.fullmatch(pattern, "".join(kind[0] for kind in reading)) for reading in readings):
        yield Finding(
            message="reasoning and content come in another order than the model wrote them",
            at="stream",
            expected=quote(", ".join(readings[0])),
            actual=quote(", ".join(told)),
        )


def _written(ids: Sequence[int]) -> tuple[str, ...]:
    """What the model wrote, message by message, calls left out; nothing where it is malformed."""
    kinds = {"analysis": _REASONING, "final": _CONTENT, "commentary": _PREAMBLE}
    return _collapsed(kinds[one.channel or ""] for one in _said(ids) if text_of(one).strip())


def _said(ids: Sequence[int]) -> tuple[Message, ...]:
    ids = strip_endoftext(ids)
    if read_ids(ids) is None:
        return ()
    return tuple(one for one in parse(ids, role=Role.ASSISTANT) if one.recipient is None or one.channel == "final")


def _has_lost_text(x: Exchange) -> bool:
    """Whether less reached the client than the model wrote, blanks left out."""
    said = "".join(text_of(one) for one in _said(x.output.ids or ()))
    told = (x.turn.reasoning or "") + (x.turn.content or "") if x.turn is not None else ""
    return len("".join(told.split())) < len("".join(said.split()))


def _is_part(told: Sequence[str], written: Sequence[str]) -> bool:
    """Whether something can be left out of what was written so that the rest is what was told."""
    left = iter(written)
    return all(kind in left for kind in told)


def _told(x: Exchange) -> tuple[str, ...]:
    """What the stream told, delta by delta; blanks say nothing."""
    kinds: list[str] = []
    for delta in deltas(x):
        named = {name for name, value in members(delta).items() if isinstance(value, str) and value.strip()}
        said = {_REASONING if name in REASONING_FIELDS else name for name in named} & {_REASONING, _CONTENT}
        kinds += [_BOTH] if len(said) > 1 else said
    return _collapsed(kinds)


def _collapsed(kinds: Iterable[str]) -> tuple[str, ...]:
    return tuple(kind for kind, _ in groupby(kinds))
