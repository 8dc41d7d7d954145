"""Write the sources of the documentation site: the pages of this repository, and one for each command, check, defect, cause and scenario.

    python tools/write_site.py OUT [--repository URL]

OUT/pages gets the pages, OUT/zensical.toml the configuration of the site; `zensical build --strict -f OUT/zensical.toml` builds it.
Links to files that are no pages lead to the repository's URL. Without `--repository` they become plain text.
"""

from __future__ import annotations

import os
import re
import shutil
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path, PurePosixPath

from harmony_conformance.causes.explanation import Section, explain
from harmony_conformance.causes.known import catalogue, engine_causes
from harmony_conformance.checks import CHECKS
from harmony_conformance.cli.main import all_commands
from harmony_conformance.cli.main import main as run_command
from harmony_conformance.json_value import dumps
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.runner.selection import load_scenarios

ROOT = Path(__file__).parents[1]
PAGES = (
    "*.md",
    "docs/*.md",
    "docs/*.svg",
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
"""Pages and pictures, by pattern. The home page is the README."""
KINDS = {
    "checks": "A requirement, its clause, an example right and wrong, and the engines that are known to break it.",
    "causes": "A known fault of a real engine: versions, threads, remedy.",
    "defects": "A fault that the reference server can switch on.",
    "scenarios": "The requests of a run, and the checks that they exercise.",
}
SECTIONS: Mapping[str, Sequence[tuple[str, str]]] = {
    "Guides": (
        ("Installation", "docs/install.md"),
        ("Tutorial", "docs/tutorial.md"),
        ("Concepts", "docs/concepts.md"),
        ("Testing an endpoint", "docs/run.md"),
        ("Ready for a client?", "docs/clients.md"),
        ("Rates", "docs/rates.md"),
        ("Latency under load", "docs/load.md"),
        ("In CI", "docs/ci.md"),
        ("Auditing logs", "docs/audit.md"),
        ("The proxy", "docs/proxy.md"),
        ("In production", "docs/deployment.md"),
        ("mitmproxy", "docs/mitmproxy.md"),
        ("Questions", "docs/faq.md"),
        ("Troubleshooting", "docs/troubleshooting.md"),
    ),
    "Reference": (
        ("Commands", "reference/commands/index.md"),
        ("Checks", "reference/checks/index.md"),
        ("All checks on one page", "conformance/CHECKS.md"),
        ("Causes", "reference/causes/index.md"),
        ("Defects", "reference/defects/index.md"),
        ("Scenarios", "reference/scenarios/index.md"),
        ("Evidence", "conformance/EVIDENCE.md"),
        ("Token accounting", "conformance/ACCOUNTING.md"),
        ("Repairs", "docs/repairs.md"),
        ("Coverage of the APIs", "docs/coverage.md"),
        ("The reference library", "harmony_ref/README.md"),
        ("Golden vectors", "golden/README.md"),
        ("The reference server", "conformance/README.md"),
    ),
    "Reports": (
        ("Published runs", "reports/README.md"),
        ("Runs as pages", "reports/pages.md"),
        ("Engines side by side", "reports/MATRIX.md"),
        ("Findings", "reports/FINDINGS.md"),
    ),
    "Measured": (
        ("Speed of the reference", "docs/performance.md"),
        ("Cost of the proxy", "docs/proxy-performance.md"),
        ("Speed of audits", "docs/audit-performance.md"),
        ("Leak detection", "docs/leak-detection.md"),
        ("Hostile cases", "docs/hostile.md"),
    ),
    "Project": (
        ("Versions", "docs/versions.md"),
        ("Security model", "docs/security.md"),
        ("Security policy", "SECURITY.md"),
        ("Architecture", "docs/architecture.md"),
        ("Hugging Face", "docs/hugging-face.md"),
        ("Style", "docs/style.md"),
        ("Contributing", "CONTRIBUTING.md"),
        ("Code of conduct", "CODE_OF_CONDUCT.md"),
        ("Changes", "CHANGELOG.md"),
    ),
}
"""Navigation; pages that do not exist are left out."""
_LINK_OR_CODE = re.compile(
    r"^```.*?^```|(?P<shown>!?\[(?:[^\]`]|`[^`]*`)*\])\((?!https?:|mailto:)(?P<place>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)|`[^`\n]+`|(?P<bracket>\\[()])",
    re.DOTALL | re.MULTILINE,
)
_LONGEST_ITEM = 160
_HELP_WIDTH = 84  # columns of a code block beside the contents
_CATALOGUE = "Catalogue of published faults"
_NEW_LINE = "\n"


def copy_pages(out: Path, repository: str) -> None:
    """Copy the pages with their links changed for the site."""
    sources = {file for pattern in PAGES for file in ROOT.glob(pattern)}
    for source in sorted(sources):
        target = out / site_path(source.relative_to(ROOT).as_posix())
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(site_text(source, sources, repository), encoding="utf-8")
        else:
            shutil.copy(source, target)


def site_path(path: str) -> str:
    """Return the path of a page on the site. Its home page and README pages are the indexes of their folders."""
    return f"{path.removesuffix('README.md')}index.md" if path.endswith("README.md") else path


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

    return _LINK_OR_CODE.sub(change, source.read_text("utf-8"))


def write_reference(out: Path) -> None:
    """Write a page for each check, defect, cause and scenario, and an index of each kind."""
    scenarios = {scenario.name: scenario for scenario in load_scenarios()}
    kind_of = {
        **dict.fromkeys(scenarios, "scenarios"),
        **dict.fromkeys(DEFECTS, "defects"),
        **dict.fromkeys(catalogue(), "causes"),
        **{cause.id: "causes" for causes in engine_causes().values() for cause in causes},
        **{check.id: "checks" for check in CHECKS},
    }
    for kind, about in KINDS.items():
        folder = out / "reference" / kind
        folder.mkdir(parents=True)
        explained = {name: explain(name, scenarios) for name in sorted(kind_of) if kind_of[name] == kind}
        rows = _index(kind, explained, kind_of)
        (folder / "index.md").write_text(f"# {kind.capitalize()}\n\n{about}\n\n{_lines(rows)}", encoding="utf-8")
        for name, sections in explained.items():
            text = _lines(_page(name, kind, sections, kind_of))
            (folder / f"{name}.md").write_text(text, encoding="utf-8")


def write_commands(out: Path) -> None:
    """Write a page for each command, with all its options as `--help` prints them, and an index."""
    folder = out / "reference" / "commands"
    folder.mkdir(parents=True)
    os.environ["COLUMNS"] = str(_HELP_WIDTH)
    commands = list(all_commands())
    rows = (f"- [`{command.name}`]({command.name}.md): {_escape(command.help)}" for command in commands)
    about = "The commands of `harmony-conformance`. Each page has every option, as `--help` prints it."
    (folder / "index.md").write_text(f"# Commands\n\n{about}\n\n{_lines(rows)}", encoding="utf-8")
    for command in commands:
        with redirect_stdout(StringIO()) as shown, suppress(SystemExit):
            run_command([command.name, "--help"])
        text = f"# harmony-conformance {command.name}\n\n[All commands](index.md)\n\n```text\n{shown.getvalue()}```\n"
        (folder / f"{command.name}.md").write_text(text, encoding="utf-8")


def write_runs(out: Path) -> None:
    """Write the page of each published run, and a list of them."""
    folder = out / "reports"
    rows: list[str] = []
    for file in sorted((ROOT / "reports").glob("*/report.jsonl.gz")):
        with redirect_stdout(StringIO()) as page:
            run_command(["report", str(file.parent), "--format", "html"])
        (folder / file.parent.name / "report.html").write_text(page.getvalue(), encoding="utf-8")
        rows.append(f"- [{file.parent.name}]({file.parent.name}/report.html)")
    about = "Each page has filters by severity, cause, family and stream, and whole exchanges."
    (folder / "pages.md").write_text(f"# Runs as pages\n\n{about}\n\n{_lines(rows)}", encoding="utf-8")


def _index(kind: str, explained: Mapping[str, Sequence[Section]], kind_of: Mapping[str, str]) -> Iterator[str]:
    """Yield a row for each page: its first sentence, under the family of a check or the engine of a cause."""
    groups: dict[str, list[str]] = {}
    for name, sections in explained.items():
        heading, (sentence, *_) = sections[0]
        note = heading.partition("(")[2].removesuffix(")")  # the severity of a check, the engine of a cause
        group = {"checks": name.partition(".")[0], "causes": _CATALOGUE if name in catalogue() else note}.get(kind, "")
        shown = f"**{note.lower()}** · " if kind == "checks" else f"{_escape(note)}: " if group == _CATALOGUE else ""
        groups.setdefault(group, []).append(f"- [`{name}`]({name}.md): {shown}{_named(sentence, kind_of)}")
    for group in sorted(groups, key=lambda group: (group == _CATALOGUE, group)):
        yield f"## {_escape(group)}\n" if group else ""
        yield from groups[group]
        yield ""


def _page(name: str, kind: str, sections: Sequence[Section], kind_of: Mapping[str, str]) -> Iterator[str]:
    yield f"# {name}\n"
    yield f"[All {kind}](index.md)\n"
    for heading, paragraphs in sections:
        shown = [_named(paragraph, kind_of) for paragraph in paragraphs if paragraph]
        if shown:
            title = _escape(re.sub(r" +", " ", heading.replace(name, "")).strip())
            yield f"*{title}*\n" if name in heading else f"## {title[:1].upper()}{title[1:]}\n"
        blocks = any(paragraph.startswith("```") for paragraph in shown)
        bullet = "- " if len(shown) > 1 and not blocks and max(map(len, paragraphs)) <= _LONGEST_ITEM else ""
        yield from (f"{bullet}{paragraph}{'' if bullet else _NEW_LINE}" for paragraph in shown)
        yield ""
    yield f"`harmony-conformance explain {name}` prints this page."


def _named(paragraph: str, kind_of: Mapping[str, str]) -> str:
    """Return a paragraph of plain text as Markdown: code and JSON as code, a link for each id and address."""
    if paragraph.startswith(("{", "[", "data:")):
        return f"```json\n{paragraph}\n```"

    def link(word: re.Match[str]) -> str:
        name = word[0]
        kind = kind_of.get(name) if re.search(r"[._-]", name) else None
        return f"[{_escape(name)}](../{kind}/{name}.md)" if kind else _escape(name)

    def change(place: int, part: str) -> str:
        if place % 2 == 0:
            return re.sub(r"[\w.-]*\w|[^\w]+", link, part)
        return f"<{part}>" if part.startswith("http") else f"<code>{_escape(part.strip('`'))}</code>"

    parts = re.split(r"(https?://[^\s,]+|`[^`\n]+`|golden/[\w./-]+\.json)", paragraph)
    return "".join(change(place, part) for place, part in enumerate(parts)).replace("\n", "  \n")


def _escape(text: str) -> str:
    """Return text that Markdown shows as it is."""
    return re.sub(r"[\\`*_{}\[\]()#+!|~$<>&-]", lambda character: f"&#{ord(character[0])};", text)


def configuration(out: Path) -> str:
    """Return the configuration of the site."""
    navigation: list[object] = [{"Home": "index.md"}]
    for section, pages in SECTIONS.items():
        there = [{name: site_path(path)} for name, path in pages if (out / site_path(path)).is_file()]
        navigation.append({section: there})
    return (
        "[project]\n"
        'site_name = "harmony-conformance"\n'
        'site_description = "Does a gpt-oss endpoint follow the Harmony format, in prompts and in outputs?"\n'
        'docs_dir = "pages"\n'
        'site_dir = "site"\n'
        f"nav = {_toml(navigation)}\n\n"
        "[project.theme]\n"
        "font = false\n"
        'features = ["content.code.copy", "navigation.footer", "navigation.path", "navigation.tabs", "navigation.top", "search.highlight"]\n'
        f"{_lines(_palette())}"
    )


def _palette() -> Iterator[str]:
    """Yield light and dark colours: the system's by default, and a button to change them."""
    for preference, scheme, icon, following in (
        ("", "", "lucide/sun-moon", "light colours"),
        (": light", "default", "lucide/sun", "dark colours"),
        (": dark", "slate", "lucide/moon", "the system's colours"),
    ):
        yield "\n[[project.theme.palette]]"
        yield f'media = "(prefers-color-scheme{preference})"'
        yield from (f'scheme = "{scheme}"',) if scheme else ()
        yield f'toggle.icon = "{icon}"'
        yield f'toggle.name = "Switch to {following}"'


def _toml(value: object) -> str:
    """Return lists, single-member objects and strings as TOML in one line."""
    match value:
        case list():
            return f"[{', '.join(map(_toml, value))}]"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case dict():
            return f"{{{', '.join(f'{dumps(name)} = {_toml(member)}' for name, member in value.items())}}}"  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        case _:
            return dumps(str(value))


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def main() -> None:
    """Write the sources of the site."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--repository", default="", help="URL of the files of the repository")
    arguments = parser.parse_args()
    out: Path = arguments.out
    shutil.rmtree(out / "pages", ignore_errors=True)
    (out / "pages").mkdir(parents=True)
    copy_pages(out / "pages", str(arguments.repository).rstrip("/"))
    write_reference(out / "pages")
    write_commands(out / "pages")
    write_runs(out / "pages")
    (out / "zensical.toml").write_text(configuration(out / "pages"), encoding="utf-8")


if __name__ == "__main__":
    main()
