import gc
import os
import signal
import subprocess
import sys
import time
import warnings

import httpx
import pytest
from starlette.testclient import TestClient

from harmony_conformance.reference_server import MODEL
from harmony_conformance.reference_server.server import serving as module
from harmony_conformance.reference_server.server.serving import ServerStartError, running_in_process
from harmony_conformance.runtime.processes import may_fork

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
FORKS = pytest.param(True, marks=pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere"))
KILLED = """
import sys, time
from harmony_conformance.reference_server.server import serving
if sys.argv[1] == "False":
    serving.may_fork = lambda: False
with serving.running_in_process() as url:
    print(url, flush=True)
    time.sleep(60)
"""


def is_gone(url):
    for _ in range(100):
        try:
            httpx.get(f"{url}/v1/models", timeout=1)
        except httpx.TransportError:
            return True
        time.sleep(0.05)
    return False


def in_a_program(forks):
    program = subprocess.Popen([sys.executable, "-c", KILLED, str(forks)], stdout=subprocess.PIPE, text=True)
    return program, program.stdout.readline().strip()


@pytest.mark.parametrize("forks", [FORKS, False])
def test_a_server_in_a_process_of_its_own_answers_and_is_gone_when_whoever_started_it_is_killed(forks):
    program, url = in_a_program(forks)
    assert httpx.post(f"{url}/v1/chat/completions", json=ASK).json()["usage"]["prompt_tokens"] > 0
    os.kill(program.pid, signal.SIGKILL)
    program.wait()
    assert is_gone(url)


@pytest.mark.parametrize("forks", [FORKS, False])
def test_it_has_its_defects_and_is_gone_afterwards(forks, monkeypatch):
    if forks and not may_fork() and sys.version_info >= (3, 12):
        pytest.skip("this process has threads, and Python warns of its copies")
    monkeypatch.setattr(module, "may_fork", lambda: forks)
    with running_in_process(defects=["usage-all-zero"]) as url:
        assert httpx.post(f"{url}/v1/chat/completions", json=ASK).json()["usage"]["prompt_tokens"] == 0
    assert is_gone(url)


@pytest.mark.parametrize("forks", [FORKS, False])
def test_one_that_does_not_come_up_is_an_error(forks, monkeypatch):
    monkeypatch.setattr(module, "may_fork", lambda: forks)
    with pytest.raises(ServerStartError), running_in_process(defects=["no such defect"]):
        pass


def test_a_slow_server_takes_its_time_for_each_token():
    def seconds(token_time, **members):
        app = module.create_app(token_time=token_time)
        with TestClient(app) as client:
            start = time.perf_counter()
            answer = client.post("/v1/chat/completions", json={**ASK, "max_tokens": 5, **members})
            assert answer.status_code == 200
            return time.perf_counter() - start

    assert seconds(0.05) >= 0.25
    assert seconds(0.05, stream=True) >= 0.25


def test_an_interrupt_before_the_server_listens_is_no_warning_of_python(monkeypatch, capsys):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("asyncio.run", interrupted)
    gc.collect()  # what other tests left
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with pytest.raises(KeyboardInterrupt):
            module.serve("127.0.0.1", 0)
        gc.collect()
    assert [str(one.message) for one in warned] == []
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")
