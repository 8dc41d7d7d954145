"""The command that installs an extra works where the package is on no index."""

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from harmony_ref import extras

ROOT = Path(__file__).parents[2]


class Installed:
    def __init__(self, recorded):
        self.recorded = recorded

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.recorded


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ({"url": "file:///src/my%20checkout", "dir_info": {"editable": True}}, "--editable '/src/my checkout[logs]'"),
        ({"url": "file:///src/checkout", "dir_info": {}}, "'/src/checkout[logs]'"),
        (
            {"url": "file:///dist/a-0.1.0-py3-none-any.whl", "archive_info": {}},
            "'/dist/a-0.1.0-py3-none-any.whl[logs]'",
        ),
        (
            {"url": "https://host/r.git", "vcs_info": {"vcs": "git", "commit_id": "c0ffee"}},
            "'harmony-conformance[logs] @ git+https://host/r.git@c0ffee'",
        ),
        ({"url": "https://host/a.whl", "archive_info": {}}, "'harmony-conformance[logs] @ https://host/a.whl'"),
        (None, "'harmony-conformance[logs]'"),
        ([], "'harmony-conformance[logs]'"),
    ],
)
def test_the_source_of_the_package_is_named(recorded, expected, monkeypatch):
    text = None if recorded is None else json.dumps(recorded)
    monkeypatch.setattr(extras, "distribution", lambda _: Installed(text))
    assert extras.install_command("logs") == f"pip install {expected}"


def test_modules_that_are_not_installed_are_in_a_checkout(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(extras, "distribution", missing)
    assert extras.install_command("logs") == "pip install '.[logs]' in the checkout"


def test_a_damaged_record_names_no_source(monkeypatch):
    monkeypatch.setattr(extras, "distribution", lambda _: Installed("{"))
    assert extras.install_command("logs") == "pip install 'harmony-conformance[logs]'"


def test_the_command_of_this_environment_is_accepted_by_pip():
    """pip resolves the requirement, without its dependencies, and installs nothing."""
    command = extras.install_command("socks").removeprefix("pip install ")
    assert str(ROOT) in command
    pip = f"{sys.executable} -m pip install"
    done = subprocess.run(
        f"{pip} --no-deps --no-build-isolation --dry-run --disable-pip-version-check {command}",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Would install harmony-conformance-" in done.stdout
