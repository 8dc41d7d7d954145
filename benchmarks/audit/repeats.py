"""Measure the plan `structure` with and without the memo of repeated exchanges: `repeats.py [--records N] [--rounds N] [--out FILE]`.

The log is that of `generate.py`. Its records are measured together, and by their form. It has no calls. A second log has them: in its history,
and in two of three answers. The figure is CPU time of this process for reading, judging and
tallying one record. With the memo, the shells of the log are known from an earlier pass, as in the middle of a long log; `new` is the first pass.
The contenders take turns. `make bench-audit` measures whole audits.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import re
import statistics
import sys
import time
from itertools import cycle, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from generate import DEFAULT_LEAKS, DEFAULT_MENTIONS, FIRST_SECOND, MODELS, records

from harmony_conformance.audit import batches as audit_batches
from harmony_conformance.audit.batches import MAX_BATCH_BYTES, MAX_BATCH_LINES, Batch, ReadOptions, scan_batch
from harmony_conformance.audit.repeats.memo import RepeatMemo
from harmony_conformance.evidence.file_lines import Line
from harmony_conformance.runtime.processes import reduce_garbage_collection

FORMS = {"answer": dict, "list of events": list, "text of a stream": str}
READING = ReadOptions()


TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
USAGE = {
    "prompt_tokens": 90,
    "completion_tokens": 20,
    "total_tokens": 110,
    "completion_tokens_details": {"reasoning_tokens": 5},
}


def call(arguments: str, **more: object) -> dict:
    return {**more, "function": {"name": "get_weather", "arguments": arguments}}


def records_with_calls(number: int) -> list[bytes]:
    """Return records whose history has a call. A third of the answers are texts, calls and streams of a call each."""
    rng = random.Random(1)
    lines = []
    for kind in islice(cycle(("text", "call", "stream")), number):
        city, (first, second) = f"City {rng.randrange(10**6)}", (f"call_{rng.randrange(10**12)}" for _ in range(2))
        arguments = json.dumps({"city": city})
        made = {"role": "assistant", "content": None, "reasoning": f"I look at {city}."}
        history = [
            {"role": "user", "content": f"Is it raining in {city}?"},
            {**made, "tool_calls": [call(arguments, id=first, type="function")]},
            {"role": "tool", "tool_call_id": first, "content": json.dumps({"sky": "sunny", "degrees": rng.random()})},
        ]
        asked = {"model": MODELS[0], "messages": history, "tools": [TOOL], "stream": kind == "stream"}
        head = {"id": f"chatcmpl-{rng.randrange(10**12)}", "created": FIRST_SECOND, "model": MODELS[0]}
        turn = {**made, "tool_calls": [call(arguments, id=second, type="function")]}
        choice = {"index": 0, "message": turn, "finish_reason": "tool_calls"}
        if kind == "text":
            choice = {**choice, "message": {**made, "content": f"It is sunny in {city}."}, "finish_reason": "stop"}
        response: object = {**head, "object": "chat.completion", "choices": [choice], "usage": USAGE}
        if kind == "stream":
            calls = [call("", index=0, id=second, type="function")]
            deltas = [{"role": "assistant"}, {"reasoning": "I look."}, {"tool_calls": calls}]
            deltas += [{"tool_calls": [call_piece(piece)]} for piece in re.findall(".{1,4}", arguments)]
            choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
            choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
            events = [{**head, "object": "chat.completion.chunk", "choices": [one]} for one in choices]
            response = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        lines.append(json.dumps({"request": asked, "response": response}).encode())
    return lines


def call_piece(arguments: str) -> dict:
    return {"index": 0, "function": {"arguments": arguments}}


def split(lines: list[bytes]) -> list[Batch]:
    made, part, size = [], [], 0
    for offset, data in enumerate(lines):
        if part and (len(part) == MAX_BATCH_LINES or size + len(data) > MAX_BATCH_BYTES):
            made.append(Batch(file="log", lines=tuple(part)))
            part, size = [], 0
        part.append(Line(offset=offset, number=1, data=data))
        size += len(data)
    return [*made, Batch(file="log", lines=tuple(part))]


def spent(log: list[Batch], memo: RepeatMemo | None) -> float:
    """Return the seconds of CPU time for a record."""
    audit_batches._memo_of = lambda _: memo
    start = time.process_time()
    for batch in log:
        scan_batch(batch, READING)
    return (time.process_time() - start) / sum(len(batch.lines) for batch in log)


def measure(lines: list[bytes], rounds: int) -> dict:
    log, memo = split(lines), RepeatMemo()
    new = spent(log, memo)
    spent(log, memo)
    times: dict[str, list[float]] = {"judged": [], "repeated": []}
    for _ in range(rounds):
        times["judged"].append(spent(log, None))
        times["repeated"].append(spent(log, memo))
    known = sum(seen is not None and seen.known is not None for seen in map(memo.find, lines))
    seconds = {name: statistics.median(values) for name, values in times.items()} | {"new": new}
    return {
        "records": len(lines),
        "mean_bytes": round(sum(map(len, lines)) / len(lines)),
        "known_share": round(known / len(lines), 4),
        "shells": len(memo._entries),
        "microseconds": {name: round(value * 1e6, 1) for name, value in seconds.items()},
        "lowest_microseconds": {name: round(min(values) * 1e6, 1) for name, values in times.items()},
        "per_second_and_core": {name: round(1 / value) for name, value in seconds.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    lines = [line.rstrip(b"\n") for line, _ in islice(records(1, DEFAULT_LEAKS, DEFAULT_MENTIONS), given.records)]
    parts = {"all": lines}
    for name, kind in FORMS.items():
        parts[name] = [line for line in lines if isinstance(json.loads(line)["response"], kind)]
    reduce_garbage_collection()  # as an audit does
    parts["calls"] = records_with_calls(given.records // 3)
    found = {name: measure(part, given.rounds) for name, part in parts.items()}
    print("CPU time of a record in µs, median (lowest): judged, and counted as a repeated one")
    for name, part in found.items():
        median, lowest, rate = (part[key] for key in ("microseconds", "lowest_microseconds", "per_second_and_core"))
        print(
            f"{name:18} {median['judged']:7} ({lowest['judged']})  {median['repeated']:6} ({lowest['repeated']}), first pass {median['new']}; "
            f"{rate['judged']} and {rate['repeated']}/s and core, {part['known_share']:.1%} known, {part['shells']} shells"
        )
    if given.out is not None:
        about = {"python": platform.python_version(), "machine": platform.machine(), "rounds": given.rounds}
        given.out.write_text(json.dumps({**about, "parts": found}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
