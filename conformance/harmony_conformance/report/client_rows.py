"""The needs of a client in a report, as rows for the terminal and the pages."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from harmony_conformance.json_value import integer, items, text, value_at
from harmony_conformance.report.model import Report
from harmony_conformance.runtime.plural import number_of

CLIENT = "client"
"""Member of the report's header with the verdict for a client."""


class NeedState(StrEnum):
    """The result of a need: at least one counted failure, at least one pass and no such failure, or neither."""

    FAILS = "fails"
    WORKS = "works"
    UNKNOWN = "unknown"


def client_rows(report: Report) -> Iterator[tuple[str, str, str]]:
    """Yield name, state and explanation of each need of the report's client, those that fail first. Nothing without a client."""
    states = [state.value for state in (NeedState.FAILS, NeedState.UNKNOWN, NeedState.WORKS)]
    needs = items(value_at(report.header, CLIENT, "needs"))
    for need in sorted(needs, key=lambda one: states.index(text(value_at(one, "state")))):
        state, detail, remedy = (text(value_at(need, name)) for name in ("state", "detail", "remedy"))
        judged = number_of(integer(value_at(need, "judged")) or 0, "result")
        counts = f"{value_at(need, 'passed')} of {judged} {'passes' if value_at(need, 'judged') == 1 else 'pass'}"
        parts = (counts if state != NeedState.UNKNOWN else "", detail, remedy)
        yield text(value_at(need, "need")), state, ". ".join(part.removesuffix(".") for part in parts if part)
