"""Evidence for defects of prompt construction: prompt token ids or only token counts; and the page EVIDENCE.md.

The evidence is computed: a run with the defect is judged twice, the second time without the ids of prompts.
`golden/evidence.json` has the results, and a reason for each defect that counts do not detect. `selftest` verifies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harmony_conformance.checks.helpers.counted_requests import BASE_STEP
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_conformance.judge.check import Outcome
from harmony_conformance.runner.judge_run import Plan, judge_all
from harmony_conformance.transport.messages import Chunk

_BAR = "\\|"
_IDS, _HIDDEN = b'"prompt_token_ids"', b'"hidden"'


@dataclass(frozen=True, kw_only=True)
class DefectEvidence:
    """Checks that detect one defect, by evidence level.

    Attributes:
        checks_by_ids: Checks for the defect that fail if prompt token ids are known.
        checks_by_counts: Checks that fail if only the numbers of prompt tokens are known.
        changes_counts: True if it changes the counts of requests by different amounts.
        no_count_reason: Reason why no count detects it, if `checks_by_counts` is empty.
    """

    checks_by_ids: tuple[str, ...]
    checks_by_counts: tuple[str, ...]
    changes_counts: bool
    no_count_reason: str = ""

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        line: JsonObject = {
            "ids": list(self.checks_by_ids),
            "counts": list(self.checks_by_counts),
            "changes_counts": self.changes_counts,
        }
        return {**line, "why": self.no_count_reason} if self.no_count_reason else line


def read_evidence(document: Json) -> Mapping[str, DefectEvidence]:
    """Parse the table of `golden/evidence.json`, by switch."""
    return {
        switch: DefectEvidence(
            checks_by_ids=tuple(map(text, items(value_at(row, "ids")))),
            checks_by_counts=tuple(map(text, items(value_at(row, "counts")))),
            changes_counts=value_at(row, "changes_counts") is True,
            no_count_reason=text(value_at(row, "why")),
        )
        for switch, row in members(value_at(document, "switches")).items()
    }


_HEAD = """# Evidence

Made by `harmony-conformance checks --format evidence`; do not edit.

Checks that detect a defect of prompt construction: by prompt token ids, or by `usage.prompt_tokens` only.
Computed by `harmony-conformance selftest`: it runs each switch of the reference server and judges the run twice.
The second time, the ids of all prompts are removed. {seen} of {all} switches are detected by counts or by the response alone.

The *zero vector* is a change that alters no count, or all counts by the same amount, so no arithmetic detects it.
Examples: order, the level of the effort (each is one token), dates, and texts of the same length.
A preamble that a provider adds to every prompt alters all counts by the same amount.

## Defects of live servers that show in the prompt

{catalogued}

## Other defects, without a report about a live server

{own}
"""


def evidence_markdown(evidence: Json, defects: Json) -> str:
    """Return the page EVIDENCE.md from the JSON of `golden/evidence.json` and `golden/defects.json`."""
    shown = read_evidence(evidence)
    rows = {text(value_at(row, "id")): row for row in items(value_at(defects, "defects"))}
    catalogued = [line for name in items(value_at(evidence, "rendering")) for line in _lines(text(name), rows, shown)]
    switches = {text(switch) for row in rows.values() for switch in items(value_at(row, "switch"))}
    own = [_cells((switch,), one) for switch, one in shown.items() if switch not in switches]
    return _HEAD.format(
        seen=sum(bool(one.checks_by_counts) for one in shown.values()),
        all=len(shown),
        catalogued=_table(("defect", "engine", "switch", "by token ids", "by counts"), catalogued),
        own=_table(("switch", "by token ids", "by counts"), own),
    ).rstrip()


def _lines(name: str, rows: Mapping[str, Json], shown: Mapping[str, DefectEvidence]) -> Iterator[Sequence[str]]:
    row = rows.get(name)
    begin = (name, text(value_at(row, "engine")))
    same = text(value_at(row, "same_as"))
    switches = [text(switch) for switch in items(value_at(rows.get(same) if same else row, "switch"))]
    for switch in (switch for switch in switches if switch in shown):
        yield (*begin, *_cells((switch,), shown[switch]))
    if not switches:
        yield (*begin, "", text(value_at(row, "outside")), text(value_at(row, "reason")))


def _cells(begin: Sequence[str], shown: DefectEvidence) -> Sequence[str]:
    by_ids, by_counts = ", ".join(shown.checks_by_ids), ", ".join(shown.checks_by_counts)
    return *begin, by_ids or "not detected", by_counts or f"not detected: {shown.no_count_reason}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', _BAR) for cell in line)} |" for line in lines)


def without_prompt_ids(series: Series) -> Series:
    """Remove the ids of prompts, as if the endpoint did not return them. Arrival times are lost if a name is split between chunks."""
    return replace(series, exchanges={step: _hidden(x) for step, x in series.exchanges.items()})


def _hidden(x: Exchange) -> Exchange:
    if x.response is None:
        return x
    chunks = tuple(replace(chunk, data=chunk.data.replace(_IDS, _HIDDEN)) for chunk in x.response.chunks)
    body = x.response.body.replace(_IDS, _HIDDEN)
    if b"".join(chunk.data for chunk in chunks) != body:
        chunks = (Chunk(arrival_time=x.response.chunks[-1].arrival_time, data=body),)
    return replace(x, response=replace(x.response, chunks=chunks), rendered_prompt=None)


def prompt_counts(series: Iterable[Series]) -> Mapping[str, int]:
    """Return the number of prompt tokens of every exchange that reports it, by the exchange's id."""
    counts = ((x.id, x.prompt.count) for one in series for x in one.exchanges.values())
    return {name: count for name, count in counts if count is not None}


def compute_evidence(
    series: Iterable[Series], plan: Plan, failed: frozenset[str], named: frozenset[str], right: Mapping[str, int]
) -> DefectEvidence:
    """Compute the evidence for a defect.

    Args:
        series: A run with the defect.
        plan: The plan of that run.
        failed: Ids of the checks that fail on it.
        named: Ids of the checks that are expected to detect the defect.
        right: Prompt token counts of the same requests on the correct server, by exchange id.
    """
    listed = list(series)
    failed_plan = replace(plan, checks=tuple(rule for rule in plan.checks if rule.id in failed & named))
    results = judge_all([without_prompt_ids(one) for one in listed], failed_plan)
    by_counts = {result.check for result in results if result.outcome in (Outcome.FAIL, Outcome.ERROR)}
    # a change that all prompts share cancels out
    changes = {name: count - right[name] for name, count in prompt_counts(listed).items() if name in right}
    base = next((change for name, change in changes.items() if f"/{BASE_STEP}/" in name), 0)
    return DefectEvidence(
        checks_by_ids=tuple(sorted(failed & named)),
        checks_by_counts=tuple(sorted(by_counts)),
        changes_counts=any(change != base for change in changes.values()),
    )


def disagreements(switch: str, golden: DefectEvidence, computed: DefectEvidence) -> Iterator[str]:
    """Yield the differences from the golden file. More failed checks than it lists are accepted."""
    for level, named, failed in (
        ("ids", golden.checks_by_ids, computed.checks_by_ids),
        ("counts", golden.checks_by_counts, computed.checks_by_counts),
    ):
        if not set(named) <= set(failed) or bool(named) != bool(failed):
            expected, actual = (", ".join(checks) or "no check" for checks in (named, failed))
            yield f"{switch}: golden/evidence.json expects failures by {level} of {expected}, got {actual}"
    if golden.changes_counts != computed.changes_counts:
        changes = f"{golden.changes_counts}, got {computed.changes_counts}"
        yield f"{switch}: golden/evidence.json expects changes_counts {changes}"
