"""Loads of several endpoints as rows of a matrix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harmony_conformance.json_value import Json, JsonObject, items, text, value_at
from harmony_conformance.report.comparison.latency_comparison import (
    FigureName,
    LatencyFigure,
    are_slower_by,
    load_figures,
)
from harmony_conformance.report.comparison.matrix import MatrixRow

_MILLI = 1000
_SHARE = 0.1
"""A cell is marked if it is certainly slower than the fastest by more than this share."""


def load_rows(loads: Sequence[Sequence[JsonObject]]) -> Iterator[MatrixRow]:
    """Yield a row for each objective, then one for each percentile of each load. Loads are matched by their names."""
    objectives = [{name: word for load in one for name, word in _objectives(load)} for one in loads]
    for objective in dict.fromkeys(name for column in objectives for name in column):
        cells = tuple(column.get(objective, "") for column in objectives)
        missed = tuple(place for place, cell in enumerate(cells) if cell == "missed")
        yield MatrixRow(name=objective[1], meaning=f"{objective[0]}.", cells=cells, worse=missed)
    columns = [load_figures(one) for one in loads]
    slower = _slower(columns)
    for name in dict.fromkeys(name for column in columns for name in column):
        load, metric, percentile = name
        worse = tuple(place for place in range(len(columns)) if (name, place) in slower)
        cells = tuple(
            _cell(column.get(name), is_slower=place in worse) if loads[place] else ""
            for place, column in enumerate(columns)
        )
        yield MatrixRow(name=f"{metric} {percentile}", meaning=f"{load}.", cells=cells, worse=worse)


def _slower(columns: Sequence[Mapping[FigureName, LatencyFigure]]) -> frozenset[tuple[FigureName, int]]:
    """Return the figures that are certainly slower than the fastest of their row, each with its column. Every figure is one of the tests."""
    pairs: dict[tuple[FigureName, int], tuple[LatencyFigure, LatencyFigure]] = {}
    for name in {name for column in columns for name in column}:
        fastest = min((column[name] for column in columns if name in column), key=lambda figure: figure.value)
        for place, column in enumerate(columns):
            if name in column and column[name] is not fastest:
                pairs[name, place] = fastest, column[name]
    found = are_slower_by(_SHARE, [*pairs.values()])
    return frozenset(key for key, is_slower in zip(pairs, found, strict=True) if is_slower)


def _cell(figure: LatencyFigure | None, *, is_slower: bool) -> str:
    if figure is None:
        return "not measured"
    low, high = ("?" if abs(end) == float("inf") else f"{_MILLI * end:,.4g}" for end in (figure.low, figure.high))
    return f"{_MILLI * figure.value:,.4g} ms ({low} to {high}){', slower' if is_slower else ''}"


def _objectives(load: Json) -> Iterator[tuple[tuple[str, str], str]]:
    for one in items(value_at(load, "objectives")):
        word = "missed" if value_at(one, "missed") else "met" if value_at(one, "met") else "not certain"
        yield (text(value_at(load, "load")), text(value_at(one, "objective"))), word
