"""`harmony-conformance run-all`: endpoints of a file side by side, each wrong file refused in one line."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harmony_conformance.cli.main import main

SMALL = '["--select", "simple_answer", "--latency", "2"]'


def run_all(tmp_path, document):
    file = tmp_path / "harmony-conformance.toml"
    file.write_text(document, "utf-8")
    return main(["run-all", str(file), "--out", str(tmp_path / "all")])


def test_right_broken_and_dead_endpoints_are_told_apart_on_one_page(tmp_path, capsys):
    code = run_all(
        tmp_path,
        f"""
        options = {SMALL}
        [[endpoint]]
        name = "right"
        target = "reference"
        [[endpoint]]
        name = "broken <b>"
        target = "reference:defect=output-unparsed"
        options = ["--seed", "1"]
        [[endpoint]]
        name = "dead"
        target = "http://127.0.0.1:9/v1"
        """,
    )
    assert code == 1
    printed = capsys.readouterr().out
    assert "right: gpt-oss-reference on reference 0.1.0: conforms;" in printed
    assert "broken <b>: gpt-oss-reference on reference 0.1.0: does not conform; causes: 1;" in printed
    assert "dead: harmony-conformance run: http://127.0.0.1:9" in printed
    page = (tmp_path / "all" / "matrix.html").read_text("utf-8")
    assert "<b>" not in page
    assert "broken &lt;b&gt;" in page
    assert "output-unparsed" in page or "M15" in page
    assert "ttft" in page
    assert "Not tested" in page
    assert "<li>dead: harmony-conformance run: http://127.0.0.1:9" in page
    assert (tmp_path / "all" / "right" / "report.html").is_file()


def test_interrupt_ends_all_runs(tmp_path):
    file = tmp_path / "all.toml"
    tables = "".join(f'[[endpoint]]\nname = "e{n}"\ntarget = "reference"\n' for n in range(6))
    file.write_text(tables, "utf-8")
    command = [sys.executable, "-m", "harmony_conformance", "run-all", str(file), "--out", str(tmp_path / "all")]
    before = signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # a background job of a shell ignores it, and children inherit that
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        while not (tmp_path / "all" / "e0" / "exchanges.jsonl").exists():
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"stopped; the runs so far are in {tmp_path / 'all'}" in error
    assert "Traceback" not in error
    assert not (tmp_path / "all" / "e5").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_runs_end_with_a_killed_command(tmp_path):
    file = tmp_path / "all.toml"
    file.write_text('[[endpoint]]\nname = "e"\ntarget = "reference"\n', "utf-8")
    command = [sys.executable, "-m", "harmony_conformance", "run-all", str(file), "--out", str(tmp_path / "all")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not (tmp_path / "all" / "e" / "exchanges.jsonl").exists():
            time.sleep(0.1)
        children = Path(f"/proc/{process.pid}/task").glob("*/children")
        runs = [pid for child in children for pid in child.read_text().split()]
        process.kill()
    deadline = time.monotonic() + 30
    while alive := [pid for pid in runs if is_running(pid)]:
        assert time.monotonic() < deadline, f"still running: {alive}"
        time.sleep(0.1)
    assert runs


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("", "expected a table [[endpoint]], got none"),
        ("endpoint = 3", "expected a table [[endpoint]], got none"),
        ("x = ", "invalid TOML"),
        ("retries = 3", "expected tables [[endpoint]] and options, got 'retries'"),
        ('[[endpoint]]\nname = "a"', "endpoint 1: expected a target, got None"),
        (
            '[[endpoint]]\nname = "a\\u0000"\ntarget = "reference"',
            r"endpoint 1: expected a name that can be a folder's, got 'a\x00'",
        ),
        (
            '[[endpoint]]\nname = "../a"\ntarget = "reference"',
            "endpoint 1: expected a name that can be a folder's, got '../a'",
        ),
        (
            '[[endpoint]]\nname = "a"\ntarget = "reference"\nmodel = "m"',
            "endpoint 1: expected name, target and options, got 'model'",
        ),
        (
            '[[endpoint]]\nname = "a"\ntarget = "reference"\noptions = "-q"',
            "endpoint 1: expected options as a list of texts",
        ),
        ('[[endpoint]]\nname = "a"\ntarget = "x"\n' * 2, "expected a name for each endpoint, got 'a' twice"),
    ],
)
def test_wrong_file_is_one_line(tmp_path, capsys, document, problem):
    assert run_all(tmp_path, document) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert len(error.strip().splitlines()) == 1


def test_missing_file_is_one_line(tmp_path, capsys):
    assert main(["run-all", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: No such file or directory" in capsys.readouterr().err
