"""`--engine ray` on a local cluster: results as of one process; a killed worker and a killed driver lose nothing. `make test-ray` runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harmony_conformance.audit.folder import out_folder

pytest.importorskip("ray", reason="make test-ray has an environment with Ray")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
WORKERS = "3"


def exchange(content):
    message = {"role": "assistant", "content": content}
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return json.dumps({"request": ASKED, "response": body}).encode() + b"\n"


LINES = [exchange("Hello."), exchange("Hello.<|end|>"), b"{\n", exchange("\ud800 assistantfinal"), b"\xff\n"]


@pytest.fixture
def log(tmp_path):
    """Return a folder with a table too: Ray imports Arrow before it is read."""
    (folder := tmp_path / "log").mkdir()
    (folder / "a.jsonl").write_bytes(b"".join(LINES * 400))
    rows = [{"request": json.dumps(ASKED), "response": json.dumps(json.loads(exchange("Hi.<|end|>"))["response"])}]
    pq.write_table(pa.Table.from_pylist(rows * 9), folder / "b.parquet")
    return folder


def command(log, out, *more):
    return [sys.executable, "-m", "harmony_conformance", "audit", str(log), "--out", str(out), *more]


def run(log, out, *more):
    return subprocess.run(command(log, out, *more), capture_output=True, text=True, check=False)


def files(out):
    return {path.name: path.read_bytes() for path in out.iterdir()}


def processes_below(pid):
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for task in tasks for child in task.read_text().split()]
    return [*found, *(below for child in found for below in processes_below(child))]


def judging(pid):
    """Return the processes of a driver's cluster that judge a batch."""
    names = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in processes_below(pid)}
    return [child for child, name in names.items() if name.startswith(b"ray::_scan")]


def errors_of(out):
    return out.with_suffix(".stderr")


def wait_for(found, process, out):
    """Wait as long as the command runs: how long a cluster takes to start depends on the machine."""
    while not (value := found()):
        assert process.poll() is None, (process.returncode, errors_of(out).read_text())
        time.sleep(0.05)
    return value


def start(log, out):
    words = command(log, out, "--engine", "ray", "--workers", WORKERS)
    with errors_of(out).open("wb") as errors:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=errors)
    journal = out / out_folder.JOURNAL
    wait_for(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 2, process, out)
    return process


def test_the_results_are_those_of_one_process_also_after_a_worker_and_the_driver_were_killed(log, tmp_path):
    whole = run(log, tmp_path / "whole", "--workers", "1")
    by_ray = run(log, tmp_path / "ray", "--engine", "ray", "--workers", WORKERS)
    assert (by_ray.returncode, by_ray.stdout) == (whole.returncode, whole.stdout), by_ray.stderr
    assert files(tmp_path / "ray") == files(tmp_path / "whole")

    process = start(log, out := tmp_path / "worker")
    os.kill(wait_for(lambda: judging(process.pid), process, out)[0], signal.SIGKILL)
    assert process.wait() == whole.returncode, errors_of(out).read_text()
    assert files(out) == files(tmp_path / "whole")

    process = start(log, out := tmp_path / "driver")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (out / "audit.jsonl").exists()
    resumed = run(log, out, "--engine", "ray", "--workers", WORKERS, "--resume")
    assert resumed.stderr.startswith("resuming after ")
    assert (resumed.returncode, resumed.stdout) == (whole.returncode, whole.stdout)
    assert files(out) == files(tmp_path / "whole")


def test_checks_of_a_plug_in_judge_in_the_cluster(log, tmp_path):
    plugin = tmp_path / "acme.py"
    loaded = tmp_path / "loaded"
    plugin.write_text(
        f"import sys; print(sys.argv[0], file=open({str(loaded)!r}, 'a'))\n"
        "from harmony_conformance.plugin_api import MUST, Finding, Reads, check, conditions\n"
        "@check(MUST, spec='harmony#final', when=conditions.is_complete_answer, reads=Reads.TEXT)\n"
        "def no_greeting(x):\n"
        "    'The answer is no greeting.'\n"
        "    if (x.turn.content or '').startswith('Hello'):\n"
        "        yield Finding(message='the answer is a greeting')\n",
        "utf-8",
    )
    options = ("--plugin", str(plugin), "--workers", WORKERS)
    local = run(log, tmp_path / "local", *options)
    loaded.unlink()
    with_ray = run(log, tmp_path / "ray", *options, "--engine", "ray")
    processes = [Path(name).name for name in loaded.read_text("utf-8").splitlines()]
    assert processes[0] == "__main__.py"
    assert {*processes[1:]} == {"default_worker.py"}  # those of Ray, and no process of this machine in their place
    assert (local.returncode, with_ray.returncode) == (1, 1), with_ray.stderr
    assert files(tmp_path / "ray") == files(tmp_path / "local")
    rows = (tmp_path / "ray" / "failures.jsonl").read_bytes()
    assert rows.count(b'"check":"acme.no_greeting"') == 800
