"""Measure the CPU time of a policy that repairs: `repair_cost.py [--rounds N] [--out FILE]`. It writes the table of costs in docs/repairs.md.

A figure is the median of the rounds. `json.loads` of one event is measured too, so that a reader can compare machines.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from judge_cost import ASKED, SAID, THOUGHT, exchange, streamed, whole
from prose import prose

from harmony_conformance.transport.messages import Request, Response
from harmony_proxy.policy.policy import Action
from harmony_proxy.policy.repair_interface import Actions
from harmony_proxy.repair import REPAIRS, StreamRepairer, repair_answer
from harmony_ref import decode, encode

PAGE = Path(__file__).parents[1] / "docs" / "repairs.md"
EVENTS = 2000
REPAIRING = dict.fromkeys(REPAIRS, Action.REPAIR)
LEAKED = whole(
    {"content": f"<|channel|>analysis<|message|>{THOUGHT}<|end|><|start|>assistant<|channel|>final<|message|>{SAID}"},
    "stop",
    38,
)
CLEAN = whole({"content": SAID, "reasoning_content": THOUGHT}, "stop", 38)


def stream_seconds(text: str) -> float:
    """Return the CPU time to repair a stream whose content is the text."""
    request, kind, events = streamed("", text)
    response = Response(status=200, chunks=(), headers={"content-type": kind.decode()})
    asked = Request(path="/v1/chat/completions", body=request)
    one = StreamRepairer(asked, response, "chat", REPAIRING, fallback=Action.OBSERVE, request_id="r", limit=1 << 26)
    begin = time.process_time()
    for event in events:
        one.feed(event)
    one.close()
    assert bool(one.actions.repair_counts) is text.startswith("analysis"), one.actions
    return time.process_time() - begin


def repair(answer: tuple[bytes, bytes, tuple[bytes, ...]]) -> Actions:
    """Repair a complete answer."""
    return repair_answer(exchange(*answer), REPAIRING, fallback=Action.OBSERVE).actions


def seconds(task: Callable[[], object], times: int = 20) -> float:
    """Return the CPU time of a task."""
    begin = time.process_time()
    for _ in range(times):
        task()
    return (time.process_time() - begin) / times


def measure() -> Mapping[str, float]:
    """Return the microseconds of each piece of work, once."""
    text = decode(encode(prose(10 * EVENTS, seed=1))[:EVENTS])
    glued = f"analysis{THOUGHT}assistantfinal"
    event = json.dumps({"choices": [{"index": 0, "delta": {"content": " word"}, "finish_reason": None}], **ASKED})
    assert repair(LEAKED).repair_counts
    assert not repair(CLEAN)
    return {
        "`json.loads` of an event": 1e6 * seconds(lambda: json.loads(event), 2000),
        "an event of a stream without a leak": 1e6 * stream_seconds(text) / EVENTS,
        "an event of a stream that is rewritten from its first words on": 1e6 * stream_seconds(glued + text) / EVENTS,
        "a short complete answer without a failure": 1e6 * seconds(lambda: repair(CLEAN)),
        "a short complete answer, repaired": 1e6 * seconds(lambda: repair(LEAKED)),
    }


def table(figures: Mapping[str, float]) -> str:
    """Return the rows of the page, with two digits."""
    return "".join(f"| {work} | {float(f'{figure:.2g}'):,.0f} µs |\n" for work, figure in figures.items())


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rounds = [measure() for _ in range(given.rounds)]
    figures = {work: round(statistics.median(one[work] for one in rounds), 2) for work in rounds[0]}
    print(table(figures), end="")
    if given.out is not None:
        given.out.write_text(f"{json.dumps(figures, indent=1, ensure_ascii=False)}\n", "utf-8")
        page = PAGE.read_text("utf-8")
        rows = r"(?<=\| work \| CPU time \|\n\| --- \| ---: \|\n)(?:\|.*\n)*"
        PAGE.write_text(re.sub(rows, lambda _: table(figures), page), "utf-8")


if __name__ == "__main__":
    main()
