"""The standalone proxy as its users run it: a process of its own before the reference server, the real client, a log, metrics, an orderly end."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import httpx
import pytest

pytest.importorskip("aiohttp")
openai = pytest.importorskip("openai")

from harmony_conformance.reference_server.server.serving import running  # noqa: E402 - what is missing is told first

MODEL = "gpt-oss-reference"
KEY = "sk-never-to-be-logged-1"
ASKED = {"model": MODEL, "messages": [{"role": "user", "content": "What is 2 + 2?"}]}
WAIT = 60.0
LEAK = "channels.no_channel_words"


@contextmanager
def proxied(upstream, log, *options):
    """The process, and its URL."""
    command = [
        sys.executable,
        "-m",
        "harmony_conformance.cli.main",
        "proxy",
        "--upstream",
        upstream,
        "--listen",
        "127.0.0.1:0",
    ]
    process = subprocess.Popen(
        [*command, "--log", str(log), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HARMONY_GUARD_PRIORITY": "normal"},
    )
    try:
        said = process.stdout.readline()
        found = re.match(r"listening on (http://\S+), forwarding to", said)
        assert found, said + process.stdout.read()
        yield process, found[1]
    finally:
        if process.poll() is None:
            process.kill()
        process.stdout.close()
        process.wait()


def client(base):
    return openai.OpenAI(base_url=f"{base}/v1", api_key=KEY, max_retries=0, timeout=WAIT)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def content(base, *, stream=False):
    told = client(base).chat.completions.create(**ASKED, stream=stream)
    if not stream:
        return told.choices[0].message.content
    return "".join(chunk.choices[0].delta.content or "" for chunk in told if chunk.choices)


MALFORMED = "the request is malformed: Invalid method encountered"


def refused(base):
    """The status of the answer to what is no request."""
    with socket.create_connection(("127.0.0.1", int(base.rpartition(":")[2])), WAIT) as connection:
        connection.sendall(f"{KEY} / HTTP/1.1\r\n\r\n".encode())
        return int(connection.recv(1000).split(b" ")[1])


def test_it_serves_observes_counts_drains_and_sums_up(tmp_path):
    log, metrics = tmp_path / "log", free_port()
    with (
        running() as server,
        proxied(f"reference:{server}/v1", log, "--metrics", f"127.0.0.1:{metrics}") as (process, base),
    ):
        assert refused(base) == 400
        assert content(base) == content(server)
        assert content(base, stream=True) == content(server)
        assert httpx.get(f"{base}/healthz").json() == {"status": "ok"}
        assert httpx.get(f"{base}/v1/models").content == httpx.get(f"{server}/v1/models").content
        assert not [name for name in httpx.post(f"{base}/v1/chat/completions", json=ASKED).headers if "harmony" in name]
        deadline = time.monotonic() + WAIT
        while "harmony_guard_judged_total 3.0" not in (told := httpx.get(f"http://127.0.0.1:{metrics}/metrics").text):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert 'harmony_guard_exchanges_total{api="chat",end="complete"} 3.0' in told
        assert 'harmony_guard_exchanges_total{api="",end="malformed"} 1.0' in told
        assert "harmony_guard_time_to_first_answer_seconds_count 1.0" in told
        body = {**ASKED, "stream": True, "harmony_token_delay": 0.1}
        with httpx.stream("POST", f"{base}/v1/chat/completions", json=body, timeout=WAIT) as response:
            events = response.iter_raw()
            next(events)
            process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"{base}/healthz")
            assert b"".join(events).endswith(b"data: [DONE]\n\n"), "what is under way ends well"
        assert process.wait(WAIT) == 0
        assert process.stdout.read().startswith("5 exchanges, 4 judged, 0 failed a MUST check")
    lines = [json.loads(line) for line in log.read_bytes().splitlines() if b"malformed" not in line]
    assert [(line["status"], line["end"], line["failed"]) for line in lines] == [(200, "complete", [])] * 4
    (odd,) = [json.loads(line) for line in log.read_bytes().splitlines() if b"malformed" in line]
    assert (odd["status"], odd["method"], odd["path"], odd["unjudged"]) == (400, "", "", MALFORMED)
    assert KEY not in log.read_text(encoding="utf-8")
    assert "2 + 2" not in log.read_text(encoding="utf-8")


@pytest.mark.parametrize(("drain", "signals"), [("1", 1), ("60", 2)], ids=["told once", "told twice"])
def test_what_is_under_way_is_given_so_long_and_no_longer(tmp_path, drain, signals):
    with running() as server, proxied(server, tmp_path / "log", "--drain", drain) as (process, base):
        body = {**ASKED, "stream": True, "harmony_token_delay": 5}
        with httpx.stream("POST", f"{base}/v1/chat/completions", json=body, timeout=WAIT) as response:
            events = response.iter_raw()
            next(events)
            for _ in range(signals):
                process.send_signal(signal.SIGINT)
                time.sleep(0.3)
            with pytest.raises(httpx.RemoteProtocolError):
                b"".join(events)
        assert process.wait(WAIT) == 0
        assert process.stdout.read() == "1 exchange, 0 judged, 0 failed a MUST check\n"
    (line,) = [json.loads(line) for line in (tmp_path / "log").read_bytes().splitlines()]
    assert (line["end"], line["judged"]) == ("shut_down", False)


def test_a_leak_is_blocked_for_the_client_and_named_in_the_log(tmp_path):
    with (
        running(defects=["output-unparsed"]) as server,
        proxied(server, tmp_path / "log", "--block", LEAK) as (process, base),
    ):
        with pytest.raises(openai.InternalServerError) as raised:
            content(base)
        answer = raised.value.response
        assert answer.status_code == 502
        assert answer.headers["x-harmony-verdict"].startswith("blocked")
        with pytest.raises(openai.APIError, match=LEAK):
            content(base, stream=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0
    lines = [json.loads(line) for line in (tmp_path / "log").read_bytes().splitlines()]
    assert lines[0]["id"] == answer.headers["x-harmony-request-id"]
    assert [line["acted"]["blocked"] for line in lines] == [[LEAK], [LEAK]]
