"""The last outcomes in the judge process, for the live page: without content, and with names of models as in the metrics.

New ones are reported at intervals. The parent retains the reports (`recent_reports`) and parses them on demand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import Result
from harmony_proxy.capture.build_exchange import BuiltExchange
from harmony_proxy.capture.routes import route_of
from harmony_proxy.judging.counters import answer_verdict, model_label
from harmony_proxy.judging.model_names import ModelNames
from harmony_proxy.judging.recent_reports import MOST_OUTCOMES


class RecentOutcomes:
    """In the judge process. State: the outcomes since the last report, and the names of models."""

    def __init__(self) -> None:
        self._outcomes: deque[JsonObject] = deque(maxlen=MOST_OUTCOMES)
        self._models = ModelNames()

    def add(self, built: BuiltExchange, applied: Sequence[Result], _not_applicable: int = 0) -> None:
        """Add the outcome of one exchange."""
        record = built.record
        others = [result for result in applied if result.outcome is not Outcome.PASS]
        self._outcomes.append(
            {
                "id": record.id,
                "started": round(record.started, 3),
                "seconds": round(record.seconds, 3),
                "route": route_of(record.path),
                "model": model_label(built, self._models),
                "status": record.status if record.client_status is None else record.client_status,
                "end": built.end,
                "verdict": answer_verdict(built, others),
                "failed": [result.check for result in others if result.outcome is Outcome.FAIL],
                "repaired": [*record.repair_counts],
                "blocked": [*record.blocked_checks],
            }
        )

    def take_report(self) -> str:
        """Return the new outcomes as a number and a JSON list, and forget them; empty without new ones."""
        if not self._outcomes:
            return ""
        report = f"{len(self._outcomes)} {dumps([*self._outcomes])}"
        self._outcomes.clear()
        return report
