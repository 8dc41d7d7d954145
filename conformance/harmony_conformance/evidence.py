"""What shows a defect of the way from a request to the prompt: token ids, or the numbers of prompt tokens alone.

Computed, not claimed: a run on the reference server with the defect is judged as it is, and again as an endpoint would have shown it that returns no ids of
prompts. `golden/evidence.json` holds what came out, with the reason where counts show nothing, and `selftest` demands that it still holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from harmony_conformance.check import Outcome
from harmony_conformance.checks.accounting import PLAINEST
from harmony_conformance.evidence_table import Shown
from harmony_conformance.exchange import Exchange, Series
from harmony_conformance.judging import Plan, judge_all
from harmony_conformance.wire import Chunk

_FAILS = (Outcome.FAIL, Outcome.ERROR)
_IDS, _HIDDEN = b'"prompt_token_ids"', b'"hidden"'


def without_prompt_ids(series: Series) -> Series:
    """The same exchanges with an endpoint that does not show the ids of its prompts. Arrival times are not kept."""
    return replace(series, exchanges={step: _hidden(x) for step, x in series.exchanges.items()})


def _hidden(x: Exchange) -> Exchange:
    if x.response is None:
        return x
    last = x.response.chunks[-1].at if x.response.chunks else 0.0
    chunks = (Chunk(at=last, data=x.response.body.replace(_IDS, _HIDDEN)),)
    return replace(x, response=replace(x.response, chunks=chunks), rendered=None)


def prompt_counts(series: Iterable[Series]) -> Mapping[str, int]:
    """The number of prompt tokens of every exchange that reports it, by the exchange's id."""
    counted = ((x.id, x.prompt.count) for one in series for x in one.exchanges.values())
    return {name: count for name, count in counted if count is not None}


def shown_by(
    series: Iterable[Series], plan: Plan, failed: frozenset[str], named: frozenset[str], right: Mapping[str, int]
) -> Shown:
    """What shows a defect.

    Args:
        series: a run with the defect.
        plan: what it was sent by.
        failed: the checks that fail on it.
        named: the checks that are there for the defect.
        right: the counts of the same requests on the correct server.
    """
    listed = list(series)
    asked = replace(plan, checks=tuple(rule for rule in plan.checks if rule.id in failed & named))
    blind = judge_all([without_prompt_ids(one) for one in listed], asked)
    by_counts = {result.check for result in blind if result.outcome in _FAILS}
    return Shown(
        ids=tuple(sorted(failed & named)),
        counts=tuple(sorted(by_counts)),
        changes_counts=_changes_counts(prompt_counts(listed), right),
    )


def _changes_counts(wrong: Mapping[str, int], right: Mapping[str, int]) -> bool:
    """Whether some count changed by another number than all others: what every prompt has more or less cancels out."""
    changes = {name: count - right[name] for name, count in wrong.items() if name in right}
    base = next((change for name, change in changes.items() if f"/{PLAINEST}/" in name), 0)
    return any(change != base for change in changes.values())


def disagreements(switch: str, told: Shown, computed: Shown) -> Iterator[str]:
    """Where the golden file says other than what was computed; that more checks fail than it names is no disagreement."""
    for level, named, found in (("ids", told.ids, computed.ids), ("counts", told.counts, computed.counts)):
        lost = [check for check in named if check not in found]
        if lost or bool(named) != bool(found):
            yield f"{switch}: by {level} golden/evidence.json names {', '.join(named) or 'nothing'}, and {', '.join(found) or 'nothing'} fails"
    if told.changes_counts != computed.changes_counts:
        yield f"{switch}: golden/evidence.json says that it {'changes' if told.changes_counts else 'does not change'} counts, which is not so"
