"""Pages and pictures of the repository, with their links changed for the site."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
PAGES = (
    "*.md",
    "docs/*.md",
    "docs/*.svg",
    "docs/pictures/*.png",
    "conformance/*.md",
    "conformance/harmony_conformance/*/README.md",
    "harmony_ref/README.md",
    "proxy/README.md",
    "golden/README.md",
    "benchmarks/README.md",
    "engines/*/README.md",
    "examples/**/README.md",
    "reports/*.md",
    "reports/*/*.md",
)
"""Pages and pictures, by pattern."""
_MOVED = {
    "README.md": "overview.md",
    "reports/MATRIX.md": "reports/matrix/index.md",
    "reports/README.md": "reports/index.md",
}
"""Pages with another place on the site."""
_UNSEARCHED = frozenset(
    {"reports/FINDINGS.md", *(f"conformance/{name}.md" for name in ("CHECKS", "EVIDENCE", "MESSAGES"))}
)
"""Lists whose entries have pages of their own."""
_README = "/README.md"
_LINK_OR_CODE = re.compile(
    r"^```.*?^```|(?P<shown>!?\[(?:[^\]`]|`[^`]*`)*\])\((?!https?:|mailto:)(?P<place>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)|`[^`\n]+`|(?P<bracket>\\[()])",
    re.DOTALL | re.MULTILINE,
)

_OUTPUT = re.compile(r"^(<!-- output[^\n]*-->\n)```text$", re.MULTILINE)
"""The beginning of a block that shows what the commands above it print."""


def copy_pages(out: Path, repository: str) -> None:
    """Copy the pages with their links changed for the site."""
    sources = {file for pattern in PAGES for file in ROOT.glob(pattern)}
    for source in sorted(sources):
        target = out / site_path(source.relative_to(ROOT).as_posix())
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(f"{_head(source)}{site_text(source, sources, repository)}", encoding="utf-8")
        else:
            shutil.copy(source, target)


def _head(source: Path) -> str:
    """Return the front matter of a page that a search leaves out. It would hide the pages of checks and causes, which have the same sentences."""
    is_run = source.name == "report.md"
    if not is_run and source.relative_to(ROOT).as_posix() not in _UNSEARCHED:
        return ""
    title = f"title: {source.parent.name}\n" if is_run else ""
    return f"---\n{title}search:\n  exclude: true\n---\n\n"


def site_path(path: str) -> str:
    """Return the path of a page on the site. A README has the name of its folder: an index would become that of the section that lists it."""
    if path in _MOVED:
        return _MOVED[path]
    return f"{path.removesuffix(_README)}.md" if path.endswith(_README) else path


def site_text(source: Path, pages: set[Path], repository: str) -> str:
    """Return a page with its links changed. Code is left as it is."""
    own = PurePosixPath(site_path(source.relative_to(ROOT).as_posix())).parent

    def change(link: re.Match[str]) -> str:
        if link["bracket"]:  # the site would read an escaped bracket as the beginning of a formula
            return f"&#{ord(link['bracket'][1])};"
        shown, place, anchor = link["shown"], link["place"], link["anchor"] or ""
        if not place:  # code, or an anchor of the same page
            return link[0]
        target = (source.parent / place).resolve()
        page = next((page for page in (target, target / "README.md") if page in pages), None)
        if page is not None:
            there = site_path(page.relative_to(ROOT).as_posix())
            return f"{shown}({os.path.relpath(there, own)}{anchor})"
        name = target.relative_to(ROOT).as_posix()
        return f"{shown}({repository}/{name})" if repository else shown.removeprefix("[").removesuffix("]")

    return _OUTPUT.sub(r"\1```{ .text .output }", _LINK_OR_CODE.sub(change, source.read_text("utf-8")))
