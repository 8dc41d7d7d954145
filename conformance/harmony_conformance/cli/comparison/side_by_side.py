"""The folders of several endpoints, read for a matrix: runs, rates and loads, alone or together in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harmony_conformance.cli.report import read_run
from harmony_conformance.errors import UsageError
from harmony_conformance.json_value import JsonObject, integer, text, value_at
from harmony_conformance.load.load_file import LOAD, InvalidLoadError, read_loads
from harmony_conformance.load.side_by_side import load_rows
from harmony_conformance.report.comparison.matrix import Matrix, make_matrix
from harmony_conformance.report.files import report_in
from harmony_conformance.report.model import Report
from harmony_conformance.report.summary import title
from harmony_conformance.sampling.rates import Rate
from harmony_conformance.sampling.rates_file import RATES, InvalidRatesError, SampledRates, read_rates
from harmony_conformance.sampling.side_by_side import rate_rows

RATES_FOLDER, LOAD_FOLDER = "rates", "load"
"""Folders of the rates and the loads of an endpoint below that of its run."""


@dataclass(frozen=True, kw_only=True)
class EndpointFolder:
    """Results of an endpoint: its run, its rates and its loads, at least one of them."""

    path: Path
    report: Report | None
    rates: SampledRates | None
    loads: tuple[JsonObject, ...]

    @property
    def title(self) -> str:
        """The name of the server."""
        if self.report is not None:
            return title(self.report)
        return self.rates.title if self.rates is not None else self.folder

    @property
    def folder(self) -> str:
        """The name of the folder."""
        return self.path.name if self.path.is_dir() else self.path.resolve().parent.name


def read_endpoint_folder(path: Path) -> EndpointFolder:
    """Read the folder of an endpoint, or its `report.jsonl`.

    Raises:
        UsageError: It has neither a run nor rates nor loads, or one of them is invalid.
    """
    rates = next(filter(Path.is_file, (path / RATES, path / RATES_FOLDER / RATES)), None)
    loads = next(filter(Path.is_file, (path / LOAD, path / LOAD_FOLDER / LOAD)), None)
    has_run = report_in(path) is not None
    try:
        return EndpointFolder(
            path=path,
            report=read_run(path) if has_run or (rates is None and loads is None) else None,
            rates=read_rates(rates)[0] if rates is not None else None,
            loads=read_loads(loads) if loads is not None else (),
        )
    except (InvalidRatesError, InvalidLoadError) as problem:
        raise UsageError(str(problem)) from None


def side_by_side(folders: Sequence[EndpointFolder], names: Sequence[str]) -> Matrix:
    """Return the matrix of several endpoints."""
    return make_matrix(
        [one.report for one in folders],
        names,
        rate_rows([one.rates for one in folders]),
        [*rate_rows([_answered(one) for one in folders]), *load_rows([one.loads for one in folders])],
    )


def _answered(folder: EndpointFolder) -> SampledRates | None:
    return SampledRates(title=folder.title, rates=answered_rates(folder.loads)) if folder.loads else None


def answered_rates(loads: Sequence[JsonObject]) -> tuple[Rate, ...]:
    """Return the share of answered requests of each load: the times of a load are those of answered requests alone."""
    counts = [(load, integer(value_at(load, "requests")), integer(value_at(load, "failed"))) for load in loads]
    return tuple(
        Rate(
            name=f"answered, {text(value_at(load, 'load'))}",
            about="requests with an answer; timeouts and errors are the others",
            count=requests - failed,
            of=requests,
        )
        for load, requests, failed in counts
        if requests is not None and failed is not None and failed <= requests
    )
