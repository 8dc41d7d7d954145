"""Checks of a plug-in judge logs: in every process, without the memo, with masked findings."""

import json
from pathlib import Path

import pytest

from harmony_conformance.cli.main import main

ACME = str(Path(__file__).parents[3] / "examples" / "acme.py")
LEAK = "acme.no_internal_names"
HOST = "db7.acme.internal"
RECORDS = 450
"""More than two batches."""


def exchange(number, text):
    message = {"role": "assistant", "content": text}
    return {
        "request": {"model": "gpt-oss-20b", "messages": [{"role": "user", "content": f"Question {number}?"}]},
        "response": {
            "id": f"c{number}",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-oss-20b",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        },
    }


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log whose exchanges differ in texts alone: every 150th names a machine."""
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    texts = (f"Ask {HOST} for it." if number % 150 == 149 else "Ask Mary for it." for number in range(RECORDS))
    path.write_text("".join(json.dumps(exchange(*each)) + "\n" for each in enumerate(texts)), "utf-8")
    return path


def audited(out, log, *options, plugin=ACME, code=1):
    assert main(["audit", str(log), "--plugin", plugin, *options, "--out", str(out)]) == code
    lines = [json.loads(line) for line in (out / "audit.jsonl").read_text("utf-8").splitlines()]
    return lines[0], {one["check"]: one for one in lines if one["kind"] == "result"}


@pytest.mark.parametrize("workers", [1, 2])
def test_every_process_has_the_plug_in(workers, log, tmp_path):
    header, results = audited(tmp_path, log, "--workers", str(workers))
    assert header["plugins"][0]["name"] == ACME
    assert (results[LEAK]["counts"]["fail"], results[LEAK]["applied"]) == (3, RECORDS)
    rows = [json.loads(line) for line in (tmp_path / "failures.jsonl").read_text("utf-8").splitlines()]
    assert [row["check"] for row in rows] == [LEAK] * 3
    page = (tmp_path / "report.html").read_text("utf-8")
    assert LEAK in page
    assert header["plugins"][0]["sha256"] in page


def test_a_baseline_names_a_check_of_a_plug_in_that_is_loaded(log, tmp_path, capsys):
    (file := tmp_path / "known.toml").write_text(f'[[expected]]\ncheck = "{LEAK}"\nreason = "known"\n', "utf-8")
    audited(tmp_path / "out", log, "--baseline", str(file), "--workers", "1", code=0)
    assert "3 failures expected, 0 not expected" in capsys.readouterr().err
    assert main(["audit", str(log), "--baseline", str(file)]) == 2
    assert f"entry 1: invalid check: expected one of this version or of a plug-in that is loaded, got '{LEAK}'" in (
        capsys.readouterr().err
    )


def test_values_of_findings_are_masked_as_those_of_other_checks(log, tmp_path):
    _, results = audited(tmp_path / "a", log, "--workers", "1")
    assert results[LEAK]["findings"][0]["message"] == "the answer names xx0.xxxx.xxxxxxxx"
    _, results = audited(tmp_path / "b", log, "--workers", "1", "--excerpts", "full")
    assert results[LEAK]["findings"][0]["message"] == f"the answer names {HOST}"


def test_a_text_that_is_not_written_in_the_plug_in_is_masked(log, tmp_path):
    plugin = tmp_path / "acme.py"
    plugin.write_text(
        """
from harmony_conformance.plugin_api import MUST, Finding, check, conditions

@check(MUST, spec="harmony#final", when=conditions.was_answered)
def something(x):
    "Something is right."
    if "internal" in x.turn.content:
        yield Finding(message="the answer is wrong", expected="no such name", actual=x.turn.content)
        yield Finding(message=f"the answer is {x.turn.content}")
""",
        "utf-8",
    )
    _, results = audited(tmp_path / "out", log, "--workers", "1", plugin=str(plugin))
    first, second = results["acme.something"]["findings"][:2]
    assert (first["message"], first["expected"]) == ("the answer is wrong", "no such name")
    assert first["actual"] == "Xxx xx0.xxxx.xxxxxxxx xxx xx.".lower()
    assert second["message"] == "xxx xxxxxx xx xxx xx0.xxxx.xxxxxxxx xxx xx."


def test_a_log_of_texts_is_judged_by_checks_that_read_no_more(tmp_path):
    log = tmp_path / "texts.jsonl"
    log.write_text(json.dumps({"output": f"Ask {HOST}."}) + "\n", "utf-8")
    header, results = audited(tmp_path / "out", log, "--map", "output=output", "--workers", "1")
    assert header["exchanges"] == 1
    assert results[LEAK]["counts"]["fail"] == 1
    visible = results["acme.answers_are_visible"]
    assert visible["outcome"] == "not_applicable"
    assert visible["reason"] == "the log has only the texts of the answer"


def test_a_check_that_raises_is_counted_and_masked(log, tmp_path):
    plugin = tmp_path / "acme.py"
    plugin.write_text(
        """
from harmony_conformance.plugin_api import MUST, check, conditions

@check(MUST, spec="harmony#final", when=conditions.was_answered)
def something(x):
    "Something is right."
    if "internal" in x.turn.content:
        raise ValueError(x.turn.content)
    return ()
""",
        "utf-8",
    )
    _, results = audited(tmp_path / "out", log, "--workers", "1", plugin=str(plugin), code=3)
    found = results["acme.something"]
    assert (found["counts"]["error"], found["counts"]["pass"], found["applied"]) == (3, RECORDS - 3, RECORDS)
    assert "internal" not in found["reason"]
    assert found["reason"].startswith("ValueError: ")


def test_an_audit_by_another_plug_in_is_not_continued(log, tmp_path, capsys):
    plugin = tmp_path / "acme.py"
    plugin.write_text(Path(ACME).read_text("utf-8"), "utf-8")
    out = tmp_path / "out"
    audited(out, log, "--workers", "1", "--incremental", plugin=str(plugin))
    plugin.write_text(Path(ACME).read_text("utf-8") + "\n", "utf-8")
    command = ["audit", str(log), "--plugin", str(plugin), "--workers", "1", "--incremental", "--out", str(out)]
    capsys.readouterr()
    assert main(command) == 2
    assert "plugins" in capsys.readouterr().err


def test_a_large_log_is_judged_whole_by_a_plug_in(log, tmp_path, monkeypatch):
    monkeypatch.setattr("harmony_conformance.audit.plans.plan.LARGE_LOG", 1)
    monkeypatch.setattr("harmony_conformance.audit.plans.plan.installed_library", lambda: "re2")
    header, _ = audited(tmp_path, log, "--workers", "1")
    assert header["plan"]["name"] == "structure"


def test_the_format_names_the_checks_that_would_judge(log, capsys):
    assert main(["audit", str(log), "--plugin", ACME, "--explain-format"]) == 0
    assert LEAK in capsys.readouterr().out
