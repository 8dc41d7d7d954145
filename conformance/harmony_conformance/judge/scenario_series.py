"""The subjects that checks run on: the exchanges and the series of all tries of a scenario."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harmony_conformance.apis.registry import CHAT_COMPLETIONS
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.runtime.caching import cached_property
from harmony_conformance.transport.messages import FailureKind

_NO_SCRIPT = "no script"
"""A part of the reason why no script was played, if the request has none."""


@dataclass(frozen=True, kw_only=True, eq=False)
class JudgedSubject:
    """An exchange or a series that checks run on, with the conditions evaluated on it so far."""

    exchange_or_series: Exchange | Series
    exchanges: tuple[Exchange, ...]
    condition_values: dict[object, bool] = field(default_factory=dict[object, bool])

    @cached_property
    def ids_and_evidence(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The exchange ids and the evidence levels of a result."""
        levels = {f"prompt: {x.prompt.level}" for x in self.exchanges}
        levels |= {f"output: {x.output.level}" for x in self.exchanges}
        levels |= {f"side by side: {x.concurrency}" for x in self.exchanges if x.concurrency is not None}
        return tuple(dict.fromkeys(x.id for x in self.exchanges)), tuple(sorted(levels))


@dataclass(frozen=True)
class ScenarioSeries:
    """The series of all tries of a scenario. All checks share one object, so that shared conditions are evaluated once."""

    series: Sequence[Series]

    @cached_property
    def name(self) -> str:
        """The name of the scenario."""
        return self.series[0].name if self.series else ""

    @cached_property
    def api(self) -> str:
        """The name of the API that it was sent to."""
        return self.series[0].api if self.series else CHAT_COMPLETIONS.name

    @cached_property
    def subjects(self) -> Mapping[type[Exchange | Series], tuple[JudgedSubject, ...]]:
        """The subjects of each kind of check: every choice of every exchange, and the series."""
        choices = [x for one in self.series for whole in one.exchanges.values() for x in (whole, *whole.other_choices)]
        return {
            Exchange: tuple([JudgedSubject(exchange_or_series=x, exchanges=(x,)) for x in choices]),
            Series: tuple(
                [JudgedSubject(exchange_or_series=one, exchanges=tuple(one.exchanges.values())) for one in self.series]
            ),
        }

    @cached_property
    def rate_limited_ids(self) -> tuple[str, ...]:
        """The ids of the exchanges that were still rate limited after all retries."""
        failures = ((x.id, x.failure) for one in self.series for x in one.exchanges.values())
        return tuple(
            name for name, failure in failures if failure is not None and failure.kind is FailureKind.RATE_LIMITED
        )

    @cached_property
    def unplayed_reason(self) -> str:
        """The number and the ids of the exchanges whose scripts were not played. Empty without such an exchange."""
        exchanges = [x for one in self.series for x in one.exchanges.values()]
        unplayed = [x for x in exchanges if x.script_not_played and _NO_SCRIPT not in x.script_not_played]
        if not unplayed:
            return ""
        ids = ", ".join(x.id for x in unplayed)
        return f"{len(unplayed)} of {len(exchanges)} exchanges are inconclusive, since {unplayed[0].script_not_played}: {ids}"

    def ids_and_evidence(self, subjects: tuple[JudgedSubject, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the exchange ids and the evidence levels of a result: the same for all checks that applied to the same subjects."""
        if subjects not in self._ids_and_evidence_cache:
            parts = [subject.ids_and_evidence for subject in subjects]
            ids = tuple(dict.fromkeys(name for names, _ in parts for name in names))
            levels = {level for _, of_subject in parts for level in of_subject}
            self._ids_and_evidence_cache[subjects] = ids, tuple(sorted(levels))
        return self._ids_and_evidence_cache[subjects]

    @cached_property
    def _ids_and_evidence_cache(self) -> dict[tuple[JudgedSubject, ...], tuple[tuple[str, ...], tuple[str, ...]]]:
        return {}
