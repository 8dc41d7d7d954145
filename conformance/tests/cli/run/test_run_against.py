"""`run A --against B`: requests alternate, both runs are kept, and only failures that B lacks count."""

import asyncio
import json

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.transport.interleaving import Alternation

BROKEN = "reference:defect=output-unparsed"
SMALL = ("--select", "simple_answer", "--latency", "0")


def test_requests_alternate_until_one_endpoint_is_done():
    order = []

    async def endpoint(alternation, place, count):
        for _ in range(count):
            await alternation.take_turn(place)
            order.append(place)
        await alternation.end(place)

    async def both():
        alternation = Alternation()
        await asyncio.gather(endpoint(alternation, 0, 3), endpoint(alternation, 1, 6))

    asyncio.run(both())
    assert [order.count(place) for place in (0, 1)] == [3, 6]
    leads = [order[:end].count(0) - order[:end].count(1) for end in range(7)]
    assert max(map(abs, leads)) == 1


def test_an_endpoint_that_waits_does_not_stop_the_other():
    async def alone():
        alternation = Alternation(most_wait=0.01)
        for _ in range(3):
            await alternation.take_turn(0)
        return alternation.sent

    assert asyncio.run(alone()) == [3, 0]


@pytest.mark.parametrize(
    ("target", "other", "code"), [(BROKEN, "reference", 1), ("reference", BROKEN, 0), (BROKEN, BROKEN, 0)]
)
def test_only_failures_that_the_other_lacks_count(target, other, code, tmp_path, capsys):
    assert main(["run", target, "--against", other, *SMALL, "--out", str(tmp_path / "out")]) == code
    printed = capsys.readouterr().out
    assert ("NEW MUST output-unparsed" in printed) is bool(code)
    label = "gpt-oss-reference on reference 0.2.0"
    assert f"against:  {label}, {other}\nendpoint: {label}, {target}\n" in printed
    folders = [str(tmp_path / "out" / name) for name in ("against", "endpoint")]
    assert main(["compare", *folders]) == code
    assert f"before: {label}, {folders[0]}\nafter:  {label}, {folders[1]}\n" in capsys.readouterr().out
    for name in ("endpoint", "against"):
        assert (tmp_path / "out" / name / "report.html").is_file()
        lines = (tmp_path / "out" / name / "exchanges.jsonl").read_text("utf-8").splitlines()
        assert json.loads(lines[0])["target"]["engine"] == "reference"
        assert json.loads(lines[-1])["kind"] == "end"
    page = (tmp_path / "out" / "comparison.html").read_text("utf-8")
    assert ("output-unparsed" in page) is (BROKEN in {target, other})


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--against", "http://127.0.0.1:9/v1"], "http://127.0.0.1:9: no HTTP response: connection refused"),
        (["--against", "replay:x.jsonl"], "expected two endpoints, got a recording"),
        (["--against", "nonsense"], "invalid target 'nonsense'"),
        (["--against", "reference", "--resume"], "expected --against without --resume, got both"),
    ],
)
def test_wrong_use_is_one_line(words, problem, tmp_path, capsys):
    assert main(["run", "reference", *SMALL, "--out", str(tmp_path / "out"), *words]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert len(error.strip().splitlines()) == 1
