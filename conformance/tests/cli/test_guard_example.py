"""`examples/guard.py`: a server that leaks, directly and through the proxy that repairs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harmony_conformance.reference_server import running

EXAMPLE = Path(__file__).parents[3] / "examples" / "guard.py"


def guard(*words):
    return subprocess.run([sys.executable, EXAMPLE, *words], capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize(("defects", "repaired"), [((), {}), (("output-unparsed",), {"channels.no_channel_words": 1})])
def test_answer_is_clean_behind_the_guard(defects, repaired):
    with running(defects=defects) as url:
        ran = guard(f"{url}/v1")
    assert (ran.returncode, ran.stderr) == (0, "")
    direct, guarded, line = (json.loads(row.split(":", 1)[1]) for row in ran.stdout.splitlines())
    assert direct["content"].startswith("analysis") is bool(defects)
    assert guarded["content"] == "Hello! How can I help you?"
    assert guarded["reasoning"] == "The user wants a short answer."
    assert line.get("acted", {"repaired": {}})["repaired"] == repaired


def test_server_that_is_not_there_is_one_line():
    ran = guard("http://127.0.0.1:9/v1")
    assert (ran.returncode, ran.stdout) == (1, "")
    assert ran.stderr.count("\n") == 1
    assert ran.stderr.startswith("http://127.0.0.1:9/v1: ")
