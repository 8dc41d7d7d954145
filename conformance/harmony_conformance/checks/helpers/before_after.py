"""Compare a plain request before an event with the plain request after it: the server has to behave the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.expected_output import parse_output
from harmony_conformance.evidence.levels import Validity
from harmony_conformance.json_value import dumps, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import Finding, mismatch
from harmony_conformance.redactable_text import RedactableText, shorten
from harmony_conformance.transport.messages import FailureKind


@dataclass(frozen=True, kw_only=True)
class BeforeAndAfter:
    """An answered plain request, the last disturbing exchange after it, and the plain request that followed."""

    before: Exchange
    disturbance: Exchange
    after: Exchange


def before_and_after(series: Series, disturbs: Callable[[Exchange], bool]) -> Iterator[BeforeAndAfter]:
    """Yield each plain request that follows a disturbing one, if a plain request before it was answered."""
    before: Exchange | None = None
    last: Exchange | None = None
    for x in series.exchanges.values():
        if disturbs(x):
            last = x
        elif x.validity is Validity.VALID and (on.was_sent.holds(x) or _is_gone(x)):
            if before is not None and last is not None:
                yield BeforeAndAfter(before=before, disturbance=last, after=x)
            before, last = (x if x.turn is not None else None), None


def _is_gone(x: Exchange) -> bool:
    return x.failure is not None and x.failure.kind is FailureKind.SERVER_GONE


def behaviour_changes(one: BeforeAndAfter, event: RedactableText) -> Iterator[Finding]:
    """Yield a finding if the plain request after the event is not answered as before. `event` completes "after …".

    An answer before the event that is not the script's is a separate failure. The answer after it is then not compared.
    """
    before, after = one.before, one.after
    if after.turn is None or after.failure is not None:
        message = RedactableText("after {} a plain request is not answered", event)
        where = "connection" if after.response is None else "status"
        yield mismatch(message, where, "an answer, as before", _outcome(after), exchange=after.id)
    elif before.script is not None and before.script == after.script and _answer(before) != _answer(after):
        if _is_as_scripted(after) and not _is_as_scripted(before):
            return
        message = RedactableText("after {} a plain request gets a different answer", event)
        yield mismatch(message, "content", shorten(_answer(before)), shorten(_answer(after)), exchange=after.id)


def _is_as_scripted(x: Exchange) -> bool:
    """Return True if reasoning and content are those of the script."""
    turn, output = x.turn, parse_output(x.script or ())
    texts = None if turn is None else ((turn.reasoning or "").strip(), (turn.content or "").strip())
    return output is not None and texts == ("".join(output.reasoning).strip(), "".join(output.user_texts).strip())


def _answer(x: Exchange) -> str:
    """Return reasoning, content and finish_reason of an answer as one JSON text."""
    turn = x.turn
    return "" if turn is None else dumps([turn.reasoning or "", turn.content or "", turn.finish_reason])


def _outcome(x: Exchange) -> RedactableText:
    if x.failure is not None:
        return RedactableText("{}", x.failure.kind)
    if x.response is None:
        return RedactableText("nothing")
    return RedactableText("{}: {}", x.response.status, shorten(text(value_at(x.error, "message")) or text(x.error)))
