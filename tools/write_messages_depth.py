"""Write `conformance/MESSAGES.md`: whether each check that judges Chat Completions judges Messages too.

    python tools/write_messages_depth.py

The rows are measured on the scenarios and the examples. `golden/messages_depth.json` names for each check a defect and the scenario that shows it over
Messages. Otherwise it says why the check does not apply there, or judges logs of clients alone. A test runs each of these defects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harmony_conformance.apis.registry import MESSAGES
from harmony_conformance.checks import CHECKS
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.scenario import for_api
from harmony_conformance.json_value import Json, items, loads, members, text, value_at
from harmony_conformance.judge.check import Outcome
from harmony_conformance.runner.selection import load_scenarios

ROOT = Path(__file__).parents[1]
DATA = ROOT / "golden" / "messages_depth.json"
PAGE = ROOT / "conformance" / "MESSAGES.md"
OTHER_APIS = frozenset({"responses", "native", "completions", "messages"})
"""Families that judge one other API, and that of Messages itself."""

HEAD = """# Messages has the depth of Chat Completions

<!-- Made by `tools/write_messages_depth.py` from golden/messages_depth.json, the scenarios and the examples. -->

One row for each check that judges Chat Completions. *Scenarios*: those over Messages that are written for the check. *Pass*, *fail*: its examples over
Messages. *Defect*: one that it catches over Messages, and where. A test runs each of them. The family `messages` judges the form of that API alone.
The family `apis` compares an answer over Messages with the one over Chat Completions.

{summary}
"""


class Depth(NamedTuple):
    """The checks that judge Messages for one check."""

    check: str
    scenarios: int
    passing: int
    failing: int
    row: Json

    @property
    def is_judged(self) -> bool:
        """True if a defect over Messages is caught, and examples pass and fail."""
        return bool(value_at(self.row, "defect")) and self.has_examples

    @property
    def judges_logs(self) -> bool:
        """True if no defect of a server can fail the check, and examples pass and fail."""
        return bool(value_at(self.row, "logs")) and self.has_examples

    @property
    def has_examples(self) -> bool:
        """True if examples over Messages pass and fail."""
        return self.passing > 0 and self.failing > 0


def rows() -> Iterator[Depth]:
    """Yield the rows of the page, in the order of the checks."""
    known = members(value_at(loads(DATA.read_text("utf-8")), "checks"))
    written = [one for scenario in load_scenarios() if (one := for_api(scenario, MESSAGES)) is not None]
    scenarios = Counter(check for scenario in written for check in scenario.exercises)
    shown = Counter(
        (example.check, example.outcome)
        for example in golden.examples()
        if any(x.api == MESSAGES.name for x in example.series.exchanges.values())
    )
    for check in CHECKS:
        if check.family not in OTHER_APIS:
            passing, failing = (shown[check.id, outcome] for outcome in (Outcome.PASS, Outcome.FAIL))
            yield Depth(check.id, scenarios[check.id], passing, failing, known.get(check.id))


def page_text() -> str:
    """Return the page."""
    found = list(rows())
    judged, of_logs = sum(row.is_judged for row in found), sum(row.judges_logs for row in found)
    no_place = sum(bool(value_at(row.row, "why")) for row in found)
    summary = (
        f"Of {len(found)} checks, {judged} judge Messages with examples that pass and fail and a defect that is caught. "
        f"Judged on logs of clients alone, with such examples: {of_logs}. No place there: {no_place}. "
        f"Gaps: {len(found) - judged - of_logs - no_place}."
    )
    table = ["| check | scenarios | pass | fail | defect, or the reason |", "| --- | ---: | ---: | ---: | --- |"]
    table += [
        f"| `{row.check}` | {row.scenarios} | {row.passing} | {row.failing} | {_last_cell(row.row)} |" for row in found
    ]
    return HEAD.format(summary=summary) + "\n" + "\n".join(table) + "\n"


def _last_cell(row: Json) -> str:
    if why := text(value_at(row, "why")):
        instead = ", ".join(f"`{text(name)}`" for name in items(value_at(row, "instead")))
        return f"{why} Judged by {instead}." if instead else why
    if defect := text(value_at(row, "defect")):
        return f"`{defect}` in `{text(value_at(row, 'scenario'))}`"
    return text(value_at(row, "logs"))


if __name__ == "__main__":
    PAGE.write_text(page_text(), "utf-8")
