"""Known causes: what is known about a defect of real servers, by engine. Data: `golden/causes/` and `golden/defects.json`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache

from harmony_conformance.causes.signatures import step_of
from harmony_conformance.causes.versions import ALL_VERSIONS, VersionRange
from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import Json, items, loads, members, text, value_at
from harmony_conformance.judge.check import Finding, Severity
from harmony_conformance.judge.judge import Result

CAUSES = "causes"
"""Folder in the golden data, with a file for each engine."""
CATALOGUE = "defects.json"
"""File name in the golden data."""


TIMING = "Chance, or the time at which tokens arrive, decides whether it happens: the same request can pass."
"""Sentence about a cause that depends on timing."""
PARTS = ("check", "scenario", "api", "message", "at", "step", "actual")
"""Parts of a failure that patterns are matched against."""


def failure_parts(result: Result, finding: Finding) -> Mapping[str, str]:
    """Return the parts of a failure by name."""
    return {
        "check": result.check,
        "scenario": result.scenario,
        "api": result.api,
        "message": finding.message,
        "at": finding.location,
        "step": step_of(finding.exchange),
        "actual": finding.actual or "",
    }


@dataclass(frozen=True, kw_only=True)
class FailurePattern:
    """Shell patterns for the parts of a failure, and the versions of the engine that show it in this form."""

    check: str
    scenario: str = "*"
    api: str = "*"
    message: str = "*"
    at: str = "*"
    step: str = "*"
    actual: str = "*"
    versions: VersionRange = ALL_VERSIONS

    def matches(self, parts: Mapping[str, str]) -> bool:
        """Return True if every part matches."""
        return all(fnmatchcase(parts[name], getattr(self, name)) for name in PARTS)


@dataclass(frozen=True, kw_only=True)
class KnownCause:
    """A defect of a real engine.

    Attributes:
        engine: The name of the engine. In the catalogue with versions.
        sentence: The behaviour of the server.
        users_see: What a user of the server sees.
        clause: The id of the clause that fits. Empty for entries of the catalogue.
        affected: The affected versions in words.
        fixed_in: The version or the pull request that mends it.
        threads: Addresses of issues and pull requests.
        catalogue: Ids in `golden/defects.json` of the same defect.
        defects: Ids of the defects of the reference server that imitate it.
        remedy: What an operator can do.
        patterns: The failures by which it is recognized.
        versions: The versions for which it is named. Another release with such failures has another defect.
        timing: True if the same request fails or passes, by chance or by the time at which tokens arrive.
        seen_in: Folders of `reports/` whose recording shows it.
        severity: What the clause demands, if the checks that show the defect say less. None: that of the failures.
    """

    id: str
    engine: str
    sentence: str
    users_see: str
    clause: str
    affected: str
    fixed_in: str
    threads: tuple[str, ...]
    catalogue: tuple[str, ...]
    defects: tuple[str, ...]
    remedy: str
    patterns: tuple[FailurePattern, ...]
    versions: VersionRange = ALL_VERSIONS
    timing: bool = False
    seen_in: tuple[str, ...] = ()
    severity: Severity | None = None

    def explains(self, parts: Mapping[str, str]) -> bool:
        """Return True if the cause is recognized in a failure, given by its parts."""
        return any(pattern.matches(parts) for pattern in self.patterns)


@cache
def engine_causes() -> Mapping[str, tuple[KnownCause, ...]]:
    """Read the causes of all engines, by engine."""
    files = sorted((golden.root() / CAUSES).iterdir(), key=lambda file: file.name)
    documents = [loads(file.read_text("utf-8")) for file in files]
    return {
        (engine := text(value_at(document, "engine"))): tuple(
            _read(cause, engine, "defects") for cause in items(value_at(document, "causes"))
        )
        for document in documents
    }


def causes_of_version(engine: str, version: str) -> tuple[KnownCause, ...]:
    """Return the causes of an engine that a version can have, with the patterns that it can show. An empty version can have all."""
    possible = (cause for cause in engine_causes().get(engine, ()) if cause.versions.contains(version))
    return tuple(
        replace(cause, patterns=tuple(one for one in cause.patterns if one.versions.contains(version)))
        for cause in possible
    )


@cache
def catalogue() -> Mapping[str, KnownCause]:
    """Read the catalogue of defects that were seen in live servers, by id."""
    causes = (_read(row, text(value_at(row, "engine")), "switch") for row in items(value_at(_document(), "defects")))
    return {cause.id: cause for cause in causes}


@cache
def user_effects() -> Mapping[str, str]:
    """Read what users see of defects that no report describes, by defect of the reference server."""
    return {
        text(value_at(row, "switch")): text(value_at(row, "users_see")) for row in items(value_at(_document(), "own"))
    }


@cache
def _document() -> Json:
    return loads((golden.root() / CATALOGUE).read_text("utf-8"))


def known_causes(defects: Iterable[str]) -> tuple[KnownCause, ...]:
    """Return the causes of engines and the entries of the catalogue that these defects of the reference server imitate."""
    wanted = frozenset(defects)
    every = (*(cause for causes in engine_causes().values() for cause in causes), *catalogue().values())
    return tuple(cause for cause in every if not wanted.isdisjoint(cause.defects))


def _read(row: Json, engine: str, defects: str) -> KnownCause:
    def words(name: str) -> str:
        return text(value_at(row, name))

    def names(name: str) -> tuple[str, ...]:
        return tuple(map(text, items(value_at(row, name))))

    return KnownCause(
        id=words("id"),
        engine=engine,
        sentence=words("sentence"),
        users_see=words("users_see"),
        clause=words("clause"),
        affected=words("affected"),
        fixed_in=words("fixed_in"),
        threads=names("threads"),
        catalogue=names("catalogue"),
        defects=names(defects),
        remedy=words("remedy"),
        patterns=tuple(
            FailurePattern(
                **{name: text(members(pattern).get(name, "*")) for name in PARTS},
                versions=_range(value_at(pattern, "versions")),
            )
            for pattern in items(value_at(row, "matches"))
        ),
        versions=_range(value_at(row, "versions")),
        timing=value_at(row, "timing") is True,
        seen_in=names("seen_in"),
        severity=Severity(words("severity")) if words("severity") else None,
    )


def _range(value: Json) -> VersionRange:
    return VersionRange(after=text(value_at(value, "after")), below=text(value_at(value, "below")))
