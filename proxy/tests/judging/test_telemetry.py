"""Spans and metrics of OpenTelemetry: what a receiver gets from a running proxy, and what the audit reads of it.

The receiver is one of the test, made of OpenTelemetry's messages, and the collector itself where `HARMONY_OTELCOL` names it (`make test-otel`).
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
import pytest

for needed in ("aiohttp", "opentelemetry.proto", "opentelemetry.exporter.otlp.proto.http"):
    pytest.importorskip(needed)

from google.protobuf.json_format import MessageToDict  # noqa: E402 - what is missing is told first
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest  # noqa: E402
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402

from harmony_conformance.audit.readers.records.spans import split_otlp  # noqa: E402
from harmony_conformance.checks import CHECKS  # noqa: E402
from harmony_conformance.errors import UsageError  # noqa: E402
from harmony_conformance.reference_server.server.serving import running  # noqa: E402
from harmony_proxy.capture.recorder import End, Recorder  # noqa: E402
from harmony_proxy.cli import execute  # noqa: E402
from harmony_proxy.configuration import InvalidSettingError, from_environment  # noqa: E402
from harmony_proxy.judging.judge_process import ExchangeJudge  # noqa: E402
from harmony_proxy.judging.judge_settings import JudgeSettings  # noqa: E402
from harmony_proxy.judging.telemetry.emitter import OtlpEmitter  # noqa: E402
from harmony_proxy.judging.telemetry.span import MOST_CONTENT_BYTES  # noqa: E402
from harmony_proxy.options import configure  # noqa: E402
from harmony_ref.extras import install_command  # noqa: E402

WAIT = 60.0
CANARY = "Quetzalcoatlus"
MODEL = "gpt-oss-reference"
LEAKS = "channels.no_channel_words"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
COLLECTOR = os.environ.get("HARMONY_OTELCOL", "")
_MESSAGES = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


class Received:
    """The URL of a receiver, and the file of JSON lines that it writes, as the collector's file exporter does."""

    def __init__(self, url, file):
        self.url, self.file = url, file

    def messages(self, kind):
        return [one for line in self.file.read_text().splitlines() if kind in (one := json.loads(line))]

    def spans(self):
        groups = (("resourceSpans", "scopeSpans", "spans"),)
        return [
            span
            for message in self.messages("resourceSpans")
            for outer, inner, spans in groups
            for resource in message[outer]
            for scope in resource[inner]
            for span in scope[spans]
        ]

    def attributes(self):
        return [one["attributes"] for message in self.messages("resourceSpans") for one in split_otlp(message)]

    def metrics(self):
        """The last value of each series: `{name: {labels: value}}`."""
        found = {}
        for message in self.messages("resourceMetrics"):
            for resource in message["resourceMetrics"]:
                for scope in resource["scopeMetrics"]:
                    for metric in scope["metrics"]:
                        data = metric.get("sum") or metric["histogram"]
                        series = found.setdefault(metric["name"], {})
                        for point in data["dataPoints"]:
                            labels = frozenset(
                                (one["key"], one["value"]["stringValue"]) for one in point.get("attributes", ())
                            )
                            series[labels] = int(point.get("asInt") or point.get("count"))
        return found


@contextmanager
def receiver_of_messages(file):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            message = _MESSAGES[self.path].FromString(self.rfile.read(int(self.headers["content-length"])))
            with file.open("a") as lines:
                lines.write(json.dumps(MessageToDict(message)) + "\n")
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@contextmanager
def collector(file):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    pipeline = {"receivers": ["otlp"], "exporters": ["file"]}
    settings = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"127.0.0.1:{port}"}}}},
        "exporters": {"file": {"path": str(file)}},
        "service": {
            "telemetry": {"metrics": {"level": "none"}},
            "pipelines": {"traces": pipeline, "metrics": pipeline},
        },
    }
    (config := file.with_suffix(".yaml")).write_text(json.dumps(settings))
    with subprocess.Popen([COLLECTOR, "--config", str(config)], stderr=subprocess.PIPE, text=True) as process:
        try:
            for line in process.stderr:
                if "Everything is ready" in line:
                    break
            else:
                raise AssertionError("the collector did not start")
            Thread(target=process.stderr.read, daemon=True).start()
            yield f"http://127.0.0.1:{port}"
            process.send_signal(signal.SIGTERM)  # it writes what it has
            process.wait(WAIT)
        finally:
            process.kill()


@pytest.fixture(params=["receiver of the test", "collector"])
def receiver(request, tmp_path):
    """A function that runs a proxy before a server with defects, and returns what arrived after it ended."""
    kind = request.param
    if kind == "collector" and not COLLECTOR:
        pytest.skip("HARMONY_OTELCOL names no collector (`make test-otel` builds one with Go)")

    def run(asks, *options, defects=(), **environment):
        file = tmp_path / "otlp.jsonl"
        with (collector if kind == "collector" else receiver_of_messages)(file) as url:
            with running(defects=list(defects)) as server:
                printed = proxied(server, asks, "--otel", url, *options, **environment)
            assert "OpenTelemetry" not in printed, printed
        return Received(url, file)

    return run


def proxied(server, asks, *options, **environment):
    """Send requests through a proxy, end it, and return what it printed."""
    command = [sys.executable, "-m", "harmony_proxy", "--upstream", server, "--listen", "127.0.0.1:0", *options]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HARMONY_GUARD_PRIORITY": "normal", **environment},
    )
    try:
        line = process.stdout.readline()
        found = re.match(r"listening on (http://\S+), forwarding to", line)
        assert found, line + process.stdout.read()
        for body, headers in asks:
            httpx.post(f"{found[1]}/v1/chat/completions", json=body, headers=headers, timeout=WAIT)
        process.send_signal(signal.SIGTERM)
        printed = process.stdout.read()
        assert process.wait(WAIT) == 0, printed
        return printed
    finally:
        process.kill()
        process.stdout.close()
        process.wait()


def asked(**more):
    return {"model": MODEL, "messages": [{"role": "user", "content": f"What is a {CANARY}?"}], **more}


LEAKING = ("output-unparsed",)


def test_spans_and_metrics_have_the_verdicts_and_no_content(receiver):
    parent = {"traceparent": f"00-{TRACE}-{PARENT}-01", "authorization": f"Bearer {CANARY}"}
    got = receiver(
        [(asked(temperature=0.5, max_tokens=200, seed=7), parent), (asked(stream=True), {})], defects=LEAKING
    )
    assert CANARY not in got.file.read_text()
    first, second = sorted(got.attributes(), key=lambda one: "gen_ai.request.stream" in one)
    assert first["gen_ai.operation.name"] == "chat"
    assert (first["gen_ai.request.model"], first["gen_ai.response.model"]) == (MODEL, MODEL)
    assert first["gen_ai.response.finish_reasons"] == ["stop"]
    assert (first["gen_ai.request.temperature"], first["gen_ai.request.max_tokens"], first["gen_ai.request.seed"]) == (
        0.5,
        200,
        7,
    )
    assert first["gen_ai.usage.input_tokens"] > 60
    assert first["http.route"] == "/chat/completions"
    assert first["harmony.verdict"] == second["harmony.verdict"] == "failed"
    assert LEAKS in first["harmony.checks.failed"]
    assert second["gen_ai.response.time_to_first_chunk"] > 0
    span = next(one for one in got.spans() if one.get("parentSpanId"))
    assert hex_id(span["traceId"]) == TRACE
    assert (span["name"], int(span["endTimeUnixNano"]) > int(span["startTimeUnixNano"])) == (f"chat {MODEL}", True)
    evaluated = {
        one["attributes"][0]["value"]["stringValue"]
        for one in span["events"]
        if one["name"] == "gen_ai.evaluation.result"
    }
    assert set(first["harmony.checks.failed"]) <= evaluated
    metrics = got.metrics()
    assert sum(metrics["gen_ai.client.operation.duration"].values()) == 2
    assert sum(metrics["gen_ai.client.operation.time_to_first_chunk"].values()) == 1
    assert {dict(labels)["gen_ai.token.type"] for labels in metrics["gen_ai.client.token.usage"]} == {"input", "output"}
    verdicts = Counter({dict(labels)["harmony.verdict"]: count for labels, count in metrics["harmony.answers"].items()})
    assert verdicts == {"failed": 2}
    failed = {
        dict(labels)["harmony.check"]: count
        for labels, count in metrics["harmony.check.results"].items()
        if dict(labels)["harmony.outcome"] == "fail"
    }
    assert failed[LEAKS] == 2


def hex_id(value):
    """An id as the collector writes it; `MessageToDict` has base64 instead."""
    if len(value) == 32:
        return value
    import base64

    return base64.b64decode(value).hex()


def audit(file, folder):
    command = [sys.executable, "-m", "harmony_conformance", "audit", str(file), "--out", str(folder), "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in (folder / "failures.jsonl").read_text().splitlines()]
    footer = json.loads((folder / "audit.jsonl").read_text().splitlines()[-1])
    return done.returncode, rows, footer


@pytest.mark.parametrize("content", ["full", "redacted", "none"])
def test_the_audit_reads_the_spans_back(receiver, tmp_path, content):
    conversation = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": CANARY},
    ]
    body = {"model": MODEL, "messages": conversation}
    got = receiver([(body, {}), (asked(stream=True), {})], "--otel-content", content, defects=LEAKING)
    traces = tmp_path / "traces.jsonl"
    traces.write_text("".join(json.dumps(one) + "\n" for one in got.messages("resourceSpans")))
    code, rows, footer = audit(traces, tmp_path / "audit")
    assert (CANARY in got.file.read_text()) is (content == "full")
    if content == "none":
        assert (code, rows, footer["unreadable"]) == (2, [], 2)
        return
    leaks = [row for row in rows if row["check"] == LEAKS]
    assert (code, len(leaks), footer["unreadable"]) == (1, 2, 0)
    assert {(row["model"], row["provider"]) for row in leaks} == {(MODEL, "openai")}
    if content == "full":
        (messages,) = [
            json.loads(one["gen_ai.input.messages"])
            for one in got.attributes()
            if len(json.loads(one["gen_ai.input.messages"])) == 4
        ]
        assert messages[3]["parts"] == [{"type": "tool_call_response", "id": "c1", "response": CANARY}]


def test_actions_of_a_policy_are_attributes_and_metrics(receiver):
    got = receiver([(asked(), {})], "--block", LEAKS, defects=LEAKING)
    (attributes,) = got.attributes()
    assert (attributes["harmony.verdict"], attributes["harmony.checks.blocked"]) == ("blocked", [LEAKS])
    assert got.metrics()["harmony.actions"] == {frozenset({("harmony.check", LEAKS), ("harmony.action", "blocked")}): 1}


def test_variables_of_the_sdk_apply(receiver):
    unsampled = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
    got = receiver([(asked(), unsampled), (asked(), {})], OTEL_SERVICE_NAME="shop")
    assert len(got.spans()) == 1
    named = [
        one["value"]["stringValue"]
        for message in got.messages("resourceSpans")
        for resource in message["resourceSpans"]
        for one in resource["resource"]["attributes"]
        if one["key"] == "service.name"
    ]
    assert named == ["shop"]
    assert sum(got.metrics()["harmony.answers"].values()) == 2


def test_a_receiver_that_is_gone_costs_one_line_and_no_answer(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with running() as server:
            printed = proxied(server, [(asked(), {}), (asked(), {})], "--otel", url, "--log", str(tmp_path / "log"))
    told = [line for line in printed.splitlines() if "OpenTelemetry" in line]
    assert told
    assert len(told) == len(set(told)) <= 4  # a warning and an error, of spans and of metrics
    assert "2 exchanges, 2 judged" in printed
    assert len((tmp_path / "log").read_bytes().splitlines()) == 2


def record(content, model="m"):
    message = {"role": "assistant", "content": content}
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    recorder = Recorder()
    recorder.request_head("POST", "/v1/chat/completions", [])
    recorder.request_body(json.dumps({"model": model, "messages": [{"role": "user", "content": content}]}).encode())
    recorder.response_head(200, [(b"content-type", b"application/json")])
    recorder.feed(json.dumps(body).encode(), 0.1)
    recorder.abort(End.COMPLETE, "", 0.2)
    return recorder.to_record("run-1", 1.5)


def emitted(tmp_path, *records):
    counts = Counter()
    file = tmp_path / "otlp.jsonl"
    with receiver_of_messages(file) as url:
        settings = JudgeSettings(otel=url, otel_content="full")
        emitter = OtlpEmitter(settings)
        judge = ExchangeJudge(settings, lambda _: None, CHECKS, emitter.emit)
        for one in records:
            judge.judge(one, counts)
        emitter.close()
    assert counts["problems",] == 0
    return Received(url, file)


def test_a_lone_surrogate_loses_no_span(tmp_path):
    got = emitted(tmp_path, record("\ud800"), record("Hi"))
    assert len(got.spans()) == 2


def test_long_messages_are_left_out_with_their_size(tmp_path):
    (attributes,) = emitted(tmp_path, record("a " * MOST_CONTENT_BYTES)).attributes()
    assert attributes["harmony.content_bytes"] > MOST_CONTENT_BYTES
    assert "gen_ai.output.messages" not in attributes


def test_names_that_are_no_words_are_left_out_and_bounded(tmp_path):
    got = emitted(tmp_path, record("Hi", f"My name is {CANARY}"), *[record("Hi", f"model-{n}") for n in range(20)])
    assert CANARY not in json.dumps([span["name"] for span in got.spans()])
    models = {dict(labels).get("gen_ai.request.model") for labels in got.metrics()["harmony.answers"]}
    assert len(models) == 16 + 2  # the first, `other`, and none
    assert {None, "other"} <= models


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("127.0.0.1:4318", "invalid receiver: expected the URL of an OTLP/HTTP receiver such as http://127.0.0.1:4318"),
        ("ftp://host/", "invalid receiver: expected the URL"),
        ("http://host:99999", "invalid receiver: expected the URL"),
        ("http://me:secret@host:4318", "invalid receiver: expected no user and password"),
    ],
)
def test_an_invalid_url_is_one_line(url, message):
    with pytest.raises(InvalidSettingError) as told:
        from_environment({"HARMONY_GUARD_OTEL": url})
    assert message in str(told.value)
    with pytest.raises(UsageError) as told:
        execute(arguments("--otel", url))
    assert str(told.value).startswith(f"--otel: {message}")
    assert "secret" not in str(told.value)


def arguments(*options):
    from argparse import ArgumentParser

    configure(parser := ArgumentParser())
    return parser.parse_args(["--upstream", "http://127.0.0.1:9", *options])


def test_content_without_a_receiver_is_refused():
    with pytest.raises(UsageError, match=r"^--otel-content requires --otel$"):
        execute(arguments("--otel-content", "full"))


def test_nothing_of_opentelemetry_is_imported_when_it_is_off():
    code = (
        "import sys; from harmony_proxy.asgi import HarmonyGuard; from harmony_proxy.judging import judge_process, judge_settings;"
        "HarmonyGuard(None); judge_process.main(judge_settings.JudgeSettings().argument());"
        "print([name for name in sys.modules if name.split('.')[0] in ('opentelemetry', 'requests', 'urllib3')])"
    )
    done = subprocess.run([sys.executable, "-c", code], input=b"", capture_output=True, check=True, timeout=WAIT)
    assert done.stdout.split(b"\n")[-2] == b"[]"


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setattr("harmony_proxy.configuration._find_module", lambda _: None)
    with pytest.raises(
        InvalidSettingError, match=re.escape(f"OpenTelemetry is not installed: {install_command('otel')}")
    ):
        from_environment({"HARMONY_GUARD_OTEL": "http://127.0.0.1:4318"})
