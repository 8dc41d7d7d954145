"""Write `reports/FINDINGS.md`: the causes of failing results of real engines, by engine, each with the text of a report.

    python tools/write_findings.py
    python tools/write_findings.py --prune

The causes are those of `golden/causes/`, the results and examples those of the reports below `reports/`. A report is `report.jsonl` or `report.jsonl.xz`.
With `--prune`, rows of `golden/causes/` that match no failure of the reports are removed first, and `seen_in` is written again.
"""

from __future__ import annotations

import json
import lzma
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harmony_conformance.causes.known import PARTS, TIMING, FailurePattern, KnownCause, causes_of_version, engine_causes
from harmony_conformance.causes.signatures import step_of
from harmony_conformance.causes.versions import version_numbers
from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import Json, items, loads, members, text, value_at
from harmony_conformance.judge.harmony_clauses import CLAUSES

ROOT = Path(__file__).parents[1]
REPORTS = ROOT / "reports"
PAGE = REPORTS / "FINDINGS.md"
TITLES = {
    "vllm": "vLLM",
    "llamacpp": "llama.cpp",
    "ollama": "Ollama",
    "litellm": "LiteLLM",
    "gpt-oss": "gpt-oss: its Responses server",
    "transformers": "transformers",
    "tgi": "TGI",
    "sglang": "SGLang",
    "smg": "SGLang's router, and smg, its successor",
    "dynamo": "NVIDIA Dynamo",
    "lmdeploy": "LMDeploy",
    "vllm-rs": "vLLM: its Rust front end",
}
LONGEST_COMMAND = 5000
"""Longest command in characters that is shown."""
SHORT_COMMAND = 1500
"""Length in characters up to which a command of the newest version is preferred."""
LONGEST_VALUE = 300
"""Longest value in characters that is shown."""
MOST_SCENARIOS = 8
"""Largest number of scenarios that are listed."""
PROMPT_PLACES = ("prompt", "/messages", "/usage/prompt_tokens", "status")
"""Beginnings of places that have nothing to do with the output of the model."""
HEAD = """# Findings

The causes behind the failing results of the recordings, by engine: first those of the newest tested version, then those that are mended.
This page is written by `tools/write_findings.py` from [golden/causes](../golden/causes) and the reports.
A result with failures of several causes counts for each. The [table at the end](#causes-and-results) has the numbers by recording.

Each section is the text of a report that can be filed: what is wrong, versions, the smallest request, expected and actual value, and the clause.
The commands address the server of a recording, which plays the scripted output of the request. The `make` target of a recording starts it.
Where the teleprompter is the model, the script is the end of the last message. Numbers of three digits are special tokens there, and `704` fills the rest.
`harmony-conformance teleprompter build` makes its weights for any engine.
"""
_REPORT_ROW = re.compile(r"^\| \[([^\]]+)\]\([^)]*\) \| .* \| `([^`]+)` \|$", re.MULTILINE)
_HAND_ROW = re.compile(r"^\| ([^ |]+) \| ([0-9]+) \| [0-9]+ \| ", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Failure:
    """A failing finding of a result, and the parts that patterns are matched against."""

    result: Json
    finding: Json

    @cached_property
    def parts(self) -> Mapping[str, str]:
        """Part by name."""
        of_result = {name: text(value_at(self.result, name)) for name in ("check", "scenario", "api")}
        of_finding = {name: text(value_at(self.finding, name)) for name in PARTS if name not in of_result}
        return {**of_finding, **of_result, "step": step_of(text(value_at(self.finding, "exchange")))}


@dataclass(frozen=True, eq=False)
class Report:
    """The failures of a report, and the causes that it names.

    Attributes:
        folder: Folder below `reports/`.
        named: The line of each cause by id.
        results: Failing results.
    """

    folder: str
    engine: str
    version: str
    named: Mapping[str, Json]
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
    packed = folder / "report.jsonl.xz"
    data = lzma.decompress(packed.read_bytes()) if packed.exists() else (folder / "report.jsonl").read_bytes()
    lines = data.decode("utf-8").rstrip("\n").split("\n")
    target = value_at(loads(lines[0]), "target")
    causes = [loads(line) for line in lines if line.startswith('{"kind":"cause"')]
    return Report(
        folder=folder.name,
        engine=text(value_at(target, "engine")),
        version=text(value_at(target, "engine_version")),
        named={text(value_at(cause, "id")): cause for cause in causes},
        results=tuple(
            loads(line) for line in lines if line.startswith('{"kind":"result"') and '"outcome":"fail"' in line
        ),
    )


def read_reports() -> tuple[Report, ...]:
    """Read the reports of every setup."""
    return tuple(read_report(folder) for folder in sorted(REPORTS.iterdir()) if any(folder.glob("report.jsonl*")))


def owned_failures(report: Report) -> Mapping[str, list[Failure]]:
    """Return the failures of a report by the id of the first cause that explains them, empty if none does."""
    known = causes_of_version(report.engine, report.version)
    owned: dict[str, list[Failure]] = {}
    for failure in report.failures:
        owner = next((one.id for one in known if one.explains(failure.parts)), "")
        owned.setdefault(owner, []).append(failure)
    return owned


def results_of(failures: Iterable[Failure]) -> int:
    """Return the number of results of failures."""
    return len({id(failure.result) for failure in failures})


def shortened(value: str) -> str:
    """Return a value on one line, cut if it is long. Invisible characters are escaped."""
    line = " ".join(value.split())
    line = "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in line)
    return line if len(line) <= LONGEST_VALUE else f"{line[:LONGEST_VALUE]}…"


def example_report(cause: KnownCause, reports: Iterable[Report]) -> Report | None:
    """Return the recording whose example is shown: one with a short plain command, of the newest version. None if none names the cause."""

    def rank(report: Report) -> tuple[bool, bool, tuple[int, ...]]:
        command = text(value_at(report.named[cause.id], "example", "reproduce"))
        return command.startswith("curl"), len(command) < SHORT_COMMAND, version_numbers(report.version)

    return max((report for report in reports if cause.id in report.named), key=rank, default=None)


def example_lines(cause: KnownCause, report: Report, target: str) -> Iterator[str]:
    """Yield how to reproduce a cause: request, output of the model, expected and actual value."""
    example = value_at(report.named[cause.id], "example")
    place, command, script = (text(value_at(example, name)) for name in ("at", "reproduce", "script"))
    server = f"{TITLES.get(report.engine, report.engine).partition(':')[0]} {report.version}"
    yield from ("", f"To reproduce it on {server}" + (f", started by `{target}`:" if target else ":"), "")
    repeated = f"harmony-conformance reproduce reports/{report.folder} {cause.id}"
    yield from (
        "```sh",
        *([command] if command.isprintable() and len(command) < LONGEST_COMMAND else []),
        repeated,
        "```",
    )
    if script and not place.startswith(PROMPT_PLACES):
        yield from ("", "The model writes:", "", "```text", shortened(script), "```")
    values = ((name, text(value_at(example, name))) for name in ("expected", "actual"))
    shown = [f"{name}: {shortened(value)}" for name, value in values if value]
    message = f"{text(value_at(example, 'check'))}: {shortened(text(value_at(example, 'message')))}"
    yield from ("", f"The failure at {place}:" if place else "The failure:", "", "```text", message, *shown, "```")


def cause_lines(
    cause: KnownCause, by_folder: Mapping[str, list[Failure]], reports: Sequence[Report], targets: Mapping[str, str]
) -> Iterator[str]:
    """Yield the section of a cause."""
    shown = example_report(cause, [report for report in reports if report.folder in by_folder])
    yield from ("", f"### {cause.id}", "", f"**{cause.sentence}** {cause.users_see}", "")
    if shown is not None:
        yield f"- Severity: {text(value_at(shown.named[cause.id], 'severity')).upper()}"
    yield f"- Versions: {cause.affected}" + (f"; fixed in {cause.fixed_in}" if cause.fixed_in else "")
    if cause.timing:
        yield f"- Timing: {TIMING}"
    if cause.remedy:
        yield f"- Remedy: {cause.remedy}"
    clause = CLAUSES[cause.clause]
    yield f"- Clause: “{shortened(clause.quotation)}” ({clause.source})"
    yield f"- Threads: {', '.join(f'<{thread}>' for thread in cause.threads) or 'none is known'}"
    if alike := (*cause.catalogue, *(f"`{name}`" for name in cause.defects)):
        yield f"- Catalogue and switches: {', '.join(alike)}"
    if shown is not None:
        yield from example_lines(cause, shown, targets.get(shown.folder, ""))
    yield from ("", "| recording | failing results | scenarios |", "| --- | --- | --- |")
    for folder, failures in by_folder.items():
        scenarios = sorted({failure.parts["scenario"] for failure in failures})
        more = f" and {len(scenarios) - MOST_SCENARIOS} more" if len(scenarios) > MOST_SCENARIOS else ""
        yield f"| {folder} | {results_of(failures)} | {', '.join(scenarios[:MOST_SCENARIOS])}{more} |"


def page_text(reports: Sequence[Report], targets: Mapping[str, str], by_hand: Mapping[str, int]) -> str:
    """Return the text of the page.

    Args:
        reports: The reports of every setup.
        targets: The command that starts the server of a report.
        by_hand: The number of causes that were counted by hand, by folder.
    """
    owned = {report.folder: owned_failures(report) for report in reports}

    def rank(cause: KnownCause) -> tuple[bool, bool, int]:
        lines = [report.named[cause.id] for report in reports if cause.id in report.named]
        is_must = any(value_at(line, "severity") == "must" for line in lines)
        return bool(cause.fixed_in), not is_must, -sum(results_of(one.get(cause.id, ())) for one in owned.values())

    lines = [HEAD.rstrip()]
    for engine, known in engine_causes().items():
        lines += ["", f"## {TITLES.get(engine, engine)}"]
        for cause in sorted(known, key=rank):
            by_folder = {folder: by_cause[cause.id] for folder, by_cause in owned.items() if cause.id in by_cause}
            lines += cause_lines(cause, by_folder, reports, targets)
    lines += ["", "## Causes and results", ""]
    lines += [
        "| recording | failing results | with a cause | causes by the tool | causes by hand |",
        "| --- | --- | --- | --- | --- |",
    ]
    for report in reports:
        by_cause = owned[report.folder]
        explained = [failure for cause, failures in by_cause.items() if cause for failure in failures]
        numbers = (
            len(report.results),
            results_of(explained),
            len(report.named),
            by_hand.get(report.folder, "not counted"),
        )
        lines.append(f"| {report.folder} | {' | '.join(map(str, numbers))} |")
    return "\n".join([*lines, ""])


def pruned_file(document: Mapping[str, Json], causes: Sequence[KnownCause], reports: Sequence[Report]) -> str:
    """Return the text of a file of causes without dead rows. A cause without any other row keeps them: remove it by hand.

    Args:
        document: The content of the file.
        causes: The causes in it, in the same order.
        reports: The reports of every setup. Those of other engines have none of these causes.
    """
    engines = {cause.engine for cause in causes}
    owned = {report.folder: owned_failures(report) for report in reports if report.engine in engines}

    def is_alive(cause: KnownCause, pattern: FailurePattern) -> bool:
        of_engine = [one for one in reports if one.engine == cause.engine and cause.versions.contains(one.version)]
        return any(
            pattern.matches(failure.parts)
            for report in of_engine
            if pattern.versions.contains(report.version)
            for failure in report.failures
        )

    blocks = list[str]()
    for row, cause in zip(items(document["causes"]), causes, strict=True):
        alive = [
            one
            for one, known in zip(items(value_at(row, "matches")), cause.patterns, strict=True)
            if is_alive(cause, known)
        ]
        folders: list[Json] = [folder for folder in cause.seen_in if cause.id in owned.get(folder, ())]
        folders += [folder for folder, by_cause in owned.items() if cause.id in by_cause and folder not in folders]
        kept = {**members(row), "matches": alive, "seen_in": folders} if alive and folders else members(row)
        rows = ",\n".join(f"        {_dumps(one)}" for one in items(kept["matches"]))
        lines = [f'      "{name}": {_dumps(value)},' for name, value in kept.items() if name != "matches"]
        blocks.append("\n".join(["    {", *lines, '      "matches": [', rows, "      ]", "    }"]))
    head = "".join(f'  "{name}": {_dumps(value)},\n' for name, value in document.items() if name != "causes")
    joined = ",\n".join(blocks)
    return f'{{\n{head}  "causes": [\n{joined}\n  ]\n}}\n'


def _dumps(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def prune(reports: Sequence[Report]) -> None:
    """Write the files of causes without dead rows."""
    for engine, causes in engine_causes().items():
        file = golden.root() / "causes" / f"{engine}.json"
        document = members(loads(file.read_text("utf-8")))
        Path(str(file)).write_text(pruned_file(document, causes, reports), "utf-8")
    engine_causes.cache_clear()


def read_targets() -> Mapping[str, str]:
    """Read the command that starts the server of each report from the table of reports."""
    return dict(_REPORT_ROW.findall((REPORTS / "README.md").read_text("utf-8")))


def read_hand_counts() -> Mapping[str, int]:
    """Read the number of causes by hand from the page about the reports."""
    rows = _HAND_ROW.findall((ROOT / "docs" / "accuracy.md").read_text("utf-8"))
    return {folder: int(count) for folder, count in rows}


def main() -> int:
    """Write the page."""
    if sys.argv[1:] == ["--prune"]:
        prune(read_reports())
    PAGE.write_text(page_text(read_reports(), read_targets(), read_hand_counts()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
