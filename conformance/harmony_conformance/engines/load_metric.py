"""Number of running requests, read from one metric of a server's Prometheus text."""

from __future__ import annotations

import re

from harmony_conformance.engines.profiles import ENGINES
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import METRICS_API


def requests_running(x: Exchange) -> float | None:
    """Return the number of running requests, summed over labels; None if the response lacks it."""
    engine = ENGINES.get(x.engine)
    if x.api != METRICS_API or x.response is None or not x.response.is_success or not engine or not engine.load_metric:
        return None
    line = re.compile(rf"^{re.escape(engine.load_metric.name)}(?:\{{[^\n]*\}})?[ \t]+([0-9.eE+-]+)", re.MULTILINE)
    values = line.findall(x.response.body.decode("utf-8", "replace"))
    try:
        return sum(map(float, values)) if values else None
    except ValueError:
        return None
