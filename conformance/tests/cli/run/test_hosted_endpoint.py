"""What a user of a hosted endpoint meets: a gateway with a key, a rate limit, and without methods that it does not know."""

import json
import shlex
import threading
import time
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.errors import Exit
from harmony_conformance.reference_server import running

KEY = "sk-7f3a9c2e1b5d4f60"
QUICK = ["--select", "simple_answer", "--latency", "0"]


@contextmanager
def gateway(base, *, header="authorization", paths="/", per_second=None):
    """A gateway that wants a key in one header. Its limit: so many requests in each second, then 429 with `Retry-After: 1`."""
    came, lock = deque(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.forward()

        def do_POST(self):
            self.forward()

        def is_limited(self):
            with lock:
                now = time.monotonic()
                while came and now - came[0] > 1:
                    came.popleft()
                if per_second is not None and len(came) >= per_second:
                    return True
                came.append(now)
                return False

        def forward(self):
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            given = self.headers.get(header, "").removeprefix("Bearer ")
            if given != KEY:
                return self.answer(401, {"error": {"message": f"invalid key {given}"}})
            if not (self.path.startswith(paths) or self.path == "/v1/models"):
                return self.answer(404, {"error": {"message": "Not found"}})
            if self.is_limited():
                return self.answer(429, {"error": {"message": "slow down"}}, {"retry-after": "1"})
            sent = {name: value for name, value in self.headers.items() if name.lower() == "content-type"}
            got = httpx.request(self.command, base + self.path, content=body, headers=sent, timeout=60)
            return self.answer(got.status_code, got.content, {"content-type": got.headers.get("content-type", "")})

        def answer(self, status, body, headers=()):
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in dict(headers).items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def key(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A_KEY", KEY)


def report_lines(folder, kind="result"):
    lines = map(json.loads, (Path(folder) / "report.jsonl").read_text("utf-8").splitlines())
    return [line for line in lines if line["kind"] == kind]


def texts(folder):
    return {file.name: file.read_bytes() for file in Path(folder).rglob("*") if file.is_file()}


def test_a_method_that_a_gateway_does_not_know_may_be_refused_with_501(key):
    name = "errors.wrong_request_is_refused@wrong_requests"
    with running() as base, gateway(base) as url:
        main(["run", url, "--api-key-env", "A_KEY", "--select", name, "--latency", "0", "--out", "a"])
    assert [line["outcome"] for line in report_lines("a")] == ["pass"]
    sent = [json.loads(line) for line in Path("a/exchanges.jsonl").read_text("utf-8").splitlines()]
    assert [x["response"]["status"] for x in sent if x.get("step") == "a method that is not offered"] == [501]


@pytest.mark.parametrize("words", [["run"], ["load", "--clients", "1", "--requests", "4"]], ids=lambda words: words[0])
def test_a_dry_run_needs_no_key(words, monkeypatch, capsys):
    monkeypatch.delenv("A_KEY", raising=False)
    command, *more = words
    asked = [command, "https://api.example.com/v1", *more, "--model", "m", "--api-key-env", "A_KEY"]
    assert main([*asked, "--dry-run"]) == Exit.CONFORMS
    assert "nothing was sent" in capsys.readouterr().out
    assert main(asked) == Exit.USAGE
    assert "expected a key in the variable A_KEY, got an unset or empty variable" in capsys.readouterr().err


def test_reproduce_takes_the_key_from_the_variable_of_the_run(key, capsys):
    with running(defects=["stream-without-done"]) as base, gateway(base) as url:
        assert main(["run", url, "--api-key-env", "A_KEY", *QUICK, "--out", "a"]) == Exit.DIVERGES
        capsys.readouterr()
        assert main(["reproduce", "a", "stream-without-done"]) == Exit.DIVERGES
        assert capsys.readouterr().out.startswith("still happens: streaming.ends_with_done in simple_answer")
        (header,) = report_lines("a", "header")
        assert header["options"]["api-key-env"] == "A_KEY"
        assert not [name for name, data in texts("a").items() if KEY.encode() in data]


def test_reproduce_does_not_send_the_key_of_a_run_to_another_endpoint(key, capsys):
    with running(defects=["stream-without-done"]) as base, gateway(base) as url:
        main(["run", url, "--api-key-env", "A_KEY", *QUICK, "--out", "a"])
        with gateway(base) as other:
            capsys.readouterr()
            assert main(["reproduce", "a", "stream-without-done", "--against", other]) == Exit.USAGE
    assert "--api-key-env A_KEY" not in capsys.readouterr().err


def test_a_run_that_reached_its_limit_prints_the_command_that_continues_it(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    asked = ["run", "reference", *QUICK, "--max-requests", "1", "--out", "a"]
    assert main(asked) == Exit.USAGE
    *_, stopped, again = capsys.readouterr().err.splitlines()
    assert stopped == "run stopped early: --max-requests 1 was reached"
    assert again == f"to continue: harmony-conformance {shlex.join(asked)} --resume"
    assert main(["run", "reference", *QUICK, "--out", "a", "--resume"]) == Exit.CONFORMS
    assert "to continue" not in capsys.readouterr().err


def test_no_request_gives_up_at_a_rate_limit_below_the_number_of_workers(key, capsys):
    asked = ["--api-key-env", "A_KEY", "--select", "simple_answer", "--select", "tool_call"]
    with running() as base, gateway(base, per_second=3) as url:
        assert main(["run", url, *asked, "--latency", "0", "--out", "a"]) == Exit.CONFORMS
    assert "rate limit" not in "".join(capsys.readouterr())
    assert not [line for line in report_lines("a") if line["reason"].startswith("rate limited")]


def test_results_that_a_rate_limit_left_open_are_counted_with_the_command_that_continues(key, capsys, monkeypatch):
    monkeypatch.setattr("harmony_conformance.transport.client.MOST_WAITS", 0)
    monkeypatch.setenv("COLUMNS", "400")
    asked = ["--api-key-env", "A_KEY", "--select", "simple_answer", "--select", "tool_call"]
    with running() as base, gateway(base, per_second=10) as url:
        words = ["run", url, *asked, "--latency", "0", "--out", "a"]
        main(words)
        out, err = capsys.readouterr()
        count = sum("rate limited" in line["reason"] for line in report_lines("a"))
        again = f"{count} results inconclusive because of the rate limit (HTTP 429); to continue: harmony-conformance {shlex.join(words)} --resume"
        assert count > 1
        assert again in err.splitlines()
        assert f"{count} inconclusive because of the rate limit (HTTP 429): repeat the run with --resume" in out
        time.sleep(1.5)  # the gateway answers again
        main([*words, "-q"])
    assert " rate limited: --resume continues; " in capsys.readouterr().out


def test_a_messages_endpoint_gets_the_headers_of_its_clients(key):
    asked = ["--api", "messages", "--api-key-env", "A_KEY", *QUICK]
    with (
        running(defects=["messages-usage-zero"]) as base,
        gateway(base, header="x-api-key", paths="/v1/messages") as url,
    ):
        main(["run", url, *asked, "--out", "a"])
    assert {line["outcome"] for line in report_lines("a") if line["api"] == "messages"} >= {"pass", "fail"}
    commands = [
        line["reproduce"] for line in report_lines("a") if line["outcome"] == "fail" and "curl" in line["reproduce"]
    ]
    assert commands
    assert all("-H \"x-api-key: $A_KEY\" -H 'anthropic-version: 2023-06-01'" in command for command in commands)
    assert not [name for name, data in texts("a").items() if KEY.encode() in data]


def test_rates_on_an_endpoint_without_chat_completions_name_the_api_that_they_need(key, capsys):
    with running() as base, gateway(base, paths="/v1/messages") as url:
        for command in (["rates", "--set", "tools", "--tries", "1"], ["load", "--clients", "1", "--requests", "4"]):
            name, *more = command
            assert main([name, url, *more, "--api-key-env", "A_KEY"]) == Exit.USAGE
            assert f"; {name} needs Chat Completions, POST /v1/chat/completions" in capsys.readouterr().err
