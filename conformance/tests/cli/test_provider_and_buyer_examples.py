"""`examples/provider_ci.sh` and `examples/three_endpoints.sh`, with few scenarios."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
COMMANDS = str(Path(sys.executable).parent)


def play(name, folder, *words, **environment):
    path = f"{COMMANDS}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [EXAMPLES / name, *words],
        env={**os.environ, "PATH": path, "OUT": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_regression_is_gated_by_one_cause_and_a_known_failure_is_not(tmp_path):
    played = play("provider_ci.sh", tmp_path, "--select", "effort", "--select", "tool_round_trip")
    assert played.returncode == 0, played.stderr
    deployed, gated = played.stdout.split("== the next build")
    assert "no failure beyond the baseline" in deployed
    assert "does not conform" in gated
    unexpected = [line for line in played.stderr.splitlines() if line.startswith("  not expected: ")]
    assert [line.split(": ")[1] for line in unexpected] == ["reasoning-not-passed-back"]
    page = (tmp_path / "comparison.html").read_text("utf-8")
    assert "reasoning-not-passed-back" in page


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_right_broken_and_slow_are_told_apart_on_one_page(tmp_path):
    played = play("three_endpoints.sh", tmp_path, "--select", "simple_answer", REQUESTS="12")
    assert played.returncode == 1, played.stderr
    command = [sys.executable, "-m", "harmony_conformance", "matrix", "--format", "json"]
    command += [tmp_path / name for name in ("right", "broken", "slow")]
    matrix = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    verdict, (cause,) = matrix["summary"][0], matrix["causes"]
    assert verdict["cells"] == ["conforms", "does not conform", "conforms"]
    assert [bool(cell) for cell in cause["cells"]] == [False, True, False]
    (objective,) = [row for row in matrix["load"] if row["name"] == "e2e p95 at most 1 s"]
    assert objective["cells"][2] == "missed"
    page = (tmp_path / "matrix.html").read_text("utf-8")
    assert page.index("Failed results by cause") < page.index("Latency under load") < page.index("Checks that failed")
