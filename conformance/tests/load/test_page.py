"""`load.html`: its curves are the figures of `load.json`, and no text becomes markup."""

import re

import pytest

from harmony_conformance.load.page import HEIGHT, WIDTH, load_html


def load(name="4 requests/s", concurrency=2.0, answers=4.0, **more):
    return {
        "load": name,
        "requests": 100,
        "failed": 0,
        "concurrency": concurrency,
        "requests_per_second": answers,
        "tokens_per_second": 40.0,
        "goodput": answers and answers / 2,
        "metrics": {
            "e2e": {"p50": [0.5, 0.4, 0.6], "p95": [0.95, 0.9, None], "quantiles": [n / 100 for n in range(101)]}
        },
        "objectives": [
            {
                "objective": "e2e p95 at most 0.8 s",
                "metric": "e2e",
                "percent": 95,
                "limit": 0.8,
                "met": False,
                "missed": True,
            }
        ],
        **more,
    }


def points(page):
    return [
        [tuple(map(float, pair.split(","))) for pair in line.split()]
        for line in re.findall(r'<polyline points="([^"]*)"', page)
    ]


def test_a_uniform_distribution_is_a_straight_line_up_to_its_maximum():
    page = load_html({"target": "t", "loads": [load()]})
    distribution, answers, good = points(page)
    assert len(distribution) == 101
    assert distribution[0] == (0, HEIGHT)
    assert distribution[50] == pytest.approx((WIDTH / 2, HEIGHT / 2), abs=0.06)  # the axis ends at 1000 ms
    assert distribution[100] == (WIDTH, 0)
    assert f'class="limit" x1="{0.8 * WIDTH:.1f}"' in page
    assert "950 (900 to ?)" in page
    assert "missed" in page
    assert answers == [(WIDTH, pytest.approx(HEIGHT * (1 - 4 / 5)))]
    assert good == [(WIDTH, pytest.approx(HEIGHT * (1 - 2 / 5)))]


def test_throughput_has_a_point_for_each_load_in_the_order_of_concurrency():
    loads = [load("b", 4.0, 5.0), load("a", 1.0, 2.0), load("unmeasured", None, None, metrics={}, goodput=None)]
    *_, answers, good = points(load_html({"target": "t", "loads": loads}))
    assert [round(x / WIDTH * 5, 2) for x, _ in answers] == [1.0, 4.0]
    assert [round((1 - y / HEIGHT) * 5, 2) for _, y in good] == [1.0, 2.5]


def test_no_text_becomes_markup_and_equal_figures_are_equal_bytes():
    hostile = "</title><script>x</script>"
    document = {"target": hostile, "loads": [load(hostile)]}
    page = load_html(document)
    assert "<script" not in page
    assert page == load_html(document)


def test_figures_without_quantiles_have_a_table_and_no_curve():
    metrics = {"e2e": {"p50": [0.5, 0.4, 0.6]}}
    page = load_html({"target": "t", "loads": [load(metrics=metrics, concurrency=None)]})
    assert points(page) == []
    assert "500 (400 to 600)" in page
