"""How many requests a server says it is working on: one metric of the Prometheus text of its metrics."""

from __future__ import annotations

import re

from harmony_conformance.engines.profiles import ENGINES
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import METRICS_API


def requests_running(x: Exchange) -> float | None:
    """The number, summed over labels; None where the answer does not tell it."""
    engine = ENGINES.get(x.engine)
    if (
        x.api != METRICS_API
        or x.response is None
        or not x.response.is_success
        or engine is None
        or engine.load_metric is None
    ):
        return None
    line = re.compile(rf"^{re.escape(engine.load_metric.name)}(?:\{{[^\n]*\}})?[ \t]+([0-9.eE+-]+)", re.MULTILINE)
    told = line.findall(x.response.body.decode("utf-8", "replace"))
    try:
        return sum(map(float, told)) if told else None
    except ValueError:
        return None
