"""Checks of a plug-in judge like those of the package: in every command, process and format. Played with `examples/acme.py`."""

import json
import re
import xml.etree.ElementTree as ET
from hashlib import sha256
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from harmony_conformance.cli.main import main
from harmony_conformance.cli.options.information import REPORT_FORMATS
from harmony_conformance.golden import data as golden
from harmony_conformance.plugins.registry import loaded_plugins
from harmony_conformance.runner import judge_in_background
from harmony_conformance.runtime import processes

ACME = str(Path(__file__).parents[3] / "examples" / "acme.py")
BROKEN = "reference:defect=final-as-reasoning"
ONE = ("--select", "acme.*@simple_answer", "--latency", "0", "--fail-on", "should")
FAILED = "acme.answers_are_visible"
RAISING = """
from harmony_conformance.plugin_api import MUST, Finding, check, conditions

@check(MUST, spec="harmony#final", when=conditions.was_answered)
def something(x):
    "Something is right."
    BODY
"""


def run(target, out, *options, plugin=ACME):
    return main(["run", target, "--plugin", plugin, *(options or ONE), "--out", str(out)])


def lines(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def results(folder):
    return {one["check"]: one for one in lines(folder / "report.jsonl") if one["kind"] == "result"}


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("broken")
    assert run(BROKEN, folder) == 1
    return folder


def test_the_example_passes_on_a_right_server(tmp_path, capsys):
    assert run("reference", tmp_path) == 0
    assert "None of the 2 checks that applied failed." in capsys.readouterr().out
    assert {name: one["outcome"] for name, one in results(tmp_path).items()} == {
        FAILED: "pass",
        "acme.no_internal_names": "pass",
    }


def test_the_report_names_the_plug_in_and_its_hash(broken):
    header = lines(broken / "report.jsonl")[0]
    digest = sha256(Path(ACME).read_bytes()).hexdigest()
    assert header["plugins"] == [{"name": ACME, "prefix": "acme", "sha256": digest}]
    schema = json.loads((golden.root() / "schema" / "report.schema.json").read_text("utf-8"))
    for line in lines(broken / "report.jsonl"):
        Draft202012Validator(schema).validate(line)
    assert digest in (broken / "report.html").read_text("utf-8")


def test_the_failure_has_its_clause_and_a_command_with_the_plug_in(broken):
    found = results(broken)[FAILED]
    assert (found["outcome"], found["severity"], found["spec"]) == ("fail", "should", FAILED)
    assert found["quotation"] == "A bubble has text or an action."
    assert {one["message"] for one in found["findings"]} == {"the user sees nothing"}
    assert found["reproduce"] == f"harmony-conformance run {BROKEN} --plugin {ACME} --select simple_answer"


@pytest.mark.parametrize("name", [name for name in REPORT_FORMATS if not name.startswith("badge")])
def test_each_format_has_the_failure_also_without_the_plug_in(name, broken, capsys):
    assert main(["report", str(broken), "--format", name]) == 0
    shown = capsys.readouterr().out.replace("\\", "")
    assert FAILED in shown
    assert "the user sees nothing" in shown


def test_junit_sarif_and_ctrf_name_the_plug_in(broken, capsys):
    digest = sha256(Path(ACME).read_bytes()).hexdigest()
    main(["report", str(broken), "--format", "junit", "--plugin", ACME])
    suite = ET.fromstring(capsys.readouterr().out).find("testsuite[@name='acme']")
    assert f"{ACME} (sha256 {digest})" in [one.get("value") for one in suite.find("properties")]
    assert "SHOULD: An answer has content or a call." in "".join(suite.itertext())
    main(["report", str(broken), "--format", "sarif"])
    tool = json.loads(capsys.readouterr().out)["runs"][0]["tool"]
    assert tool["extensions"] == [{"name": ACME, "properties": {"sha256": digest}}]
    assert tool["driver"]["rules"][0]["help"]["text"] == f"harmony-conformance explain {FAILED} --plugin {ACME}"
    main(["report", str(broken), "--format", "ctrf"])
    document = json.loads(capsys.readouterr().out)["results"]
    assert document["environment"]["extra"]["plugins"][0]["sha256"] == digest


def test_the_document_of_a_run(tmp_path, capsys):
    assert run(BROKEN, tmp_path, *ONE, "--format", "json", "-q") == 1
    document = json.loads(capsys.readouterr().out)
    schema = json.loads((golden.root() / "schema" / "run.schema.json").read_text("utf-8"))
    Draft202012Validator(schema).validate(document)
    assert document["plugins"][0]["name"] == ACME
    assert [cause["checks"] for cause in document["causes"]] == [[FAILED]]


def test_selection_and_lists(capsys):
    assert main(["run", "reference", "--list", "--plugin", ACME, "--select", "acme.no*@simple_answer"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in listed if line.startswith("check")] == ["acme.no_internal_names:"]
    assert (
        main(["run", "reference", "--list", "--plugin", ACME, "--skip", "acme.no*", "--select", "simple_answer"]) == 0
    )
    shown = capsys.readouterr().out
    assert f"{FAILED}:" in shown
    assert "acme.no_internal_names" not in shown
    assert main(["run", "reference", "--list", "--select", "acme.*"]) == 2


def test_explain(capsys):
    assert main(["explain", FAILED, "--plugin", ACME]) == 0
    shown = capsys.readouterr().out
    for part in ("An answer has content or a call.", "The chat shows an empty bubble", "design of the chat", "sha256"):
        assert part in shown
    assert main(["explain", "acme", "--plugin", ACME]) == 0
    assert f"--plugin {ACME} --select 'acme.*'" in capsys.readouterr().out
    assert main(["explain", FAILED]) == 2


def test_a_baseline_expects_the_failure(broken, tmp_path, capsys):
    known = tmp_path / "known.toml"
    replayed = ("--select", "acme.*@simple_answer", "--fail-on", "should")
    assert run(f"replay:{broken}", tmp_path / "a", *replayed, "--baseline-write", str(known)) == 1
    assert FAILED in known.read_text("utf-8")
    known.write_text(known.read_text("utf-8").replace("TODO", "agreed"), "utf-8")
    assert run(f"replay:{broken}", tmp_path / "b", *replayed, "--baseline", str(known)) == 0
    capsys.readouterr()


def test_reproduce_needs_the_plug_in_and_says_whether_it_changed(broken, tmp_path, capsys):
    assert main(["reproduce", str(broken)]) == 2
    expected = f"{FAILED} is a check of a plug-in: expected --plugin {ACME}, which executes it, got none"
    assert capsys.readouterr().err == f"harmony-conformance reproduce: invalid ID: {expected}\n"
    assert main(["reproduce", str(broken), FAILED, "--plugin", ACME]) == 1
    printed = capsys.readouterr()
    assert printed.out == f"still happens: {FAILED} in simple_answer: the user sees nothing\n"
    assert "hash differs" not in printed.err
    changed = tmp_path / "acme.py"
    changed.write_text(Path(ACME).read_text("utf-8") + "\n", "utf-8")
    assert main(["reproduce", str(broken), FAILED, "--plugin", str(changed), "--against", "reference"]) == 0
    printed = capsys.readouterr()
    assert printed.out == f"no longer happens: {FAILED} in simple_answer: pass\n"
    assert "the plug-in acme is not the one of the run, whose hash differs" in printed.err


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ValueError('no')", "ValueError: no (something, line"),
        ("return 1", "TypeError: 'int' object is not iterable"),
        ("return ['wrong']", "TypeError: invalid finding: expected a Finding, got str"),
        ("yield Finding(message=3)", "TypeError: invalid text of a finding: expected a str, got int"),
        ("yield Finding(message='a', ruling='mine')", "ValueError: invalid ruling of a finding"),
        ("yield Finding(message='a', verdict='pass')", "ValueError: invalid verdict of a finding"),
        ("yield Finding(message='a', location=None)", "TypeError: invalid location of a finding"),
        ("yield Finding(message='a', excerpt=3)", "TypeError: invalid excerpt of a finding"),
        ("raise SystemExit(0)", "RuntimeError: SystemExit: 0"),
    ],
)
def test_a_check_that_raises_is_an_error_of_the_plug_in_and_hides_no_other(body, reason, tmp_path, capsys):
    plugin = tmp_path / "acme.py"
    plugin.write_text(RAISING.replace("BODY", body), "utf-8")
    select = ("--select", "acme.*@simple_answer", "--select", "usage.adds_up@simple_answer", "--latency", "0")
    assert run("reference", tmp_path / "out", *select, plugin=str(plugin)) == 3
    assert "unknown because of an error of a plug-in" in capsys.readouterr().out
    found = results(tmp_path / "out")
    assert found["usage.adds_up"]["outcome"] == "pass"
    error = found["acme.something"]
    assert (error["outcome"], error["passed"]) == ("error", 0)
    assert error["applied"] > 0
    assert error["reason"].startswith(reason)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_separate_judging_process_has_the_plug_in(method, tmp_path, monkeypatch):
    monkeypatch.setattr(judge_in_background, "_WORTH_A_PROCESS", 1)
    monkeypatch.setattr(judge_in_background, "cores", lambda: 2)
    monkeypatch.setattr(processes, "may_fork", lambda: method == "fork")
    monkeypatch.setattr(judge_in_background.RunJudge, "results", None)  # this process does not judge
    assert run(BROKEN, tmp_path) == 1
    assert results(tmp_path)[FAILED]["outcome"] == "fail"


def test_endpoints_of_a_file(tmp_path, capsys):
    file = tmp_path / "harmony-conformance.toml"
    options = json.dumps(["--plugin", ACME, *ONE])
    file.write_text(f'options = {options}\n[[endpoint]]\nname = "a"\ntarget = "{BROKEN}"\n', "utf-8")
    assert main(["run-all", str(file), "--out", str(tmp_path / "all")]) == 1
    assert results(tmp_path / "all" / "a")[FAILED]["outcome"] == "fail"


def test_nothing_is_left_after_a_command(tmp_path):
    assert run("reference", tmp_path) == 0
    assert loaded_plugins() == ()


def test_the_plug_in_of_the_page(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "own-checks.md").read_text("utf-8")
    plugin = tmp_path / "acme.py"
    plugin.write_text(re.search(r"```python\n(.*?)```", page, re.DOTALL)[1], "utf-8")
    assert run("reference", tmp_path / "out", plugin=str(plugin)) == 0
    assert results(tmp_path / "out")["acme.no_internal_names"]["outcome"] == "pass"
    answer = {
        "messages": [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "At db7.acme.internal"}]
    }
    (tmp_path / "log.jsonl").write_text(json.dumps(answer) + "\n", "utf-8")
    audit = ["audit", str(tmp_path / "log.jsonl"), "--plugin", str(plugin), "--out", str(tmp_path / "audit")]
    assert main(audit) == 1
    (row,) = lines(tmp_path / "audit" / "failures.jsonl")
    assert (row["check"], row["findings"][0]["message"]) == (
        "acme.no_internal_names",
        "the answer names xx0.xxxx.xxxxxxxx",
    )
