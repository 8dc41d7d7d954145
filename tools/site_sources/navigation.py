"""The navigation: a tab for each section, and in it the families of the generated pages, each with an index."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from site_sources.copied_pages import ROOT, site_path
from site_sources.explained_pages import CATALOGUE, Family, note_of

Entry = dict[str, object]
"""A title, and a page or a list of pages and entries."""

Listed = tuple[str, str | tuple[tuple[str, str], ...]]
"""A title, and a page or a group of them."""

SECTIONS: Mapping[str, Sequence[Listed]] = {
    "Start": (
        ("Overview", "README.md"),
        ("Installation", "docs/install.md"),
        ("Tutorial", "docs/tutorial.md"),
        ("Concepts and glossary", "docs/concepts.md"),
        ("An answer that leaks", "docs/failure.md"),
        ("A wrong prompt", "docs/wrong-prompt.md"),
        ("Questions", "docs/faq.md"),
        ("Troubleshooting", "docs/troubleshooting.md"),
        ("All pages", "docs/README.md"),
    ),
    "Guides": (
        (
            "Test",
            (
                ("Test an endpoint", "docs/run.md"),
                ("Many causes: where to begin", "docs/triage.md"),
                ("In CI", "docs/ci.md"),
                ("vLLM, each night", "docs/vllm-nightly.md"),
                ("Ready for a client?", "docs/clients.md"),
                ("Checks of your own", "docs/own-checks.md"),
            ),
        ),
        (
            "Compare and measure",
            (
                ("Compare runs and endpoints", "docs/compare.md"),
                ("Rates", "docs/rates.md"),
                ("Latency under load", "docs/load.md"),
            ),
        ),
        (
            "Logs and live traffic",
            (
                ("Audit a log", "docs/audit.md"),
                ("Guard live traffic", "docs/proxy.md"),
                ("In production", "docs/deployment.md"),
                ("Repairs", "docs/repairs.md"),
                ("mitmproxy", "docs/mitmproxy.md"),
            ),
        ),
        (
            "Harmony in your code",
            (
                ("The reference library", "harmony_ref/README.md"),
                ("Golden vectors", "golden/README.md"),
                ("Hugging Face", "docs/hugging-face.md"),
            ),
        ),
        (
            "Servers to try",
            (
                ("The reference server", "conformance/README.md"),
                ("Engines", "engines/README.md"),
                ("Engines without a GPU", "engines/*/README.md"),
                ("Examples", "examples/README.md"),
            ),
        ),
    ),
    "Reference": (
        ("Commands", "reference/commands"),
        ("Configuration", "reference/configuration"),
        ("Python API", "reference/api"),
        (
            "Runs",
            (
                ("Options of a run", "docs/run-reference.md"),
                ("Evidence", "conformance/EVIDENCE.md"),
                ("Token accounting", "conformance/ACCOUNTING.md"),
                ("Coverage of the APIs", "docs/coverage.md"),
                ("Depth of Messages", "conformance/MESSAGES.md"),
                ("All checks on one page", "conformance/CHECKS.md"),
            ),
        ),
        (
            "Audits",
            (
                ("Formats of logs", "docs/audit-formats.md"),
                ("Results of an audit", "docs/audit-reference.md"),
            ),
        ),
        (
            "The proxy",
            (
                ("Policies", "docs/proxy-policies.md"),
                ("Log, metrics, traces", "docs/proxy-monitoring.md"),
                ("Behaviour", "docs/proxy-reference.md"),
            ),
        ),
    ),
    "Checks and causes": (),
    "Reports": (
        ("Published runs", "reports/README.md"),
        ("How accurate they are", "docs/accuracy.md"),
        ("Engines side by side", "reports/matrix"),
        ("Findings", "reports/FINDINGS.md"),
        ("Runs through the proxy", "reports/proxied/*.md"),
    ),
    "Project": (
        (
            "Releases",
            (
                ("Versions", "docs/versions.md"),
                ("Changes", "CHANGELOG.md"),
            ),
        ),
        (
            "Security",
            (
                ("Policy", "SECURITY.md"),
                ("Model", "docs/security.md"),
                ("Hostile cases", "docs/hostile.md"),
            ),
        ),
        (
            "Measurements",
            (
                ("Benchmarks", "benchmarks/README.md"),
                ("Speed of the reference", "docs/performance.md"),
                ("Cost of the proxy", "docs/proxy-performance.md"),
                ("Speed of audits", "docs/audit-performance.md"),
                ("Leak detection", "docs/leak-detection.md"),
            ),
        ),
        (
            "Change it",
            (
                ("Contributing", "CONTRIBUTING.md"),
                ("Code of conduct", "CODE_OF_CONDUCT.md"),
                ("Architecture", "docs/architecture.md"),
                ("Style", "docs/style.md"),
                ("Parts of the suite", "conformance/harmony_conformance/*/README.md"),
                ("The proxy's package", "proxy/README.md"),
            ),
        ),
    ),
}
"""Titles and pages. A folder means its index and its pages, a pattern for its pages. Pages that do not exist are left out."""
_EXPLAINED = "Checks and causes"


def navigation(pages: Path, families: Mapping[str, Sequence[Family]]) -> list[Entry]:
    """Return the entries of the navigation."""
    found: list[Entry] = [{"Home": "index.md"}]
    for section, entries in SECTIONS.items():
        there: list[object] = [{title: entry} for title, listed in entries if (entry := _listed(pages, listed))]
        if section == _EXPLAINED:
            there += ({kind.capitalize(): list(_kind(kind, of_kind))} for kind, of_kind in families.items())
        found.append({section: there})
    return found


def _listed(pages: Path, listed: str | Sequence[tuple[str, str]]) -> object:
    if isinstance(listed, str):
        return _entry(pages, listed)
    return [{title: entry} for title, path in listed if (entry := _entry(pages, path))]


def _entry(pages: Path, path: str) -> object:
    if "*" in path:
        places = sorted(site_path(page.relative_to(ROOT).as_posix()) for page in ROOT.glob(path))
        return [{_name(place): place} for place in places]
    folder = pages / path
    if folder.is_dir():
        others = sorted((page.name for page in folder.glob("*.md") if page.name != "index.md"), key=_order)
        return [f"{path}/index.md", *({_title(folder / name): f"{path}/{name}"} for name in others)]
    place = site_path(path)
    return place if (pages / place).is_file() else None


def _order(page: str) -> tuple[bool, str]:
    """Return the place of a page in its folder: a list of all comes first."""
    return page != "options.md", page


def _name(place: str) -> str:
    """Return the title of a page that a pattern lists."""
    return PurePosixPath(place).stem


def _title(page: Path) -> str:
    heading = next(line for line in page.read_text("utf-8").split("\n") if line.startswith("# "))
    return heading.removeprefix("# ").removeprefix("harmony-conformance ")


def _kind(kind: str, families: Sequence[Family]) -> Iterator[object]:
    yield f"reference/{kind}/index.md"
    for family in families:
        pages: list[object] = [{_listed_name(family, name): f"reference/{kind}/{name}.md"} for name in family.pages]
        yield {family.title: [f"reference/{kind}/{family.name}/index.md", *pages]}


def _listed_name(family: Family, name: str) -> str:
    """Return the name of a page in its side bar. A number of the catalogue says nothing without its engine."""
    if family.name == CATALOGUE:
        return f"{name}: {note_of(family.pages[name])}"
    return name.removeprefix(f"{family.name}.")
