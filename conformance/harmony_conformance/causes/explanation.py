"""Explain an id of a report: a check, a defect of the reference server, a known cause, an entry of the catalogue, or a scenario.

A family of checks and a client of `--client` are explained by their lists of checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from operator import attrgetter

from harmony_conformance.apis.registry import APIS
from harmony_conformance.causes.known import TIMING, KnownCause, catalogue, engine_causes, known_causes, user_effects
from harmony_conformance.causes.shown_example import show_example, simplest_example
from harmony_conformance.causes.signatures import read_signatures
from harmony_conformance.golden.clients import ClientProfile, client_profiles
from harmony_conformance.golden.scenario import Scenario
from harmony_conformance.judge.check import Check, Comparison, Outcome
from harmony_conformance.plugins.registry import all_checks, find_check, plugin_arguments, plugin_of
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.reference_server.defects.stages import API_STAGES, ApiFamily

Section = tuple[str, tuple[str, ...]]
"""A heading, and its paragraphs."""

_LISTED = 12
_SIMILAR = 5
_SHORTEST_PART = 3


class UnknownIdError(ValueError):
    """An id that nothing has. The message names similar ones."""


def explain(name: str, scenarios: Mapping[str, Scenario]) -> tuple[Section, ...]:
    """Return the explanation of an id.

    Raises:
        UnknownIdError: Nothing has this id.
    """
    causes = _causes()
    families = {one.family for one in all_checks()}
    if (check := find_check(name)) is not None:
        return tuple(_check(check))
    if name in DEFECTS:
        return tuple(_defect(name))
    if name in causes:
        own, *more = _cause(causes[name])
        return (own, *_carriers(name), *more)
    several = [
        *(_scenario(scenarios[name]) if name in scenarios else ()),
        *(_family(name) if name in families else ()),
        *(_client(client_profiles()[name]) if name in client_profiles() else ()),
    ]
    if several:
        return tuple(several)
    near = _similar(
        name, (*(one.id for one in all_checks()), *DEFECTS, *causes, *scenarios, *sorted(families), *client_profiles())
    )
    hint = f" (similar: {', '.join(near)})" if near else ""
    kinds = "a check, family, defect, cause, scenario, rate or client"
    raise UnknownIdError(f"invalid id: expected {kinds}, got {name!r}{hint}")


def _similar(name: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the names that are spelled alike, then those that contain the name."""
    parts = sorted(one for one in known if len(name) >= _SHORTEST_PART and name.lower() in one.lower())
    return tuple(dict.fromkeys((*get_close_matches(name, known, n=3), *parts)))[:_SIMILAR]


def _family(name: str) -> Iterator[Section]:
    own = sorted((one for one in all_checks() if one.family == name), key=attrgetter("id"))
    yield f"family {name}", tuple(f"{one.id} ({one.severity.value.upper()}): {one.requirement}" for one in own)
    plugin = " ".join(plugin_arguments(f"{name}."))
    yield "try it", (f"harmony-conformance run reference {plugin and f'{plugin} '}--select '{name}.*'",)


def _client(profile: ClientProfile) -> Iterator[Section]:
    yield f"client {profile.name}", (f"{profile.title}, over {APIS[profile.api].title}", profile.setup, *profile.notes)
    yield (
        "needs",
        tuple(f"{need.name}: on a server that fails it, {profile.title} {need.loss}" for need in profile.needs),
    )
    yield "checks of the needs", tuple(sorted({check for need in profile.needs for check in need.checks}))
    yield "try it", (f"harmony-conformance run reference --client {profile.name}",)


def _first(lines: Iterable[str]) -> tuple[str, ...]:
    """Return the first of the sorted lines, and the number of the others."""
    every = sorted(lines)
    others = len(every) - _LISTED
    return (*every[:_LISTED], *((f"… and {others} more",) if others > 0 else ()))


def _causes() -> Mapping[str, KnownCause]:
    return {**catalogue(), **{cause.id: cause for causes in engine_causes().values() for cause in causes}}


def _check(check: Check | Comparison) -> Iterator[Section]:
    yield f"check {check.id} ({check.severity.value.upper()})", (check.requirement, check.reason)
    yield "clause", (check.clause.quotation, check.clause.source)
    if (source := plugin_of(check.id)) is not None:
        yield "applies to", tuple(needed.description for needed in check.when)
        yield "plug-in", (source.name, f"sha256 {source.sha256}")
        yield "try it", (f"harmony-conformance run reference --plugin {source.name} --select {check.id}",)
    yield from _examples(check.id, frozenset())
    detected = [defect for defect, checks in _failing_checks().items() if check.id in checks]
    yield "defects that make it fail", _first(f"{name}: {DEFECTS[name].summary}" for name in detected)
    yield "engines known to have one of them", _first(map(_line, known_causes(detected)))


def _defect(name: str) -> Iterator[Section]:
    effects = (
        user_effects().get(name, ""),
        *(f"On {cause.engine}: {cause.users_see}" for cause in known_causes([name])),
    )
    yield f"defect {name}", (DEFECTS[name].summary,)
    yield "effect on users", effects
    checks = sorted(_failing_checks()[name])
    yield "checks that fail", _first(f"{check}: {_requirement(check)}" for check in checks)
    yield from _examples(_typical(checks, [name]), frozenset(DEFECTS[name].catalogue))
    yield "engines known to have it", tuple(map(_line, known_causes([name])))
    yield "try it", (_command(name),)


def _cause(cause: KnownCause) -> Iterator[Section]:
    versions = (("affected", cause.affected), ("fixed in", cause.fixed_in), ("named for", str(cause.versions)))
    yield f"cause {cause.id} ({cause.engine})", (cause.sentence,)
    yield "effect on users", (cause.users_see,)
    yield from ((heading, (value,)) for heading, value in versions)
    yield "timing", (TIMING,) if cause.timing else ()
    yield "remedy", (cause.remedy,)
    yield "threads", cause.threads
    recognizing = {"any check" if pattern.check == "*" else pattern.check for pattern in cause.patterns}
    yield "recognized by failures of", tuple(sorted(recognizing))
    yield "in the catalogue", tuple(_line(catalogue()[entry]) for entry in cause.catalogue)
    checks = sorted({check for defect in cause.defects for check in _failing_checks()[defect]})
    yield "checks that fail", _first(f"{check}: {_requirement(check)}" for check in checks)
    yield from _examples(_typical(checks, cause.defects), frozenset((cause.id, *cause.catalogue))) if checks else ()
    yield "try it", tuple(map(_command, cause.defects))


def _carriers(number: str) -> Iterator[Section]:
    """Yield the causes and defects that a report names with this number of the catalogue."""
    if number not in catalogue():
        return
    own = catalogue()[number].defects
    defects = (f"{name}: {one.summary}" for name, one in DEFECTS.items() if name in own or number in one.catalogue)
    every = (cause for causes in engine_causes().values() for cause in causes)
    causes = (f"{cause.id} ({cause.engine}): {cause.sentence}" for cause in every if number in cause.catalogue)
    yield f"causes known as {number}", (*defects, *causes)


def _requirement(check: str) -> str:
    rule = find_check(check)
    return rule.requirement if rule is not None else ""


def _command(defect: str) -> str:
    """Return the command that shows a defect, over the API whose JSON it changes."""
    change = DEFECTS[defect].change
    stages = change if isinstance(change, tuple) else (change,)
    apis = {one.api for one in stages if isinstance(one, API_STAGES)} - {ApiFamily.CHAT}
    options = [f"--api {api}" for api in sorted(apis)] if len(apis) == 1 else []
    return " ".join((f"harmony-conformance run reference:defect={defect}", *options))


def _scenario(scenario: Scenario) -> Iterator[Section]:
    yield f"scenario {scenario.name}", (scenario.description,)
    yield "steps", tuple(step.name for step in scenario.steps[:_LISTED])
    yield "checks that it is written for", tuple(sorted(scenario.exercises))
    known = {
        failure.check
        for levels in read_signatures().values()
        for failure in levels["ids"]
        if failure.scenario == scenario.name
    }
    yield "checks that known defects make fail in it", tuple(sorted(known))
    yield "try it", (f"harmony-conformance run reference --select {scenario.name}",)


def _examples(check: str, instances: frozenset[str]) -> Iterator[Section]:
    """Yield the simplest example that passes, and one that fails, if possible an instance of an entry of the catalogue."""
    for heading, outcome in (("right", Outcome.PASS), ("wrong", Outcome.FAIL)):
        if (best := simplest_example(check, outcome, instances)) is not None:
            yield heading, tuple(show_example(best))


def _typical(checks: Iterable[str], defects: Iterable[str]) -> str:
    """Return the check that fails in most steps with these defects."""
    steps = Counter(failure.check for defect in defects for failure in read_signatures()[defect]["ids"])
    return min(checks, key=lambda check: (-steps[check], check))


@cache
def _failing_checks() -> Mapping[str, frozenset[str]]:
    """Return the checks that each defect makes fail."""
    return {
        defect: frozenset(failure.check for level in levels.values() for failure in level)
        for defect, levels in read_signatures().items()
    }


def _line(cause: KnownCause) -> str:
    return f"{cause.id} ({cause.engine}): {' '.join((cause.sentence, *cause.threads))}"
