"""The proxy as its users run it: a process of its own before a real server, real clients, real bytes."""

import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Thread

import httpx
import pytest

pytest.importorskip("mitmproxy")
openai = pytest.importorskip("openai")

from harmony_conformance.reference_server.serving import running  # noqa: E402 - what is missing is told first

MODEL = "gpt-oss-reference"
AT_ONCE = {**os.environ, "HARMONY_GUARD_PRIORITY": "normal"}
KEY = "sk-never-to-be-logged-1"
ASKED = {"model": MODEL, "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
WAIT = 60.0


class Proxy:
    """A proxy's process, its URL and its log."""

    def __init__(self, process, base, log):
        self.process = process
        self.base = base
        self.log = log

    def lines(self, count):
        """The lines of the log, once there are so many."""
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            lines = self.log.read_bytes().splitlines() if self.log.exists() else []
            if len(lines) >= count:
                return [json.loads(line) for line in lines]
            time.sleep(0.02)
        raise AssertionError(f"not {count} lines in time: {self.log.read_bytes()!r}")

    def line_of(self, request_id):
        """The line of one request."""
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            for line in self.log.read_bytes().splitlines() if self.log.exists() else []:
                if json.loads(line)["request_id"] == request_id:
                    return json.loads(line)
            time.sleep(0.02)
        raise AssertionError(f"no line of {request_id}")

    def stop(self, number=signal.SIGTERM):
        """Stop it; its exit code and all it printed after the first line."""
        self.process.send_signal(number)
        printed, _ = self.process.communicate(timeout=WAIT)
        return self.process.returncode, printed


@contextmanager
def proxied(upstream, folder, *options):
    log = folder / "outcomes.jsonl"
    command = [sys.executable, "-m", "harmony_conformance.cli", "proxy", "--mitmproxy", "--upstream", upstream]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--log", str(log), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=AT_ONCE,
    )
    try:
        said = process.stdout.readline()
        found = re.match(r"listening on (http://\S+), passing on to", said)
        assert found, said + process.stdout.read()
        yield Proxy(process, found[1], log)
    finally:
        if process.poll() is None:
            process.kill()
        process.stdout.close()
        process.wait()


@pytest.fixture(scope="module")
def server():
    with running() as base:
        yield base


@pytest.fixture(scope="module")
def proxy(server, tmp_path_factory):
    with proxied(f"reference:{server}/v1", tmp_path_factory.mktemp("proxy")) as one:
        yield one


def client(base, name=""):
    return openai.OpenAI(
        base_url=f"{base}/v1", api_key=KEY, max_retries=0, timeout=WAIT, default_headers={"x-request-id": name}
    )


def settled(body):
    """A body without what differs from one request to the next."""
    body = re.sub(rb'"id":"chatcmpl-[0-9a-f]+"', b'"id":"chatcmpl-0"', body)
    return re.sub(rb'"created":\d+', b'"created":0', body)


REQUESTS = [
    pytest.param(ASKED, id="a whole answer"),
    pytest.param({**ASKED, "stream": True, "stream_options": {"include_usage": True}}, id="a stream"),
    pytest.param({**ASKED, "messages": [{"role": "user", "content": "Grüße 東京 🙂"}]}, id="text of all kinds"),
    pytest.param({**ASKED, "model": "no such model"}, id="a refusal"),
    pytest.param({**ASKED, "harmony_script": "<|channel|>final<|message|>東京 🙂<|return|>"}, id="a script"),
]


@pytest.mark.parametrize("body", REQUESTS)
def test_an_answer_is_the_same_bytes_as_without_the_proxy(server, proxy, body):
    direct, through = (httpx.post(f"{base}/v1/chat/completions", json=body) for base in (server, proxy.base))
    assert settled(through.content) == settled(direct.content)
    assert through.status_code == direct.status_code
    assert {**through.headers, "date": ""} == {**direct.headers, "date": ""}


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
@pytest.mark.parametrize("stream", [False, True])
def test_curl_gets_the_same_bytes(server, proxy, stream):
    def fetch(base):
        command = ["curl", "-sS", "-N", "--raw", f"{base}/v1/chat/completions", "-H", "content-type: application/json"]
        return subprocess.run(
            [*command, "-d", json.dumps({**ASKED, "stream": stream})], capture_output=True, check=True
        ).stdout

    assert settled(fetch(proxy.base)) == settled(fetch(server))


def test_the_openai_client_works_and_the_log_says_that_all_is_well(server, proxy):
    told = client(proxy.base, "whole").chat.completions.create(**ASKED)
    assert told.choices[0].message.content == client(server).chat.completions.create(**ASKED).choices[0].message.content
    streamed = client(proxy.base, "streamed").chat.completions.create(**ASKED, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed if chunk.choices) == (
        told.choices[0].message.content
    )
    for name in ("whole", "streamed"):
        line = proxy.line_of(name)
        assert (line["status"], line["end"], line["judged"], line["failed"]) == (200, "complete", True, [])
        assert line["outcomes"]["pass"] > 5
        assert line["outcomes"]["error"] == 0


def test_the_log_holds_neither_content_nor_key(proxy):
    client(proxy.base, "private").chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "My name is Sue"}], user="sue@example.org"
    )
    proxy.line_of("private")
    logged = proxy.log.read_text(encoding="utf-8")
    assert "Sue" not in logged
    assert "sue@" not in logged
    assert KEY not in logged


def test_events_arrive_one_by_one(proxy):
    begun = time.monotonic()
    arrived = []
    body = {**ASKED, "stream": True, "harmony_token_delay": 0.1}
    with httpx.stream("POST", f"{proxy.base}/v1/chat/completions", json=body, timeout=WAIT) as response:
        arrived.extend(time.monotonic() - begun for line in response.iter_lines() if line.startswith("data:"))
    assert len(arrived) > 8
    assert arrived[0] < arrived[-1] / 2
    assert sum(later > earlier for earlier, later in pairwise(arrived)) > len(arrived) / 2


def test_a_client_that_leaves_is_logged_and_others_are_served(proxy):
    stream = client(proxy.base, "leaves").chat.completions.create(
        **ASKED, stream=True, extra_body={"harmony_token_delay": 0.2}
    )
    next(iter(stream))
    stream.close()
    line = proxy.line_of("leaves")
    assert (line["end"], line["judged"]) == ("client_left", False)
    assert line["chunks"] >= 1
    client(proxy.base, "stays").chat.completions.create(**ASKED)
    assert proxy.line_of("stays")["end"] == "complete"


def test_other_paths_pass_and_are_logged_as_not_judged(server, proxy):
    response = httpx.get(f"{proxy.base}/v1/models?key={KEY}", headers={"x-request-id": "models"})
    assert response.content == httpx.get(f"{server}/v1/models").content
    line = proxy.line_of("models")
    assert (line["path"], line["judged"], line["unjudged"]) == (
        "/v1/models",
        False,
        "not a request of an API that is judged",
    )


DEFECTS = [
    pytest.param("stream-without-done", {"stream": True}, "streaming.ends_with_done", id="no [DONE]"),
    pytest.param("output-unparsed", {}, "channels.no_channel_words", id="channel words in the content"),
    pytest.param("usage-all-zero", {}, "usage.is_reported", id="no usage"),
    pytest.param("stream-id-changes", {"stream": True}, "streaming.one_identity", id="changing ids"),
]


@pytest.mark.parametrize(("defect", "extra", "check"), DEFECTS)
def test_a_defect_stands_in_the_log_under_its_check(tmp_path, defect, extra, check):
    with running(defects=[defect]) as base, proxied(f"reference:{base}", tmp_path) as one:
        httpx.post(f"{one.base}/v1/chat/completions", json={**ASKED, **extra}).raise_for_status()
        (line,) = one.lines(1)
        assert check in line["failed"]
        code, printed = one.stop()
    assert code == 0
    assert printed.startswith("1 exchanges went by, 1 judged, 1 broke a MUST; failed most: ")
    assert check in printed


def test_excerpts_say_more_where_they_are_asked_for(tmp_path):
    with (
        running(defects=["output-unparsed"]) as base,
        proxied(f"reference:{base}", tmp_path, "--excerpts", "redacted") as one,
    ):
        httpx.post(f"{one.base}/v1/chat/completions", json=ASKED).raise_for_status()
        (line,) = one.lines(1)
    (finding,) = [finding for finding in line["findings"] if finding["check"] == "channels.no_channel_words"]
    assert "assistantfinal" in finding["excerpt"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stopped_it_judges_what_is_queued_and_sums_up(server, tmp_path, number):
    with proxied(server, tmp_path) as one:
        with httpx.Client() as http:
            for _ in range(20):
                http.post(f"{one.base}/v1/chat/completions", json=ASKED).raise_for_status()
        code, printed = one.stop(number)
        assert (code, printed) == (0, "20 exchanges went by, 20 judged, 0 broke a MUST\n")
        assert len(one.lines(20)) == 20


def test_stopped_in_the_middle_of_a_stream_it_logs_that_too(server, tmp_path):
    with proxied(server, tmp_path) as one:
        body = {**ASKED, "stream": True, "harmony_token_delay": 0.3}
        with httpx.stream("POST", f"{one.base}/v1/chat/completions", json=body, timeout=WAIT) as response:
            next(response.iter_raw())
            code, printed = one.stop()
        assert code == 0
        assert printed.startswith("1 exchanges went by, 0 judged")
        (line,) = one.lines(1)
        assert line["judged"] is False


def test_an_upstream_that_is_not_there_is_a_502_and_logged(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with proxied(f"openai:http://127.0.0.1:{port}", tmp_path) as one:
        response = httpx.post(f"{one.base}/v1/chat/completions", json=ASKED)
        assert response.status_code == 502
        (line,) = one.lines(1)
        assert (line["end"], line["status"]) == ("no_connection", None)
        assert line["failed"] == ["errors.valid_request_is_answered"]


@contextmanager
def answering(*pieces):
    """A server that reads a request, sends these bytes, and closes."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                if not (head := connection.recv(65536)):
                    continue
                while b"\r\n\r\n" not in head or not head.endswith(b"}"):
                    head += connection.recv(65536)
                for piece in pieces:
                    connection.sendall(piece)
                    time.sleep(0.05)

    thread = Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join()


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"id":"1","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"Hi"}}]}\n\n'


def chunked(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_an_upstream_that_dies_in_a_stream_is_logged_as_such(tmp_path):
    with answering(STREAM_HEAD, chunked(EVENT), b"ff\r\ndata: {") as base, proxied(base, tmp_path) as one:
        got: list[bytes] = []
        with httpx.stream("POST", f"{one.base}/v1/chat/completions", json={**ASKED, "stream": True}) as response:
            with pytest.raises(httpx.RemoteProtocolError):
                got.extend(response.iter_raw())
            assert got[0] == EVENT
        (line,) = one.lines(1)
        assert (line["end"], line["status"], line["judged"]) == ("cut", 200, True)
        assert "errors.valid_request_is_answered" in line["failed"]


def test_an_upstream_that_dies_before_it_answers_is_logged_as_such(tmp_path):
    with answering() as base, proxied(base, tmp_path) as one:
        assert httpx.post(f"{one.base}/v1/chat/completions", json=ASKED).status_code == 502
        (line,) = one.lines(1)
        assert (line["end"], line["status"]) == ("reset", None)


def test_a_packed_stream_passes_packed_and_is_judged_unpacked(tmp_path):
    packed = gzip.compress(EVENT * 3)
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    with (
        answering(head, chunked(packed[:20]), chunked(packed[20:]), b"0\r\n\r\n") as base,
        proxied(base, tmp_path) as one,
    ):
        url = f"{one.base}/v1/chat/completions"
        with httpx.stream("POST", url, json={**ASKED, "stream": True}) as response:
            assert b"".join(response.iter_raw()) == packed
        (line,) = one.lines(1)
        assert line["judged"] is True
        assert "streaming.ends_with_done" in line["failed"]


def test_nothing_is_left_where_it_ran(server, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with proxied(server, tmp_path) as one:
        httpx.get(f"{one.base}/v1/models")
        assert one.stop()[0] == 0
    assert list(Path(home).iterdir()) == []
