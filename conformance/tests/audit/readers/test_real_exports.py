"""Files under `logs` that `make_exports.py` wrote with real software, before the reference server with leaking calls."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from harmony_conformance.audit.batches import ReadOptions, batches, scan_batch
from harmony_conformance.audit.readers.files.formats import open_logs
from harmony_conformance.audit.tallies import Tally
from harmony_conformance.errors import Exit

LOGS = Path(__file__).parent / "logs"
LEAK = "<|start|>assistant<|channel|>commentary to=functions."
PYTHON = os.environ.get("HARMONY_MITMPROXY_PYTHON", "")
EXPORTS = [
    # file, exchanges, places with the leak, a check that the log has enough for
    ("traceloop.otlp.jsonl", 4, ["@0/0", "@0/2"], "channels.no_channel_words"),
    ("traceloop_numbered.otlp.jsonl", 4, ["@0/0", "@0/2"], "channels.no_channel_words"),
    ("openai_v2_spans.otlp.jsonl", 3, ["@0/0", "@0/2"], "channels.no_channel_words"),
    ("openai_v2_events.otlp.jsonl", 3, ["@0/0", "@0/2"], "channels.no_channel_words"),
    ("litellm_spend_logs.jsonl", 2, ["@0"], "tool_calls.demanded_call_is_made"),
    ("mitmproxy.har", 4, None, "tool_calls.demanded_call_is_made"),
    ("chromium.har", 4, None, "tool_calls.demanded_call_is_made"),
    ("phoenix_spans.jsonl", 4, None, "tool_calls.demanded_call_is_made"),
    ("phoenix_dataframe.jsonl", 4, None, "tool_calls.demanded_call_is_made"),
    ("phoenix_dataframe.parquet", 4, ["#1", "#3"], "tool_calls.demanded_call_is_made"),
    ("phoenix_otlp.json", 4, None, "tool_calls.demanded_call_is_made"),
    ("langfuse_openai.otlp.jsonl", 4, ["@0/0", "@0/2"], "channels.no_channel_words"),
    ("langfuse_observations.jsonl", 2, ["@0"], "channels.no_channel_words"),
    ("helicone_async.otlp.jsonl", 3, ["@0", "@4003"], "channels.no_channel_words"),
    ("helicone_manual.jsonl", 5, ["@0", "@2338", "@4706"], "tool_calls.demanded_call_is_made"),
]
DAYS = dict.fromkeys(
    ("langfuse_observations.jsonl", "helicone_async.otlp.jsonl", "helicone_manual.jsonl"), "2026-11-28"
)
OTHERS = {"chromium.har": "no exchange: its request has no body, as for a page or an image"}
"""Records that are no call of a model, one in each file."""


def judged(path):
    scanned = [scan_batch(batch, ReadOptions()) for batch in batches([str(path)])]
    rows = [json.loads(line) for one in scanned for line in one.failures.splitlines()]
    return sum((one.tally for one in scanned), Tally()), rows


@pytest.mark.parametrize(("name", "exchanges", "places", "check"), EXPORTS, ids=[row[0] for row in EXPORTS])
def test_an_export_of_real_software_shows_its_leaks(name, exchanges, places, check):
    total, rows = judged(LOGS / name)
    assert (total.exchanges, total.errors) == (exchanges, 0)
    assert {kind: found.count for kind, found in total.unreadable_by_kind.items()} == (
        {OTHERS[name]: 1} if name in OTHERS else {}
    )
    leaks = [row for row in rows if row["check"] == "channels.no_marker_leak"]
    assert len(leaks) == (2 if places is None else len(places))
    assert {row["exchange"] for row in rows if row["severity"] == "must"} == {row["exchange"] for row in leaks}
    if places is not None:
        assert [row["exchange"] for row in leaks] == [f"{LOGS / name}{place}" for place in places]
    assert {row["model"] for row in leaks} == {"gpt-oss-reference"}
    assert {row["day"] for row in leaks} == {DAYS.get(name, "2026-11-27")}
    assert sum(total.checks[check].counts.get(outcome, 0) for outcome in ("pass", "fail")) > 0
    if "spend" in name:
        assert {row["provider"] for row in leaks} == {"openai"}


def test_what_openrouter_has_stored_shows_its_leak_and_a_failed_generation_is_counted():
    total, rows = judged(LOGS / "openrouter.jsonl")
    assert (total.exchanges, total.errors) == (2, 0)
    assert [(row["check"], row["exchange"]) for row in rows] == [
        ("channels.no_marker_leak", f"{LOGS / 'openrouter.jsonl'}@0")
    ]
    reason = "no exchange: it has no response, its request failed"
    assert {kind: found.count for kind, found in total.unreadable_by_kind.items()} == {reason: 1}


def test_a_traceback_in_the_place_of_an_answer_is_no_finding(tmp_path):
    """Helicone's manual logger sends one for a request that failed, with status 200."""
    record = json.loads((LOGS / "helicone_manual.jsonl").read_bytes().splitlines()[3])
    record["providerResponse"]["textBody"] = (
        'Traceback (most recent call last):\nValueError\n\n{"object": "chat.completion"}'
    )
    (path := tmp_path / "log.jsonl").write_text(json.dumps(record), encoding="utf-8")
    total, rows = judged(path)
    assert (total.exchanges, total.unreadable, rows) == (0, 1, [])


def test_answers_that_litellm_redacted_are_counted_as_not_judged():
    total, rows = judged(LOGS / "litellm_redacted.jsonl")
    assert (total.exchanges, rows) == (0, [])
    reason = "not judged: LiteLLM has redacted the answer (keep `turn_off_message_logging` off)"
    assert {kind: found.count for kind, found in total.unreadable_by_kind.items()} == {reason: 2}


VLLM_LOGS = [
    # file, places of the answers with a marker, ids of the output and of the prompt by answer
    ("vllm-0.11.log", [3, 15], [6, 10, 0, 0]),
    ("vllm-0.32.log", [9, 31], [6, 10, 0, 0]),
]


@pytest.mark.parametrize(("name", "leaking", "output_ids"), VLLM_LOGS, ids=[row[0] for row in VLLM_LOGS])
def test_the_log_of_a_real_vllm_shows_its_leaks(name, leaking, output_ids):
    path = LOGS / name
    total, rows = judged(path)
    assert (total.exchanges, total.unreadable, total.errors) == (4, 0, 0)
    lines = path.read_bytes().splitlines(keepends=True)
    offsets = [sum(map(len, lines[:number])) for number in leaking]
    leaks = [row for row in rows if row["check"] == "channels.no_marker_leak"]
    assert [row["exchange"] for row in leaks] == [f"{path}@{offset}" for offset in offsets]
    assert {row["exchange"] for row in rows} == {row["exchange"] for row in leaks}
    records = [json.loads(line.data) for log in open_logs([str(path)], "auto") for line in log.records]
    assert [len(one["output_token_ids"]) for one in records] == output_ids
    assert {len(one["prompt_token_ids"]) > 10 for one in records} == {True}
    assert total.checks["headers.messages_end_as_they_must"].counts == {"pass": 4}


@pytest.mark.skipif(not PYTHON, reason="HARMONY_MITMPROXY_PYTHON names no environment with mitmproxy 12")
def test_flows_of_a_real_mitmdump_are_those_of_its_archive(tmp_path):
    found = []
    for name in ("mitmproxy.flows", "mitmproxy.har"):
        command = [PYTHON, "-m", "harmony_conformance", "audit", str(LOGS / name), "--workers", "1", "--out"]
        done = subprocess.run([*command, str(tmp_path / name)], capture_output=True, text=True, check=False)
        assert done.returncode == Exit.DIVERGES, done.stderr
        rows = map(json.loads, (tmp_path / name / "failures.jsonl").read_text("utf-8").splitlines())
        found.append([(row["check"], row["findings"][0]["message"], row["engine"]) for row in rows])
    assert found[0] == found[1]
    assert {name for _, _, name in found[0]} == {"harmony-conformance/0.1.0"}
