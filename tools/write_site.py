"""Write the sources of the documentation site: the pages of this repository, and pages made from the code.

    python tools/write_site.py OUT [--repository URL] [--draft]

OUT/pages gets the pages, OUT/zensical.toml the configuration of the site; `zensical build --strict -f OUT/zensical.toml` builds it.
Links to files that are no pages lead to the repository's URL. Without `--repository` they become plain text.
"""

from __future__ import annotations

import shutil
from argparse import ArgumentParser
from pathlib import Path

from site_sources.api_pages import write_api
from site_sources.command_pages import write_commands
from site_sources.copied_pages import ROOT, copy_pages
from site_sources.explained_pages import families, write_explanations
from site_sources.file_pages import write_files
from site_sources.home_page import write_home
from site_sources.matrix_pages import write_matrix
from site_sources.navigation import navigation
from site_sources.run_pages import published_runs, runs_written
from site_sources.settings import settings

from harmony_conformance.cli.report import read_run


def main() -> None:
    """Write the sources of the site."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--repository", default="", help="URL of the files of the repository")
    parser.add_argument("--draft", action="store_true", help="runs as empty pages, which takes half the time")
    arguments = parser.parse_args()
    out: Path = arguments.out
    pages = out / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    pages.mkdir(parents=True)
    with runs_written(pages / "reports", published_runs(), is_draft=arguments.draft):
        copy_pages(pages, str(arguments.repository).rstrip("/"))
        explained = families()
        write_explanations(pages / "reference", explained)
        write_commands(pages / "reference" / "commands")
        write_files(pages / "reference" / "configuration")
        write_api(pages / "reference" / "api")
        reports = {name: read_run(ROOT / "reports" / name) for name in published_runs()}
        write_matrix(pages / "reports" / "matrix", reports)
        write_home(pages, reports)
    (out / "zensical.toml").write_text(settings(navigation(pages, explained)), encoding="utf-8")


if __name__ == "__main__":
    main()
