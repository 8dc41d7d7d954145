"""The scripts behind the published figures work from end to end, with tiny numbers: nothing is said of time here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "benchmarks" / "proxy"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the benchmarks read the CPU clocks of other processes"),
]


def script(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPTS / f"{name}.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def test_proxies_are_measured_and_a_page_is_made_of_it(tmp_path):
    results, page = tmp_path / "results.json", tmp_path / "page.md"
    ran = script("measure", "--size", "tiny", "--only", "direct", "app", "--out", str(results))
    assert ran.returncode == 0, ran.stderr
    measures = json.loads(results.read_text())["measures"]
    assert all(figures["failed"]["median"] == 0 for by in measures.values() for figures in by.values())
    assert all("app" in by for by in measures.values())
    made = script("page", str(results), str(tmp_path / "no-soak.json"), str(page))
    assert made.returncode == 0, made.stderr
    assert "bare ASGI app" in page.read_text()


def test_a_soak_compares_every_byte_and_accounts_for_every_exchange(tmp_path):
    ran = script("soak", "--minutes", "0.015", "--streams", "4", "--tiny", "--out", str(tmp_path / "soak.json"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    found = json.loads((tmp_path / "soak.json").read_text())
    assert found["violations"] == []
    assert found["accounting"]["lines"] == found["accounting"]["asked"] > 4
