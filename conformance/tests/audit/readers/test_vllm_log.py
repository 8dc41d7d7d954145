"""vLLM's log of requests and outputs: each answer is the one that the client got, or the reason says why it is unknown."""

import json
from io import BytesIO

import pytest

from harmony_conformance.audit.batches import ReadOptions, batches, scan_batch
from harmony_conformance.audit.readers.files import vllm_log
from harmony_conformance.audit.readers.files.formats import open_logs
from harmony_conformance.audit.readers.files.sources import PeekableStream
from harmony_conformance.audit.tallies import Tally
from harmony_conformance.evidence.file_lines import Line
from harmony_ref import encode_with_special_tokens

LEAK = "Hello.<|end|><|start|>assistant<|channel|>final<|message|>Hello."


def judged(path):
    """Return the total of a log, the failing places of the leak, and the places and kinds of what could not be read."""
    scanned = [scan_batch(batch, ReadOptions()) for batch in batches([str(path)])]
    rows = [json.loads(line) for one in scanned for line in one.failures.splitlines()]
    unread = [json.loads(line) for one in scanned for line in one.unreadable.splitlines()]
    places = [row["exchange"] for row in rows if row["check"] == "channels.no_marker_leak"]
    return sum((one.tally for one in scanned), Tally()), places, [(one["place"], one["kind"]) for one in unread]


def logged(logger, message):
    return f"(APIServer pid=1) {logger} {message}\n"


PROMPT = "prompt: None, prompt_token_ids: [200006, 77, 200008], prompt_embeds shape: None."
DELTA = f"output: {LEAK!r}, output_token_ids: None, finish_reason: streaming_delta"
COMPLETE = f"output: {'final' + LEAK!r}, output_token_ids: [13225, 13], finish_reason: streaming_complete"
QUOTES = """output: 'It\\'s "fine"', output_token_ids: (13225, 13), finish_reason: stop"""
INFO = "INFO 01-01 10:00:01 [logger.py:56]"
VLLM_LOG = [
    logged(INFO, "Route: /v1/chat/completions, Methods: POST"),
    logged("DEBUG 01-01 10:00:01 [logger.py:50]", f"Request chatcmpl-1 details: {PROMPT}"),
    logged(INFO, "Received request chatcmpl-1: params: SamplingParams(n=1), lora_request: None."),
    logged(INFO, f"Generated response chatcmpl-1 (streaming delta): {DELTA}"),
    logged(INFO, f"Generated response chatcmpl-1 (streaming complete): {COMPLETE}"),
    logged(INFO, f"Generated response chatcmpl-2: {QUOTES}"),
    logged("DEBUG", f"Request chatcmpl-4 details: {PROMPT}"),
    logged(INFO, "Generated response chatcmpl-5: output: '\\N{no}', output_token_ids: None, finish_reason: stop"),
    logged(INFO, "Generated response chatcmpl-3: output: 'torn"),
]


def test_the_log_of_vllm_is_joined_by_request(tmp_path):
    (path := tmp_path / "vllm.log").write_text("".join(VLLM_LOG), encoding="utf-8")
    total, failing, unread = judged(path)
    assert total.exchanges == 2
    assert failing == [f"{path}@{len(''.join(VLLM_LOG[:4]))}"]
    starts = [len("".join(VLLM_LOG[:number])) for number in range(len(VLLM_LOG))]
    assert unread == [
        (f"{path}@{starts[7]}", "a response of vLLM's log that cannot be read"),
        (f"{path}@{starts[8]}", "a response of vLLM's log that cannot be read"),
        (f"{path}@{starts[6]}", "a request of vLLM's log without a response (log with --enable-log-outputs)"),
    ]
    (log,) = (
        [json.loads(line.data) for line in log.records if isinstance(line, Line)]
        for log in open_logs([str(path)], "auto")
    )
    assert [one["output"] for one in log] == [LEAK, 'It\'s "fine"']
    assert [one["prompt_token_ids"] for one in log] == [[200006, 77, 200008], []]


DELTAS = "Generated response {} (streaming delta): output: {!r}, finish_reason: None"
WHOLE = "Generated response {} (streaming complete): output: {!r}, finish_reason: streaming_complete"
RAW = "what the model generated, not what the client got"
STREAMS = {
    # messages of a log, content and reasoning, or the reason why there are none
    "the names of channels": (
        [
            *(
                DELTAS.format("chatcmpl-a.1", part)
                for part in ("[reasoning: We]", "[reasoning:  greet.]", "Hel", "lo.")
            ),
            DELTAS.format("chatcmpl-a.2", "other"),
            WHOLE.format("chatcmpl-a.1", "analysisWe greet.assistantfinalHello."),
        ],
        ("Hello.", "We greet."),
    ),
    "a call, and parts of one delta": (
        [
            DELTAS.format("chatcmpl-a", "Hello. [reasoning: Two\nlines.]"),
            DELTAS.format("chatcmpl-a", '[tool_calls: {"a": 1}]'),
            WHOLE.format("chatcmpl-a", "raw"),
        ],
        ("Hello.", "Two\nlines."),
    ),
    "no deltas": ([WHOLE.format("chatcmpl-a", "finalHello.")], f"without its deltas: its complete text is {RAW}"),
    "several choices": (
        [
            "Received request chatcmpl-a: params: SamplingParams(n=2, seed=1), lora_request: None.",
            DELTAS.format("chatcmpl-a", "Hello."),
            WHOLE.format("chatcmpl-a", "finalHello."),
            WHOLE.format("chatcmpl-a", "finalHello."),
        ],
        "several choices",
    ),
    "Responses": (
        [
            f"Generated response resp_a: output: 'assistantfinal', finish_reason: {reason}"
            for reason in ("stop", "length")
        ],
        RAW,
    ),
    "a quoted message": (
        [
            'Request a JSON body: {"content": "Generated response chatcmpl-b: output: \'a\', finish_reason: stop"}',
            "Generated response chatcmpl-b: output: 'Hello.', finish_reason: stop",
        ],
        ("Hello.", ""),
    ),
}


@pytest.mark.parametrize("what", STREAMS)
def test_an_answer_of_the_log_of_vllm_is_the_one_that_the_client_got(tmp_path, what):
    lines, expected = STREAMS[what]
    (path := tmp_path / "vllm.log").write_text("".join(logged(INFO, line) for line in lines), encoding="utf-8")
    found = [record for log in open_logs([str(path)], "vllm-log") for record in log.records]
    records = [json.loads(one.data) for one in found if isinstance(one, Line)]
    if isinstance(expected, tuple):
        assert [(one["output"], one["reasoning"]) for one in records] == [expected]
    else:
        assert records == []
        assert {expected in one.kind for one in found} == {True}
        assert len(found) == sum("complete" in line or "resp_" in line for line in lines)
    total, failing, _ = judged(path)
    assert (total.exchanges, failing) == (len(records), [])


def test_the_deltas_of_a_stream_without_end_are_bounded(monkeypatch):
    monkeypatch.setattr(vllm_log, "LINE_LIMIT", 100)
    lines = [logged(INFO, DELTAS.format(f"chatcmpl-{number}", "x" * 30)) for number in range(5)]
    lines += [logged(INFO, WHOLE.format(f"chatcmpl-{number}", "raw")) for number in range(5)]
    (log,) = vllm_log.VLLM_LOG.read(PeekableStream(BytesIO("".join(lines).encode()).read), "log")
    assert [isinstance(one, Line) for one in log.records] == [False, False, True, True, True]


def rendered(text):
    line = logged(INFO, f"Generated response chatcmpl-1: {QUOTES}")
    ids = encode_with_special_tokens(text)
    return (
        logged(INFO, f"Request chatcmpl-1 details: prompt: None, prompt_token_ids: {ids}, prompt_embeds shape: None.")
        + line
    )


SYSTEM = "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\n{}<|end|>"
VALID = "Current date: 2026-01-01\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message."


@pytest.mark.parametrize(
    ("form", "failed"),
    [
        (VALID, set()),
        (
            VALID.replace("2026-01-01", "0001-01-01"),
            {"hierarchy.current_date_is_sane", "hierarchy.system_message_has_the_trained_form"},
        ),
    ],
)
def test_a_prompt_of_the_log_of_vllm_is_judged(tmp_path, form, failed):
    end = "<|start|>user<|message|>Hi<|end|><|start|>assistant"
    (path := tmp_path / "vllm.log").write_text(rendered(SYSTEM.format(form) + end), encoding="utf-8")
    tally = judged(path)[0]
    assert {name for name, check in tally.checks.items() if check.counts.get("fail")} == failed
    applied = {name for name, check in tally.checks.items() if check.counts.get("pass")}
    assert applied >= {"headers.form_is_known", "headers.messages_end_as_they_must"}
    path.write_text(rendered((SYSTEM.format(form) + end)[:-20]), encoding="utf-8")  # cut by --max-log-len
    assert "headers.form_is_known" not in {
        name for name, check in judged(path)[0].checks.items() if check.counts.get("pass")
    }


QUOTED = "The header is <|channel|>analysis."
ASKED = {
    "model": "gpt-oss",
    "messages": [
        {"role": "user", "content": "Write the header of a Harmony message with <|channel|>analysis, please."}
    ],
}


@pytest.mark.parametrize(
    ("body", "is_judged_with_it"),
    [
        (json.dumps(ASKED), True),
        (json.dumps(ASKED)[:-1], True),  # as vLLM logs it without --max-log-len
        (json.dumps(ASKED)[:40], False),
        ("{}", False),
    ],
    ids=["whole", "without the last character", "cut", "empty"],
)
def test_an_answer_is_judged_with_the_request_body_of_a_debug_log(tmp_path, body, is_judged_with_it):
    lines = [
        logged(INFO, "Received request chatcmpl-77: params: SamplingParams(n=1), lora_request: None."),
        logged("DEBUG 01-01 10:00:01 [request_logger.py:80]", f"Request 77 JSON body: {body}"),
        logged(INFO, f"Generated response chatcmpl-77: output: {QUOTED!r}, finish_reason: stop"),
    ]
    (path := tmp_path / "vllm.log").write_text("".join(lines), encoding="utf-8")
    total, failing, unread = judged(path)
    assert (total.exchanges, unread) == (1, [])
    assert (failing == []) is is_judged_with_it
    assert set(total.groups["model"]) == {"gpt-oss" if is_judged_with_it else ""}
