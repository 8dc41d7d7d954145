"""The comparison with guidellm, on a report of guidellm 0.8.1 that is cut to what is read."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "benchmarks" / "load_beside_guidellm.py"


@pytest.fixture(scope="module")
def script():
    spec = spec_from_file_location("load_beside_guidellm", SCRIPT)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def request(number):
    return {
        "info": {"timings": {"request_start": float(number)}},
        "time_to_first_token_ms": 84.0 + number,
        "time_to_first_output_token_ms": 350.0,
        "inter_token_latency_ms": 17.0,
        "request_latency": 0.5,
    }


def test_the_first_requests_are_left_out_and_times_are_seconds(script):
    requests = [request(number) for number in range(script.WARM_UP + 2)]
    report = {"benchmarks": [{"requests": {"errored": [], "successful": requests[::-1]}}]}
    first, second = script.guidellm_times(report)
    assert first == pytest.approx({"ttft": 0.104, "answer": 0.35, "tpot": 0.017, "e2e": 0.5})
    assert second["ttft"] == pytest.approx(0.105)


def test_failed_requests_are_not_compared(script):
    report = {"benchmarks": [{"requests": {"errored": [request(0)], "successful": [request(1)]}}]}
    with pytest.raises(AssertionError, match="every request is answered"):
        script.guidellm_times(report)


def test_differences_are_percent_of_guidellm(script):
    ours, theirs = ([{"ttft": one, "answer": one, "tpot": one, "e2e": one}] for one in (0.11, 0.1))
    rows = script.compare(ours, theirs)
    assert len(rows) == 8
    assert rows[0] == {"metric": "ttft", "percent": 50, "load": 110.0, "guidellm": 100.0, "difference %": 10.0}
    assert "| `ttft`, first token | p50 | 110.0 | 100.0 | +10.0 % |" in script.table({"rows": rows})
