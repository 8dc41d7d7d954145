"""The benchmarks run, and the page of figures is what the results say. Nothing is timed here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results" / "side_by_side.json"

pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="the benchmarks are in the checkout only")


def run(*command):
    return subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, check=False, capture_output=True, text=True)


@pytest.mark.slow
def test_every_benchmark_runs_once():
    done = run("-m", "pytest", "benchmarks", "-q", "--benchmark-disable", "-p", "no:randomly", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.slow
def test_the_contenders_make_the_same_of_small_inputs(tmp_path):
    options = ("--rounds", "1", "--largest", "1000", "--long-enough", "0", "--out", tmp_path)
    done = run(BENCHMARKS / "side_by_side.py", *options)
    assert done.returncode == 0, done.stderr[-2000:]
    results = json.loads((tmp_path / "side_by_side.json").read_text("utf-8"))
    assert {"ours", "compat", "openai-harmony"} <= set(results["seconds"]["render, small chat"])


def test_the_page_of_figures_is_made_from_the_results(tmp_path):
    page = tmp_path / "performance.md"
    done = run(BENCHMARKS / "report.py", RESULTS, page)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (ROOT / "docs" / "performance.md").read_text("utf-8") == page.read_text("utf-8")
