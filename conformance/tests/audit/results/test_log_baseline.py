"""`audit --baseline FILE`: failures are expected by check, message and source, wherever they are in the log; others and stale entries fail."""

import json

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.errors import Exit

LEAK, WORDS = "Hello.<|end|>", "assistantfinalHello."


def exchange(content, model="gpt-oss-20b", **more):
    message = {"role": "assistant", "content": content}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    answer = {"object": "chat.completion", "model": model, "choices": choices, **more}
    asked = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
    return json.dumps({"request": asked, "response": answer, "provider": "one"}) + "\n"


@pytest.fixture
def log(tmp_path):
    """A clean answer, two leaks of a marker by two models, and one of channel words."""
    (path := tmp_path / "log.jsonl").write_text(
        exchange("Hello.") + exchange(LEAK) + exchange(LEAK, "gpt-oss-120b") + exchange(WORDS), "utf-8"
    )
    return path


def entry(**members):
    return "[[expected]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in members.items())


def audit(log, text, *more):
    (file := log.parent / "known.toml").write_text(text, "utf-8")
    return main(["audit", str(log), "--baseline", str(file), "--workers", "1", *more])


MARKER = entry(check="channels.no_marker_leak", reason="known")
WORD = entry(check="channels.no_channel_words", reason="known")
ONE_MODEL = entry(check="channels.no_marker_leak", model="gpt-oss-20b", reason="waits for the next release")
CASES = {
    "all": (MARKER + WORD, Exit.CONFORMS, (3, {}, [])),
    "a pattern": (entry(check="channels.*", provider="o*", reason="known"), Exit.CONFORMS, (3, {}, [])),
    "one check": (MARKER, Exit.DIVERGES, (2, {"channels.no_channel_words": 1}, [])),
    "one model": (ONE_MODEL + WORD, Exit.DIVERGES, (2, {"channels.no_marker_leak": 1}, [])),
    "a message": (
        entry(check="channels.*", message="* is in content where *", reason="known") + WORD,
        Exit.CONFORMS,
        (3, {}, []),
    ),
    "another message": (
        entry(check="channels.no_marker_leak", message="something else", reason="known") + WORD,
        Exit.DIVERGES,
        (1, {"channels.no_marker_leak": 2}, ["check channels.no_marker_leak message something else"]),
    ),
    "stale": (
        MARKER + WORD + entry(check="usage.adds_up", reason="old") + entry(check="errors.*", reason="old"),
        Exit.DIVERGES,
        (3, {}, ["check errors.*"]),  # usage was not judged, since no answer has one
    ),
    "a model that the log does not have": (
        MARKER + WORD + entry(check="channels.*", model="gpt-oss-7b", reason="old"),
        Exit.CONFORMS,
        (3, {}, []),
    ),
    "a cause that the log does not have": (
        MARKER + WORD + entry(cause="effort-ignored", reason="old"),
        Exit.DIVERGES,
        (3, {}, ["cause effort-ignored"]),
    ),
    "nothing": ("", Exit.DIVERGES, (0, {"channels.no_channel_words": 1, "channels.no_marker_leak": 2}, [])),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("with_out", [False, True], ids=["printed", "with a folder"])
def test_exit_code_and_counts(log, capsys, name, with_out):
    text, code, (expected, unexpected, stale) = CASES[name]
    out = log.parent / "out"
    assert audit(log, text, *(("--out", str(out)) if with_out else ())) == code
    shown = capsys.readouterr().err
    assert f"{expected} failure" in shown
    assert f"{sum(unexpected.values())} not expected, {len(stale)} stale" in shown
    for check, count in unexpected.items():
        assert f"not expected: {check}: {count} exchange" in shown
    for one in stale:
        assert f"stale: {one} explains no failure" in shown
    if with_out:
        header = json.loads((out / "audit.jsonl").read_text("utf-8").splitlines()[0])
        assert header["baseline"] == {"expected": expected, "unexpected": unexpected, "stale": stale}
        assert f"{sum(unexpected.values())} not expected, {len(stale)} stale" in (out / "report.html").read_text(
            "utf-8"
        )


def test_a_first_failure_that_is_not_expected_has_its_place_and_message(log, capsys):
    assert audit(log, ONE_MODEL + WORD) == Exit.DIVERGES
    offset = log.read_text("utf-8").index('{"request": {"model": "gpt-oss-120b"')
    assert f"first at {log}@{offset}: <|end|> is in content where" in capsys.readouterr().err


def test_a_cause_expects_the_checks_that_it_explains(tmp_path, capsys):
    message = {"role": "assistant", "content": "<|channel|>final<|message|>Hello."}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    answer = {"object": "chat.completion", "system_fingerprint": "vllm-0.33.0-ab", "choices": choices}
    asked = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    (path := tmp_path / "log.jsonl").write_text(json.dumps({"request": asked, "response": answer}) + "\n", "utf-8")
    out = tmp_path / "out"
    assert main(["audit", str(path), "--out", str(out), "--workers", "1"]) == Exit.DIVERGES
    lines = [json.loads(line) for line in (out / "audit.jsonl").read_text("utf-8").splitlines()]
    causes = [line["id"] for line in lines if line["kind"] == "cause"]
    assert causes
    assert audit(path, "".join(entry(cause=cause, reason="known") for cause in causes)) == Exit.CONFORMS
    assert "0 not expected, 0 stale entries" in capsys.readouterr().err


def test_a_written_baseline_expects_its_log_once_it_has_reasons(log, capsys):
    file = log.parent / "written.toml"
    assert main(["audit", str(log), "--baseline-write", str(file), "--workers", "1"]) == Exit.DIVERGES
    assert "replace each TODO by a reason" in capsys.readouterr().err
    assert audit(log, file.read_text("utf-8")) == Exit.USAGE
    assert "entry 1 (check channels.no_channel_words): expected a reason, got the placeholder TODO" in (
        capsys.readouterr().err
    )
    assert audit(log, file.read_text("utf-8").replace("TODO:", "Known, see our tracker:")) == Exit.CONFORMS


@pytest.mark.parametrize("with_out", [False, True], ids=["printed", "folder"])
def test_a_written_baseline_keeps_the_entries_that_still_match(log, capsys, with_out):
    file = log.parent / "known.toml"
    mine = "# ours\n\n" + entry(check="channels.no_marker_leak", reason="mine", link="https://a.example/1")
    text = mine + "\n" + entry(check="errors.*", reason="gone")
    more = ["--out", str(log.parent / "out")] if with_out else []
    assert audit(log, text, "--baseline-write", str(file), *more) == Exit.DIVERGES
    line = "1 entry kept, 1 added (check channels.no_channel_words), 1 removed (check errors.*)"
    assert f"baseline {file}: {line}; replace each TODO by a reason" in capsys.readouterr().err
    written = file.read_text("utf-8")
    assert written.startswith(mine)
    assert written.count("[[expected]]") == 2
    log.write_text(exchange("Hello."), "utf-8")
    assert main(["audit", str(log), "--baseline-write", str(file), "--workers", "1"]) == Exit.CONFORMS
    assert file.read_text("utf-8") == written


def test_an_audit_overwrites_no_file_that_is_no_baseline(log, capsys):
    (file := log.parent / "known.toml").write_text(content := "[other]\n", "utf-8")
    assert main(["audit", str(log), "--baseline-write", str(file)]) == Exit.USAGE
    assert "--baseline-write" in capsys.readouterr().err
    assert file.read_text("utf-8") == content


def test_a_baseline_of_a_run_is_refused_in_one_line(log, capsys):
    assert audit(log, entry(check="channels.*", scenario="rows_texts", reason="known")) == Exit.USAGE
    error = capsys.readouterr().err
    assert "entry 1: expected texts named cause, check, message, model, provider, route, engine, api" in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize("option", ["--baseline", "--baseline-write"])
def test_a_check_that_does_not_exist_is_refused_in_one_line(log, capsys, option):
    (file := log.parent / "known.toml").write_text(entry(check="channels.no_chanel_words", reason="known"), "utf-8")
    assert main(["audit", str(log), option, str(file), "--out", str(log.parent / "out")]) == Exit.USAGE
    assert capsys.readouterr().err.endswith(
        f"{option} {file}: entry 1: invalid check: expected one of this version or of a plug-in that is loaded, "
        "got 'channels.no_chanel_words'; did you mean channels.no_channel_words?\n"
    )
    assert not (log.parent / "out").exists()


def test_needles_report_no_entry_of_a_check_that_judges_a_sample_as_stale(log, capsys):
    old = entry(check="errors.*", reason="old")
    assert audit(log, MARKER + WORD + old, "--plan", "needles") == Exit.CONFORMS
    assert audit(log, MARKER + WORD + old, "--plan", "structure") == Exit.DIVERGES
    assert (
        audit(
            log,
            MARKER + WORD + entry(check="channels.no_marker_leak", message="old", reason="old"),
            "--plan",
            "needles",
        )
        == 1
    )
    assert "stale: check channels.no_marker_leak message old" in capsys.readouterr().err


def test_an_incremental_audit_counts_all_failures(log, capsys):
    out = ["--out", str(log.parent / "out"), "--incremental"]
    assert audit(log, MARKER + WORD, *out) == Exit.CONFORMS
    with log.open("a", encoding="utf-8") as file:
        file.write(exchange("Hello.<|call|>"))
    capsys.readouterr()
    assert audit(log, MARKER + WORD, *out) == Exit.CONFORMS
    assert "4 failures expected, 0 not expected, 0 stale entries" in capsys.readouterr().err


def test_a_baseline_without_entries_is_valid_and_named(log, capsys):
    assert audit(log, "") == Exit.DIVERGES
    assert f"baseline {log.parent / 'known.toml'}: no entries, so no failure is expected\n" in capsys.readouterr().err
    audit(log, MARKER)
    assert "no entries" not in capsys.readouterr().err
