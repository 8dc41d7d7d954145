"""`load.html`: distributions of the latencies with the limits of `--slo`, and throughput by concurrency. One file without scripts.

The page is made from `load.json` alone. Its charts are SVG.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10

from markupsafe import Markup

from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_conformance.load.objectives import METRICS
from harmony_conformance.report.pages.html import environment

WIDTH, HEIGHT = 640, 240
_Scale = Callable[[float, float], float]
_MILLI = 1000
_PERCENT = 100


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A line of a chart: its name, the points in pixels, and whether it has a mark at each of them."""

    name: str
    points: tuple[tuple[float, float], ...]
    has_marks: bool = False

    @property
    def path(self) -> Markup:
        """The points as SVG writes them, which are numbers alone."""
        return Markup(" ").join(f"{x:.1f},{y:.1f}" for x, y in self.points)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart: curves, the positions of ticks with their words, and vertical lines of limits with their words."""

    title: str
    across: str
    curves: tuple[Curve, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    limits: tuple[tuple[float, str], ...] = ()


def load_html(document: JsonObject) -> str:
    """Return the page of a `load.json`."""
    loads = [members(load) for load in items(value_at(document, "loads"))]
    charts = (*_distributions(loads), *_throughput(loads))
    names = {"WIDTH": WIDTH, "HEIGHT": HEIGHT, "METRICS": METRICS}
    return (
        environment()
        .get_template("load.html.jinja", globals=names)
        .render(target=text(value_at(document, "target")), loads=[*map(_row, loads)], charts=charts)
    )


def _row(load: JsonObject) -> JsonObject:
    """Return the figures of a load as texts."""
    metrics: JsonObject = {
        name: {percentile: _interval(value_at(figure, percentile)) for percentile in ("p50", "p95", "p99")}
        for name, figure in members(load.get("metrics")).items()
    }
    objectives: list[Json] = [
        [
            text(value_at(one, "objective")),
            "missed" if value_at(one, "missed") else "met" if value_at(one, "met") else "not certain",
        ]
        for one in items(load.get("objectives"))
    ]
    plain = ("requests_per_second", "tokens_per_second", "goodput", "concurrency")
    return {**load, "metrics": metrics, "objectives": objectives, **{name: _number(load.get(name)) for name in plain}}


def _number(value: Json) -> str:
    return f"{value:,.4g}" if isinstance(value, int | float) else "unknown"


def _interval(figure: Json) -> str:
    numbers = [_MILLI * one if isinstance(one, int | float) else None for one in items(figure)]
    if not numbers or numbers[0] is None:
        return ""
    low, high = ("?" if one is None else f"{one:,.4g}" for one in numbers[1:])
    return f"{numbers[0]:,.4g} ({low} to {high})"


def _distributions(loads: Sequence[JsonObject]) -> Iterator[Chart]:
    """Yield the empirical distribution function of each metric, with a curve for each load."""
    for metric, (about, _) in METRICS.items():
        found = [(load, _numbers(value_at(load, "metrics", metric, "quantiles"))) for load in loads]
        measured = [(text(load["load"]), [_MILLI * one for one in values]) for load, values in found if values]
        if not measured:
            continue
        objectives = {
            (one["objective"], one["limit"]): members(one)
            for load in loads
            for one in map(members, items(load.get("objectives")))
            if value_at(one, "metric") == metric
        }
        limits = [(_MILLI * limit, text(name)) for name, limit in objectives if isinstance(limit, int | float)]
        ends = [values[-1] for _, values in measured] + [limit for limit, _ in limits]
        top = _nice(max(ends))
        yield Chart(
            title=f"{metric}: {about}",
            across="ms",
            curves=tuple(
                Curve(
                    name=name, points=tuple((_x(value, top), _y(place, _PERCENT)) for place, value in enumerate(values))
                )
                for name, values in measured
            ),
            x_ticks=_ticks(top, _x),
            y_ticks=tuple((_y(share, _PERCENT), f"{share} %") for share in (0, 50, 95)),
            limits=tuple((_x(limit, top), name) for limit, name in limits),
        )


def _throughput(loads: Sequence[JsonObject]) -> Iterator[Chart]:
    """Yield answers per second, and those that kept every limit, by the mean number of requests in flight."""
    curves: list[tuple[str, list[tuple[float, float]]]] = []
    for name, member in (("answers/s", "requests_per_second"), ("goodput/s", "goodput")):
        points = sorted(
            (float(across), float(up))
            for load in loads
            for across, up in [(load.get("concurrency"), load.get(member))]
            if isinstance(across, int | float) and isinstance(up, int | float)
        )
        if points:
            curves.append((name, points))
    if not curves:
        return
    right = _nice(max(across for _, points in curves for across, _ in points))
    top = _nice(max(up for _, points in curves for _, up in points))
    yield Chart(
        title="Throughput by concurrency",
        across="mean number of requests in flight",
        curves=tuple(
            Curve(name=name, points=tuple((_x(across, right), _y(up, top)) for across, up in points), has_marks=True)
            for name, points in curves
        ),
        x_ticks=_ticks(right, _x),
        y_ticks=_ticks(top, _y),
    )


def _numbers(values: Json) -> list[float]:
    return [float(value) for value in items(values) if isinstance(value, int | float) and isfinite(value)]


def _nice(value: float) -> float:
    """Return the next number of the form 1, 2, 5 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** floor(log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def _ticks(top: float, place: _Scale) -> tuple[tuple[float, str], ...]:
    step = _nice(top / 5)
    return tuple((place(step * count, top), f"{step * count:g}") for count in range(ceil(top / step - 1e-9) + 1))


def _x(value: float, top: float) -> float:
    return WIDTH * value / top


def _y(value: float, top: float) -> float:
    return HEIGHT * (1 - value / top)
