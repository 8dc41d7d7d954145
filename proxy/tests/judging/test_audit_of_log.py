"""An audit of the proxy's log: a line without content is counted by its outcomes, so that rates are those of the traffic."""

import json
from collections import Counter

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.cli.main import main
from harmony_conformance.errors import Exit
from harmony_conformance.json_value import dumps
from harmony_proxy.capture.recorder import End, Recorder
from harmony_proxy.judging.judge_process import ExchangeJudge
from harmony_proxy.judging.judge_settings import JudgeSettings

LEAK = "channels.no_channel_words"
MODELS = ("gpt-oss-20b", "gpt-oss-120b")
CREATED = (1_764_201_600, 1_764_288_000)
DAYS = ("2025-11-27", "2025-11-28")


def record(number, content):
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": MODELS[number % 2],
        "system_fingerprint": "fp-1",
        "choices": [choice],
    }
    body["usage"] = {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6}
    asked = {"model": MODELS[number % 2], "messages": [{"role": "user", "content": "Hi"}]}
    recorder = Recorder()
    recorder.request_head("POST", "/v1/chat/completions", [])
    recorder.request_body(json.dumps(asked).encode())
    recorder.response_head(200, [(b"content-type", b"application/json")])
    recorder.feed(json.dumps(body).encode(), 0.1)
    recorder.abort(End.COMPLETE, "", 0.2)
    return recorder.to_record(f"run-{number}", CREATED[number % 2])


def write_log(path, leaks, exchanges, capture="full"):
    """Write the log of exchanges, the first ones with a leak."""
    with path.open("w", encoding="utf-8") as log:
        judge = ExchangeJudge(JudgeSettings(capture=capture), lambda line: log.write(dumps(line) + "\n"), CHECKS)
        for number in range(exchanges):
            text = "analysisThe user greets.assistantfinalHello!" if number < leaks else "Hello!"
            judge.judge(record(number, text), Counter())
    return path


def audited(capsys, log, out):
    code = main(["audit", str(log), "--workers", "1", "--out", str(out)])
    lines = [json.loads(line) for line in (out / "audit.jsonl").read_text("utf-8").splitlines()]
    return code, capsys.readouterr().out, lines


@pytest.mark.parametrize("capture", ["none", "redacted", "full"])
@pytest.mark.parametrize("leaks", [3, 13], ids=["each with a sample", "more than the samples"])
def test_the_rate_of_a_log_is_that_of_the_traffic(tmp_path, capsys, capture, leaks):
    out = tmp_path / "out"
    code, shown, lines = audited(capsys, write_log(tmp_path / "log.jsonl", leaks, 30, capture), out)
    assert code == Exit.DIVERGES
    assert shown.startswith(f"FAIL: 1 check failed, 1 of them MUST, in {leaks} of 30 exchanges\n")
    assert f"FAILED MUST {LEAK}: {leaks} of 30 exchanges\n" in shown
    samples = min(leaks, 10) if capture == "full" else 0
    counted = f"{30 - samples} exchanges are counted by their outcomes in the log of the proxy, which keeps at most ten samples"
    assert counted in shown
    assert counted in (page := (out / "report.html").read_text("utf-8"))
    assert f"{leaks} of 30 exchanges (" in page
    header, footer = lines[0], lines[-1]
    assert (header["exchanges"], header["counted"], header["unreadable"]) == (30, 30 - samples, 0)
    (check,) = (line for line in lines if line["kind"] == "result" and line["check"] == LEAK)
    assert (check["counts"]["fail"], check["applied"], check["rate"]["share"]) == (leaks, 30, round(leaks / 30, 9))
    rates = {(one["by"], one["name"]): (one["failed"], one["exchanges"]) for one in lines if one["kind"] == "rate"}
    odd = leaks // 2
    for name, failed in zip((*MODELS, *DAYS), (leaks - odd, odd) * 2, strict=True):
        assert rates["model" if name in MODELS else "day", name] == (failed, 15)
    for group in (("route", "/v1/chat/completions"), ("engine", "fp-1"), ("api", "chat"), ("delivery", "unchanged")):
        assert rates[group] == (leaks, 30)
    assert len(rates) == 9  # no group of unknown sources but that of the provider
    assert footer["counts"]["pass"] > 30
    rows = [json.loads(line) for line in (out / "failures.jsonl").read_text("utf-8").splitlines()]
    assert [row["check"] for row in rows] == [LEAK] * leaks
    assert {row["severity"] for row in rows} == {"must"}


def test_a_log_without_a_failure_conforms(tmp_path, capsys):
    code, shown, _ = audited(capsys, write_log(tmp_path / "log.jsonl", 0, 5), tmp_path / "out")
    assert (code, shown.splitlines()[0]) == (Exit.CONFORMS, "NO FAILURE FOUND: 0 of 5 exchanges")
    assert "applied to no exchange" not in shown


@pytest.mark.parametrize("change", ["outcomes", "failed", "unknown check"])
def test_a_line_that_cannot_be_counted_makes_the_others_samples(tmp_path, capsys, change):
    log = write_log(tmp_path / "log.jsonl", 3, 4)
    lines = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    if change == "unknown check":
        lines[-1]["failed"] = ["channels.of_another_version"]
    else:
        del lines[-1][change]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    _, shown, (header, *_) = audited(capsys, log, tmp_path / "out")
    note = "samples of failures: no share of the traffic"
    assert shown.splitlines()[0].endswith(f"in 3 of 3 exchanges ({note})")
    assert (header["note"], header["unreadable"]) == (note, 1)
    assert note in (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "--capture full" not in shown


def test_a_line_that_the_proxy_did_not_judge_is_unreadable_with_its_reason(tmp_path, capsys):
    log = write_log(tmp_path / "log.jsonl", 3, 4)
    with log.open("a", encoding="utf-8") as file:
        file.write(
            json.dumps({"kind": "exchange", "request_bytes": 3, "judged": False, "unjudged": "too large"}) + "\n"
        )
    _, shown, (header, *_) = audited(capsys, log, tmp_path / "out")
    assert "in 3 of 4 exchanges\n" in shown
    assert list(header["unread"]) == ["no exchange: the proxy did not judge it; `unjudged` in its line is the reason"]
    assert "note" not in header


def test_a_continued_audit_has_the_counts(tmp_path, capsys):
    log = write_log(tmp_path / "log.jsonl", 3, 4, "none")
    assert audited(capsys, log, tmp_path / "out")[0] == Exit.DIVERGES
    with log.open("a", encoding="utf-8") as file:
        file.write(write_log(tmp_path / "more.jsonl", 0, 6).read_text("utf-8"))
    main(["audit", str(log), "--workers", "1", "--out", str(tmp_path / "out"), "--resume"])
    assert "in 3 of 10 exchanges\n" in capsys.readouterr().out


def test_the_format_of_lines_without_a_sample_is_explained(tmp_path, capsys):
    log = write_log(tmp_path / "log.jsonl", 1, 2, "none")
    assert main(["audit", str(log), "--explain-format"]) == Exit.CONFORMS
    assert "a line of the proxy without a sample: it is counted by its outcomes" in capsys.readouterr().out
