"""Write the table of engines in `README.md`, and `docs/first-screen.svg`, from the stored reports.

    python tools/write_readme.py [--check]

With `--check`, nothing is written: exit code 1 names a file that is not current.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from harmony_conformance.json_value import text, value_at
from harmony_conformance.report.evidence_grade import evidence_grade
from harmony_conformance.report.files import read_report_file
from harmony_conformance.report.formats.terminal import print_summary
from harmony_conformance.report.model import Report
from harmony_conformance.report.summary import by_check, failed_checks

ROOT = Path(__file__).parents[1]
FIRST_SCREEN = ROOT / "docs" / "first-screen.svg"
SHOWN_RUN = "vllm-0.32.0"
_COLUMNS = 110
_BEGIN, _END = "<!-- engines: made by tools/write_readme.py -->\n", "<!-- /engines -->"
_ENGINES = {
    "dynamo": ("NVIDIA Dynamo", "parsers"),
    "lmdeploy": ("LMDeploy", "parsers"),
    "sglang": ("SGLang", "parsers"),
    "smg": ("SGLang's router (smg)", "sglang-router"),
    "vllm-rs": ("vLLM's Rust front end", "parsers"),
    "gpt-oss": ("gpt-oss's Responses server", "gpt-oss"),
    "litellm": ("LiteLLM, a gateway", "litellm"),
    "llamacpp": ("llama.cpp", "llama-cpp"),
    "ollama": ("Ollama", "ollama"),
    "tgi": ("TGI's router", "tgi"),
    "transformers": ("transformers serve", "transformers"),
    "vllm": ("vLLM", "vllm"),
}
"""Name and folder of the setup, by engine of a report."""


def engine_table() -> str:
    """Return a row for each engine: its newest tested version, the date of the last run, and for each report its APIs and failing checks."""
    found: dict[str, list[tuple[tuple[int, ...], str, str, str]]] = {}
    for file in sorted((ROOT / "reports").glob("*/report.jsonl.xz")):
        report = read_report_file(file)
        engine, version = (text(value_at(report.header, "target", name)) for name in ("engine", "engine_version"))
        name, folder = _ENGINES.get(engine, (engine, engine))
        if "-render" in file.parent.name:
            name, folder = f"{name}'s renderer", f"{folder}-render"
        behind = file.parent.name.partition("-before-")[2]
        apis = f"before {behind}" if behind else "+".join(_apis(report))
        link = f"[{apis}](reports/{file.parent.name}/report.md) {_extent(report)}"
        numbers = tuple(map(int, re.findall(r"\d+", version)))
        row = (numbers, version, text(value_at(report.header, "started"))[:10], link)
        found.setdefault(f"[{name}](engines/{folder}/README.md)", []).append(row)
    head = "| engine | version, date | checks that failed, of those that could judge |\n| --- | --- | --- |\n"
    return head + "".join(_row(server, found[server]) for server in sorted(found, key=str.casefold))


def _row(server: str, found: Sequence[tuple[tuple[int, ...], str, str, str]]) -> str:
    newest = max(numbers for numbers, *_ in found)
    version, date = max((version, date) for numbers, version, date, _ in found if numbers == newest)
    links = ", ".join(link for numbers, _, _, link in found if numbers == newest)
    return f"| {server} | {version}, {date} | {links} |\n"


def _extent(report: Report) -> str:
    return f"{len(failed_checks(by_check(report)))}/{evidence_grade(report).judged}"


def _apis(report: Report) -> Iterator[str]:
    """Yield the names of the APIs that a run judged."""
    names = {result.api for result in report.results if result.applied} - {"all"}
    yield from (name for name in sorted(names) if not any(name.startswith(f"{other}-") for other in names))


def first_screen(report: Report) -> str:
    """Return the first screen of a run as SVG, without fonts from the network."""
    console = Console(record=True, width=_COLUMNS, file=StringIO(), highlight=False)
    console.print("$ harmony-conformance run vllm:http://127.0.0.1:8000/v1", soft_wrap=True)
    print_summary(report, console, folder=Path("runs") / SHOWN_RUN)
    form = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="harmony-conformance", code_format=form, unique_id="first-screen")


def written() -> dict[Path, str]:
    """Return the files with their current content."""
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    if not after:
        raise SystemExit(f"invalid {readme.name}: expected the lines {_BEGIN.strip()} and {_END}")
    return {
        readme: f"{before}{_BEGIN}{engine_table()}{_END}{after}",
        FIRST_SCREEN: first_screen(read_report_file(ROOT / "reports" / SHOWN_RUN)),
    }


def main() -> int:
    """Write the files, or compare them."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    files = written()
    stale = [file for file, content in files.items() if not file.is_file() or file.read_text() != content]
    for file in stale:
        if check:
            sys.stderr.write(f"{file.relative_to(ROOT)} is not current: run `python tools/write_readme.py`\n")
        else:
            file.write_text(files[file])
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
