"""`golden/causes/`: the causes of real engines fit the schema, exist elsewhere as they say, and explain the stored reports."""

import json
import lzma
import re
import runpy
from dataclasses import replace
from functools import cache
from pathlib import Path

import jsonschema
import pytest

from harmony_conformance.causes.known import FailurePattern, causes_of_version, engine_causes
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.reference_server.defects import DEFECTS

ROOT = Path(__file__).parents[3]
FINDINGS = runpy.run_path(str(ROOT / "tools" / "write_findings.py"))
FILES = sorted((golden.root() / "causes").glob("*.json"), key=lambda file: file.name)
FOLDERS = sorted(folder.name for folder in FINDINGS["REPORTS"].iterdir() if any(folder.glob("report.jsonl*")))
HAND_COUNTS = FINDINGS["read_hand_counts"]() if FOLDERS else {}
LEAST_SHARE = 0.95
PRUNE = "run `python tools/write_findings.py --prune`"
needs_reports = pytest.mark.skipif(not FOLDERS, reason="the archive of the sources has no recordings")


def documents():
    return [json.loads(file.read_text("utf-8")) for file in FILES]


def rows():
    return [cause for document in documents() for cause in document["causes"]]


@cache
def report(folder):
    return FINDINGS["read_report"](FINDINGS["REPORTS"] / folder)


def known(folder):
    return causes_of_version(report(folder).engine, report(folder).version)


@cache
def owned(folder):
    return FINDINGS["owned_failures"](report(folder))


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
    assert {folder for cause in rows() for folder in cause["seen_in"]} == set(FOLDERS)


@needs_reports
@pytest.mark.parametrize("engine", engine_causes())
def test_each_row_matches_a_failure_of_a_recording(engine):
    dead = [
        (cause.id, pattern)
        for cause in engine_causes()[engine]
        for pattern in cause.patterns
        if not any(
            pattern.versions.contains(report(folder).version) and pattern.matches(failure.parts)
            for folder in cause.seen_in
            for failure in report(folder).failures
        )
    ]
    assert dead == [], PRUNE


@pytest.mark.parametrize("folder", FOLDERS)
def test_failing_results_have_causes(folder):
    results = report(folder).results
    explained = [failure for cause, failures in owned(folder).items() if cause for failure in failures]
    assert FINDINGS["results_of"](explained) >= LEAST_SHARE * len(results)


@pytest.mark.parametrize("folder", FOLDERS)
def test_causes_are_seen_in_the_recordings_that_they_name(folder):
    assert {cause for cause in owned(folder) if cause} == {
        cause.id for cause in known(folder) if folder in cause.seen_in
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_cause_is_seen_only_in_versions_for_which_it_is_named(folder):
    named = {cause.id for cause in known(folder)}
    seen = {cause.id for cause in engine_causes()[report(folder).engine] if folder in cause.seen_in}
    assert seen <= named


def test_a_cause_that_is_mended_is_not_named_for_the_version_that_mends_it():
    for causes in engine_causes().values():
        for cause in causes:
            version = re.search(r"b?[0-9]+[.0-9]*[0-9]", cause.fixed_in.partition("pull request")[0])
            if version:
                assert not cause.versions.contains(version[0]), cause.id


@pytest.mark.parametrize(
    ("version", "expected"), [("0.11.0", True), ("0.12.1rc2.dev3+g1a2b3c", True), ("0.13.0", False), ("", True)]
)
def test_an_old_cause_is_not_named_for_a_new_version(version, expected):
    assert ("vllm-answers-as-reasoning" in {cause.id for cause in causes_of_version("vllm", version)}) is expected


def test_a_pattern_can_have_its_own_versions():
    def rows(version):
        (joiner,) = [cause for cause in causes_of_version("vllm", version) if cause.id == "vllm-joiner"]
        return {(row.check, row.scenario, row.step) for row in joiner.patterns}

    two_finals = ("streaming.content_equals_whole", "rows_answers", "two *")
    assert two_finals in rows("0.32.0")
    assert two_finals not in rows("0.11.0")


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
    assert FailurePattern(**row).matches(FINDINGS["Failure"](result, finding).parts) is expected


def test_reports_are_read_compressed_too(tmp_path):
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    text = '{"kind":"header","target":{"engine":"vllm"}}\n{"kind":"cause","id":"x"}\n{"kind":"result","outcome":"fail","findings":[{"verdict":"fail"}]}\n'
    for folder in (plain, packed):
        folder.mkdir()
    (plain / "report.jsonl").write_text(text, "utf-8")
    (packed / "report.jsonl.xz").write_bytes(lzma.compress(text.encode()))
    read = [FINDINGS["read_report"](folder) for folder in (plain, packed)]
    assert [(one.engine, [*one.named], len(one.failures)) for one in read] == [("vllm", ["x"], 1)] * 2


@pytest.mark.parametrize(("folder", "by_hand"), HAND_COUNTS.items())
def test_the_number_of_causes_is_close_to_a_count_by_hand(folder, by_hand):
    assert abs(len(report(folder).named) - by_hand) <= 0.2 * by_hand


@needs_reports
def test_page_is_written_by_the_tool():
    written = FINDINGS["PAGE"].read_text("utf-8")
    page = FINDINGS["page_text"](
        tuple(map(report, FOLDERS)), FINDINGS["read_targets"](), FINDINGS["read_hand_counts"]()
    )
    assert written == page, "run `python tools/write_findings.py`"


def test_a_finding_has_what_a_maintainer_needs(tmp_path):
    cause = engine_causes()["vllm"][0]
    example = {
        "check": cause.patterns[0].check,
        "exchange": "s/chat/a/0",
        "at": "content",
        "message": "it differs",
        "expected": "one",
        "actual": "two",
        "reproduce": "curl http://127.0.0.1:1/v1/chat/completions",
        "script": "<|channel|>final<|message|>one<|return|>",
    }
    finding = {"verdict": "fail", "message": "it differs", "exchange": "s/chat/a/0"}
    result = {"kind": "result", "outcome": "fail", "check": example["check"], "scenario": "s", "findings": [finding]}
    lines = [
        {"kind": "header", "target": {"engine": "vllm", "engine_version": "0.32.0"}},
        {"kind": "cause", "id": cause.id, "severity": "must", "example": example},
        result,
    ]
    (tmp_path / "report.jsonl").write_text("".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines))
    report = FINDINGS["read_report"](tmp_path)
    page = FINDINGS["page_text"]([report], {report.folder: "make engine-vllm"}, {report.folder: 3})
    section = page.partition(f"### {cause.id}\n")[2].partition("\n### ")[0]
    for part in (
        f"**{cause.sentence}** {cause.users_see}",
        "- Severity: MUST",
        f"- Versions: {cause.affected}",
        CLAUSES[cause.clause].quotation,
        "- Threads: ",
        "To reproduce it on vLLM 0.32.0, started by `make engine-vllm`:",
        example["reproduce"],
        f"harmony-conformance reproduce reports/{report.folder} {cause.id}",
        example["script"],
        "The failure at content:",
        f"{example['check']}: it differs",
        "expected: one",
        "actual: two",
        "| 1 | s |",
    ):
        assert part in section
    assert page.endswith(f"| {report.folder} | 1 | 1 | 1 | 3 |\n")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("curl a", "curl b", "0.33.0"),
        ("curl a", f"curl {'b' * 2000}", "0.32.0"),
        ("curl a", "harmony-conformance run b", "0.32.0"),
        (f"curl {'a' * 2000}", "harmony-conformance run b", "0.32.0"),
        ("curl a", None, "0.32.0"),
        (None, None, None),
    ],
)
def test_the_example_is_a_short_plain_command_of_the_newest_version(old, new, expected):
    cause = engine_causes()["vllm"][0]
    reports = [
        FINDINGS["Report"](
            version, "vllm", version, {cause.id: {"example": {"reproduce": command}}} if command else {}, ()
        )
        for version, command in (("0.32.0", old), ("0.33.0", new))
    ]
    shown = FINDINGS["example_report"](cause, reports)
    assert (shown and shown.version) == expected


def test_rows_that_match_nothing_are_pruned(tmp_path):
    cause = engine_causes()["vllm"][0]
    finding = {"verdict": "fail", "message": "it differs", "exchange": "s/chat/a/0"}
    result = {"kind": "result", "outcome": "fail", "check": cause.patterns[0].check, "findings": [finding]}
    header = {"kind": "header", "target": {"engine": "vllm", "engine_version": "0.32.0"}}
    lines = [json.dumps(line, separators=(",", ":")) for line in (header, result)]
    (tmp_path / "report.jsonl").write_text("".join(f"{line}\n" for line in lines))
    alive, dead = {"check": cause.patterns[0].check}, {"check": "usage.adds_up", "step": "é"}
    row = {"id": cause.id, "threads": ["a", "b"], "seen_in": ["other"]}
    document = {"schema": "x", "engine": "vllm", "causes": [{**row, "matches": [dead, alive, dead]}]}
    patterns = tuple(FailurePattern(**one) for one in (dead, alive, dead))
    report = FINDINGS["read_report"](tmp_path)
    pruned = FINDINGS["pruned_file"](document, [replace(cause, patterns=patterns)], [report])
    assert json.loads(pruned)["causes"] == [{**row, "seen_in": [tmp_path.name], "matches": [alive]}]
    all_dead = {**document, "causes": [{**row, "matches": [dead]}]}
    kept = FINDINGS["pruned_file"](all_dead, [replace(cause, patterns=patterns[:1])], [report])
    assert json.loads(kept) == all_dead
    assert '"step": "é"' in kept


@needs_reports
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_the_files_have_the_form_that_the_tool_writes(file):
    text = file.read_text("utf-8")
    reports = [report(folder) for folder in FOLDERS]
    assert FINDINGS["pruned_file"](json.loads(text), engine_causes()[file.stem], reports) == text, PRUNE


def test_mended_causes_follow_the_present_ones():
    page = FINDINGS["page_text"]((), {}, {})
    for engine, causes in engine_causes().items():
        section = page.partition(f"\n## {FINDINGS['TITLES'][engine]}\n")[2].partition("\n## ")[0]
        order = re.findall(r"^### (.+)$", section, re.MULTILINE)
        mended = {cause.id for cause in causes if cause.fixed_in}
        assert sorted(order) == sorted(cause.id for cause in causes)
        assert [name in mended for name in order] == sorted(name in mended for name in order)


@pytest.mark.parametrize(
    ("scenario", "step", "expected"),
    [
        ("rows_broken_call_headers", "recipient in both sections", "dynamo-malformed-header-dropped"),
        ("rows_call_headers", "recipient in the role section", "dynamo-recipient-in-role-lost"),
    ],
)
def test_a_recipient_in_both_sections_is_no_form_of_the_guide(scenario, step, expected):
    result = {"check": "channels.nothing_is_lost", "scenario": scenario, "api": "chat"}
    finding = {"message": "it is lost", "at": "content", "exchange": f"{scenario}/chat/{step}/0"}
    parts = FINDINGS["Failure"](result, finding).parts
    causes = [cause.id for cause in engine_causes()["dynamo"] if any(one.matches(parts) for one in cause.patterns)]
    assert causes == [expected]


@needs_reports
def test_a_stream_that_lost_words_is_not_put_to_the_lost_whole_answer():
    """A complete stream next to a lost whole answer is no failure of the stream, so this one also needs the lost words."""
    name = "streaming.content_equals_whole@cut_in_answer"
    (cause,) = (cause for cause in report("vllm-0.11.0").named.values() if name in cause["failed"])
    assert (cause["id"], bool(cause["timing"])) == ("vllm-words-lost-in-streams", True)
