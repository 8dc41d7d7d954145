"""The code of `docs/audit-reference.md` for Ray Data and Spark, as it is there: its rows are those of the command. `make test-ray` runs it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="make test-ray has an environment with Ray and Spark")
pytest.importorskip("pyspark", reason="make test-ray has an environment with Ray and Spark")
pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

PAGE = Path(__file__).parents[3] / "docs" / "audit-reference.md"
CODE = {
    name: code
    for code in re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for name, mark in (("ray", "ray.data"), ("spark", "mapInArrow"))
    if mark in code
}
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
ENVIRONMENT = {
    **os.environ,
    "RAY_USAGE_STATS_ENABLED": "0",
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "PYSPARK_SUBMIT_ARGS": "--master local[2] --conf spark.ui.enabled=false pyspark-shell",
}
SLOW_START = "The current node timed out during startup"
"""The error of Ray if its processes need more than 30 seconds to start, which is fixed in its code: a busy machine needs a second start."""
STARTS = 5


def line(number):
    if number % 17 == 0:
        return "{torn"
    contents = ("Hello.", "Hello.<|end|>", "assistantfinalHello.", "Fine, and you?")
    message = {"role": "assistant", "content": contents[number % len(contents)]}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return json.dumps({"request": ASKED, "response": {"object": "chat.completion", "choices": choices}})


@pytest.fixture
def log(tmp_path):
    """A log, its lines as a table of four row groups, and the rows that the command writes."""
    path, rows, offset = tmp_path / "log.jsonl", [], 0
    with path.open("wb") as file:
        for text in map(line, range(60)):
            rows.append({"file": str(path), "offset": offset, "line": text})
            offset += file.write(text.encode() + b"\n")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "lines.parquet", row_group_size=15)
    command = [sys.executable, "-m", "harmony_conformance", "audit", str(path), "--out", str(tmp_path / "out")]
    subprocess.run(command, check=False, capture_output=True)
    return [json.loads(row) for row in (tmp_path / "out" / "failures.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("engine", ["ray", "spark"])
def test_the_code_of_the_page_finds_what_the_command_finds(tmp_path, log, engine):
    if engine == "spark" and shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    (script := tmp_path / "judge.py").write_text(CODE[engine], "utf-8")
    for _ in range(STARTS):
        done = subprocess.run(
            [sys.executable, str(script)], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
        )
        if SLOW_START not in done.stderr:
            break
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [row for part in sorted((tmp_path / "judged").glob("*.parquet")) for row in pq.read_table(part).to_pylist()]
    assert len(rows) == 60
    assert sum(row["problem"] is not None for row in rows) == 4
    rows.sort(key=lambda row: row["offset"])
    found = [failure for row in rows for failure in json.loads(row["failures"])]
    assert found == log
    assert len(found) > 20
