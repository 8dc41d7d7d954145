"""`harmony-conformance run-all`: endpoints of a file side by side, each wrong file refused in one line."""

import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.cli.run import run_all as run_all_module
from harmony_conformance.cli.run.run_all_file import ConfiguredEndpoint, read_endpoints
from harmony_conformance.errors import UsageError

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
    shown = capsys.readouterr()
    printed = shown.out
    assert "right: reference 0.2.0 at embedded, model gpt-oss-reference;" in shown.err
    assert "right: gpt-oss-reference on reference 0.2.0: conforms;" in printed
    assert "broken <b>: gpt-oss-reference on reference 0.2.0: does not conform; causes: 1;" in printed
    assert "dead: harmony-conformance run: http://127.0.0.1:9" in printed
    page = (tmp_path / "all" / "matrix.html").read_text("utf-8")
    assert "<b>" not in page
    assert "broken &lt;b&gt;" in page
    assert "output-unparsed" in page or "M15" in page
    assert "ttft" in page
    assert "Not tested" in page
    assert "<li>dead: harmony-conformance run: http://127.0.0.1:9" in page
    assert (tmp_path / "all" / "right" / "report.html").is_file()


@pytest.mark.slow
def test_rates_and_loads_are_reported_with_figures_and_the_page_links_all_files(tmp_path, capsys):
    code = run_all(
        tmp_path,
        """
        [[endpoint]]
        name = "a b"
        target = "reference"
        options = ["--select", "simple_answer", "--latency", "0"]
        rates = ["--set", "effort", "--tries", "1"]
        load = ["--clients", "1", "--requests", "3", "--input-tokens", "16", "--output-tokens", "8"]
        [[endpoint]]
        name = "alone"
        target = "reference"
        options = ["--select", "simple_answer", "--latency", "0"]
        """,
    )
    assert code == 0
    lines = capsys.readouterr().out.splitlines()
    folder = tmp_path / "all" / "a b"
    rates, load = (next(one for one in lines if one.startswith(f"a b: {name}: done; ")) for name in ("rates", "load"))
    assert "answered 1.00, " in rates
    assert rates.endswith(f"; {folder / 'rates' / 'rates.json'}")
    assert re.search(r"1 client, 16 to 8 tokens: [\d.,]+ answers/s, [\d.,]+ tokens/s, 0 failed; ", load)
    assert load.endswith(f"; {folder / 'load' / 'load.html'}")
    page = (tmp_path / "all" / "matrix.html").read_text("utf-8")
    links = dict.fromkeys(re.findall(r'<a href="([^"]*)">(report|rates|load)</a>', page))
    assert list(links) == [
        ("a%20b/report.html", "report"),
        ("a%20b/rates/rates.json", "rates"),
        ("a%20b/load/load.html", "load"),
        ("alone/report.html", "report"),
    ]


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
    page = (tmp_path / "all" / "matrix.html").read_text("utf-8")
    assert "<li>e0: harmony-conformance run: stopped" in page
    assert "<li>e5: not finished when the command was stopped</li>" in page


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
        (
            "x = ",
            "harmony-conformance.toml: invalid TOML: Invalid value (at end of document); expected a TOML file with tables",
        ),
        ("# all\n\nretries = 3", "harmony-conformance.toml:3: invalid key: expected one of [[endpoint]], connection,"),
        ("option = []", "got 'option'; did you mean options?"),
        ('rates = [\n  3,\n]\n[[endpoint]]\nname = "a"', 'toml:1: expected rates as a list of texts like ["--set",'),
        (
            '[[endpoint]]\nname = "a"',
            'harmony-conformance.toml:1: endpoint 1: expected target = "URL", got no key `target`',
        ),
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
            "harmony-conformance.toml:4: endpoint 1: invalid key: expected one of name, target, connection,",
        ),
        (
            '[[endpoint]]\nname = "a"\ntarget = "reference"\noptions = "-q"',
            'toml:4: endpoint 1: expected options as a list of texts like ["--max-time", "20m"], got \'-q\'',
        ),
        (
            '[[endpoint]]\nname = "a"\ntarget = "x"\n' * 2,
            "toml:5: endpoint 2: expected a name for each endpoint, got 'a' twice",
        ),
        (
            '[[endpoint]]\nname = "a"\ntarget = "reference"\noptions = ["--select", "simple_answer", "--list"]',
            "toml:4: endpoint 1: invalid option: expected none of --out, --format, --dry-run, --list, --help, got '--list'",
        ),
        (
            'load = ["--dry"]\n[[endpoint]]\nname = "a"\ntarget = "reference"',
            "toml:1: invalid option: expected none of --out, --format, --dry-run, --list, --help, got '--dry'",
        ),
        ('options = ["--out=x"]\n[[endpoint]]\nname = "a"\ntarget = "reference"', "got '--out=x'"),
        ("x = " + "[" * 100_000, "harmony-conformance.toml: invalid TOML: nested too deeply; expected a TOML file"),
    ],
)
def test_wrong_file_is_one_line(tmp_path, capsys, document, problem):
    assert run_all(tmp_path, document) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert len(error.strip().splitlines()) == 1


def test_a_file_of_an_editor_on_windows_is_read(tmp_path):
    file = tmp_path / "harmony-conformance.toml"
    file.write_bytes(b'\xef\xbb\xbf[[endpoint]]\r\nname = "a"\r\ntarget = "reference"\r\n')
    assert read_endpoints(file) == (ConfiguredEndpoint(name="a", target="reference"),)
    file.write_bytes(file.read_text("utf-8-sig").encode("utf-16"))
    with pytest.raises(UsageError, match=r"\.toml: the file is UTF-16: convert it \(iconv"):
        read_endpoints(file)


def test_a_page_is_written_although_no_endpoint_could_be_tested(tmp_path, capsys):
    assert run_all(tmp_path, '[[endpoint]]\nname = "dead"\ntarget = "http://127.0.0.1:9/v1"\n') == 2
    assert "<li>dead: harmony-conformance run: http://127.0.0.1:9" in (tmp_path / "all" / "matrix.html").read_text(
        "utf-8"
    )
    assert "side by side: " in capsys.readouterr().out


def test_an_endpoint_whose_run_is_incomplete_is_on_the_page(tmp_path, capsys):
    document = f'options = {SMALL[:-1]}, "--max-requests", "1"]\n[[endpoint]]\nname = "cut"\ntarget = "reference"\n'
    assert run_all(tmp_path, document) == 2
    page = (tmp_path / "all" / "matrix.html").read_text("utf-8")
    assert "cut (incomplete)" in page
    assert "Not tested" not in page
    assert "cut: run stopped early: --max-requests 1 was reached" in capsys.readouterr().err


def test_running_commands_are_named_now_and_then(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run_all_module, "_INTERVAL", 0.05)
    assert run_all(tmp_path, '[[endpoint]]\nname = "dead"\ntarget = "http://127.0.0.1:9/v1"\n') == 2
    assert re.search(r"^running: dead \(run, \d+ s\)$", capsys.readouterr().err, re.MULTILINE)


def test_a_dry_run_prints_the_cost_of_each_command_and_writes_nothing(tmp_path, capsys):
    document = f"""
        options = {SMALL}
        [[endpoint]]
        name = "a"
        target = "http://127.0.0.1:9/v1"
        rates = ["--set", "effort", "--tries", "1"]
        load = ["--clients", "2"]
        [[endpoint]]
        name = "b"
        target = "localhost:9"
        """
    file = tmp_path / "harmony-conformance.toml"
    file.write_text(document, "utf-8")
    assert main(["run-all", str(file), "--out", str(tmp_path / "all"), "--dry-run"]) == 2
    lines = capsys.readouterr().out.splitlines()
    for begin in (
        r"a: run: \d+ requests, about ",
        "a: rates: 12 tasks, 12 conversations: ",
        "a: load: 2 clients, 128 to 128 tokens: ",
    ):
        assert any(re.match(begin, line) for line in lines), begin
    assert lines[-1].startswith("b: run: harmony-conformance run: invalid target 'localhost:9': expected a URL")
    assert not (tmp_path / "all").exists()


def test_missing_file_is_one_line(tmp_path, capsys):
    assert main(["run-all", str(tmp_path / "none.toml")]) == 2
    assert "none.toml: No such file or directory" in capsys.readouterr().err
