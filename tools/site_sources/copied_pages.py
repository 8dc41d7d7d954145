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
    "reports/proxied/*.md",
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
_RUN = re.compile(r"reports/[^/]+/report\.md")
"""The report of a run. On the site it is a page with filters and whole exchanges."""
_HTML = re.compile(r"^```.*?^```|`[^`\n]*`|<(?:a|img|source) [^>]*>", re.DOTALL | re.MULTILINE)
_ATTRIBUTE = re.compile(r'\b(?P<name>href|src|srcset)="(?!https?:)(?P<place>[^"#]+)"')
"""Links and pictures in HTML. The generator leaves them as they are."""
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
            text = _built_addresses(site_text(source, sources, repository), source)
            target.write_text(f"{_head(source)}{text}", encoding="utf-8")
        else:
            shutil.copy(source, target)


def _head(source: Path) -> str:
    """Return the front matter of a page that a search leaves out. It would hide the pages of checks and causes, which have the same sentences."""
    return "---\nsearch:\n  exclude: true\n---\n\n" if source.relative_to(ROOT).as_posix() in _UNSEARCHED else ""


def site_path(path: str) -> str:
    """Return the path of a page on the site. A README has the name of its folder: an index would become that of the section that lists it."""
    if path in _MOVED:
        return _MOVED[path]
    if _RUN.fullmatch(path):
        return f"{path.removesuffix('.md')}.html"
    return f"{path.removesuffix(_README)}.md" if path.endswith(_README) else path


def _is_run(page: Path) -> bool:
    return page.is_file() and _RUN.fullmatch(page.relative_to(ROOT).as_posix()) is not None


def _built_addresses(text: str, source: Path) -> str:
    """Return a page whose HTML has the addresses of built pages and pictures. Each page is a folder there."""
    own = PurePosixPath(site_path(source.relative_to(ROOT).as_posix())).with_suffix("")

    def change(attribute: re.Match[str]) -> str:
        there = site_path((source.parent / attribute["place"]).resolve().relative_to(ROOT).as_posix())
        address = os.path.relpath(there, own)
        built = f"{address.removesuffix('.md')}/" if address.endswith(".md") else address
        return f'{attribute["name"]}="{built}"'

    return _HTML.sub(lambda found: _ATTRIBUTE.sub(change, found[0]) if found[0].startswith("<") else found[0], text)


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
        page = next((page for page in (target, target / "README.md") if page in pages or _is_run(page)), None)
        if page is not None:
            there = site_path(page.relative_to(ROOT).as_posix())
            return f"{shown}({os.path.relpath(there, own)}{anchor})"
        name = target.relative_to(ROOT).as_posix()
        return f"{shown}({repository}/{name})" if repository else shown.removeprefix("[").removesuffix("]")

    return _OUTPUT.sub(r"\1```{ .text .output }", _LINK_OR_CODE.sub(change, source.read_text("utf-8")))
