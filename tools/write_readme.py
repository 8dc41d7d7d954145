"""Write the table of engines in `README.md`, and `docs/first-screen.svg`, from the stored reports.

    python tools/write_readme.py [--check]

With `--check`, nothing is written: exit code 1 names a file that is not current.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from harmony_conformance.json_value import text, value_at
from harmony_conformance.judge.check import Severity
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
    "dynamo": ("NVIDIA Dynamo, scripted worker", "parsers"),
    "lmdeploy": ("LMDeploy, scripted engine", "parsers"),
    "sglang": ("SGLang, scripted scheduler", "parsers"),
    "smg": ("SGLang's router (smg), scripted worker", "sglang-router"),
    "vllm-rs": ("vLLM's Rust front end, scripted engine", "parsers"),
    "gpt-oss": ("gpt-oss's Responses server", "gpt-oss"),
    "litellm": ("LiteLLM, a gateway,", "litellm"),
    "llamacpp": ("llama.cpp", "llama-cpp"),
    "ollama": ("Ollama", "ollama"),
    "tgi": ("TGI's router", "tgi"),
    "transformers": ("transformers serve", "transformers"),
    "vllm": ("vLLM", "vllm"),
}
"""Name and folder of the lane, by engine of a report."""


def engine_table() -> str:
    """Return a row for each engine and version: the dates, and for each report its APIs, failing checks and causes."""
    rows: dict[str, list[str]] = {}
    dates: dict[str, set[str]] = {}
    for file in sorted((ROOT / "reports").glob("*/report.jsonl.xz")):
        report = read_report_file(file)
        engine, version = (text(value_at(report.header, "target", name)) for name in ("engine", "engine_version"))
        name, lane = _ENGINES.get(engine, (engine, engine))
        renderer = (f"{lane}-render", ", renderer alone") if "-render" in file.parent.name else (lane, "")
        server = f"[{name}](engines/{renderer[0]}/README.md) {version}{renderer[1]}"
        dates.setdefault(server, set()).add(text(value_at(report.header, "started"))[:10])
        behind = file.parent.name.partition("-before-")[2]
        apis = ", ".join(_apis(report)) + (f" before {behind}" if behind else "")
        link = f"[{apis}](reports/{file.parent.name}/report.md): {_extent(report)}"
        rows.setdefault(server, []).append(link)
    head = "| engine, and dates of its runs | checks that failed, of those that could judge |\n| --- | --- |\n"  # two columns fit a phone
    return head + "".join(
        f"| {row}<br>{', '.join(sorted(dates[row]))} | {'<br>'.join(rows[row])} |\n"
        for row in sorted(rows, key=str.casefold)
    )


def _extent(report: Report) -> str:
    failed = failed_checks(by_check(report))
    must = sum(check.severity is Severity.MUST for check in failed)
    return f"{len(failed)} of {evidence_grade(report).judged}, {must} MUST; {len(report.causes)} causes"


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
