"""The counts quoted in docs/proxy-policies.md are those that were measured."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_blocked_innocent_exchanges_are_those_of_the_benchmark():
    found = json.loads((ROOT / "benchmarks" / "results" / "blocking.json").read_text("utf-8"))
    page = " ".join((ROOT / "docs" / "proxy-policies.md").read_text("utf-8").split())
    (quoted,) = re.findall(
        r"Of the ([\d,]+) innocent exchanges of \[the benchmark\]\(leak-detection\.md\) (\d+) are, instead of (\d+)\. All (\d+) further ones",
        page,
    )
    further = found["blocked"] - found["failing"]
    assert [int(number.replace(",", "")) for number in quoted] == [
        found["cases"],
        found["blocked"],
        found["failing"],
        further,
    ]
    assert found["by_stratum"]["on Harmony"] == further
