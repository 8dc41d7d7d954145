"""Write the matrix of engines in `README.md` and the pictures of its pages, from the stored reports and results.

    python tools/write_readme.py [--check]

With `--check`, nothing is written: exit code 1 names a file that is not current.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path

from readme_sources.engine_matrix import engine_matrix
from readme_sources.first_screen import first_screens
from readme_sources.speed_bars import speed_bars

from harmony_conformance.report.files import read_report_file

ROOT = Path(__file__).parents[1]
SHOWN_RUN = "vllm-0.32.0"
_BEGIN, _END = "<!-- engines: made by tools/write_readme.py -->\n", "<!-- /engines -->"


def written() -> dict[Path, str]:
    """Return the files with their current content."""
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text().partition(_BEGIN)
    _, _, after = rest.partition(_END)
    if not after:
        raise SystemExit(f"invalid {readme.name}: expected the lines {_BEGIN.strip()} and {_END}")
    screens = first_screens(read_report_file(ROOT / "reports" / SHOWN_RUN), Path("runs") / SHOWN_RUN)
    return {
        readme: f"{before}{_BEGIN}{engine_matrix(ROOT / 'reports')}{_END}{after}",
        **{ROOT / "docs" / name: picture for name, picture in screens.items()},
        ROOT / "docs" / "speed.svg": speed_bars(ROOT / "benchmarks" / "results" / "side_by_side.json"),
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
