"""Latency items in pytest sessions of their own, with pytest-benchmark: saved, compared with an earlier run, gated."""

import json
import subprocess
import sys
from contextlib import contextmanager

import pytest

from harmony_conformance.errors import UsageError
from harmony_conformance.pytest_plugin.session import read_pytest_options

pytest_plugins = ["pytester"]

MODULE = "harmony_conformance.conformance_test"
PLAIN = ("-p", "no:randomly", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")
LATENCY = ("--harmony", "select=simple_answer", "--harmony", "latency=3", "--harmony", "concurrency=1", "-k", "latency")
METRICS = ("ttft", "time_to_first_answer", "inter_event_gap", "itl", "tpot", "end_to_end")


@pytest.fixture(autouse=True)
def no_worker(monkeypatch):
    """In a worker of pytest-xdist, pytest-benchmark measures nothing."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)


@contextmanager
def serving(tpot):
    """`serve` in a process of its own, with the milliseconds between two tokens."""
    command = [sys.executable, "-m", "harmony_conformance", "serve", "--port", "0", "--tpot", str(tpot)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def run(pytester, endpoint, *words, plugins=PLAIN):
    """Run pytest in this process. In one of its own for a conftest.py, which changes modules, and where pytest-benchmark raises."""
    alone = (pytester.path / "conftest.py").exists() or "--benchmark-compare" in words
    start = pytester.runpytest_subprocess if alone else pytester.runpytest_inprocess
    return start("--pyargs", MODULE, "--endpoint", endpoint, *plugins, *words)


@pytest.fixture
def saved(pytester):
    """The storage of pytest-benchmark after a session against a server without a delay."""
    with serving(0) as url:
        done = run(pytester, url, *LATENCY, "--benchmark-autosave", "--benchmark-save-data")
    done.assert_outcomes(passed=len(METRICS), deselected=done.parseoutcomes()["deselected"])
    (file,) = (pytester.path / ".benchmarks").rglob("0001_*.json")
    return json.loads(file.read_text())


@pytest.mark.slow
def test_a_slow_down_is_gated_by_the_options_of_pytest_benchmark(saved, pytester):
    """A planted delay of 10 ms a token, about a hundred times that of the saved run, against a limit of three times."""
    assert [one["name"] for one in saved["benchmarks"]] == [f"latency.{name}[one at a time]" for name in METRICS]
    gate = ("--benchmark-compare", "--benchmark-compare-fail=median:300%")
    with serving(10) as url:
        done = run(pytester, url, *LATENCY, *gate)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    errors = done.stderr.str()
    assert "Performance has regressed" in errors
    for name in ("itl", "tpot", "end_to_end"):
        assert f"latency.{name}[one at a time]" in errors
    with serving(0) as url:
        done = run(pytester, url, *LATENCY, "--benchmark-compare", "--benchmark-compare-fail=median:100000%")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["*latency.ttft?one at a time? (NOW)*"])


def test_the_saved_times_are_those_of_the_recorded_exchanges(pytester):
    """Rounds are requests; for gaps, they are gaps. Each time is one of the recording."""
    from harmony_conformance.evidence.recording_file import read_recorded
    from harmony_conformance.runner.latency.latency_probe import measured_load

    words = ("--harmony", "out=kept", "--benchmark-json=times.json")
    done = run(pytester, "reference", *LATENCY, *words)
    done.assert_outcomes(passed=len(METRICS), deselected=done.parseoutcomes()["deselected"])
    saved = json.loads((pytester.path / "times.json").read_text())["benchmarks"]
    recorded = read_recorded(pytester.path / "kept" / "exchanges.jsonl")
    exchanges = [x for series in recorded for x in series.exchanges.values() if x.scenario == "latency"]
    assert len(exchanges) == 4  # a warm-up and three requests
    measured = measured_load(exchanges, "one at a time")
    assert measured.requests == 3
    for one in saved:
        metric = one["group"]
        assert one["stats"]["data"] == pytest.approx(list(measured.values[metric]), abs=2e-6), metric
        assert one["extra_info"] == {"load": "one at a time", "requests": 3}


def test_failed_requests_fail_the_item(pytester):
    """The times of a few survivors are no latency of the load; a metric without a value is skipped."""
    pytester.makeconftest(
        """
        from harmony_conformance.pytest_plugin import session
        from harmony_conformance.runner.latency.latency_probe import MeasuredLoad

        def measured(exchanges, load):
            return MeasuredLoad(requests=3, failures={"HTTP 500": 2}, values={"ttft": [0.1]})

        session.measured_load = measured
        """
    )
    done = run(pytester, "reference", *LATENCY, "-k", "latency.ttft", "--benchmark-json=times.json", str(pytester.path))
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["*2 of 3 requests had no complete answer (HTTP 500: 2)*"])
    done.stdout.no_fnmatch_line("*Traceback*")


def test_benchmarks_alone_send_no_scenario(pytester):
    words = ("--harmony", "select=simple_answer", "--harmony", "latency=1", "--harmony", "concurrency=1")
    done = run(pytester, "reference", *words, "--benchmark-only", "--harmony", "out=kept")
    assert done.parseoutcomes()["passed"] == len(METRICS)
    recorded = (pytester.path / "kept" / "exchanges.jsonl").read_text().splitlines()
    assert {json.loads(line)["scenario"] for line in recorded} <= {"latency", "discovery"}


@pytest.mark.slow
def test_where_benchmarks_are_disabled_nothing_is_measured(pytester):
    words = (*LATENCY, "--harmony", "out=kept", "-rs")
    done = run(pytester, "reference", *words, "--benchmark-disable")
    assert done.parseoutcomes()["skipped"] == len(METRICS)
    done.stdout.fnmatch_lines(["SKIPPED * latency is not measured: pytest-benchmark is disabled"])
    assert not (pytester.path / "kept" / "exchanges.jsonl").exists()
    done = run(pytester, "reference", *LATENCY, "-n1")
    assert done.parseoutcomes()["skipped"] == len(METRICS)


def test_latency_needs_pytest_benchmark(pytester):
    done = run(pytester, "reference", *LATENCY, plugins=(*PLAIN, "-p", "no:benchmark"))
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: invalid --harmony latency: expected pytest-benchmark, got a session without it"])


def test_without_the_option_there_is_no_latency_item(pytester):
    done = run(pytester, "reference", "--harmony", "select=simple_answer", "--collect-only", "-q")
    done.stdout.no_fnmatch_line("*latency*")


@pytest.mark.parametrize(
    ("endpoint", "options", "problem"),
    [
        ("replay:exchanges.jsonl", ["latency=2"], "expected an endpoint, got a recording"),
        ("reference", ["latency=2", "max-requests=9"], "expected latency without max-requests, got both"),
        ("reference", ["latency=-1"], "--latency"),
    ],
)
def test_invalid_options(endpoint, options, problem):
    with pytest.raises(UsageError, match=problem):
        read_pytest_options(endpoint, options)
