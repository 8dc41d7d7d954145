"""What shows a defect of the way from a request to the prompt: token ids, or the numbers of prompt tokens alone; and the page that is made of it.

Computed, not claimed: a run on the reference server with the defect is judged as it is, and again as an endpoint would have shown it that returns no ids of
prompts. `golden/evidence.json` holds what came out, with the reason where counts show nothing, and `selftest` demands that it still holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harmony_conformance.checks.accounting import PLAINEST
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.json_value import Json, JsonObject, at, items, members, text
from harmony_conformance.judge.check import Outcome
from harmony_conformance.runner.judge_run import Plan, judge_all
from harmony_conformance.transport.messages import Chunk

_BAR = "\\|"
_FAILS = (Outcome.FAIL, Outcome.ERROR)
_IDS, _HIDDEN = b'"prompt_token_ids"', b'"hidden"'


@dataclass(frozen=True, kw_only=True)
class Shown:
    """What shows one switchable defect.

    Attributes:
        ids: the checks there for it that fail where prompt ids are shown.
        counts: those that fail where nothing is known of prompts but their number of tokens.
        changes_counts: whether it changes the count of some request otherwise than that of all.
        why: where `counts` is empty, what keeps arithmetic from seeing it.
    """

    ids: tuple[str, ...]
    counts: tuple[str, ...]
    changes_counts: bool
    why: str = ""

    def line(self) -> JsonObject:
        """The JSON form."""
        told: JsonObject = {"ids": list(self.ids), "counts": list(self.counts), "changes_counts": self.changes_counts}
        return {**told, "why": self.why} if self.why else told


def read_evidence(document: Json) -> Mapping[str, Shown]:
    """The table of the golden file, by switch."""
    return {
        switch: Shown(
            ids=tuple(map(text, items(at(row, "ids")))),
            counts=tuple(map(text, items(at(row, "counts")))),
            changes_counts=at(row, "changes_counts") is True,
            why=text(at(row, "why")),
        )
        for switch, row in members(at(document, "switches")).items()
    }


_HEAD = """# Evidence

Made by `harmony-conformance checks --format evidence`; do not edit.

Which checks see a defect of the way from a request to the prompt: where the endpoint shows the token ids it fed, and where it tells no more than
`usage.prompt_tokens`. Computed by `harmony-conformance selftest`: each switch of the reference server is run, judged, and judged again with the ids of all
prompts taken away. {seen} of {all} switches are seen by counts or by the answer alone.

The *zero vector* is a change that leaves every count as it was, or changes all alike, as a provider's own preamble does: order, the level of the effort (each
is one token), dates, and texts exchanged for others as long. No arithmetic sees it.

## Defects of live servers that show in the prompt

{catalogued}

## Defects of this project's own

{own}
"""


def evidence_markdown(evidence: Json, defects: Json) -> str:
    """The page.

    Args:
        evidence: `golden/evidence.json`.
        defects: `golden/defects.json`.
    """
    shown = read_evidence(evidence)
    rows = {text(at(row, "id")): row for row in items(at(defects, "defects"))}
    catalogued = [line for name in items(at(evidence, "rendering")) for line in _lines(text(name), rows, shown)]
    held = {text(switch) for row in rows.values() for switch in items(at(row, "switch"))}
    own = [_cells((switch,), seen) for switch, seen in shown.items() if switch not in held]
    seen = sum(bool(one.counts) for one in shown.values())
    return _HEAD.format(
        seen=seen,
        all=len(shown),
        catalogued=_table(("defect", "engine", "switch", "by token ids", "by counts"), catalogued),
        own=_table(("switch", "by token ids", "by counts"), own),
    ).rstrip()


def _lines(name: str, rows: Mapping[str, Json], shown: Mapping[str, Shown]) -> Iterator[Sequence[str]]:
    row = rows.get(name)
    begin = (name, text(at(row, "engine")))
    same = text(at(row, "same_as"))
    switches = [text(switch) for switch in items(at(rows.get(same) if same else row, "switch"))]
    for switch in (switch for switch in switches if switch in shown):
        yield (*begin, *_cells((switch,), shown[switch]))
    if not switches:
        yield (*begin, "", text(at(row, "outside")), text(at(row, "reason")))


def _cells(begin: Sequence[str], seen: Shown) -> Sequence[str]:
    return (*begin, ", ".join(seen.ids) or "not at all", ", ".join(seen.counts) or f"not: {seen.why}")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', _BAR) for cell in line)} |" for line in lines)


def without_prompt_ids(series: Series) -> Series:
    """The same exchanges with an endpoint that does not show the ids of its prompts. Arrival times are not kept."""
    return replace(series, exchanges={step: _hidden(x) for step, x in series.exchanges.items()})


def _hidden(x: Exchange) -> Exchange:
    if x.response is None:
        return x
    last = x.response.chunks[-1].at if x.response.chunks else 0.0
    chunks = (Chunk(at=last, data=x.response.body.replace(_IDS, _HIDDEN)),)
    return replace(x, response=replace(x.response, chunks=chunks), rendered_prompt=None)


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
    # what every prompt has more or less cancels out
    changes = {name: count - right[name] for name, count in prompt_counts(listed).items() if name in right}
    base = next((change for name, change in changes.items() if f"/{PLAINEST}/" in name), 0)
    return Shown(
        ids=tuple(sorted(failed & named)),
        counts=tuple(sorted(by_counts)),
        changes_counts=any(change != base for change in changes.values()),
    )


def disagreements(switch: str, told: Shown, computed: Shown) -> Iterator[str]:
    """Where the golden file says other than what was computed; that more checks fail than it names is no disagreement."""
    for level, named, found in (("ids", told.ids, computed.ids), ("counts", told.counts, computed.counts)):
        lost = [check for check in named if check not in found]
        if lost or bool(named) != bool(found):
            yield f"{switch}: by {level} golden/evidence.json names {', '.join(named) or 'nothing'}, and {', '.join(found) or 'nothing'} fails"
    if told.changes_counts != computed.changes_counts:
        yield f"{switch}: golden/evidence.json says that it {'changes' if told.changes_counts else 'does not change'} counts, which is not so"
