"""Baselines: failures that a project expects, each with its reason.

A baseline is a TOML file. An entry names a cause, or a check with an optional scenario, as patterns:

    [[expected]]
    cause = "vllm-header-forms"
    reason = "waits for the next release"
    link = "https://github.com/vllm-project/vllm/issues/1"

    [[expected]]
    check = "streaming.*"
    scenario = "rows_texts"
    reason = "not decided"

An entry whose check does not exist is refused. One that explains no failure is stale, unless its checks were not judged.
For an audit, an entry can also name a message, and the source of the answers. A reason that begins with `TODO`, as in a written baseline, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, cast

from harmony_conformance.json_value import JsonObject, dumps, items, text, value_at
from harmony_conformance.judge.check import Outcome
from harmony_conformance.plugins.registry import all_checks
from harmony_conformance.report.comparison.baseline_keys import ENTRY, LOG_KEYS, RUN_KEYS, SOURCES
from harmony_conformance.report.model import Report, ResultLine
from harmony_conformance.runtime.file_keys import names_of
from harmony_conformance.runtime.similar_names import suggestion
from harmony_conformance.runtime.terminal_text import escape_invisible
from harmony_conformance.runtime.text_files import InvalidEncodingError
from harmony_conformance.runtime.toml_files import InvalidTomlError, read_toml_file

RUN_MEMBERS = names_of(RUN_KEYS, ENTRY)
LOG_MEMBERS = names_of(LOG_KEYS, ENTRY)
"""Members of an entry for an audit. Each that names what is expected is a shell pattern."""
_PLACEHOLDER = "TODO"
_NO_REASON = re.compile(rf"\s*{_PLACEHOLDER}\b", re.IGNORECASE)


NO_ENTRIES: Final = "no entries, so no failure is expected"
"""Note on a baseline that was read: an empty file is valid, and may be one that lost its content."""


class InvalidBaselineError(ValueError):
    """A file that is no baseline. The message has the place, what was expected and what was found."""


@dataclass(frozen=True, kw_only=True)
class Expected:
    """An entry of a baseline. All members except `reason` and `link` are shell patterns; an empty one matches everything."""

    cause: str = ""
    check: str = ""
    scenario: str = ""
    message: str = ""
    model: str = ""
    provider: str = ""
    route: str = ""
    engine: str = ""
    api: str = ""
    reason: str = ""
    link: str = ""

    def __str__(self) -> str:
        """Return what the entry expects, on one line."""
        named = ("cause", "check", "scenario", "message", *SOURCES)
        return " ".join(f"{name} {value}" for name in named if (value := str(getattr(self, name))))

    def source(self, name: str) -> str:
        """Return the pattern of one of `SOURCES`."""
        return str(getattr(self, name))

    def covers(self, result: ResultLine, causes: Sequence[str]) -> bool:
        """Return True if the entry expects a failure with these causes."""
        return (
            (not self.cause or any(fnmatchcase(cause, self.cause) for cause in causes))
            and (not self.check or fnmatchcase(result.check, self.check))
            and (not self.scenario or fnmatchcase(result.scenario, self.scenario))
        )


@dataclass(frozen=True, kw_only=True)
class BaselineResult:
    """A run compared with a baseline: expected and unexpected failures, and entries that explain none."""

    expected: tuple[ResultLine, ...]
    unexpected: tuple[ResultLine, ...]
    stale: tuple[Expected, ...]

    def to_json(self) -> JsonObject:
        """Return the member of the report's header."""
        return {
            "expected": [result.name for result in self.expected],
            "unexpected": [result.name for result in self.unexpected],
            "stale": [str(entry) for entry in self.stale],
        }


def read_baseline(
    path: Path, members: Sequence[str] = RUN_MEMBERS, *, allows_placeholders: bool = False
) -> tuple[Expected, ...]:
    """Read a baseline whose entries may have these members.

    Raises:
        InvalidBaselineError: It cannot be read, or an entry is invalid.
    """
    try:
        document = read_toml_file(path)
    except OSError as problem:
        raise InvalidBaselineError(f"{path}: {problem.strerror}") from None
    except (InvalidEncodingError, InvalidTomlError) as problem:
        raise InvalidBaselineError(f"{path}: {problem}") from None
    entries = document.get("expected", [])
    if document.keys() - {"expected"} or not isinstance(entries, list):
        raise InvalidBaselineError(f"{path}: expected a list of tables [[expected]], got {', '.join(sorted(document))}")
    listed = cast(list[object], entries)
    read = tuple(_read_entry(entry, f"{path}: entry {number}", members) for number, entry in enumerate(listed, 1))
    ids = [check.id for check in all_checks()]
    for number, entry in enumerate(read, 1):
        if entry.check and not any(fnmatchcase(id_, entry.check) for id_ in ids):
            raise InvalidBaselineError(
                f"{path}: entry {number}: invalid check: expected one of this version or of a plug-in that is loaded,"
                f" got {entry.check!r}{suggestion(entry.check, ids)}"
            )
        if _NO_REASON.match(entry.reason) and not allows_placeholders:
            raise InvalidBaselineError(
                f"{path}: entry {number} ({entry}): expected a reason, got the placeholder {_PLACEHOLDER}"
            )
    return read


def _read_entry(entry: object, place: str, members: Sequence[str]) -> Expected:
    if not isinstance(entry, dict):
        raise InvalidBaselineError(f"{place}: expected a table, got {entry!r}")
    texts: dict[str, str] = {}
    for name, value in cast(dict[str, object], entry).items():
        if name not in members or not isinstance(value, str):
            raise InvalidBaselineError(f"{place}: expected texts named {', '.join(members)}, got {name} = {value!r}")
        texts[name] = value
    if not texts.get("reason"):
        raise InvalidBaselineError(f"{place}: expected a reason, got none")
    if not texts.get("cause") and not texts.get("check"):
        raise InvalidBaselineError(f"{place}: expected a cause or a check, got neither")
    return Expected(**texts)


def apply_baseline(report: Report, baseline: tuple[Expected, ...]) -> BaselineResult:
    """Divide the failures of a run into expected and unexpected ones, and find stale entries."""
    failed = [result for result in report.results if result.outcome is Outcome.FAIL]
    owners = [[entry for entry in baseline if entry.covers(one, report.causes_of.get(one.name, ()))] for one in failed]
    used = {entry for entries in owners for entry in entries}
    return BaselineResult(
        expected=tuple(result for result, entries in zip(failed, owners, strict=True) if entries),
        unexpected=tuple(result for result, entries in zip(failed, owners, strict=True) if not entries),
        stale=tuple(entry for entry in baseline if entry not in used and _is_judged(entry, report)),
    )


def with_baseline(report: Report, baseline: tuple[Expected, ...]) -> Report:
    """Return the report with the comparison with a baseline in its header. Causes whose failures are all expected are marked, and come last."""
    compared = apply_baseline(report, baseline).to_json()
    expected = frozenset(map(text, items(compared["expected"])))
    causes: list[JsonObject] = [
        {**cause, "expected": expected.issuperset(map(text, items(value_at(cause, "failed"))))}
        for cause in report.causes
    ]
    causes.sort(key=lambda cause: cause["expected"] is True)
    return replace(report, header={**report.header, "baseline": compared}, causes=tuple(causes))


def _is_judged(entry: Expected, report: Report) -> bool:
    """Return True if a result that the entry names was judged. Which results a cause would fail is unknown: any counts."""
    return any(
        result.outcome in (Outcome.PASS, Outcome.VARIANT, Outcome.FAIL)
        and (not entry.check or fnmatchcase(result.check, entry.check))
        and (not entry.scenario or fnmatchcase(result.scenario, entry.scenario))
        for result in report.results
    )


def write_cause_entry(cause: JsonObject) -> str:
    """Return an entry that expects a cause. Its reason is to be replaced."""
    return _entry("cause", text(value_at(cause, "id")), text(value_at(cause, "sentence"))) + _link(cause)


def write_check_entry(check: str, sentence: str) -> str:
    """Return an entry that expects the failures of a check in a log, with a sentence about one. Its reason is to be replaced."""
    return _entry("check", check, sentence)


def _entry(kind: str, name: str, sentence: str) -> str:
    return f"{ENTRY}\n{kind} = {dumps(name)}\nreason = {dumps(escape_invisible(f'{_PLACEHOLDER}: {sentence}'))}\n"


def _link(cause: JsonObject) -> str:
    """Return the link of an entry: an issue or a pull request, otherwise the file that has the fault."""
    threads = sorted(map(text, items(value_at(cause, "threads"))), key=lambda one: "/blob/" in one)
    return f"link = {dumps(threads[0])}\n" if threads else ""
