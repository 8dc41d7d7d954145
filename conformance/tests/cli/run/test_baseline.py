"""`run --baseline FILE`: expected failures pass, other failures and stale entries fail."""

import json
from xml.etree import ElementTree as ET

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.errors import Exit
from harmony_conformance.report.comparison.baseline import read_baseline, write_cause_entry
from harmony_conformance.report.comparison.baseline_file import read_baseline_file

SELECTED = ["--select", "simple_answer", "--select", "finished_turn", "--latency", "0"]
ONE, TWO = "reference:defect=stream-without-done", "reference:defect=stream-without-done,finished-reasoning-kept"


def run(out, target, *options):
    return main(["run", target, *SELECTED, *options, "--out", str(out)])


def write(folder, text):
    file = folder / "baseline.toml"
    file.write_text(text, "utf-8")
    return ["--baseline", str(file)]


def entry(**members):
    return "[[expected]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in members.items())


STREAM = entry(cause="stream-without-done", reason="known")
TURN = entry(check="multi_turn.*", scenario="finished_*", reason="known") + entry(check="prompt.*", reason="known")


@pytest.mark.parametrize(
    ("target", "baseline", "code"),
    [
        (ONE, STREAM, Exit.CONFORMS),
        (TWO, STREAM + TURN, Exit.CONFORMS),
        (TWO, STREAM, Exit.DIVERGES),
        (ONE, "", Exit.DIVERGES),
        (ONE, STREAM + TURN, Exit.DIVERGES),
        ("reference", STREAM, Exit.DIVERGES),
        ("reference", "", Exit.CONFORMS),
        (ONE, STREAM + entry(check="tool_calls.only_allowed_tools", reason="not judged here"), Exit.CONFORMS),
    ],
    ids=["expected", "all expected", "one more", "empty", "stale beside", "stale alone", "nothing", "not judged"],
)
def test_exit_code(target, baseline, code, tmp_path):
    assert run(tmp_path / "run", target, *write(tmp_path, baseline)) == code


def test_a_stale_entry_is_no_verdict_on_the_server_and_every_format_shows_why_the_job_failed(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    out = tmp_path / "run"
    assert run(out, "reference", *write(tmp_path, STREAM), "--require", "reasoning") == Exit.DIVERGES
    shown = capsys.readouterr()
    assert "reference 0.2.0: no failure beyond the baseline, which has stale entries" in shown.out
    sentence = "Stale entry of the baseline: cause stream-without-done explains no failure."
    assert f"::error title=Harmony gate::{sentence}" in shown.err
    suites = ET.fromstring((out / "junit.xml").read_bytes())
    assert suites.get("failures") == "1"
    (case,) = suites.findall("testsuite[@name='gate']/testcase")
    assert case.get("name") == "gate.baseline cause stream-without-done"
    assert case.find("failure").get("message") == sentence
    results = json.loads(report(out, "ctrf", capsys))["results"]
    assert results["summary"]["tests"] == len(results["tests"])
    assert [one["message"] for one in results["tests"] if one["status"] == "failed"] == [sentence]
    assert json.loads(report(out, "badge-json", capsys))["color"] == "yellow"


def report(out, form, capsys):
    capsys.readouterr()
    assert main(["report", str(out), "--format", form]) == 0
    return capsys.readouterr().out


def test_a_missing_feature_is_a_failed_case(tmp_path, capsys):
    out = tmp_path / "run"
    assert run(out, "reference", "--require", "tools") == Exit.DIVERGES
    (case,) = ET.fromstring((out / "junit.xml").read_bytes()).findall("testsuite[@name='gate']/testcase")
    assert case.find("failure").get("message") == "No answer had tools (--require)."
    assert report(out, "github", capsys) == "::error title=Harmony gate::No answer had tools (--require).\n"


def test_the_output_and_the_report_name_expected_unexpected_and_stale(tmp_path, capsys):
    assert run(tmp_path / "run", TWO, *write(tmp_path, STREAM + entry(cause="effort-ignored", reason="old"))) == 1
    shown = capsys.readouterr()
    assert "2 failures expected, 2 not expected, 1 stale entry" in shown.err
    assert (
        "not expected: finished-reasoning-kept: 2 failures, for example multi_turn.finished_reasoning_is_dropped@finished_turn"
        in shown.err
    )
    assert "Stale in the baseline, because nothing fails: cause effort-ignored." in shown.out
    assert shown.out.index("finished-reasoning-kept") < shown.out.index("EXPECTED MUST stream-without-done")
    assert "causes: 2, for 4 failed results, 1 expected by the baseline" in shown.out
    assert "stale: cause effort-ignored explains no failure" in shown.err
    header = json.loads((tmp_path / "run" / "report.jsonl").read_text("utf-8").splitlines()[0])
    assert header["baseline"]["stale"] == ["cause effort-ignored"]
    assert sorted(header["baseline"]["expected"]) == [
        "streaming.ends_with_done@finished_turn",
        "streaming.ends_with_done@simple_answer",
    ]
    assert run(tmp_path / "run", TWO, *write(tmp_path, STREAM), "-q") == 1
    assert "2 failures expected, 2 not expected, 0 stale entries" in capsys.readouterr().out


def test_every_output_of_a_run_knows_what_is_expected(tmp_path, capsys):
    assert run(tmp_path / "run", TWO, *write(tmp_path, STREAM), "--fail-on", "should") == Exit.DIVERGES
    capsys.readouterr()

    def report(form):
        assert main(["report", str(tmp_path / "run"), "--format", form]) == Exit.CONFORMS
        return capsys.readouterr().out

    states = {
        one["ruleId"]: (one["level"], one["baselineState"]) for one in json.loads(report("sarif"))["runs"][0]["results"]
    }
    assert states == {"finished-reasoning-kept": ("error", "new"), "stream-without-done": ("note", "unchanged")}
    failed = [one["name"] for one in json.loads(report("ctrf"))["results"]["tests"] if one["status"] == "failed"]
    assert failed == ["multi_turn.finished_reasoning_is_dropped@finished_turn"]  # the other one is SHOULD
    assert report("junit").count("<failure ") == 1
    assert "::notice title=Harmony stream-without-done::" in report("github")
    assert json.loads(report("badge-json"))["message"] == "1 cause"
    assert "expected by the baseline" in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "expected by the baseline" in (tmp_path / "run" / "report.md").read_text("utf-8")


def test_a_run_with_only_expected_failures_says_so(tmp_path, capsys):
    assert run(tmp_path / "run", ONE, *write(tmp_path, STREAM)) == Exit.CONFORMS
    shown = capsys.readouterr().out
    assert "no failure beyond the baseline" in shown
    assert "1 MUST check failed as the baseline expects" in shown


def test_a_written_baseline_expects_the_run_that_it_was_written_from(tmp_path, capsys):
    file = tmp_path / "written.toml"
    assert run(tmp_path / "run", TWO, "--baseline-write", str(file)) == Exit.DIVERGES
    assert "replace each TODO by a reason" in capsys.readouterr().err
    assert file.read_text("utf-8").count("TODO") == 2
    file.write_text(file.read_text("utf-8").replace("TODO:", "Known:"), "utf-8")
    assert run(tmp_path / "run", TWO, "--baseline", str(file)) == Exit.CONFORMS


TURN_CAUSE = "finished-reasoning-kept"


def update(folder, target, content, *options):
    """Run with `--baseline-write` on a file with this content, and return what is in it then."""
    (file := folder / "known.toml").write_text(content, "utf-8")
    run(folder / "run", target, "--baseline-write", str(file), *options)
    return file.read_text("utf-8")


MINE = "# our failures\n\n# of release 1\n" + entry(cause="stream-w*", reason="mine", link="https://a.example/1")


def test_a_written_baseline_keeps_the_entries_that_still_match_as_they_are_written(tmp_path, capsys):
    written = update(tmp_path, TWO, MINE + "\n" + entry(cause="effort-ignored", reason="gone"))
    assert written.startswith(MINE)
    assert f'cause = "{TURN_CAUSE}"\nreason = "TODO:' in written
    assert "effort-ignored" not in written
    line = f"known.toml: 1 entry kept, 1 added (cause {TURN_CAUSE}), 1 removed (cause effort-ignored)"
    assert f"{line}; replace each TODO by a reason" in capsys.readouterr().err
    assert update(tmp_path, TWO, written) == written  # a TODO is kept too
    update(tmp_path, ONE, written, "-q")
    assert f"known.toml: 1 entry kept, 0 added, 1 removed (cause {TURN_CAUSE})" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("target", "options"),
    [("reference", ()), (ONE, ("--select", "prompt.*@simple_answer")), (ONE, ())],
    ids=["nothing failed", "not judged", "all match"],
)
def test_a_baseline_is_left_as_it_is(target, options, tmp_path, capsys):
    content = MINE + (entry(check="tool_calls.only_allowed_tools", reason="not judged here") if target == ONE else "")
    assert update(tmp_path, target, content, *options, "-q") == content
    assert "kept, 0 added, 0 removed" in capsys.readouterr().out


def test_the_gate_and_the_update_may_have_the_same_file(tmp_path, capsys):
    both = [*write(tmp_path, MINE), "--baseline-write", str(tmp_path / "baseline.toml")]
    assert run(tmp_path / "run", TWO, *both, "-q") == Exit.DIVERGES
    assert "2 failures expected, 2 not expected, 0 stale entries" in (out := capsys.readouterr().out)
    assert f"baseline.toml: 1 entry kept, 1 added (cause {TURN_CAUSE}), 0 removed" in out
    assert (tmp_path / "baseline.toml").read_text("utf-8").startswith(MINE)


def test_a_baseline_that_cannot_be_written_is_named_and_the_report_is_there(tmp_path, capsys):
    file = tmp_path / "missing" / "known.toml"
    assert run(tmp_path / "run", TWO, "--baseline-write", str(file)) == Exit.USAGE
    line = f"--baseline-write {file}: No such file or directory; the report is in {tmp_path / 'run'}\n"
    assert capsys.readouterr().err.endswith(line)
    assert (tmp_path / "run" / "report.html").exists()


def test_entries_of_an_array_are_kept_too(tmp_path):
    written = update(tmp_path, TWO, 'expected = [{cause = "stream-without-done", reason = "mine"}]')
    assert entry(cause="stream-without-done", reason="mine") in written
    assert TURN_CAUSE in written


def test_a_file_that_is_no_baseline_is_not_overwritten(tmp_path, capsys):
    content = "[tool.other]\nmine = 1\n"
    assert update(tmp_path, ONE, content) == content
    assert "--baseline-write" in (error := capsys.readouterr().err)
    assert "expected a list of tables [[expected]], got tool" in error
    assert not (tmp_path / "run").exists()


def test_two_endpoints_write_no_baseline(tmp_path, capsys):
    assert run(tmp_path / "run", "reference", "--against", "reference", "--baseline-write", "a.toml") == Exit.USAGE
    assert "expected --against without --baseline-write, got both" in capsys.readouterr().err


INVALID = {
    "no TOML": ("[[", "invalid TOML"),
    "a number of 5000 digits": ("x = " + "1" * 5000, "invalid TOML: a number has too many digits"),
    "a check that does not exist": (
        STREAM + entry(check="streaming.ends_with_don", reason="known"),
        "plug-in that is loaded, got 'streaming.ends_with_don'; did you mean streaming.ends_with_done?",
    ),
    "a pattern of no check": (entry(check="stream.*", reason="known"), "entry 1: invalid check: expected one of"),
    "nested too deeply": ("x = " + "[" * 100_000, "invalid TOML: nested too deeply"),
    "another table": ("[ignored]\n", "expected a list of tables [[expected]], got ignored"),
    "no reason": (entry(cause="a"), "entry 1: expected a reason, got none"),
    "a placeholder": (
        STREAM + entry(check="prompt.*", scenario="rows_*", reason="TODO: a sentence"),
        "entry 2 (check prompt.* scenario rows_*): expected a reason, got the placeholder TODO",
    ),
    "a placeholder alone": (
        entry(cause="a", reason=" todo"),
        "entry 1 (cause a): expected a reason, got the placeholder",
    ),
    "a member of an audit": (
        entry(check="a", model="b", reason="c"),
        "cause, check, scenario, reason, link, got model",
    ),
    "neither cause nor check": (entry(reason="a", scenario="b"), "entry 1: expected a cause or a check, got neither"),
    "an unknown member": (
        entry(cause="a", why="b"),
        "expected texts named cause, check, scenario, reason, link, got why",
    ),
    "a number": ("[[expected]]\ncause = 1\n", "got cause = 1"),
    "a list of texts": ('expected = ["a"]\n', "entry 1: expected a table, got 'a'"),
}


@pytest.mark.parametrize("what", INVALID)
def test_an_invalid_baseline_is_one_line_before_anything_is_sent(what, tmp_path, capsys):
    text, message = INVALID[what]
    assert run(tmp_path / "run", ONE, *write(tmp_path, text)) == Exit.USAGE
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_baseline_of_an_editor_on_windows_is_read_and_written_again(tmp_path):
    file = tmp_path / "known.toml"
    file.write_bytes(b"\xef\xbb\xbf" + entry(cause="a", reason="because").replace("\n", "\r\n").encode())
    (expected,) = read_baseline(file)
    assert (expected.cause, expected.reason) == ("a", "because")
    (kept,) = read_baseline_file(file).entries
    assert kept.text.splitlines() == entry(cause="a", reason="because").splitlines()


@pytest.mark.parametrize("text", ["", "# only a comment\n"])
def test_a_baseline_without_entries_is_valid_and_named(text, tmp_path, capsys):
    words = write(tmp_path, text)
    assert run(tmp_path / "run", "reference", *words) == Exit.CONFORMS
    assert f"baseline {words[1]}: no entries, so no failure is expected\n" in capsys.readouterr().err
    run(tmp_path / "run2", "reference", *write(tmp_path, STREAM))
    assert "no entries" not in capsys.readouterr().err


def test_a_baseline_that_is_not_there_is_one_line(tmp_path, capsys):
    assert run(tmp_path / "run", ONE, "--baseline", str(tmp_path / "absent.toml")) == Exit.USAGE
    assert "absent.toml: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("threads", "link"),
    [
        (["https://a.example/x/blob/main/chat.rs", "https://a.example/x/issues/7"], "https://a.example/x/issues/7"),
        (["https://a.example/x/blob/main/chat.rs"], "https://a.example/x/blob/main/chat.rs"),
        (["https://a.example/x/issues/8", "https://a.example/x/pull/9"], "https://a.example/x/issues/8"),
        ([], ""),
    ],
)
def test_an_entry_links_the_report_of_a_cause_rather_than_a_file(threads, link):
    written = write_cause_entry({"id": "a", "sentence": "About a.", "threads": threads})
    assert written.partition("\nlink = ")[2] == (f'"{link}"\n' if link else "")
