"""The pages for users: short, current, and without a dead link or an invalid command."""

import re
import runpy
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from harmony_conformance.cli.main import build_parser

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page for pattern in ("*.md", "docs/**/*.md", "*/README.md", "engines/*/README.md") for page in ROOT.glob(pattern)
)


def commands(page):
    """The arguments of each command line of harmony-conformance in the page's shell blocks."""
    for block in re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").replace(" $OPTIONS ", " ").splitlines():
            called, _, rest = line.removeprefix("$ ").partition(" ")
            if called == "harmony-conformance":
                yield shlex.split(re.split(r"[|>&;]", rest)[0].replace("[", " ").replace("]", " "), comments=True)


def anchors(page):
    """The anchors of the page's headings, as on GitHub."""
    headings = re.findall(r"^#+ (.*)", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


def test_readme_names_the_version_of_the_package():
    assert f"Version {version('harmony-conformance')}, Apache-2.0." in (ROOT / "README.md").read_text("utf-8")


def test_pictures_in_html_exist():
    text = (ROOT / "README.md").read_text("utf-8")
    places = re.findall(r'\b(?:href|src|srcset)="([^"]+)"', text)
    assert len(places) >= 4
    assert [place for place in places if not (ROOT / place).is_file()] == []


@pytest.mark.slow
def test_readme_is_current():
    checked = subprocess.run(
        [sys.executable, ROOT / "tools" / "write_readme.py", "--check"], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_matrix_fits_a_page_of_the_repository():
    """A section for each engine, with few columns. That of TGI is what the tool writes of its reports."""
    written = (ROOT / "reports" / "MATRIX.md").read_text("utf-8")
    tables = [line for line in written.splitlines() if line.startswith("|")]
    assert {len(re.split(r"(?<!\\)\|", line)) - 2 for line in tables} <= set(range(2, 8))
    runs = {file.parent.name for file in (ROOT / "reports").glob("*/report.jsonl.xz")}
    assert set(re.findall(r"\]\(([^)/]+)/report\.md\)", written)) == runs
    matrix = runpy.run_path(str(ROOT / "tools" / "write_matrix.py"))
    names = sorted(run for run in runs if run.startswith("tgi-"))
    text = matrix["page"]({name: matrix["read_report_file"](ROOT / "reports" / name) for name in names})
    own = text.partition("\n## tgi\n")[2]
    assert own
    assert own.strip() in written, "run `python tools/write_matrix.py`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_pages_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    for place, _, anchor in re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(#([^)\s]+))?\)", text):
        target = page.parent / place if place else page
        assert target.exists(), place
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{place}#{anchor}"
            assert "--" not in anchor, f"{place}#{anchor}: the site joins hyphens"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_pages_are_valid(page, capsys):
    for words in commands(page):
        try:
            build_parser(words[0] if words else "").parse_args(words)
        except SystemExit:  # also after --help, which prints no error
            printed = capsys.readouterr().err
        else:
            printed = ""
        assert not printed, words


def test_commands_of_pages_are_found():
    assert sum(1 for page in PAGES for _ in commands(page)) >= 25


GUIDES = (
    "tutorial",
    "concepts",
    "install",
    "failure",
    "wrong-prompt",
    "run",
    "compare",
    "ci",
    "vllm-nightly",
    "clients",
    "own-checks",
    "rates",
    "load",
    "audit",
    "proxy",
    "deployment",
    "repairs",
    "mitmproxy",
    "hugging-face",
)


@pytest.mark.parametrize("guide", GUIDES)
def test_form_of_a_guide(guide):
    """Its goal in one sentence, its readers, what they need, and the next page."""
    text = (ROOT / "docs" / f"{guide}.md").read_text("utf-8")
    head, *sections = re.split(r"^## (.*)\n", text, flags=re.MULTILINE)
    _, goal, facts = head.split("\n\n")[:3]
    assert len(goal.splitlines()) == 1
    assert goal.endswith((".", "?"))
    assert facts.startswith("- **For:** ")
    assert "\n- **You need:** " in facts
    assert sections[-2] == "Next steps"
    assert re.search(r"\]\([\w./-]+\.md", sections[-1])
    headings = re.findall(r"^##+ (.*)", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    assert [heading for heading in headings if not re.match(r"[A-Z0-9`]|vLLM|systemd|opencode", heading)] == []


SPLIT = {
    "run": ("run-reference",),
    "audit": ("audit-formats", "audit-reference"),
    "proxy": ("proxy-policies", "proxy-monitoring", "proxy-reference"),
}
"""Guides whose reference has pages of its own."""


@pytest.mark.parametrize(("guide", "references"), SPLIT.items(), ids=SPLIT)
def test_a_long_guide_has_its_reference_on_other_pages(guide, references):
    text = (ROOT / "docs" / f"{guide}.md").read_text("utf-8")
    assert len(text.split()) < 1200
    for name in references:
        reference = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
        assert reference.startswith("# ")
        assert reference.splitlines()[0].endswith(": reference")
        assert f"({guide}.md" in reference.split("\n\n")[1]
        assert f"]({name}.md)" in text.partition("## Next steps")[2]
