"""No exchange is missing from the outcome log, whatever its names and texts are, and wherever an error is raised."""

import json
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harmony_conformance.checks import CHECKS
from harmony_conformance.json_value import dumps
from harmony_proxy.capture.recorder import End, Recorder
from harmony_proxy.judging import judge_process
from harmony_proxy.judging.judge_process import ExchangeJudge
from harmony_proxy.judging.judge_settings import JudgeSettings

TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
TEMPLATES = ["get\\weather", "a\\", "\\g<1>", "\\q", "\\1", "{}", "{0!r:>9}", "%s", "\x9b2J", "\u202e", "\ud800", "\0"]
TEXTS = st.text(st.characters(exclude_categories=()), max_size=12) | st.sampled_from(TEMPLATES)


def record(name, content):
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": content}}
    message = {"role": "assistant", "content": f"{content}<|end|>", "tool_calls": [call]}
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    asked = {"model": name, "messages": [{"role": "user", "content": content}], "tools": [TOOL]}
    recorder = Recorder()
    recorder.request_head("POST", "/v1/chat/completions", [])
    recorder.request_body(json.dumps(asked).encode())
    recorder.response_head(200, [(b"content-type", b"application/json")])
    recorder.feed(json.dumps(body).encode(), 0.1)
    recorder.abort(End.COMPLETE, "", 0.2)
    return recorder.to_record("run-1", 1.5)


def judged(exchange, excerpts, write=None):
    lines, counts = [], Counter()
    settings = JudgeSettings(excerpts=excerpts, capture=excerpts)
    ExchangeJudge(settings, write or (lambda line: lines.append(json.loads(dumps(line)))), CHECKS).judge(
        exchange, counts
    )
    return lines, counts


@pytest.mark.parametrize("excerpts", ["none", "redacted", "full"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_name_like_a_template_hides_no_outcome(name, excerpts):
    (line,), counts = judged(record(name, "Hi"), excerpts)
    assert "tool_calls.name_is_declared" in line["failed"]
    assert (line["errors"], "error" in line, counts["problems",]) == ([], False, 0)


@settings(max_examples=60)
@given(TEXTS, TEXTS)
@example("\\g<0>", "\ud800{}%s")
def test_every_name_and_text_gives_a_line(name, content):
    for excerpts in ("redacted", "full"):
        (line,), counts = judged(record(name, content), excerpts)
        assert (line["judged"], line["errors"], counts["problems",]) == (True, [], 0)


def _raise(*_, **__):
    raise KeyError("secret")


@pytest.mark.parametrize("where", ["build_exchange", "judge_split", "count_exchange"])
def test_an_exchange_that_cannot_be_judged_is_an_error_line(monkeypatch, where):
    monkeypatch.setattr(judge_process, where, _raise)
    (line,), counts = judged(record("a", "Hi"), "redacted")
    assert (line["id"], line["path"], line["judged"]) == ("run-1", "/v1/chat/completions", False)
    assert line["unjudged"].startswith("internal error: KeyError in harmony_proxy/judging/judge_process.py, line ")
    assert counts["problems",] == 1
    assert "secret" not in json.dumps(line)


def test_outcomes_are_kept_if_their_findings_cannot_be_written(monkeypatch):
    monkeypatch.setattr("harmony_proxy.judging.outcome_log.apply_excerpts", _raise)
    (line,), counts = judged(record("a", "Hi"), "redacted")
    assert "tool_calls.name_is_declared" in line["failed"]
    assert line["error"].startswith("KeyError in harmony_proxy/judging/outcome_log.py, line ")
    assert (counts["problems",], counts["judged",], counts["failing",]) == (1, 1, 1)


def test_a_line_that_cannot_be_encoded_is_an_error_line():
    lines = []

    def write(line):
        if line["judged"]:
            raise RecursionError
        lines.append(line)

    _, counts = judged(record("a", "Hi"), "redacted", write)
    assert [line["unjudged"].split()[2] for line in lines] == ["RecursionError"]
    assert (counts["problems",], counts["judged",]) == (1, 1)
