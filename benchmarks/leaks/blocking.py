"""Count the innocent exchanges that a policy with `--block` would block: `blocking.py [--sample N] [--out FOLDER]` writes blocking.json.

The corpus is that of `false_alarms.py`, judged by the text alone, as the proxy does: whole answers, and streams event by event.
The numbers are quoted in `docs/proxy-policies.md`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from innocent import corpus
from innocent.case import exchange, shape_of, shown

from harmony_conformance.evidence.exchange import Exchange
from harmony_proxy import repair
from harmony_proxy.policy.policy import Action, FailMode
from harmony_proxy.repair.answer.check_verdicts import find_failures
from harmony_proxy.repair.answer.strict_leaks import LEAK_CHECKS

HANDLERS = repair.handlers()
BLOCK = dict.fromkeys(LEAK_CHECKS, Action.BLOCK)


def is_blocked(x: Exchange) -> bool:
    """Return True if the proxy blocks the answer, whole or streamed."""
    if x.response is None or x.events is None:
        return bool(HANDLERS.repair_answer(x, BLOCK, fallback=Action.OBSERVE).actions.blocked_checks)
    stream = HANDLERS.open_stream(
        x.request, x.response, x.api, BLOCK, fallback=Action.OBSERVE, request_id="", limit=1 << 24, fail=FailMode.OPEN
    )
    for part in x.response.body.splitlines(keepends=True):
        stream.feed(part)
    stream.close()
    return stream.is_terminated


def measure(sample: int | None) -> dict[str, object]:
    """Return the number of exchanges, of those that the checks alone fail, and of those that are blocked, by stratum."""
    cases, failing, blocked = 0, 0, Counter[str]()
    names: list[str] = []
    for case in corpus(sample):
        x = exchange(case, shown(case), shape_of(case))
        cases += 1
        failing += bool(find_failures(x, LEAK_CHECKS))
        if is_blocked(x):
            blocked[case.stratum] += 1
            names.append(case.name)
    counts = {"cases": cases, "failing": failing, "blocked": blocked.total()}
    return {**counts, "by_stratum": dict(sorted(blocked.items())), "names": sorted(names)}


def write(sample: int | None, folder: Path) -> None:
    """Measure, and write the results into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(measure(sample), indent=1, sort_keys=True) + "\n"
    (folder / "blocking.json").write_text(text, "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, help="about so many cases instead of all")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results")
    options = parser.parse_args()
    write(options.sample, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
