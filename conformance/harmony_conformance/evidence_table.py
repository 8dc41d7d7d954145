"""`golden/evidence.json`: which checks see a defect of the prompt with token ids, and which by counts alone; and the page that is made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject, at, items, members, text

_BAR = "\\|"


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
