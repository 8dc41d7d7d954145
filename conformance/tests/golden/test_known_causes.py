"""`golden/causes/`: the causes of real engines fit the schema, exist elsewhere as they say, and explain the stored reports."""

import gzip
import json
import runpy
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from harmony_conformance.golden import data as golden
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.reference_server.defects import DEFECTS

ROOT = Path(__file__).parents[3]
FINDINGS = runpy.run_path(str(ROOT / "tools" / "write_findings.py"))
FILES = sorted(FINDINGS["CAUSES"].glob("*.json"), key=lambda file: file.name)
LANES = sorted(folder.name for folder in FINDINGS["REPORTS"].iterdir() if any(folder.glob("report.jsonl*")))
ENGINES = {"openai": "gpt-oss"}
"""Engine of the causes by the engine of a report, where they differ: the server of gpt-oss is detected only by `--engine`."""
LEAST_SHARE = 0.95
needs_reports = pytest.mark.skipif(not LANES, reason="the archive of the sources has no recordings")


def documents():
    return [json.loads(file.read_text("utf-8")) for file in FILES]


def rows():
    return [cause for document in documents() for cause in document["causes"]]


@cache
def causes():
    return FINDINGS["read_causes"]()


@cache
def report(lane):
    return FINDINGS["read_report"](FINDINGS["REPORTS"] / lane)


@cache
def known(lane):
    return FINDINGS["causes_of"](lane, causes())


@cache
def owned(lane):
    return FINDINGS["owned_failures"](report(lane), known(lane))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_follows_its_schema(file):
    schema = json.loads((golden.root() / "schema" / "causes.schema.json").read_text("utf-8"))
    document = json.loads(file.read_text("utf-8"))
    problems = jsonschema.Draft202012Validator(schema).iter_errors(document)
    assert [f"{problem.json_path}: {problem.message}" for problem in problems] == []
    assert document["engine"] == file.stem
    assert [cause["id"] for cause in document["causes"] if not cause["id"].startswith(f"{file.stem}-")] == []


def test_ids_are_unique():
    ids = [cause["id"] for cause in rows()]
    assert len(set(ids)) == len(ids) > 100


@pytest.mark.parametrize("member", ["sentence", "users_see"])
def test_sentences_are_short(member):
    assert [cause["id"] for cause in rows() if len(cause[member].split()) > 25] == []


def test_clauses_catalogue_and_switches_exist():
    catalogue = {row["id"] for row in json.loads((golden.root() / "defects.json").read_text("utf-8"))["defects"]}
    for cause in rows():
        assert cause["clause"] in CLAUSES, cause["id"]
        assert set(cause["catalogue"]) <= catalogue, cause["id"]
        assert set(cause["defects"]) <= set(DEFECTS), cause["id"]


@needs_reports
def test_recordings_exist():
    assert {lane for cause in rows() for lane in cause["seen_in"]} == set(LANES)


@needs_reports
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_row_matches_a_failure_of_a_recording(file):
    dead = [
        (cause.member("id"), pattern.row)
        for cause in causes()[file.stem]
        for pattern in cause.patterns
        if not any(pattern.matches(failure) for lane in cause.members("seen_in") for failure in report(lane).failures)
    ]
    assert dead == []


@pytest.mark.parametrize("lane", LANES)
def test_failing_results_have_causes(lane):
    engine = ENGINES.get(report(lane).engine, report(lane).engine)
    assert known(lane) == causes()[engine]
    results = report(lane).results
    explained = [failure for cause, failures in owned(lane).items() if cause is not None for failure in failures]
    assert FINDINGS["results_of"](explained) >= LEAST_SHARE * len(results)


@pytest.mark.parametrize("lane", LANES)
def test_causes_are_seen_in_the_recordings_that_they_name(lane):
    found = {cause.member("id") for cause in owned(lane) if cause is not None}
    named = {cause.member("id") for cause in known(lane) if lane in cause.members("seen_in")}
    assert found == named


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"check": "prompt.calls_*"}, True),
        ({"check": "prompt.results_*"}, False),
        ({"check": "*", "scenario": "tool_*", "api": "chat"}, True),
        ({"check": "*", "api": "responses"}, False),
        ({"check": "*", "step": "two calls+stream"}, True),
        ({"check": "*", "step": "two calls"}, False),
        ({"check": "*", "at": "/messages/*", "actual": "[12]"}, True),
        ({"check": "*", "actual": "3"}, False),
        ({"check": "*", "message": "another *"}, True),
        ({"check": "*", "message": "another"}, False),
    ],
)
def test_pattern_matches_the_parts_of_a_failure(row, expected):
    result = {"check": "prompt.calls_are_rendered", "scenario": "tool_loop", "api": "chat"}
    finding = {
        "message": "another value",
        "at": "/messages/1",
        "actual": "2",
        "exchange": "tool_loop/chat/two calls+stream/0",
    }
    assert FINDINGS["Pattern"](row).matches(FINDINGS["Failure"](result, finding)) is expected


def test_reports_are_read_compressed_too(tmp_path):
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    text = '{"kind":"header","target":{"engine":"vllm"}}\n{"kind":"cause"}\n{"kind":"result","outcome":"fail","findings":[{"verdict":"fail"}]}\n'
    for folder in (plain, packed):
        folder.mkdir()
    (plain / "report.jsonl").write_text(text, "utf-8")
    (packed / "report.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    read = [FINDINGS["read_report"](folder) for folder in (plain, packed)]
    assert [(one.engine, one.named, len(one.failures)) for one in read] == [("vllm", 1, 1)] * 2


@needs_reports
def test_page_is_written_by_the_tool():
    written = FINDINGS["PAGE"].read_text("utf-8")
    assert written == FINDINGS["page_text"](causes(), tuple(map(report, LANES))), "run `python tools/write_findings.py`"
