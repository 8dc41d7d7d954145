"""With `--capture`, the line of a repaired or blocked exchange has what the server sent, and what the client got instead."""

import asyncio
import json
import os
import re
from collections import Counter

import httpx2
import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.cli.main import main
from harmony_conformance.json_value import dumps
from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.capture.memory_budget import FREE_BYTES, SMALLEST_LIMIT, MemoryBudget
from harmony_proxy.capture.recorder import End, Recorder
from harmony_proxy.capture.sent_response import SentResponse
from harmony_proxy.configuration import load_rules
from harmony_proxy.judging.counters import summary_line
from harmony_proxy.judging.judge_process import ExchangeJudge
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.judging.queue_codec import decode_frame

LEAK = "channels.no_channel_words"
KEY = "sk-never-to-be-logged-1"
TEXT = "analysisThe user greets Sue.assistantfinalHello!"
REPAIR, BLOCK = {"repair": [LEAK]}, {"block": [LEAK]}


def _event(content, finish=None):
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _parts(text, *, stream):
    if stream:
        return [
            *(_event(text[start : start + 5]) for start in range(0, len(text), 5)),
            _event("", "stop"),
            b"data: [DONE]\n\n",
        ]
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return [
        json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}).encode()
    ]


def application(parts, *, stream, more_headers=()):
    kind = b"text/event-stream" if stream else b"application/json"

    async def app(scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", kind), *more_headers]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for part in parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


def exchanged(app, capture, *, memory_limit=None, counts=None, **rules):
    """What the client got, and the line in the log."""
    queue = JudgeQueue(JudgeSettings(capture=capture), memory_limit=memory_limit)
    queue.start = lambda: None
    guard = HarmonyGuard(app, policy=load_rules(**rules), queue=queue)

    async def ask():
        transport = httpx2.ASGITransport(guard, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://t") as http:
            body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
            return await http.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {KEY}"})

    answer = asyncio.run(ask())
    assert queue.memory.used_bytes == 0
    batches = []
    while batch := queue._dequeue_batches():
        batches += batch
    (record,) = [one for frame, _ in batches for one in decode_frame(frame)]
    return answer, judged(record, capture, counts)


def judged(record, capture, counts=None, engine="openai"):
    lines, counts = [], Counter() if counts is None else counts
    ExchangeJudge(
        JudgeSettings(capture=capture, engine=engine), lambda line: lines.append(json.loads(dumps(line))), CHECKS
    ).judge(record, counts)
    assert not counts["problems",], lines
    return lines[0]


def content(body):
    """The content of an answer, whole or streamed."""
    events = [json.loads(line) for line in re.sub(r"^data: ", "", body, flags=re.MULTILINE).splitlines() if "{" in line]
    choices = [choice for event in events for choice in event["choices"]]
    return "".join(choice.get("message", choice.get("delta")).get("content") or "" for choice in choices)


def text_of(response):
    return "".join(text for _, text in response["chunks"])


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("rules", [REPAIR, BLOCK], ids=["repair", "block"])
def test_the_line_has_what_the_server_sent_and_what_the_client_got(rules, stream):
    parts = _parts(TEXT, stream=stream)
    answer, line = exchanged(application(parts, stream=stream), "full", **rules)
    assert LEAK in line["acted"]["repaired" if rules is REPAIR else "blocked"]
    sent = b"".join(parts).decode()
    assert sent.startswith(text_of(line["before"])) if stream else text_of(line["before"]) == sent
    assert "The user greets" in content(text_of(line["before"]))
    assert text_of(line["after"]) == answer.text
    assert (line["before"]["status"], line["after"]["status"]) == (200, answer.status_code)
    if rules is REPAIR:
        assert content(answer.text) == "Hello!"
    assert line["before"]["headers"]["content-type"] == ("text/event-stream" if stream else "application/json")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("rules", [REPAIR, BLOCK], ids=["repair", "block"])
def test_redacted_both_have_the_form_and_no_letter_of_the_content(rules, stream):
    parts = _parts(TEXT, stream=stream)
    answer, line = exchanged(application(parts, stream=stream), "redacted", **rules)
    for response in (line["before"], line["after"]):
        assert response["chunks"]
        assert not re.search(r"Sue|greet|Hello|Hel", dumps(response))
    assert len(text_of(line["after"])) == len(answer.text)


@pytest.mark.parametrize("stream", [False, True])
def test_without_capture_and_without_an_action_there_is_neither(stream):
    app = application(_parts(TEXT, stream=stream), stream=stream)
    assert not {"before", "after"} & set(exchanged(app, "none", **REPAIR)[1])
    app = application(_parts("Hello!", stream=stream), stream=stream)
    assert not {"before", "after"} & set(exchanged(app, "full", **REPAIR)[1])
    app = application(_parts(TEXT, stream=stream), stream=stream)
    assert not {"before", "after"} & set(exchanged(app, "full")[1])  # observed


def test_an_answer_that_fails_closed_without_a_check_is_shown_too():
    app = application([b"no JSON"], stream=False)
    answer, line = exchanged(app, "full", **REPAIR, fail="closed")
    assert (answer.status_code, line["before"]["status"], line["after"]["status"]) == (502, 200, 502)
    assert (text_of(line["before"]), text_of(line["after"])) == ("no JSON", answer.text)
    assert line["after"]["headers"]["x-harmony-verdict"] == "blocked"


@pytest.mark.parametrize("stream", [False, True])
def test_a_key_that_the_server_echoes_is_masked_in_both(stream):
    text = f"analysisThe user greets {KEY}.assistantfinalHello {KEY}!"
    answer, line = exchanged(application(_parts(text, stream=stream), stream=stream), "full", **REPAIR)
    assert content(answer.text) == f"Hello {KEY}!"
    before, after = content(text_of(line["before"])), content(text_of(line["after"]))
    assert KEY not in dumps(line) + before + after
    assert (before.startswith("analysisThe user greets"), after.startswith("Hello ")) == (True, True)


def test_an_answer_that_is_too_large_has_none():
    text = TEXT + " word" * 4_000_000
    answer, line = exchanged(application(_parts(text, stream=False), stream=False), "full", **BLOCK, fail="closed")
    assert (answer.status_code, line["before"], line["after"]) == (502, None, None)


def test_it_takes_the_memory_that_exchanges_share_and_gives_it_back():
    memory = MemoryBudget(SMALLEST_LIMIT)
    sent = SentResponse(1 << 30, memory)
    sent.head(200, ())
    sent.feed(os.urandom(FREE_BYTES // 2), 0.1)
    assert memory.used_bytes == 0
    sent.feed(bytes(1_000_000), 0.2)
    assert memory.used_bytes >= 1_000_000
    sent.feed(bytes(memory.limit), 0.3)
    assert (memory.used_bytes, sent.cost, sent.pack()) == (0, 0, (200, [], None, []))


def test_a_response_over_the_memory_leaves_the_exchange_as_it_is():
    memory = MemoryBudget(SMALLEST_LIMIT)
    recorder = Recorder(memory=memory)
    recorder.record_sent()
    recorder.request_head("POST", "/v1/chat/completions", [])
    recorder.request_body(b'{"model":"m","messages":[]}')
    recorder.response_head(200, [(b"content-type", b"application/json")])
    (body,) = _parts(TEXT, stream=False)
    recorder.feed(body, 0.1)
    recorder.sent.head(200, [(b"content-type", b"application/json")])
    recorder.sent.feed(bytes(memory.limit), 0.2)
    recorder.repair_counts = {LEAK: 1}
    recorder.abort(End.COMPLETE, "", 0.3)
    line = judged(recorder.to_record("run-1", 1.5), "full")
    assert (line["judged"], text_of(line["before"]), line["after"]) == (True, body.decode(), None)


def test_past_the_limit_of_an_exchange_nothing_of_it_is_held():
    recorder = Recorder(limit=100_000)
    recorder.record_sent()
    recorder.response_head(200, [])
    recorder.sent.head(200, ())
    recorder.sent.feed(bytes(50_000), 0.1)
    assert recorder.cost > 50_000
    recorder.feed(bytes(100_000), 0.2)
    assert recorder.sent.cost == 0


def test_the_last_line_counts_answers_that_were_repaired_or_blocked():
    counts = Counter()
    for stream, rules in ((True, BLOCK), (False, BLOCK), (True, REPAIR)):
        exchanged(application(_parts(TEXT, stream=stream), stream=stream), "none", counts=counts, **rules)
    assert summary_line(counts).startswith(
        "3 exchanges, 2 judged, 2 failed a MUST check, 1 repaired, 2 blocked; most frequent failures: "
    )


def audited(tmp_path, capsys, *lines):
    """Audit a log of the proxy: exit code, terminal, the failing checks, and the reasons of records that were not read."""
    log, out = tmp_path / "proxy.jsonl", tmp_path / "out"
    log.write_text("".join(dumps(line) + "\n" for line in lines), encoding="utf-8")
    code = main(["audit", str(log), "--out", str(out)])
    rows = [json.loads(row) for row in (out / "failures.jsonl").read_text().splitlines()]
    unread = [json.loads(row)["kind"] for row in (out / "unreadable.jsonl").read_text().splitlines()]
    return code, capsys.readouterr().out, rows, unread


@pytest.mark.parametrize("has_request", [True, False], ids=["this version", "a log without requests"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_audit_judges_what_the_server_sent_of_a_blocked_answer(tmp_path, capsys, stream, has_request):
    _, line = exchanged(application(_parts(TEXT, stream=stream), stream=stream), "full", **BLOCK)
    assert line["request"]["json"]["messages"] == [{"role": "user", "content": "Hi"}]
    kept = {name: value for name, value in line.items() if name != "sample" and (has_request or name != "request")}
    code, shown, rows, unread = audited(tmp_path, capsys, kept)
    assert (code, unread) == (1, [])
    if stream:  # its end was never sent, so nothing is said about the end
        assert [row["check"] for row in rows] == [LEAK]
    else:
        assert LEAK in {row["check"] for row in rows}
    assert {(row["delivery"], row["started"], row["route"]) for row in rows} == {
        ("blocked", line["started"], "/v1/chat/completions")
    }
    assert "1 answer blocked by the proxy" in shown
    assert "1 answer blocked by the proxy" in (tmp_path / "out" / "report.html").read_text()


def test_a_blocked_answer_that_quotes_markers_on_demand_is_judged_with_its_request(tmp_path, capsys):
    _, line = exchanged(application(_parts(TEXT, stream=True), stream=True), "full", **BLOCK)
    asked = "Write the header of a Harmony message with <|channel|>analysis, please."
    line["request"]["json"]["messages"][0]["content"] = asked
    text = "The header is <|channel|>analysis."
    line["before"]["chunks"] = [[0.1, _event(text).decode()]]
    code, _, rows, unread = audited(tmp_path, capsys, line)
    assert (code, rows, unread) == (0, [], [])
    del line["request"]
    assert audited(tmp_path, capsys, line)[0] == 1


def test_an_audit_judges_repaired_answers_beyond_the_first_samples(tmp_path, capsys):
    _, line = exchanged(application(_parts(TEXT, stream=False), stream=False), "full", **REPAIR)
    del line["sample"]
    code, shown, rows, unread = audited(tmp_path, capsys, line)
    assert (code, unread) == (1, [])
    assert LEAK in {row["check"] for row in rows if row["delivery"] == "repaired"}
    assert "1 answer repaired by the proxy" in shown


def test_an_audit_counts_an_answer_before_a_block_by_its_outcomes(tmp_path, capsys):
    _, line = exchanged(application(_parts(TEXT, stream=True), stream=True), "redacted", **BLOCK)
    assert not re.search(r"Hi|Sue", dumps(line))
    code, shown, rows, unread = audited(tmp_path, capsys, line, {**line, "before": None})
    assert (code, unread) == (1, [])
    assert [row["check"] for row in rows] == line["acted"]["blocked"] * 2 == [LEAK] * 2
    assert {row["delivery"] for row in rows} == {"blocked"}
    assert "2 answers blocked by the proxy" in shown


def test_an_audit_says_why_a_line_without_outcomes_is_not_judged(tmp_path, capsys):
    _, line = exchanged(application(_parts(TEXT, stream=False), stream=False), "redacted", **REPAIR)
    del line["outcomes"]
    lost = {name: value for name, value in line.items() if name != "sample"} | {"before": None}
    *_, unread = audited(tmp_path, capsys, line, lost, {**lost, "judged": False})
    assert [kind.partition(" (")[0] for kind in unread] == [
        "not judged: the sample of the proxy is redacted, its letters and digits are masked",
        "no exchange: the proxy did not retain the answer, which was beyond its limit of size or memory",
        "no exchange: the proxy did not judge it; `unjudged` in its line is the reason",
    ]


@pytest.mark.parametrize(
    ("settings", "headers", "fingerprint", "engine"),
    [
        ("openai", (), "", "unknown"),
        ("openai", (), "vllm-0.33.0-ab", "vllm"),
        ("openai", (), "b11549-3a2bd4f12", "llamacpp"),
        ("openai", ((b"server", b"llama.cpp"),), "", "llamacpp"),
        ("openai", ((b"server", b"uvicorn"),), "fp_44709d6fcb", "unknown"),
        ("sglang", (), "", "sglang"),
        ("sglang", (), "vllm-0.33.0-ab", "sglang"),
    ],
)
def test_a_sample_names_the_engine_that_is_known(settings, headers, fingerprint, engine):
    (body,) = _parts(TEXT, stream=False)
    answer = {**json.loads(body), **({"system_fingerprint": fingerprint} if fingerprint else {})}
    recorder = Recorder()
    recorder.request_head("POST", "/v1/chat/completions", [])
    recorder.request_body(b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}')
    recorder.response_head(200, [(b"content-type", b"application/json"), *headers])
    recorder.feed(json.dumps(answer).encode(), 0.1)
    recorder.end(0.2)
    line = judged(recorder.to_record("run-1", 1.5), "full", engine=settings)
    assert line["sample"]["engine"] == engine
