"""The standalone proxy in operation: readiness, reload of the policy, and rotation of the log, in a process of its own."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

pytest.importorskip("aiohttp")

from harmony_conformance.cli.main import main
from harmony_conformance.reference_server.server.serving import running
from harmony_proxy.configuration import create_listening_socket
from harmony_proxy.standalone import readiness
from harmony_proxy.standalone.readiness import Readiness

ASKED = {"model": "gpt-oss-reference", "messages": [{"role": "user", "content": "Hi"}]}
WAIT = 60.0
BLOCKING = 'checks = {"channels.no_channel_words" = "block"}\n'
CLOSED = 'fail = "closed"\n' + BLOCKING


@contextmanager
def proxied(upstream, *options, **more):
    """The process, and its URL."""
    command = [
        sys.executable,
        "-m",
        "harmony_proxy",
        "--upstream",
        upstream,
        "--listen",
        "127.0.0.1:0",
        *map(str, options),
    ]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "HARMONY_GUARD_PRIORITY": "normal"},
        **more,
    )
    try:
        line = process.stdout.readline()
        found = re.match(r"listening on (http://\S+), forwarding to", line)
        assert found, line + process.stdout.read()
        yield process, found[1]
    finally:
        if process.poll() is None:
            process.kill()
        process.stdout.close()
        process.wait()


def ask(base):
    return httpx.post(f"{base}/v1/chat/completions", json=ASKED, timeout=WAIT)


def hang_up(process):
    process.send_signal(signal.SIGHUP)
    while (line := process.stdout.readline()).startswith("exchange "):  # of the judge, at any time: there is no log
        pass
    return line.strip()


def lines(path, count):
    deadline = time.monotonic() + WAIT
    while not path.exists() or len(found := path.read_bytes().splitlines()) < count:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [json.loads(line) for line in found]


@pytest.mark.parametrize("options", [(), ("--block", "*", "--fail", "closed")], ids=["observing", "closed"])
def test_a_real_websocket_client_is_refused_logged_and_counted(tmp_path, options):
    """`serve` itself speaks WebSockets: without the proxy the same client gets an answer."""
    pytest.importorskip("prometheus_client")
    client = pytest.importorskip("websockets.sync.client")
    invalid = pytest.importorskip("websockets.exceptions").InvalidStatus
    with create_listening_socket("127.0.0.1", 0) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    log = tmp_path / "outcomes.jsonl"
    with running() as upstream, proxied(upstream, "--metrics", address, "--log", log, *options) as (_, base):
        own, through = (f"{url.replace('http', 'ws')}/v1/responses" for url in (upstream, base))
        with client.connect(own, open_timeout=WAIT, proxy=None) as connection:
            connection.send(json.dumps({"type": "response.create", "model": ASKED["model"], "input": "Hi"}))
            assert json.loads(connection.recv(WAIT))["type"] == "response.created"
        with pytest.raises(invalid) as refused:
            client.connect(through, open_timeout=WAIT, proxy=None)
        assert ask(base).status_code == 200
        lines(log, 2)
        counted = httpx.get(f"http://{address}/metrics").text
    assert refused.value.response.status_code == 426
    assert b"expected HTTP, got a WebSocket" in refused.value.response.body
    assert 'harmony_guard_exchanges_total{api="",end="refused"} 1.0' in counted
    (line,) = [one for one in lines(log, 2) if one["end"] == "refused"]
    assert (line["status"], "got a WebSocket" in json.dumps(line)) == (426, True)


@pytest.mark.parametrize("stream", [False, True])
def test_before_and_after_of_a_block_are_in_the_log(tmp_path, stream):
    log = tmp_path / "outcomes.jsonl"
    options = ("--block", "channels.no_channel_words", "--capture", "full", "--log", log)
    with running(defects=["output-unparsed"]) as upstream, proxied(upstream, *options) as (_, base):
        answer = httpx.post(f"{base}/v1/chat/completions", json={**ASKED, "stream": stream}, timeout=WAIT)
        (line,) = lines(log, 1)
    assert (line["before"]["status"], line["after"]["status"]) == (200, answer.status_code)
    assert "analysis" in "".join(text for _, text in line["before"]["chunks"])
    assert "".join(text for _, text in line["after"]["chunks"]) == answer.text
    assert "analysis" not in answer.text


def test_the_live_page_is_on_the_address_of_the_metrics_alone():
    pytest.importorskip("prometheus_client")
    with create_listening_socket("127.0.0.1", 0) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with running(defects=["output-unparsed"]) as upstream, proxied(upstream, "--metrics", address) as (_, base):
        assert ask(base).status_code == 200
        deadline = time.monotonic() + WAIT
        while not (state := httpx.get(f"http://{address}/live.json").json())["recent"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert httpx.get(f"http://{address}/live").text.startswith("<!doctype html>")
        assert httpx.get(f"{base}/live").status_code == 404  # of the upstream
    (one,) = state["recent"]
    assert (one["route"], one["status"], one["end"], one["verdict"]) == ("/chat/completions", 200, "complete", "failed")
    assert (one["model"], state["upstream_ready"], state["judge_up"]) == ("gpt-oss-reference", True, True)
    assert "channels.no_channel_words" in one["failed"]


def test_a_policy_is_reloaded_and_an_invalid_one_is_not(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text(BLOCKING)
    with running(defects=["output-unparsed"]) as server, proxied(server, "--policy", policy) as (process, base):
        assert ask(base).status_code == 502
        policy.write_text("# truncated by an editor\n")
        assert hang_up(process) == (
            f"policy not reloaded, the previous one stays in force: {policy}: expected a policy, got an empty file"
            ' (to observe every check, write fail = "open")'
        )
        assert ask(base).status_code == 502
        policy.write_text('fail = "open"\n')
        assert hang_up(process) == "policy reloaded: every check is observed"
        policy.write_text("")
        assert hang_up(process) == "policy reloaded: every check is observed"
        assert ask(base).status_code == 200
        policy.write_text('checks = {"no.such_check" = "block"}\n')
        line = hang_up(process)
        assert line.startswith(f"policy not reloaded, the previous one stays in force: {policy}: policy: invalid check")
        assert ask(base).status_code == 200
        policy.write_text(CLOSED + 'memory_limit = "64M"\n')
        assert hang_up(process) == (
            "policy reloaded: checks blocked: 1, fail = closed; the new memory_limit applies after a restart"
        )
        assert ask(base).status_code == 502
        assert httpx.get(f"{base}/slots").status_code == 403
        assert httpx.get(f"{base}/readyz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT) == 0


def test_an_empty_policy_at_the_start_is_a_warning(tmp_path, capsys, monkeypatch):
    (policy := tmp_path / "policy.toml").touch()
    served = []
    monkeypatch.setattr("harmony_proxy.standalone.server.serve", lambda settings: served.append(settings) or 0)
    address = ["--upstream", "http://127.0.0.1:1/v1", "--listen", "127.0.0.1:0"]
    assert main(["proxy", *address, "--policy", str(policy)]) == 0
    assert capsys.readouterr().err == f"--policy {policy}: the file is empty, so every check is observed\n"
    assert served[0].rules.policy.observes


def test_open_exchanges_keep_the_policy_that_they_began_with(tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text('fail = "open"\n')
    with running() as server, proxied(server, "--policy", policy) as (process, base):
        body = {**ASKED, "stream": True, "harmony_token_delay": 0.05}
        with httpx.stream("POST", f"{base}/v1/chat/completions", json=body, timeout=WAIT) as response:
            events = response.iter_raw()
            next(events)
            policy.write_text(CLOSED)
            assert hang_up(process).startswith("policy reloaded")
            assert b"".join(events).endswith(b"data: [DONE]\n\n")
        assert "x-harmony-request-id" not in response.headers
        assert ask(base).headers["x-harmony-verdict"] == "pass"


def test_a_log_that_was_moved_is_made_again_on_the_signal(tmp_path):
    log, moved = tmp_path / "log", tmp_path / "log.1"
    with running() as server, proxied(server, "--log", log) as (process, base):
        ask(base)
        lines(log, 1)
        log.rename(moved)
        assert hang_up(process) == f"log reopened: {log}"
        assert (log.read_bytes(), log.stat().st_mode & 0o777) == (b"", 0o600)
        ask(base)
        assert len(lines(log, 1)) == len(lines(moved, 1)) == 1
        os.truncate(log, 0)  # as logrotate's `copytruncate` does
        ask(base)
        assert lines(log, 1)[0]["status"] == 200
        assert b"\0" not in log.read_bytes()


def test_a_log_that_cannot_be_opened_is_reported(tmp_path):
    (folder := tmp_path / "folder").mkdir()
    log = folder / "log"
    with running() as server, proxied(server, "--log", log) as (process, _):
        folder.rename(tmp_path / "elsewhere")
        assert hang_up(process) == f"log {log}: No such file or directory"
        assert process.poll() is None


def test_without_files_there_is_nothing_to_reload():
    with running() as server, proxied(server) as (process, base):
        assert hang_up(process) == "nothing to reload: the proxy has neither a policy file nor a log"
        assert ask(base).status_code == 200


def test_a_closed_terminal_ends_the_proxy():
    pty = pytest.importorskip("pty")
    parent, child = pty.openpty()
    with running() as server:
        command = [sys.executable, "-m", "harmony_proxy", "--upstream", server, "--listen", "127.0.0.1:0"]
        before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, and children inherit that
        try:
            process = subprocess.Popen(command, stdin=child, stdout=subprocess.PIPE, start_new_session=True)
        finally:
            signal.signal(signal.SIGHUP, before)
        assert process.stdout.readline().startswith(b"listening")
        process.send_signal(signal.SIGHUP)
        assert process.wait(WAIT) == 0
        process.stdout.close()
    os.close(parent)
    os.close(child)


def test_it_is_healthy_without_an_upstream_and_ready_with_one():
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        port = upstream.getsockname()[1]
        with proxied(f"http://127.0.0.1:{port}/v1") as (_, base):
            ready = httpx.get(f"{base}/readyz")
            assert (ready.status_code, ready.json()) == (200, {"status": "ready"})
            upstream.close()
            time.sleep(readiness.FRESH_SECONDS)
            ready = httpx.get(f"{base}/readyz")
            assert (ready.status_code, ready.json()["status"]) == (503, "not ready")
            assert "x-harmony-request-id" not in ready.headers
            assert httpx.get(f"{base}/healthz").status_code == 200
            with socket.create_server(("127.0.0.1", port)):
                time.sleep(readiness.FRESH_SECONDS)
                assert httpx.get(f"{base}/readyz").status_code == 200


def test_many_probes_are_one_connection(monkeypatch):
    monkeypatch.setattr(readiness, "FRESH_SECONDS", WAIT)
    accepted = []

    async def probe():
        async def accept(_reader, writer):
            accepted.append(1)
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        async with server:
            ready = Readiness(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
            results = await asyncio.gather(*(ready.is_ready() for _ in range(20)))
            await asyncio.sleep(0.1)
        return results

    assert asyncio.run(probe()) == [True] * 20
    assert len(accepted) == 1


@pytest.mark.parametrize("base", ["http://127.0.0.1:1", "http://no.such.host.invalid:80", f"http://{'a' * 70}.invalid"])
def test_an_upstream_that_cannot_be_found_is_not_ready(base):
    assert asyncio.run(Readiness(base).is_ready()) is False


def test_an_upstream_that_does_not_answer_in_time_is_not_ready(monkeypatch):
    monkeypatch.setattr(readiness, "CONNECT_SECONDS", 0.01)

    async def never(*_):
        await asyncio.Event().wait()

    monkeypatch.setattr(readiness.asyncio, "open_connection", never)
    assert asyncio.run(Readiness("http://127.0.0.1:1").is_ready()) is False


def peak_memory(pid):
    """The largest resident set of a process and of each of its children, in MB."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text("utf-8"), re.MULTILINE)
    children = [child for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]
    return [int(found[1]) * 1024 / 1e6, *(one for child in children for one in peak_memory(child))]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="memory is read from /proc")
@pytest.mark.parametrize("options", [(), ("--repair", "*", "--block", "channels.*")], ids=["observing", "acting"])
def test_each_process_takes_no_more_memory_than_the_page_says(options, tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "deployment.md").read_text("utf-8")
    (most,) = re.findall(r"take at most (\d+) MB each with small answers", page)
    log = tmp_path / "log"
    with running(defects=["output-unparsed"]) as server, proxied(server, "--log", log, *options) as (process, base):
        for _ in range(5):
            ask(base)
        lines(log, 5)
        used = peak_memory(process.pid)
    assert len(used) >= 2  # the program and the judge process
    assert max(used) <= int(most), used


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_the_live_page_has_the_status_that_a_client_got_for_a_blocked_answer(stream):
    pytest.importorskip("prometheus_client")
    with create_listening_socket("127.0.0.1", 0) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = ("--metrics", address, "--block", "channels.no_channel_words")
    with running(defects=["output-unparsed"]) as upstream, proxied(upstream, *options) as (_, base):
        answer = httpx.post(f"{base}/v1/chat/completions", json={**ASKED, "stream": stream}, timeout=WAIT)
        deadline = time.monotonic() + WAIT
        while not (recent := httpx.get(f"http://{address}/live.json").json()["recent"]):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert answer.status_code == 502 or stream  # the head of a stream may be sent before the leak
    assert [(one["status"], one["verdict"]) for one in recent] == [(answer.status_code, "blocked")]
