"""Write `reports/FINDINGS.md`: the causes of failing results of real engines, by engine.

    python tools/write_findings.py

The causes are those of `golden/causes/`, the results those of the reports below `reports/`. A report is `report.jsonl` or `report.jsonl.gz`.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property
from pathlib import Path

from harmony_conformance.json_value import Json, items, loads, members, text, value_at

ROOT = Path(__file__).parents[1]
CAUSES = ROOT / "golden" / "causes"
REPORTS = ROOT / "reports"
PAGE = REPORTS / "FINDINGS.md"
TITLES = {
    "vllm": "vLLM",
    "llamacpp": "llama.cpp",
    "ollama": "Ollama",
    "gpt-oss": "gpt-oss: its Responses server",
    "transformers": "transformers",
}
LONGEST_COMMAND = 1500
"""Longest command in characters that is shown."""
LONGEST_VALUE = 300
"""Longest value in characters that is shown."""
MOST_SCENARIOS = 8
"""Largest number of scenarios that are listed."""
PROMPT_PLACES = ("prompt", "/messages", "/usage/prompt_tokens", "status")
"""Beginnings of places that have nothing to do with the output of the model."""
_PARTS = ("check", "scenario", "api", "step", "at", "actual", "message")


@dataclass(frozen=True, eq=False)
class Failure:
    """A failing finding of a result, and the parts that patterns are matched against."""

    result: Json
    finding: Json

    @cached_property
    def parts(self) -> Mapping[str, str]:
        """Part by name."""
        step = text(value_at(self.finding, "exchange")).partition("/")[2].partition("/")[2].rpartition("/")[0]
        of_result = {name: text(value_at(self.result, name)) for name in ("check", "scenario", "api")}
        return {
            **of_result,
            "step": step,
            **{name: text(value_at(self.finding, name)) for name in ("at", "actual", "message")},
        }


@dataclass(frozen=True, eq=False)
class Pattern:
    """A row of `matches`."""

    row: Json

    @cached_property
    def _parts(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        row = members(self.row)
        return tuple((name, re.compile(translate(text(row[name])))) for name in _PARTS if name in row)

    def matches(self, failure: Failure) -> bool:
        """Return True if every given part matches."""
        return all(pattern.match(failure.parts[name]) for name, pattern in self._parts)


@dataclass(frozen=True, eq=False)
class KnownDefect:
    """A cause of `golden/causes/`."""

    row: Json
    patterns: tuple[Pattern, ...]

    def member(self, name: str) -> str:
        """Return a text of the cause, empty if it is absent."""
        return text(value_at(self.row, name))

    def members(self, name: str) -> tuple[str, ...]:
        """Return a list of the cause."""
        return tuple(map(text, items(value_at(self.row, name))))


@dataclass(frozen=True, eq=False)
class Report:
    """The failures of a report, and the number of causes that it names."""

    lane: str
    engine: str
    named: int
    results: tuple[Json, ...]

    @cached_property
    def failures(self) -> tuple[Failure, ...]:
        """All failing findings."""
        return tuple(
            Failure(result, finding)
            for result in self.results
            for finding in items(value_at(result, "findings"))
            if value_at(finding, "verdict") == "fail"
        )


def read_report(folder: Path) -> Report:
    """Read the report of a folder, compressed or not."""
    packed = folder / "report.jsonl.gz"
    data = gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / "report.jsonl").read_bytes()
    lines = data.decode("utf-8").rstrip("\n").split("\n")
    return Report(
        lane=folder.name,
        engine=text(value_at(loads(lines[0]), "target", "engine")),
        named=sum(line.startswith('{"kind":"cause"') for line in lines),
        results=tuple(
            loads(line) for line in lines if line.startswith('{"kind":"result"') and '"outcome":"fail"' in line
        ),
    )


def read_reports() -> tuple[Report, ...]:
    """Read the reports of all lanes."""
    return tuple(read_report(folder) for folder in sorted(REPORTS.iterdir()) if any(folder.glob("report.jsonl*")))


def read_causes() -> Mapping[str, tuple[KnownDefect, ...]]:
    """Read the causes by engine."""
    return {
        file.stem: tuple(
            KnownDefect(row, tuple(map(Pattern, items(value_at(row, "matches")))))
            for row in items(value_at(loads(file.read_text("utf-8")), "causes"))
        )
        for file in sorted(CAUSES.glob("*.json"))
    }


def causes_of(lane: str, causes: Mapping[str, tuple[KnownDefect, ...]]) -> tuple[KnownDefect, ...]:
    """Return the causes of the engine whose recording is in a lane: one of its causes was seen there."""
    return next((known for known in causes.values() if any(lane in one.members("seen_in") for one in known)), ())


def owner_of(failure: Failure, known: Iterable[KnownDefect]) -> KnownDefect | None:
    """Return the first cause that matches a failure."""
    return next((one for one in known if any(pattern.matches(failure) for pattern in one.patterns)), None)


def owned_failures(report: Report, known: Sequence[KnownDefect]) -> Mapping[KnownDefect | None, list[Failure]]:
    """Return the failures of a report by cause. Those without a cause are under None."""
    owned: dict[KnownDefect | None, list[Failure]] = {}
    for failure in report.failures:
        owned.setdefault(owner_of(failure, known), []).append(failure)
    return owned


def results_of(failures: Iterable[Failure]) -> int:
    """Return the number of results of failures."""
    return len({id(failure.result) for failure in failures})


def shortened(value: str) -> str:
    """Return a value on one line, cut if it is long. Invisible characters are escaped."""
    line = " ".join(value.split())
    line = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)
    return line if len(line) <= LONGEST_VALUE else f"{line[:LONGEST_VALUE]}…"


def example_of(failures: Iterable[Failure]) -> Failure:
    """Return the failure with the shortest command, preferably a plain request that shows this failure."""

    def cost(failure: Failure) -> tuple[bool, bool, int]:
        command = text(value_at(failure.result, "reproduce"))
        failed = (one for one in items(value_at(failure.result, "findings")) if value_at(one, "verdict") == "fail")
        shown = value_at(next(failed, None), "exchange")
        is_another = shown != value_at(failure.finding, "exchange")
        return is_another, not command.startswith("curl") or not command.isprintable(), len(command)

    return min(failures, key=cost)


def draft_lines(cause: KnownDefect, failures: Iterable[Failure]) -> Iterator[str]:
    """Yield the text of a report that can be filed."""
    example = example_of(failures)
    yield from ("", "Not reported yet. Text of a report:", "")
    yield f"> {cause.member('sentence')} {cause.member('users_see')}"
    command, script = (text(value_at(example.result, name)) for name in ("reproduce", "script"))
    if command.isprintable() and 0 < len(command) < LONGEST_COMMAND:
        yield from (">", "> ```sh", f"> {command}", "> ```")
    if not example.parts["at"].startswith(PROMPT_PLACES) and 0 < len(script) < LONGEST_VALUE:
        yield from (">", "> Output of the model:", ">", "> ```text", f"> {shortened(script)}", "> ```")
    values = ((name, text(value_at(example.finding, name))) for name in ("at", "expected", "actual"))
    shown = [f"> {name}: {shortened(value)}" for name, value in values if value]
    message = shortened(text(value_at(example.finding, "message")))
    yield from (">", "> ```text", f"> {example.parts['check']}: {message}", *shown, "> ```")


def cause_lines(cause: KnownDefect, by_lane: Mapping[str, list[Failure]]) -> Iterator[str]:
    """Yield the section of a cause."""
    yield from ("", f"### {cause.member('id')}", "", cause.member("sentence"), "")
    yield f"- Effect: {cause.member('users_see')}"
    yield f"- Versions: {cause.member('affected')}" + (
        f"; fixed in {fixed}" if (fixed := cause.member("fixed_in")) else ""
    )
    if remedy := cause.member("remedy"):
        yield f"- Remedy: {remedy}"
    alike = (*cause.members("catalogue"), *(f"`{name}`" for name in cause.members("defects")))
    yield f"- Clause: `{cause.member('clause')}`" + (f"; catalogue and switches: {', '.join(alike)}" if alike else "")
    threads = cause.members("threads")
    if threads:
        yield f"- Threads: {', '.join(f'<{thread}>' for thread in threads)}"
    yield from ("", "| recording | failing results | scenarios |", "| --- | --- | --- |")
    for lane, failures in by_lane.items():
        scenarios = sorted({failure.parts["scenario"] for failure in failures})
        more = f" and {len(scenarios) - MOST_SCENARIOS} more" if len(scenarios) > MOST_SCENARIOS else ""
        yield f"| {lane} | {results_of(failures)} | {', '.join(scenarios[:MOST_SCENARIOS])}{more} |"
    if not threads and fixed:
        yield from ("", "No report is known, and the newest tested version does not have it.")
    elif not threads:
        yield from draft_lines(cause, [failure for failures in by_lane.values() for failure in failures])


def page_text(causes: Mapping[str, tuple[KnownDefect, ...]], reports: Sequence[Report]) -> str:
    """Return the text of the page."""
    owned = {report.lane: owned_failures(report, causes_of(report.lane, causes)) for report in reports}
    lines = [
        "# Findings",
        "",
        "The causes behind the failing results of the recordings, by engine. This page is written by `tools/write_findings.py`",
        "from [golden/causes](../golden/causes) and the reports. A result with failures of several causes counts for each of them.",
        "The [table at the end](#causes-and-results) has the numbers by recording.",
        "",
        "The commands address the server of a recording, which plays the scripted output of the request. The [table of reports](README.md)",
        "has the `make` target that starts it.",
    ]
    for engine, known in causes.items():
        lines += ["", f"## {TITLES.get(engine, engine)}"]
        for cause in known:
            by_lane = {lane: of_lane[cause] for lane, of_lane in owned.items() if cause in of_lane}
            lines += cause_lines(cause, by_lane)
    lines += ["", "## Causes and results", ""]
    lines += [
        "| recording | failing results | with a cause | causes by hand | causes by the tool |",
        "| --- | --- | --- | --- | --- |",
    ]
    for report in reports:
        by_cause = owned[report.lane]
        explained = [failure for cause, failures in by_cause.items() if cause is not None for failure in failures]
        hand = len(by_cause.keys() - {None})
        lines.append(
            f"| {report.lane} | {len(report.results)} | {results_of(explained)} | {hand} | {report.named or 'not stored'} |"
        )
    return "\n".join([*lines, ""])


def main() -> int:
    """Write the page."""
    PAGE.write_text(page_text(read_causes(), read_reports()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
