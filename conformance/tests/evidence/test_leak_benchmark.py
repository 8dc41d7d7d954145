"""Leaks against innocent answers: a sample of the corpus, and the page of figures, which is what the results say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BENCHMARKS = ROOT / "benchmarks"
RESULTS = BENCHMARKS / "results" / "false_alarms.json"
PAGE = ROOT / "docs" / "leak-detection.md"

pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="the benchmarks are in the checkout only")


def run(*command):
    return subprocess.run([sys.executable, *map(str, command)], cwd=ROOT, check=False, capture_output=True, text=True)


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """The results of about 100 innocent answers and of each way to leak."""
    folder = tmp_path_factory.mktemp("sample")
    done = run(BENCHMARKS / "leaks" / "false_alarms.py", "--sample", "100", "--out", folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads((folder / "false_alarms.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def published():
    return json.loads(RESULTS.read_text("utf-8"))


@pytest.mark.slow
def test_no_innocent_answer_of_the_sample_fails(sample):
    assert [alarm for alarm in sample["alarms"] if alarm["outcome"] == "must fail"] == []


@pytest.mark.slow
def test_with_ids_nothing_innocent_is_even_suspected(sample, published):
    for results in (sample, published):
        assert [alarm for alarm in results["alarms"] if alarm["level"] == "ids"] == []


@pytest.mark.slow
def test_with_ids_every_way_to_leak_fails(sample):
    missed = {
        name: counts
        for name, counts in sample["leaks"].items()
        if name.endswith("|ids") and counts.get("must fail", 0) == 0
    }
    assert missed == {}


@pytest.mark.slow
def test_a_leak_that_shows_structure_fails_by_its_text(sample):
    structured = [way["name"] for way in sample["ways"] if way["expects"] == "fail"]
    assert [name for name in structured if sample["leaks"][f"{name}|text"].get("must fail", 0) == 0] == []


@pytest.mark.slow
def test_the_published_results_are_of_the_corpus_and_checks_of_today(sample, published):
    for part in ("strata", "ways", "checks"):
        assert published[part] == sample[part]
    assert set(published["leaks"]) == set(sample["leaks"])
    assert published["corpus"]["cases"] >= 5_000
    assert len(published["strata"]) >= 15
    judged = sum(sum(counts.values()) - counts["naive"] for counts in published["innocent"].values())
    assert judged == 2 * published["corpus"]["cases"]


def test_the_page_is_made_from_the_results(tmp_path):
    made = tmp_path / "page.md"
    done = run(BENCHMARKS / "leaks" / "page.py", RESULTS, made)
    assert done.returncode == 0, done.stderr[-2000:]
    assert PAGE.read_text("utf-8") == made.read_text("utf-8")
