"""The wheel works away from the checkout: it is built from the sdist, installed in an environment of its own, and run from another folder."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from pathlib import Path

import pytest

from harmony_conformance.runtime.checkout import commit_of

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def run(*command, cwd):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """What an sdist unpacks to."""
    work = tmp_path_factory.mktemp("sdist")
    built = run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", work, ROOT, cwd=work)
    assert built.returncode == 0, built.stderr
    with tarfile.open(next(work.glob("*.tar.gz"))) as archive:
        archive.extractall(work / "source", filter="data")
    return next((work / "source").iterdir())


@pytest.fixture(scope="module")
def installed(tmp_path_factory, source):
    """The command of a wheel that was built from the sdist; the dependencies are those of this environment."""
    work = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", work, source, cwd=work)
    assert built.returncode == 0, built.stderr
    venv.create(work / "env", with_pip=False)
    python = work / "env" / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=work).stdout.strip())
    pip = run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", *work.glob("*.whl"), cwd=work)
    assert pip.returncode == 0, pip.stderr
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    elsewhere = work / "elsewhere"
    elsewhere.mkdir()
    return work / "env" / "bin" / "harmony-conformance", python, elsewhere


def test_what_a_page_of_the_sdist_links_to_is_in_it(source):
    pages = [source / "README.md", *(source / "docs").glob("*.md"), *source.glob("*/README.md")]
    linked = {
        page.parent / there
        for page in pages
        for there in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))
    }
    assert len(linked) > 20
    assert [str(there.relative_to(source)) for there in linked if not there.exists()] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["harmony_conformance", "--version"], VERSION),
        (["harmony_proxy", "--help"], "usage: harmony-conformance proxy"),
    ],
)
def test_the_packages_run_as_programs(installed, words, says):
    _, python, elsewhere = installed
    shown = run(python, "-m", *words, cwd=elsewhere)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(says)


def test_a_wheel_that_is_no_release_has_the_commit_of_its_sources(installed, source):
    _, python, elsewhere = installed
    shown = run(python, "-m", "harmony_conformance", "--version", cwd=elsewhere)
    commit = commit_of(ROOT)
    assert (source / "_commit.txt").read_text("utf-8").strip() == commit
    assert shown.stdout.strip() == f"{VERSION}+{commit if commit == 'unknown' else f'g{commit[:8]}'}"


def test_package_is_read_from_the_wheel(installed):
    _, python, elsewhere = installed
    shown = run(
        python,
        "-c",
        "import harmony_conformance, harmony_ref, harmony_proxy; print(harmony_conformance.__file__)",
        cwd=elsewhere,
    )
    assert str(ROOT) not in shown.stdout
    assert "site-packages" in shown.stdout


def test_golden_data_is_in_the_wheel(installed):
    command, _, elsewhere = installed
    listed = run(command, "golden", "list", cwd=elsewhere)
    assert listed.returncode == 0, listed.stderr
    assert len(listed.stdout.splitlines()) > 100


def test_pages_are_in_the_wheel(installed):
    command, _, elsewhere = installed
    shown = run(command, "help", "tutorial", cwd=elsewhere)
    assert (shown.returncode, shown.stdout) == (0, (ROOT / "docs" / "tutorial.md").read_text("utf-8"))


@pytest.mark.slow
def test_reference_conforms_from_another_folder(installed):
    command, _, elsewhere = installed
    quick = ("--latency", "0", "--skip", "slow_stream", "--skip", "rows_[!n]*")
    ran = run(command, "run", "reference", *quick, "--out", "kept", cwd=elsewhere)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " 0 failed, 0 variant, 0 inconclusive, " in ran.stdout.splitlines()[-1]
    assert sorted(path.name for path in (elsewhere / "kept").iterdir()) == [
        "exchanges.jsonl",
        "junit.xml",
        "report.html",
        "report.jsonl",
        "report.md",
    ]


@pytest.mark.slow
def test_golden_data_agrees_from_another_folder(installed):
    command, _, elsewhere = installed
    checked = run(command, "golden", "check", cwd=elsewhere)
    assert checked.returncode == 0, checked.stdout + checked.stderr
