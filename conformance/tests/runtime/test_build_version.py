"""The version tells a release from a build of a checkout, an archive or an sdist."""

import re
import subprocess
from pathlib import Path

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.runtime.build_version import build_version, package_version
from harmony_conformance.runtime.checkout import commit_of

ROOT = Path(__file__).parents[3]
COMMIT = "1d13a9501d13a9501d13a9501d13a9501d13a950"


def git(folder, *words):
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false")
    ran = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    (folder := tmp_path / "repository").mkdir()
    git(folder, "init", "-q", "-b", "main")
    git(folder, "commit", "-q", "--allow-empty", "-m", "First")
    return folder


def test_the_commit_of_a_branch_of_packed_branches_and_of_a_tag(repository):
    commit = git(repository, "rev-parse", "HEAD")
    assert commit_of(repository) == commit
    git(repository, "pack-refs", "--all")
    assert not (repository / ".git/refs/heads/main").exists()
    assert commit_of(repository) == commit
    git(repository, "checkout", "-q", "--detach")
    assert commit_of(repository) == commit


def test_the_commit_of_a_further_worktree(repository, tmp_path):
    git(repository, "worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
    git(tmp_path / "other", "commit", "-q", "--allow-empty", "-m", "Second")
    assert commit_of(tmp_path / "other") == git(tmp_path / "other", "rev-parse", "HEAD") != commit_of(repository)


def test_an_archive_of_a_repository_has_the_commit(repository, tmp_path):
    for name in (".gitattributes", ".git_archival.txt"):
        (repository / name).write_bytes((ROOT / name).read_bytes())
    assert commit_of(repository) == git(repository, "rev-parse", "HEAD")  # of a checkout, whose file has no commit
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "Second")
    git(repository, "archive", "--prefix", "source/", "--output", str(tmp_path / "source.tar"), "HEAD")
    subprocess.run(["tar", "xf", "source.tar"], cwd=tmp_path, check=True)
    assert commit_of(tmp_path / "source") == git(repository, "rev-parse", "HEAD")


@pytest.mark.parametrize("content", [None, "", "ref: refs/heads/none", "no commit", "ref: \x00"])
def test_sources_without_a_commit(content, tmp_path):
    if content is not None:
        (tmp_path / ".git").mkdir()
        (tmp_path / ".git" / "HEAD").write_text(content, encoding="utf-8")
    assert commit_of(tmp_path) == "unknown"


@pytest.mark.parametrize("commit", [COMMIT, "unknown", ""])
def test_an_unpacked_sdist_keeps_what_it_was_built_of(commit, tmp_path):
    """Also the sdist of a release, whose wheel is then a release."""
    (tmp_path / "_commit.txt").write_text(f"{commit}\n", encoding="utf-8")
    assert commit_of(tmp_path) == commit


@pytest.mark.parametrize(
    ("built", "local"), [("", ""), (COMMIT, "+g1d13a950"), ("unknown", "+unknown"), (None, "+unknown")]
)
def test_only_a_release_has_no_local_part(built, local, tmp_path):
    (package := tmp_path / "conformance" / "harmony_conformance").mkdir(parents=True)
    if built is not None:
        (package / "_commit.txt").write_text(f"{built}\n", encoding="utf-8")
    assert build_version(package) == f"{package_version()}{local}"


def test_the_command_and_a_report_have_the_version_of_the_build(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"{build_version()}\n"
    main(["run", "reference", "--select", "simple_answer", "--latency", "0", "--out", str(tmp_path / "run")])
    header = (tmp_path / "run" / "report.jsonl").read_text("utf-8").partition("\n")[0]
    assert re.search(r'"version":\s*"([^"]*)"', header)[1] == build_version()


def test_pages_name_the_version_of_the_project():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"version: {package_version()}\n" in citation
    (newest, *_) = re.findall(r"^## \[(\d[^]]*)\] - \d{4}-\d\d-\d\d$", changelog, re.MULTILINE)
    assert newest == package_version()
