"""The matrix of engines: for the newest tested version of each, failed checks of those that could judge, by API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harmony_conformance.json_value import text, value_at
from harmony_conformance.report.files import read_report_file
from harmony_conformance.report.model import Report, ResultLine
from harmony_conformance.report.summary import CheckResults, failed_checks

_ENGINES = {
    "dynamo": ("NVIDIA Dynamo", "parsers"),
    "lmdeploy": ("LMDeploy", "parsers"),
    "sglang": ("SGLang", "parsers"),
    "smg": ("SGLang's router (smg)", "sglang-router"),
    "vllm-rs": ("vLLM's Rust front end", "parsers"),
    "gpt-oss": ("gpt-oss's Responses server", "gpt-oss"),
    "litellm": ("LiteLLM", "litellm"),
    "llamacpp": ("llama.cpp", "llama-cpp"),
    "ollama": ("Ollama", "ollama"),
    "tgi": ("TGI's router", "tgi"),
    "transformers": ("transformers serve", "transformers"),
    "vllm": ("vLLM", "vllm"),
}
"""Name and folder of the setup, by engine of a report."""
_APIS = ("chat", "responses", "messages")
_OWN = "own"
_HEAD = (
    "| engine | version | tested | Chat | Responses | Messages | own API |\n"
    "| --- | --- | --- | ---: | ---: | ---: | ---: |\n"
)


@dataclass(frozen=True, kw_only=True)
class Run:
    """A published run: the engine and its setup, the version, the day, and a cell for each API."""

    engine: str
    version: str
    day: str
    cells: tuple[tuple[str, str], ...]

    @property
    def order(self) -> tuple[int, ...]:
        """The numbers of the version."""
        return tuple(map(int, re.findall(r"\d+", self.version)))


def engine_matrix(reports: Path) -> str:
    """Return the matrix as Markdown."""
    runs = [_run(file.parent.name, read_report_file(file)) for file in sorted(reports.glob("*/report.jsonl.xz"))]
    engines = sorted({run.engine for run in runs}, key=lambda engine: engine.replace("]", " ").casefold())
    return _HEAD + "".join(_row([run for run in runs if run.engine == engine]) for engine in engines)


def _run(folder: str, report: Report) -> Run:
    engine, version = (text(value_at(report.header, "target", name)) for name in ("engine", "engine_version"))
    name, setup = _ENGINES.get(engine, (engine, engine))
    if "-render" in folder:
        name, setup = f"{name}'s renderer", f"{setup}-render"
    behind = folder.partition("-before-")[2]
    cells = (
        (api, f"[{extent}](reports/{folder}/report.md)") for api, extent in _extents(report) if behind in ("", api)
    )
    return Run(
        engine=f"[{name}](engines/{setup}/README.md)",
        version=version,
        day=text(value_at(report.header, "started"))[:10],
        cells=tuple(cells),
    )


def _extents(report: Report) -> Iterator[tuple[str, str]]:
    """Yield each API that a run judged, with the number of failed checks and of those that could judge."""
    results: dict[str, list[ResultLine]] = {}
    for result in report.results:
        if result.api != "all":
            results.setdefault(result.api if result.api in _APIS else _OWN, []).append(result)
    for api, of_api in results.items():
        checks = _by_check(of_api)
        judged = sum(1 for check in checks if check.applied)
        if judged:
            yield api, f"{len(failed_checks(checks))}/{judged}"


def _by_check(results: Sequence[ResultLine]) -> Sequence[CheckResults]:
    found: dict[str, list[ResultLine]] = {}
    for result in results:
        found.setdefault(result.check, []).append(result)
    return [CheckResults(check=name, results=tuple(of_check)) for name, of_check in found.items()]


def _row(runs: Sequence[Run]) -> str:
    """Return the row of an engine: the cells of its newest version."""
    newest = max(runs, key=lambda run: run.order)
    latest = [run for run in runs if run.version == newest.version]
    shown = (", ".join(cell for run in latest for judged, cell in run.cells if judged == api) for api in (*_APIS, _OWN))
    first, last = (chosen(run.day for run in latest if run.cells) for chosen in (min, max))
    days = first if first == last else f"{first} to {last}"
    return f"| {newest.engine} | {newest.version} | {days} | {' | '.join(shown)} |\n"
