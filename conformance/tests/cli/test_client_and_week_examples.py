"""`examples/ready_for_client.sh` and `examples/week_of_logs.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


def play(*words, folder):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "OUT": str(folder)}
    return subprocess.run([*words], env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.timeout(300)
def test_a_server_that_loses_calls_is_not_ready_for_codex(tmp_path):
    played = play(EXAMPLES / "ready_for_client.sh", folder=tmp_path)
    assert played.returncode == 0, played.stderr
    before, after = played.stdout.split("== after\n")
    assert "Codex will lose tool calls and will lose parallel calls on this server." in before
    assert after.startswith("Codex can work with this server")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_week_of_logs_shows_when_the_leak_began(tmp_path):
    played = play(sys.executable, EXAMPLES / "week_of_logs.py", tmp_path, folder=tmp_path)
    assert played.returncode == 0, played.stderr
    nights = [line for line in played.stdout.splitlines() if line.startswith("2026-11-")]
    assert [", 0 failed" in night for night in nights] == [True] * 4 + [False] * 3
    assert "MUST channels.no_channel_words: 0 of 1200 (0 %) before" in played.stdout
