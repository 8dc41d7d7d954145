"""A plain request before something happened, and the plain request after it: whether the server is what it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harmony_conformance.evidence.exchange import Exchange, Series, Validity
from harmony_conformance.json_value import at, dumps, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import Finding
from harmony_conformance.redactable_text import RedactableText, shorten


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    """A plain request that was answered, the last of what happened then, and the plain request that followed."""

    before: Exchange
    last: Exchange
    after: Exchange


def aftermaths(series: Series, disturbs: Callable[[Exchange], bool]) -> Iterator[Aftermath]:
    """Every plain request that follows something that disturbs, where one before it was answered."""
    before: Exchange | None = None
    last: Exchange | None = None
    for x in series.exchanges.values():
        if disturbs(x):
            last = x
        elif x.validity is Validity.VALID and on.was_sent.holds(x):
            if before is not None and last is not None:
                yield Aftermath(before=before, last=last, after=x)
            before, last = (x if x.turn is not None else None), None


def differences(one: Aftermath, what: RedactableText) -> Iterator[Finding]:
    """What is wrong with the plain request afterwards; `what` completes "after …"."""
    if one.after.turn is None or one.after.failure is not None:
        yield Finding(
            message=RedactableText("after {} a plain request is not answered", what),
            at="connection" if one.after.response is None else "status",
            expected="an answer, as before",
            actual=_outcome(one.after),
            exchange=one.after.id,
        )
    elif (
        one.before.script is not None
        and one.before.script == one.after.script
        and _said(one.before) != _said(one.after)
    ):
        yield Finding(
            message=RedactableText("after {} a plain request is answered otherwise", what),
            at="content",
            expected=shorten(_said(one.before)),
            actual=shorten(_said(one.after)),
            exchange=one.after.id,
        )


def _said(x: Exchange) -> str:
    """All that an answer says, as one JSON text."""
    turn = x.turn
    return "" if turn is None else dumps([turn.reasoning or "", turn.content or "", turn.finish_reason])


def _outcome(x: Exchange) -> RedactableText:
    if x.failure is not None:
        return RedactableText("{}", x.failure.kind)
    reason = text(at(x.error, "message")) or text(x.error)
    return (
        RedactableText("{}: {}", x.response.status, shorten(reason))
        if x.response is not None
        else RedactableText("nothing")
    )
