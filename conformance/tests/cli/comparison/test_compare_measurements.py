"""`compare` and `matrix` of folders of rates and of loads, on files written by hand; the statistics equal those of scipy."""

import json
from math import erfc, sqrt
from random import Random

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.report.comparison.latency_comparison import (
    LatencyChange,
    LatencyFigure,
    are_slower_by,
    compare_latency,
    p_value,
)
from harmony_conformance.runner.latency.statistics import percentile_interval


def rates_folder(folder, **counts):
    folder.mkdir()
    rates = [
        {"name": name, "about": name, "count": count, "of": of, "apart": 0} for name, (count, of) in counts.items()
    ]
    (folder / "rates.json").write_text(
        json.dumps({"endpoints": [{"model": "m", "engine": folder.name, "rates": rates}]})
    )
    return str(folder)


def load_folder(folder, ttft, objectives=(), name="4 requests/s, 128 to 128 tokens", failed=0):
    folder.mkdir()
    load = {
        "load": name,
        "requests": 100,
        "failed": failed,
        "metrics": {"ttft": {"n": 100, "p50": ttft, "p99": [9, None, None]}},
        "objectives": objectives,
    }
    (folder / "load.json").write_text(json.dumps({"loads": [load]}))
    return str(folder)


def test_worse_rates_are_gated_by_a_test_adjusted_for_their_number(tmp_path, capsys):
    before = rates_folder(tmp_path / "before", calls=(140, 150), quality=(46, 50), once=(1, 1))
    after = rates_folder(tmp_path / "after", calls=(120, 150), quality=(44, 50), never=(0, 1))
    assert main(["compare", before, after]) == 1
    printed = capsys.readouterr().out
    worse = "calls: 0.800 against 0.933, difference -0.21 to -0.06 (p 0.0021, adjusted): worse"
    assert worse in printed  # twice scipy's 0.00104
    assert "quality" not in printed
    assert main(["compare", after, before]) == 0
    assert "better" in capsys.readouterr().out
    assert main(["compare", before, before, "--format", "json"]) == 0
    assert [one["worse"] for one in json.loads(capsys.readouterr().out)["rates"]] == [False] * 3


def test_few_tries_name_the_rate_that_most_likely_differs(tmp_path, capsys):
    before = rates_folder(tmp_path / "before", calls=(5, 5), other=(5, 5))
    after = rates_folder(tmp_path / "after", calls=(2, 5), other=(5, 5))
    assert main(["compare", before, after]) == 0
    printed = capsys.readouterr().out
    assert "no rate of 2 differs significantly" in printed
    assert "most likely to differ: calls: 0.400 against 1.000, difference -0.88 to -0.03 (p 0.17, adjusted)" in printed
    assert main(["compare", before, before]) == 0
    assert "most likely" not in capsys.readouterr().out


def with_tries(folder, stopped="", **tries):
    """Add the tries of each task, named `set.task`, to a folder of rates."""
    document = json.loads((folder / "rates.json").read_text())
    listed = [
        {"set": name.split("_")[0], "task": name, "attempt": attempt, "grade": "solved"}
        for name, count in tries.items()
        for attempt in range(count)
    ]
    document["endpoints"][0].update(tries=listed, stopped=stopped)
    (folder / "rates.json").write_text(json.dumps(document))
    return str(folder)


def test_rates_of_other_tasks_are_not_compared(tmp_path, capsys):
    """`reasoned` would differ because the tasks do."""
    names = {"tools": (9, 10), "tools.auto": (4, 5), "quality": (9, 10), "reasoned": (10, 20)}
    for name, counts in {"before": names, "after": names | {"reasoned": (40, 40), "tools": (0, 10)}}.items():
        rates_folder(tmp_path / name, **counts)
    before = with_tries(tmp_path / "before", tools_a=5, tools_b=5, quality_a=5, quality_b=5)
    after = with_tries(tmp_path / "after", tools_a=9, tools_b=9, quality_a=9, quality_c=9)
    assert main(["compare", before, after, "--format", "json"]) == 1
    compared = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in compared["rates"]] == ["tools", "tools.auto"]
    assert compared["not_compared"] == ["quality", "reasoned"]
    main(["compare", before, after])
    assert "not compared, since the tasks differ: quality, reasoned" in capsys.readouterr().out
    with_tries(tmp_path / "after", quality_d=4)
    assert main(["compare", before, after]) == 2
    assert "expected rates of the same tasks that both have, got none" in capsys.readouterr().err


def test_rates_of_a_run_that_was_cut_are_no_success(tmp_path, capsys):
    rates_folder(tmp_path / "cut", calls=(3, 3))
    cut = with_tries(tmp_path / "cut", stopped="the limit of 3 requests was reached", tools_a=3)
    assert main(["compare", cut, cut]) == 2
    assert "incomplete: after: the limit of 3 requests was reached" in capsys.readouterr().err


def test_slower_answers_are_gated_by_the_interval_of_the_difference(tmp_path, capsys):
    before = load_folder(tmp_path / "before", [0.100, 0.098, 0.103])
    near = load_folder(tmp_path / "near", [0.106, 0.104, 0.108])
    slow = load_folder(tmp_path / "slow", [0.150, 0.140, 0.160])
    assert main(["compare", before, near]) == 0
    assert "ttft p50, 4 requests/s, 128 to 128 tokens: 100 before, 106 after; difference" in capsys.readouterr().out
    assert main(["compare", before, near, "--slower-by", "0"]) == 1
    assert " ms, p 0.0022: slower" in capsys.readouterr().out  # twice 0.0011
    assert main(["compare", before, slow, "--format", "json"]) == 1
    known, unknown = json.loads(capsys.readouterr().out)["latency"]
    assert known["change"] == "slower"
    assert known["interval"] == pytest.approx([0.05 - (0.01**2 + 0.003**2) ** 0.5, 0.05 + (0.01**2 + 0.002**2) ** 0.5])
    assert (unknown["percentile"], unknown["interval"], unknown["change"]) == (
        "p99",
        [None, None],
        "no certain difference",
    )


def test_a_load_whose_answers_are_fast_and_half_of_them_missing_is_worse(tmp_path, capsys):
    before = load_folder(tmp_path / "before", [0.100, 0.098, 0.103], failed=1)
    broken = load_folder(tmp_path / "broken", [0.050, 0.049, 0.052], failed=50)
    assert main(["compare", before, broken]) == 1
    printed = capsys.readouterr().out
    assert "ttft p50, 4 requests/s, 128 to 128 tokens: 100 before, 50 after" in printed
    assert "answered, 4 requests/s, 128 to 128 tokens: 0.500 against 0.990" in printed
    assert main(["compare", broken, before, "--format", "json"]) == 1  # the answers are slower
    assert [one["worse"] for one in json.loads(capsys.readouterr().out)["answered"]] == [False]
    assert main(["matrix", before, broken]) == 0
    printed = capsys.readouterr().out
    assert r"0\.50 \(0\.40 to 0\.60\), worse" in printed
    assert "No run has a failure" not in printed


def percentile_figure(found):
    return LatencyFigure(value=found.value, low=found.low, high=found.high)


def test_the_p_value_belongs_to_the_interval():
    before = LatencyFigure(value=0.100, low=0.098, high=0.103)
    for after, width in ((0.150, (0.01**2 + 0.003**2) ** 0.5), (0.060, (0.01**2 + 0.002**2) ** 0.5)):
        # a hand-made row: the half width is 1.96 standard errors, and 1.96 is 0.975 of the normal law
        error = width / 1.959964
        figure = LatencyFigure(value=after, low=after - 0.01, high=after + 0.01)
        assert p_value(before, figure) == pytest.approx(erfc(abs(after - 0.1) / error / sqrt(2)), rel=1e-4)
    assert p_value(before, before) == 1
    unknown = LatencyFigure(value=9.0, low=float("-inf"), high=float("inf"))
    assert p_value(before, unknown) == p_value(unknown, before) == 1
    assert p_value(LatencyFigure(value=1, low=1, high=1), LatencyFigure(value=2, low=2, high=2)) == 0


def two_loads_of_eleven_percentiles(folder, slowed):
    """Two loads, of which the second differs in the first of eleven metrics."""
    for name, first in (("before", 0.1), ("after", slowed)):
        values = {f"metric{place}": first if place == 0 else 0.1 for place in range(11)}
        metrics = {metric: {"p50": [value, value - 0.005, value + 0.005]} for metric, value in values.items()}
        (folder / name).mkdir()
        (folder / name / "load.json").write_text(json.dumps({"loads": [{"load": "2 clients", "metrics": metrics}]}))


@pytest.mark.parametrize(("slowed", "marked"), [(0.1, []), (0.1187, []), (0.135, [1])])
def test_one_of_eleven_percentiles_is_not_marked_in_a_matrix_by_chance(slowed, marked, tmp_path, capsys):
    """0.1187 s against 0.1 s is slower by more than 10 % with p 0.02 alone."""
    two_loads_of_eleven_percentiles(tmp_path, slowed)
    assert main(["matrix", str(tmp_path / "before"), str(tmp_path / "after"), "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)["load"]
    assert [row["worse"] for row in rows] == [marked, *[[]] * 10]


@pytest.mark.parametrize(("slowed", "code"), [(0.1, 0), (0.1136, 0), (0.125, 1)])
def test_one_of_eleven_percentiles_that_is_slower_by_chance_is_not_gated(slowed, code, tmp_path, capsys):
    """0.1136 s against 0.1 s is slower by more than 5 % with p 0.02 alone, and with p 0.22 as one of eleven."""
    two_loads_of_eleven_percentiles(tmp_path, slowed)
    assert main(["compare", str(tmp_path / "before"), str(tmp_path / "after"), "--slower-by", "0.05"]) == code
    assert "p adjusted by Holm for 11 percentiles" in capsys.readouterr().out


def test_eleven_equal_percentiles_of_two_samples_are_rarely_one_difference():
    """Loads of 100 requests of one unchanged server: without an adjustment, one in three has a difference."""
    chance, alone, adjusted = Random(5), 0, 0
    for _ in range(200):
        before, after = (
            {
                ("load", f"metric{place}", "p50"): percentile_figure(
                    percentile_interval(sorted(chance.lognormvariate(0, 1) for _ in range(100)), 50)
                )
                for place in range(11)
            }
            for _ in range(2)
        )
        changes = compare_latency(before, after)
        alone += any(low > 0 or high < 0 for low, high in (one.interval for one in changes))
        adjusted += any(one.word != "no certain difference" for one in changes)
    assert alone > 20
    assert adjusted <= 10  # 5 % of 200


def test_the_interval_covers_the_difference_of_two_medians():
    """Two exponential samples of 100, of which the second has a median that is greater by a half."""
    chance, covered, gated = Random(3), 0, 0
    for _ in range(400):
        figures = []
        for mean in (1.0, 1.5):
            found = percentile_interval(sorted(chance.expovariate(1 / mean) for _ in range(100)), 50)
            figures.append(percentile_figure(found))
        change = LatencyChange(load="", metric="", percentile="", before=figures[0], after=figures[1], p=1.0)
        covered += change.interval[0] <= 0.5 * 0.6931 <= change.interval[1]
        gated += any(are_slower_by(0, [(figures[0], figures[0])]))
    assert 0.93 < covered / 400 <= 0.99
    assert gated == 0


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "rates.json: "),
        ("{", "rates.json: "),
        ('{"endpoints": []}', "expected endpoints with rates, got none"),
        (
            '{"endpoints": [{"rates": [{"name": "a", "count": 3, "of": 2}]}]}',
            "expected a rate with name, count and of, got 'a'",
        ),
    ],
)
def test_invalid_rates_are_one_line(content, problem, tmp_path, capsys):
    right = rates_folder(tmp_path / "right", calls=(1, 2))
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "rates.json").write_text(content)
    assert main(["compare", right, str(wrong)]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert len(error.splitlines()) == 1
    assert main(["matrix", right, str(wrong)]) == 2


def test_files_of_two_kinds_are_not_compared(tmp_path, capsys):
    rates, load = rates_folder(tmp_path / "a", calls=(1, 2)), load_folder(tmp_path / "b", [1, 1, 1])
    assert main(["compare", rates, load]) == 2
    assert "expected two files of one kind, got rates.json and load.json" in capsys.readouterr().err
    assert main(["compare", rates, rates_folder(tmp_path / "c", other=(1, 2))]) == 2
    assert "expected rates of the same tasks that both have, got none" in capsys.readouterr().err
    assert main(["compare", rates, str(tmp_path / "absent")]) == 2
    assert "expected two files of one kind, got rates.json and absent" in capsys.readouterr().err
    assert main(["compare", load, load, "--format", "html"]) == 2
    with pytest.raises(SystemExit):
        main(["compare", load, load, "--slower-by", "-1"])
    assert "expected a share from 0, such as 0.1, got '-1'" in capsys.readouterr().err


def test_matrix_marks_what_is_certainly_worse_than_the_best(tmp_path, capsys):
    objective = {"objective": "ttft p95 at most 0.2 s", "missed": True, "met": False}
    right = rates_folder(tmp_path / "right", calls=(150, 150), quality=(48, 50))
    load_folder(tmp_path / "right" / "load", [0.1, 0.098, 0.103])
    broken = rates_folder(tmp_path / "broken", calls=(80, 150), quality=(49, 50))
    slow = load_folder(tmp_path / "slow", [0.9, 0.8, 1.0], [objective])
    assert main(["matrix", right, broken, slow, "--format", "json"]) == 0
    matrix = json.loads(capsys.readouterr().out)
    assert matrix["runs"] == ["m on right", "m on broken", "slow"]
    calls, quality = matrix["rates"]
    assert (calls["cells"][2], calls["worse"], quality["worse"]) == ("", [1], [])
    assert calls["cells"][1] == "0.53 (0.45 to 0.61), worse"
    _, goal, ttft, _ = matrix["load"]  # the first row: answered requests
    assert (ttft["cells"], ttft["worse"]) == (["100 ms (98 to 103)", "", "900 ms (800 to 1,000), slower"], [2])
    assert (goal["cells"], goal["worse"]) == (["", "", "missed"], [2])
    assert main(["matrix", right, broken, slow, "--format", "html"]) == 0
    page = capsys.readouterr().out
    assert '<td class="worse">0.53 (0.45 to 0.61), worse</td>' in page
    assert "Latency under load" in page
