"""The data of the live page as JSON: open exchanges, totals, counts by check, the last outcomes, readiness."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from harmony_conformance.json_value import Json, JsonObject
from harmony_proxy.judging.counters import Gauges, Tally
from harmony_proxy.judging.judge_queue import JudgeQueue

_ACTIONS = ("repaired", "blocked", "left")
_OUTCOMES = ("pass", "fail", "variant", "error")
_TOTALS = ("judged", "failing", "dropped", "lost", "restarts", "problems")


def live_state(queue: JudgeQueue, gauges: Gauges, is_upstream_ready: Callable[[], bool] | None) -> JsonObject:
    """Return the state. Without `is_upstream_ready` the state of the upstream is null: unknown."""
    counts = queue.tally
    totals: JsonObject = {name: counts[name,] for name in _TOTALS}
    return {
        "judge_up": queue.is_judging,
        "upstream_ready": is_upstream_ready() if is_upstream_ready is not None else None,
        "open": gauges.exchanges_open,
        "buffered": gauges.responses_buffered,
        "queued": queue.queue_length,
        "memory_bytes": queue.memory.used_bytes,
        "memory_limit": queue.memory.limit,
        "totals": {"exchanges": sum(_by_label(counts, "exchanges", 2).values()), **totals},
        "verdicts": {**_by_label(counts, "answers", 4)},
        "checks": _checks(counts),
        "recent": queue.recent_outcomes,
    }


def _by_label(counts: Tally, kind: str, place: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for key, times in counts.items():
        if key[0] == kind:
            found[key[place]] += times
    return found


def _checks(counts: Tally) -> list[Json]:
    """Return the counts of each check that did not only pass, the most failures first."""
    rows: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for key, times in counts.items():
        if key[0] in ("verdicts", "acted"):
            rows[key[1]][key[2]] += times
    shown = [name for name, row in rows.items() if set(row) - {"pass"}]
    shown.sort(key=lambda name: (-rows[name]["fail"], name))
    return [{"check": name, **{kind: rows[name][kind] for kind in (*_OUTCOMES, *_ACTIONS)}} for name in shown]
