"""Selection of the scenarios and checks of a run by patterns.

A selected check judges every scenario, as in a run without patterns. Every check judges a selected scenario.
`CHECK@SCENARIO` selects one check on one scenario. Patterns add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from itertools import product

from harmony_conformance.apis.registry import APIS
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.expected_rows import has_rows, read_row_scenarios
from harmony_conformance.golden.scenario import Scenario, for_api, read_scenario
from harmony_conformance.json_value import loads
from harmony_conformance.plugins.registry import all_checks
from harmony_conformance.runner.judge_run import Plan, can_judge_api, covers_any_api
from harmony_conformance.runner.websocket_use import WebSocketUse
from harmony_conformance.runtime.similar_names import suggestion

PAIR_SEPARATOR = "@"
"""Separator of check and scenario in a pattern."""


class NothingSelectedError(ValueError):
    """A pattern of --select or --skip that matches no check and no scenario."""


def load_scenarios() -> tuple[Scenario, ...]:
    """Return every scenario of `golden/scenarios` and of the hand-written rows, by name."""
    files = ((file.name, loads(file.read_text(encoding="utf-8"))) for file in (golden.root() / "scenarios").iterdir())
    groups = (
        read_row_scenarios(value) if has_rows(value) else (read_scenario(value, name.removesuffix(".json")),)
        for name, value in files
    )
    return tuple(sorted((scenario for group in groups for scenario in group), key=lambda scenario: scenario.name))


def select_plan(
    apis: Sequence[str], select: Sequence[str], skip: Sequence[str], websocket_use: WebSocketUse = WebSocketUse.NONE
) -> Plan:
    """Return the scenarios and checks of some APIs, selected by patterns of the command line.

    Scenarios about a WebSocket connection are left out of a run that uses none.

    Raises:
        NothingSelectedError: A pattern matches nothing, or no pattern of --select matches anything of the APIs.
    """
    every = load_scenarios()
    loaded = tuple(filter(websocket_use.is_planned, every))
    names = tuple(scenario.name for scenario in loaded)
    if select and len(loaded) < len(every):
        _refuse_unplanned(select, names, [one.name for one in every if not websocket_use.is_planned(one)])
    every_check = all_checks()
    ids = tuple(check.id for check in every_check)
    selected = frozenset(pair for pattern in select for pair in _pairs(pattern, ids, names))
    skipped = frozenset(pair for pattern in skip for pair in _pairs(pattern, ids, names))
    scenarios = tuple(written for one in loaded for api in apis if (written := for_api(one, APIS[api])) is not None)
    checks = tuple(check for check in every_check if covers_any_api(check, apis))
    if not select and not skip:
        return Plan(scenarios=scenarios, checks=checks)
    kept = {
        name: tuple(
            check
            for check in checks
            if (not select or (check.id, name) in selected) and (check.id, name) not in skipped
        )
        for name in names
    }
    judging = tuple(check for check in checks if any(check in some for some in kept.values()))
    plan = Plan(
        scenarios=tuple(one for one in scenarios if any(can_judge_api(check, one.api) for check in kept[one.name])),
        checks=judging,
        selected_checks={name: some for name, some in kept.items() if len(some) < len(judging)},
    )
    if select and not plan.scenarios:
        raise NothingSelectedError(
            f"invalid --select: expected a check and a scenario of the selected API, got {' '.join(select)!r}; see --api and --skip"
        )
    return plan


def _refuse_unplanned(select: Sequence[str], planned: Sequence[str], unplanned: Sequence[str]) -> None:
    """Refuse a pattern that only names scenarios about a WebSocket connection, in a run that uses none.

    Raises:
        NothingSelectedError: There is such a pattern.
    """
    for pattern in select:
        wanted = pattern.rpartition(PAIR_SEPARATOR)[2]
        if (found := _matching(unplanned, wanted)) and not _matching(planned, wanted):
            raise NothingSelectedError(
                f"invalid --select: the scenario {found[0]} is about a WebSocket connection: expected a ws:// or wss:// URL"
                f" with --api responses (extra `websocket`), got {pattern!r} for a target without one"
            )


def _pairs(pattern: str, ids: Sequence[str], names: Sequence[str]) -> list[tuple[str, str]]:
    """Return the check id and the scenario name of each result that a pattern matches.

    Raises:
        NothingSelectedError: It matches nothing.
    """
    check, at, scenario = pattern.partition(PAIR_SEPARATOR)
    if at:
        pairs = list(product(_matching(ids, check), _matching(names, scenario)))
    else:
        pairs = [*product(_matching(ids, pattern), names), *product(ids, _matching(names, pattern))]
    if not pairs:
        parts = ((check, ids), (scenario, names)) if at else ((pattern, (*ids, *names)),)
        meant = next((suggestion(part, known) for part, known in parts if not _matching(known, part)), "")
        raise NothingSelectedError(f"invalid pattern: expected a check or a scenario of --list, got {pattern!r}{meant}")
    return pairs


def _matching(names: Sequence[str], pattern: str) -> list[str]:
    return [name for name in names if fnmatchcase(name, pattern)]
