"""The last outcomes in the parent of the judge process, which the live page shows."""

from __future__ import annotations

from collections import deque

from harmony_conformance.json_value import InvalidJsonError, Json, items, loads

MOST_OUTCOMES = 100


class RecentReports:
    """In the parent. State: the newest reports that have `MOST_OUTCOMES` together, each with its number of outcomes."""

    def __init__(self) -> None:
        self._reports: deque[tuple[int, bytes]] = deque()
        self._outcomes = 0

    def add(self, report: bytes) -> None:
        """Add a result of `recent_outcomes.RecentOutcomes.take_report`; one that is truncated is left out."""
        number, _, outcomes = report.partition(b" ")
        if not (number.isdigit() and outcomes.endswith(b"\n")):
            return
        self._reports.append((int(number), outcomes))
        self._outcomes += int(number)
        while self._outcomes - self._reports[0][0] >= MOST_OUTCOMES:
            self._outcomes -= self._reports.popleft()[0]

    def newest(self) -> list[Json]:
        """Return at most `MOST_OUTCOMES` outcomes, the newest first. May be called by any thread."""
        found: list[Json] = []
        for _, report in reversed(tuple(self._reports)):
            try:
                found += reversed(items(loads(report)))
            except InvalidJsonError:
                continue
        return found[:MOST_OUTCOMES]
