"""mitmproxy with us in it, as its users run it: processes of their own before real servers, real clients, real bytes.

Two processes serve all tests: `harmony-conformance proxy --mitmproxy` before the correct reference server, and `mitmdump -s` in regular mode, through
which any server is reached, observed or acted on by the path. Both run in the environment of mitmproxy, which needs a newer Python than the suite.
"""

import gzip
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Thread

import httpx
import pytest

openai = pytest.importorskip("openai")

from harmony_conformance.reference_server.server.serving import running  # noqa: E402 - what is missing is told first

MODEL = "gpt-oss-reference"
KEY = "sk-never-to-be-logged-1"
ASKED = {"model": MODEL, "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
WAIT = 60.0
ADDON = Path(__file__).parents[1] / "harmony_proxy" / "addon.py"
PYTHON = os.environ.get("HARMONY_MITMPROXY_PYTHON", "")
MITMDUMP = [PYTHON, "-c", "from mitmproxy.tools.main import mitmdump; mitmdump()"]

pytestmark = pytest.mark.skipif(
    not Path(PYTHON).is_file(),
    reason="HARMONY_MITMPROXY_PYTHON names no environment with mitmproxy 12 (`make unit` creates it if there is a Python 3.12)",
)


class Proxy:
    """A proxy's process, its URL and its log."""

    def __init__(self, process, base, log):
        self.process = process
        self.base = base
        self.log = log

    def logged(self):
        """The lines that are written to their end."""
        written = self.log.read_bytes() if self.log.exists() else b""
        return [json.loads(line) for line in written.splitlines(keepends=True) if line.endswith(b"\n")]

    def line_of(self, request_id):
        """The line of one request."""
        deadline = time.monotonic() + WAIT
        while time.monotonic() < deadline:
            for line in self.logged():
                if line["request_id"] == request_id:
                    return line
            time.sleep(0.02)
        raise AssertionError(f"no line of {request_id}")

    def stop(self, number):
        """Stop it; its exit code and all it printed after it said where it listens."""
        self.process.send_signal(number)
        printed, _ = self.process.communicate(timeout=WAIT)
        return self.process.returncode, printed


@contextmanager
def started(command, log, listening, **environment):
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HARMONY_GUARD_PRIORITY": "normal", **environment},
    )
    try:
        said = ""
        while not (found := re.search(listening, said)):
            line = process.stdout.readline()
            assert line, said
            said += line
        yield Proxy(process, found[1], log)
    finally:
        if process.poll() is None:
            process.kill()
        process.stdout.close()
        process.wait()


@contextmanager
def proxied(upstream, folder, *options):
    log = folder / "outcomes.jsonl"
    command = [PYTHON, "-m", "harmony_proxy", "--mitmproxy", "--upstream", upstream]
    home = folder / "home"
    home.mkdir()
    told = [*command, "--listen", "127.0.0.1:0", "--log", str(log), *options]
    with started(told, log, r"^listening on (http://\S+), forwarding to", HOME=str(home)) as one:
        yield one
    assert list(home.iterdir()) == []  # mitmproxy's certificates would be left there


@pytest.fixture(scope="module")
def server():
    with running() as base:
        yield base


@pytest.fixture(scope="module")
def proxy(server, tmp_path_factory):
    """Before the correct server; stopped in the middle of a stream, it judges what is queued and sums up."""
    with proxied(f"reference:{server}/v1", tmp_path_factory.mktemp("proxy")) as one:
        yield one
        for number in range(20):
            ask(one.base, f"last {number}")
        body = {**ASKED, "stream": True, "harmony_token_delay": 0.3}
        url = f"{one.base}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, timeout=WAIT, headers={"x-request-id": "open"}) as response:
            arriving = response.iter_raw()  # let go, it would close the connection
            next(arriving)
            code, printed = one.stop(signal.SIGTERM)
        lines = one.logged()
        judged = sum(line["judged"] for line in lines)
        assert code == 0
        assert printed == f"{len(lines)} exchanges, {judged} judged, 0 failed a MUST check\n"
        assert one.line_of("last 19")["judged"]
        assert (one.line_of("open")["end"], one.line_of("open")["judged"]) == ("shut_down", False)


POLICY = """
[[route]]
path = "/block/*"
checks = {"*" = "block"}

[[route]]
path = "/repair/*"
checks = {"*" = "repair"}
"""


@pytest.fixture(scope="module")
def dump(tmp_path_factory):
    """mitmdump in regular mode; paths under /block and /repair are acted on, and lose that on their way."""
    folder = tmp_path_factory.mktemp("dump")
    (folder / "policy.toml").write_text(POLICY)
    log = folder / "outcomes.jsonl"
    options = {
        "confdir": folder / "conf",
        "http2": "false",
        "flow_detail": 0,
        "connection_strategy": "lazy",
        "map_remote": "@/(?:repair|block)/v1/@/v1/",
        "harmony_log": log,
        "harmony_policy": folder / "policy.toml",
        "harmony_excerpts": "redacted",
        "harmony_capture": "redacted",
    }
    command = [*MITMDUMP, "-s", str(ADDON), "--mode", "regular@127.0.0.1:0"]
    told = [*command, *(word for name, value in options.items() for word in ("--set", f"{name}={value}"))]
    with started(told, log, r"listening at (\S+:\d+)", NO_COLOR="1") as one:
        one.base = f"http://{one.base}"
        yield one
        code, printed = one.stop(signal.SIGINT)
        assert code == 0
        assert f"{len(one.logged())} exchanges" in printed
        assert "Addon error" not in printed
        assert "crashed" not in printed
        assert "internal errors of the guard" not in printed


def ask(base, name, *, through=None, path="/v1/chat/completions", **further):
    with httpx.Client(proxy=through, timeout=WAIT, headers={"x-request-id": name}) as http:
        return http.post(f"{base}{path}", json={**ASKED, **further})


def client(base, name="", through=None):
    return openai.OpenAI(
        base_url=f"{base}/v1",
        api_key=KEY,
        max_retries=0,
        timeout=WAIT,
        default_headers={"x-request-id": name},
        http_client=httpx.Client(proxy=through) if through else None,
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
        "not a request of a supported API",
    )


DEFECTS = [
    pytest.param("stream-without-done", {"stream": True}, "streaming.ends_with_done", id="no [DONE]"),
    pytest.param("output-unparsed", {}, "channels.no_channel_words", id="channel words in the content"),
    pytest.param("usage-all-zero", {}, "usage.is_reported", id="no usage"),
    pytest.param("stream-id-changes", {"stream": True}, "streaming.one_identity", id="changing ids"),
]


@pytest.mark.parametrize(("defect", "extra", "check"), DEFECTS)
def test_a_defect_stands_in_the_log_under_its_check_with_excerpts_as_asked(dump, defect, extra, check):
    with running(defects=[defect]) as base:
        ask(base, defect, through=dump.base, **extra).raise_for_status()
        line = dump.line_of(defect)
    assert check in line["failed"]
    assert [finding for finding in line["findings"] if finding["check"] == check]
    if check == "channels.no_channel_words":
        assert "assistantfinal" in line["findings"][0]["excerpt"]


def test_an_upstream_that_is_not_there_is_a_502_and_logged(dump):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert ask(f"http://127.0.0.1:{port}", "nobody", through=dump.base).status_code == 502
    line = dump.line_of("nobody")
    assert (line["end"], line["status"]) == ("no_connection", None)
    assert line["failed"] == ["errors.valid_request_is_answered"]


@pytest.mark.slow
def test_each_pitfall_and_the_stubs_in_the_environment_of_mitmproxy():
    command = [PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull]
    told = subprocess.run(
        [*command, str(Path(__file__).with_name("mitmproxy_addon"))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout
    assert " skipped" not in told.stdout


class Answering:
    """A server that reads a request, sends these bytes, and closes; `forever` it goes on with the last, until it is broken off."""

    def __init__(self, pieces, *, forever=False):
        self._pieces = pieces
        self._forever = forever
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.broken_off_after = None
        self._thread = Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()

    def _serve(self):
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                head = connection.recv(65536)
                while head and (b"\r\n\r\n" not in head or not head.endswith(b"}")):
                    head += connection.recv(65536)
                self._answer(connection)

    def _answer(self, connection):
        for piece in self._pieces:
            connection.sendall(piece)
            time.sleep(0.02)
        begun = time.monotonic()
        while self._forever and time.monotonic() - begun < WAIT / 4:
            try:
                connection.sendall(self._pieces[-1])
            except OSError:
                self.broken_off_after = time.monotonic() - begun
                return
            time.sleep(0.02)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def event(content, finish=None):
    delta = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    told = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, "choices": [delta]}
    return b"data: " + json.dumps(told).encode() + b"\n\n"


EVENT = event("Hi")


def chunked(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


def test_an_upstream_that_dies_in_a_stream_is_logged_as_such(dump):
    got: list[bytes] = []
    with (
        Answering([STREAM_HEAD, chunked(EVENT), b"ff\r\ndata: {"]) as server,
        httpx.Client(proxy=dump.base, headers={"x-request-id": "dies"}) as http,
        http.stream("POST", f"{server.base}/v1/chat/completions", json={**ASKED, "stream": True}) as response,
    ):
        with pytest.raises(httpx.RemoteProtocolError):
            got.extend(response.iter_raw())
        assert got[0] == EVENT
    line = dump.line_of("dies")
    assert (line["end"], line["status"], line["judged"]) == ("cut", 200, True)
    assert "errors.valid_request_is_answered" in line["failed"]


def test_an_upstream_that_dies_before_it_answers_is_logged_as_such(dump):
    with Answering([]) as server:
        assert ask(server.base, "dies before", through=dump.base).status_code == 502
    line = dump.line_of("dies before")
    assert (line["end"], line["status"]) == ("reset", None)


def test_a_packed_stream_passes_packed_and_is_judged_unpacked(dump):
    packed = gzip.compress(EVENT * 3)
    head = STREAM_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n")
    with (
        Answering([head, chunked(packed[:20]), chunked(packed[20:]), b"0\r\n\r\n"]) as server,
        httpx.Client(proxy=dump.base, headers={"x-request-id": "packed"}) as http,
        http.stream("POST", f"{server.base}/v1/chat/completions", json={**ASKED, "stream": True}) as response,
    ):
        assert b"".join(response.iter_raw()) == packed
    line = dump.line_of("packed")
    assert line["judged"] is True
    assert "streaming.ends_with_done" in line["failed"]


LEAK = "analysisThe user greets.assistantfinalHello!"


@pytest.mark.parametrize("stream", [False, True])
def test_the_openai_client_gets_a_leak_repaired(dump, stream):
    message = {"role": "assistant", "content": LEAK}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = json.dumps(
        {"id": "1", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice]}
    ).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    events = [*(event(LEAK[start : start + 5]) for start in range(0, len(LEAK), 5)), event("", "stop")]
    last = chunked(b"data: [DONE]\n\n") + b"0\r\n\r\n"  # the client leaves once it has read `[DONE]`
    pieces = [STREAM_HEAD, *map(chunked, events), last] if stream else [head, body]
    with Answering(pieces) as server:
        leaking = client(server.base, f"leaks {stream}", dump.base)
        mended = client(f"{server.base}/repair", f"is repaired {stream}", dump.base)
        assert said(leaking.chat.completions.create(**ASKED, stream=stream)) == LEAK
        assert said(mended.chat.completions.create(**ASKED, stream=stream)) == "Hello!"
    line = dump.line_of(f"is repaired {stream}")
    assert "channels.no_channel_words" in line["failed"]  # what the server sent
    assert "channels.no_channel_words" in line["acted"]["repaired"]
    unchanged = dump.line_of(f"leaks {stream}")
    assert not {"acted", "before", "after"} & set(unchanged)
    before, after = ("".join(text for _, text in line[name]["chunks"]) for name in ("before", "after"))
    assert before.count("{") >= after.count("{") > 0
    assert not re.search("Hello|greets", before + after)


def said(told):
    if hasattr(told, "choices"):
        return told.choices[0].message.content
    return "".join(chunk.choices[0].delta.content or "" for chunk in told if chunk.choices)


def test_a_whole_answer_that_leaks_is_blocked_by_a_502_that_quotes_nothing(dump):
    with running(defects=["output-unparsed"]) as base:
        response = ask(base, "refused", through=dump.base, path="/block/v1/chat/completions")
    assert response.status_code == 502
    line = dump.line_of("refused")
    assert line["id"] == response.headers["x-harmony-request-id"]
    assert set(line["acted"]["blocked"]) <= set(line["failed"])
    assert response.json()["error"]["message"] == (
        f"The answer was blocked: {', '.join(line['acted']['blocked'])} (request {line['id']})"
    )


def test_a_stream_that_leaks_ends_cleanly_in_its_middle_and_its_server_is_broken_off(dump):
    events = [event(text) for text in ("Hello", "<|channel|>analysis<|message|>We need")]
    pieces = [STREAM_HEAD, *map(chunked, events), chunked(event(" more to think."))]
    with (
        Answering(pieces, forever=True) as server,
        httpx.Client(proxy=dump.base, headers={"x-request-id": "stopped"}, timeout=WAIT) as http,
    ):
        url = f"{server.base}/block/v1/chat/completions"
        with http.stream("POST", url, json={**ASKED, "stream": True}) as response:
            got = b"".join(response.iter_raw())
        line = dump.line_of("stopped")
    assert got.startswith(events[0])
    assert b"analysis" not in got
    assert b"blocked_by_policy" in got
    assert got.endswith(b"data: [DONE]\n\n")
    assert server.broken_off_after < WAIT / 8
    assert (line["end"], line["acted"]["blocked"]) == ("blocked", ["channels.no_marker_leak"])


def test_a_stream_that_leaks_and_came_all_at_once_has_one_end_and_its_connection_is_closed(dump):
    events = [chunked(event(text)) for text in ("Hello", "<|channel|>analysis<|message|>We need")]
    with Answering([b"".join((STREAM_HEAD, *events, b"0\r\n\r\n"))]) as server:
        body = json.dumps({**ASKED, "stream": True}).encode()
        host = f"Host: {server.base.removeprefix('http://')}\r\nContent-Length: {len(body)}"
        head = f"POST {server.base}/block/v1/chat/completions HTTP/1.1\r\n{host}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", int(dump.base.rpartition(":")[2]))) as client:
            client.settimeout(WAIT)
            client.sendall(head.encode() + body)
            got = b""
            while more := client.recv(65536):
                got += more
    assert b"blocked_by_policy" in got
    assert got.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert got.count(b"0\r\n\r\n") == 1
    assert b"\r\nconnection: close\r\n" in got.partition(b"\r\n\r\n")[0].lower() + b"\r\n"
