"""The archive that Chromium records of a page that calls a server with `fetch`. `make test-browser` runs it; the stored one is in `logs`."""

import json
import shutil
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.errors import Exit

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), reason="no chromium on this machine"
)


@pytest.fixture
def record():
    """The recipe of the stored archive."""
    spec = spec_from_file_location("make_exports", Path(__file__).parent / "logs" / "make_exports.py")
    spec.loader.exec_module(recipes := module_from_spec(spec))
    return recipes.chromium


@pytest.mark.timeout(300)
@pytest.mark.parametrize("defects", [[], ["--defect", "raw-call-in-content"]], ids=["clean", "leaking"])
def test_a_new_archive_shows_its_leaks_and_no_others(tmp_path, record, defects):
    command = [sys.executable, "-m", "harmony_conformance", "serve", "--port", "0", *defects]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            record(tmp_path, server.stdout.readline().strip())
        finally:
            server.terminate()
    out = tmp_path / "out"
    code = main(["audit", str(tmp_path / "chromium.har"), "--out", str(out), "--workers", "1"])
    assert code == (Exit.DIVERGES if defects else Exit.CONFORMS)
    header = json.loads((out / "audit.jsonl").read_text("utf-8").splitlines()[0])
    assert (header["exchanges"], header["unreadable"]) == (4, 1)
    rows = [json.loads(row) for row in (out / "failures.jsonl").read_text("utf-8").splitlines()]
    leaks = [row["exchange"] for row in rows if row["check"] == "channels.no_marker_leak"]
    assert len(leaks) == (2 if defects else 0)  # the whole call and the streamed one; their answers have none
    assert {row["exchange"] for row in rows} == set(leaks)
