"""Arrivals, times after the due moment, objectives and their intervals; the command against the reference server."""

import asyncio
import json
from itertools import count, pairwise
from math import exp, hypot
from random import Random
from statistics import NormalDist, fmean

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.json_value import dumps
from harmony_conformance.load import load as load_module
from harmony_conformance.load.arrivals import Arrivals, arrival_times, make_prompt
from harmony_conformance.load.load import LoadedRequest, LoadSender, OfferedLoad
from harmony_conformance.load.objectives import (
    InvalidObjectiveError,
    blocks_of,
    good_requests,
    judge_objectives,
    read_objectives,
    values_of,
)
from harmony_conformance.runner.latency.latency_probe import Timing, UnmeasuredResponse
from harmony_conformance.runner.latency.statistics import grouped_interval, percentile_interval
from harmony_conformance.transport.client import SendResult
from harmony_conformance.transport.messages import Chunk, Response
from harmony_ref import encode


def test_poisson_arrivals_have_exponential_gaps():
    times = arrival_times(5.0, 4001, Arrivals.POISSON, 1)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert fmean(gaps) == pytest.approx(0.2, rel=0.05)
    for quantile, expected in ((0.25, 0.05754), (0.5, 0.13863), (0.9, 0.46052)):  # of the exponential law of mean 0.2
        assert sorted(gaps)[int(quantile * len(gaps))] == pytest.approx(expected, rel=0.1)
    lag = fmean((one - 0.2) * (other - 0.2) for one, other in pairwise(gaps)) / 0.04
    assert abs(lag) < 0.06  # independent


def test_arrivals_repeat_with_their_seed():
    assert arrival_times(3.0, 50, Arrivals.POISSON, 7) == arrival_times(3.0, 50, Arrivals.POISSON, 7)
    assert arrival_times(3.0, 50, Arrivals.POISSON, 7) != arrival_times(3.0, 50, Arrivals.POISSON, 8)
    assert arrival_times(4.0, 3, Arrivals.CONSTANT, 0) == (0.0, 0.25, 0.5)


@pytest.mark.parametrize("tokens", [40, 128, 1000, 100_000])
def test_prompts_have_their_length_and_differ(tokens):
    prompts = [make_prompt(tokens, number, 0) for number in range(20)]
    assert all(abs(len(encode(prompt)) - tokens) <= 8 for prompt in prompts[:3])
    assert len({prompt[:5] for prompt in prompts}) > 15
    assert prompts == [make_prompt(tokens, number, 0) for number in range(20)]


def timing(first=0.1, answer=0.2, end=1.0, gaps=(0.01, 0.03), tokens=11):
    return Timing(first_token=first, first_answer=answer, end=end, gaps=gaps, token_gaps=None, tokens=tokens, bundled=0)


def loaded(*times):
    return [LoadedRequest(late=0.0, timing=one, due=0.0, done=1.0, reasoning=0.5) for one in times]


def test_objectives():
    requests = loaded(*[timing(first=0.1 + 0.001 * (37 * number % 100)) for number in range(100)])
    met, missed, unsure = judge_objectives(requests, read_objectives("ttft_p95=500ms,ttft_p50=0.1s,ttft_p95=195ms"))
    assert (met.is_met, met.is_missed) == (True, False)
    assert (missed.is_met, missed.is_missed) == (False, True)
    assert (unsure.is_met, unsure.is_missed) == (False, False)
    assert judge_objectives([], read_objectives("e2e_p50=1s"))[0].is_missed
    rising = loaded(*[timing(first=0.1 + 0.2 * number) for number in range(100)])  # more than the server can answer
    (judged,) = judge_objectives(rising, read_objectives("ttft_p95=500ms"))
    assert judged.is_missed


def test_failed_requests_are_infinitely_late():
    died = UnmeasuredResponse(reason="no_connection")
    for metric in ("ttft", "answer", "tpot", "e2e", "itl"):
        (judged,) = judge_objectives(loaded(*[timing()] * 56, *[died] * 144), read_objectives(f"{metric}_p95=30s"))
        assert judged.is_missed, metric
    (met,) = judge_objectives(loaded(*[timing()] * 999, died), read_objectives("ttft_p95=30s"))
    assert met.is_met
    assert met.found.value == 0.1


def test_goodput_counts_requests_that_keep_every_limit():
    requests = loaded(
        timing(),
        timing(first=9.0),
        timing(answer=None),
        timing(gaps=()),
        timing(gaps=(0.5,)),
        UnmeasuredResponse(reason="HTTP 500"),
    )
    objectives = read_objectives("ttft_p95=500ms,itl_p99=80ms,answer_p95=1s")
    assert good_requests(requests, objectives) == 2
    assert values_of(requests, "answer") == [0.2] * 4


@pytest.mark.parametrize(
    "words", ["", "ttft", "ttft_p95=5", "speed_p95=1s", "ttft_p0=1s", "ttft_p95=1s;", "ttft_p95=-1s"]
)
def test_invalid_objectives(words):
    with pytest.raises(InvalidObjectiveError, match="expected METRIC_pN=TIME like ttft_p95=500ms"):
        read_objectives(words)


# by scipy: ranks of the 95 % interval from the quantiles 0.025 and 0.975 of binom(n, p)
@pytest.mark.parametrize(
    ("n", "percent", "low", "high"),
    [
        (20, 50, 6.0, 15.0),
        (59, 95, 52.0, float("inf")),
        (100, 50, 40.0, 61.0),
        (100, 95, 90.0, 100.0),
        (300, 99, 293.0, float("inf")),
        (1000, 99, 983.0, 997.0),
        (10, 95, 8.0, float("inf")),
    ],
)
def test_interval_of_a_percentile_has_the_ranks_of_the_binomial_law(n, percent, low, high):
    found = percentile_interval([float(rank) for rank in range(1, n + 1)], percent)
    assert (found.low, found.high) == (low, high)


def test_interval_of_a_large_sample():
    found = percentile_interval([number / 200_000 for number in range(200_000)], 99)
    assert found.low < 0.99 < found.high
    assert found.high - found.low < 0.001


def test_the_interval_covers_percentiles_of_requests_that_depend_on_each_other():
    """Requests in a queue, each 0.8 like the one before: intervals as of independent ones cover 58 % of the time."""
    chance, covered, covered_alone = Random(1), 0, 0
    for _ in range(300):
        level, requests = chance.gauss(0, 1), []
        for _ in range(400):
            level = 0.8 * level + 0.6 * chance.gauss(0, 1)
            requests.append(timing(first=exp(level)))
        found = grouped_interval(blocks_of(loaded(*requests), "ttft"), 50)
        alone = percentile_interval(values_of(loaded(*requests), "ttft"), 50)
        covered += found.low <= 1 <= found.high
        covered_alone += alone.low <= 1 <= alone.high
    assert covered / 300 > 0.9
    assert covered_alone / 300 < 0.65


def test_blocks_keep_every_value_and_failures_in_their_places():
    died = UnmeasuredResponse(reason="no_connection")
    requests = loaded(*[timing(first=float(number)) for number in range(8)], died)
    assert blocks_of(requests, "ttft") == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert blocks_of(requests, "ttft", (9.0,)) == [[0, 1, 2], [3, 4, 5], [6, 7, 9]]
    assert blocks_of(requests, "itl")[2] == [0.01, 0.03] * 2
    assert blocks_of([], "ttft") == blocks_of(loaded(died), "ttft") == []


def paced(chance, requests, spread):
    """Gaps of requests that each have a pace: the gaps of one request are alike."""
    paces = (chance.lognormvariate(0, spread) for _ in range(requests))
    return [[pace * chance.lognormvariate(0, 0.2) for _ in range(16)] for pace in paces]


@pytest.mark.parametrize("percent", [50, 95])
def test_the_interval_of_gaps_covers_the_percentile_of_all_gaps(percent):
    """The gaps of one request are not independent: an interval as of 1600 independent gaps covers a half of the time."""
    chance, covered, covered_alone = Random(2), 0, 0
    true = exp(hypot(0.4, 0.2) * NormalDist().inv_cdf(percent / 100))
    for _ in range(300):
        groups = paced(chance, 100, 0.4)
        found = grouped_interval(groups, percent)
        alone = percentile_interval(sorted(gap for group in groups for gap in group), percent)
        assert found.value == alone.value
        covered += found.low <= true <= found.high
        covered_alone += alone.low <= true <= alone.high
    assert covered / 300 > 0.91
    assert covered_alone / 300 < 0.7


def test_groups_of_one_value_and_independent_gaps():
    chance = Random(4)
    values = [chance.random() for _ in range(200)]
    for percent in (50, 95):
        assert grouped_interval([[value] for value in values], percent) == percentile_interval(sorted(values), percent)
    assert grouped_interval([[0.02] * 50] * 3, 50) == percentile_interval([0.02] * 3, 50)  # what three requests show
    gaps = [[chance.random() for _ in range(20)] for _ in range(50)]
    found, alone = grouped_interval(gaps, 50), percentile_interval(sorted(gap for group in gaps for gap in group), 50)
    assert found.high - found.low == pytest.approx(alone.high - alone.low, rel=0.35)


def answer(seconds):
    parts = [{"reasoning": "Think."}, {"content": "Hi"}]
    chunks = [{"choices": [{"index": 0, "delta": part, "finish_reason": None}]} for part in parts]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    data = [f"data: {dumps(chunk)}\n\n".encode() for chunk in chunks]
    times = (seconds, seconds + 0.1, seconds + 0.2)
    return SendResult(
        response=Response(
            status=200,
            headers={"content-type": "text/event-stream"},
            chunks=tuple(Chunk(arrival_time=time, data=one) for time, one in zip(times, data, strict=True)),
        )
    )


@pytest.fixture
def clock(monkeypatch):
    """A clock that only sleeping moves."""
    state = {"now": 100.0}
    waiting, numbers = [], count()

    async def sleep(seconds):
        due = state["now"] + max(0.0, seconds)
        done = asyncio.get_running_loop().create_future()
        waiting.append((due, next(numbers), done))
        await done

    async def drive(work):
        task = asyncio.ensure_future(work)
        while not task.done():
            for _ in range(20):
                await real_sleep(0)
            if task.done() or not waiting:
                continue
            waiting.sort()
            due, _, done = waiting.pop(0)
            state["now"] = max(state["now"], due)
            done.set_result(None)
        return task.result()

    real_sleep = asyncio.sleep
    monkeypatch.setattr(load_module, "now", lambda: state["now"])
    monkeypatch.setattr(load_module.asyncio, "sleep", sleep)
    return sleep, drive


def test_a_server_that_stalls_delays_all_that_were_due(clock):
    """One request at a time, a stall of 10 s: in the open loop every request that was due meanwhile has waited."""
    sleep, drive = clock
    kept = []

    async def measured():
        busy = asyncio.Lock()
        served = 0

        async def send(_):
            nonlocal served
            began = load_module.now()
            async with busy:
                served += 1
                await sleep(10.0 if served == 1 else 0.01)
                waited = load_module.now() - began
            return answer(waited)

        sender = LoadSender(send=send, members={"model": "m"}, engine="openai", keep=kept.append)
        offered = OfferedLoad(requests=11, rate=1.0, law=Arrivals.CONSTANT, input_tokens=40, output_tokens=8)
        return await sender.run(offered)

    requests = asyncio.run(drive(measured()))
    assert len(kept) == 11
    firsts = [one.timing.first_token for one in requests]
    assert firsts == pytest.approx(
        [max(0.01, 10 - due) + 0.01 * (due > 0) * min(due, 1) for due in range(11)], abs=0.15
    )
    assert [one.due for one in requests] == pytest.approx(range(11))
    assert {one.reasoning for one in requests} == {0.75}


def test_time_before_the_request_was_sent_counts():
    found = load_module.after_due(timing(first=0.1, answer=0.2, end=1.0), 2.0)
    assert (found.first_token, found.first_answer, found.end) == pytest.approx((2.1, 2.2, 3.0))
    assert found.gaps == (0.01, 0.03)


def test_command(tmp_path, capsys, monkeypatch):
    words = [
        "load",
        "reference",
        "--requests",
        "49",
        "--warm-up",
        "1",
        "--input-tokens",
        "60",
        "--out",
        str(tmp_path / "out"),
    ]
    monkeypatch.setattr(load_module, "after_due", lambda *_: timing())  # equal times: their interval is certain
    assert main([*words, "--rate", "200,400", "--slo", "ttft_p50=30s"]) == 0
    printed = capsys.readouterr().out
    assert "200 requests/s, 60 to 128 tokens: 49 requests, 0 failed" in printed
    assert "ttft p50 at most 30 s: met" in printed
    document = json.loads((tmp_path / "out" / "load.json").read_text("utf-8"))
    assert [load["requests"] for load in document["loads"]] == [49, 49]
    assert {"ttft", "answer", "itl", "tpot", "e2e"} == set(document["loads"][0]["metrics"])
    assert main([*words, "--clients", "3", "--slo", "e2e_p50=900ms"]) == 1
    assert "e2e p50 at most 0.9 s: missed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["http://127.0.0.1:9/v1", "--rate", "1"], "http://127.0.0.1:9"),
        (
            ["reference", "--rate", "1", "--max-requests", "4"],
            "invalid --max-requests: expected --requests, which `load` has in its place",
        ),
        (
            ["reference", "--rate", "1", "--slo", "ttft"],
            "invalid --slo: expected METRIC_pN=TIME like ttft_p95=500ms with one of ttft, answer, itl, tpot, e2e, got 'ttft'",
        ),
        (["reference"], "expected one of --rate and --clients, got none"),
        (["reference", "--rate", "1", "--clients", "1"], "expected one of --rate and --clients, got both"),
    ],
)
def test_wrong_use_is_one_line(words, problem, tmp_path, capsys):
    assert main(["load", *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize("words", [["--rate", "0"], ["--clients", "x"], ["--rate", "nan"], ["--rate", "inf"]])
def test_wrong_numbers(words, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["load", "reference", *words])
    assert stopped.value.code == 2
    assert "expected" in capsys.readouterr().err
