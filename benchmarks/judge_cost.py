"""Measure the CPU time to judge one exchange alone with the whole check table: `judge_cost.py [--rounds N] [--out FILE]`.

This is the cost of the judge behind the proxy and of an audit. Every exchange is built from its bytes, so that no view of it is cached.
The figure is CPU time of this process, with the garbage collector on. A measurement repeats a shape for at least 30 ms, and the shapes take
turns. The script prints the median of the rounds, with the lowest and the highest, and writes JSON with `--out`.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from prose import prose

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.judge.judge import judge_exchange
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_ref import decode, encode

LONGEST = 4000  # tokens
LASTS = 0.03  # seconds
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Gives the weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASKED = {
    "model": "gpt-oss-20b",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How far is the Moon?"}],
}
THOUGHT = "The user asks for the distance. A short number will do."
SAID = "The Moon is about 384,400 km away from the Earth."


def whole(message: dict, finish: str, tokens: int, **asked) -> tuple[bytes, bytes, tuple[bytes, ...]]:
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1750000000,
        "model": "gpt-oss-20b",
        "choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 81, "completion_tokens": tokens, "total_tokens": 81 + tokens},
    }
    return json.dumps({**ASKED, **asked}).encode(), b"application/json", (json.dumps(body).encode(),)


def streamed(thought: str, said: str) -> tuple[bytes, bytes, tuple[bytes, ...]]:
    pieces = [{"role": "assistant", "content": ""}]
    pieces += [{"reasoning_content": decode([token])} for token in encode(thought)]
    pieces += [{"content": decode([token])} for token in encode(said)]
    choices = [{"index": 0, "delta": piece, "finish_reason": None} for piece in pieces]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1750000000, "model": "gpt-oss-20b"}
    events = [f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode() for choice in choices]
    return json.dumps({**ASKED, "stream": True}).encode(), b"text/event-stream", (*events, b"data: [DONE]\n\n")


def _long() -> str:
    return decode(encode(prose(8 * LONGEST, seed=1))[:LONGEST])


SHAPES = {
    "small answer": whole({"content": SAID, "reasoning_content": THOUGHT}, "stop", 38),
    "small stream": streamed("A number will do.", SAID),
    "tool call": whole(
        {
            "content": None,
            "reasoning_content": "I have to ask for the weather.",
            "tool_calls": [
                {
                    "id": "call_1",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'},
                }
            ],
        },
        "tool_calls",
        40,
        tools=[TOOL],
    ),
    f"answer of {LONGEST} tokens": whole({"content": _long(), "reasoning_content": THOUGHT}, "stop", LONGEST + 30),
}
"""The request's bytes, the answer's content type, and the answer's bytes as they came."""


def exchange(request: bytes, kind: bytes, answer: tuple[bytes, ...]) -> Exchange:
    chunks = tuple(Chunk(arrival_time=0.01 * place, data=data) for place, data in enumerate(answer))
    return Exchange(
        id="1",
        request=Request(path="/v1/chat/completions", body=request),
        response=Response(status=200, headers={"content-type": kind.decode()}, chunks=chunks),
    )


def lasts(task: Callable[[], object], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        task()
    return time.process_time() - start


def measure(rounds: int) -> dict[str, dict[str, object]]:
    tasks = {name: lambda shape=shape: judge_exchange(exchange(*shape), CHECKS) for name, shape in SHAPES.items()}
    outcomes = {name: Counter(str(result.outcome) for result in task()) for name, task in tasks.items()}
    repeats = {name: max(1, round(LASTS / max(lasts(task, 3) / 3, 1e-6))) for name, task in tasks.items()}
    taken: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            taken[name].append(lasts(task, repeats[name]) / repeats[name])
    return {
        name: {
            "microseconds": {
                "median": round(statistics.median(times) * 1e6),
                "lowest": round(min(times) * 1e6),
                "highest": round(max(times) * 1e6),
            },
            "exchanges_per_second_and_core": round(1 / statistics.median(times)),
            "request_bytes": len(SHAPES[name][0]),
            "answer_bytes": sum(map(len, SHAPES[name][2])),
            "events": len(SHAPES[name][2]),
            "outcomes": dict(sorted(outcomes[name].items())),
        }
        for name, times in taken.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    found = measure(given.rounds)
    print(f"{len(CHECKS)} checks, CPU time of one exchange judged alone: median (lowest to highest)")
    for name, told in found.items():
        spent = told["microseconds"]
        print(
            f"{name:22} {spent['median']:6} µs ({spent['lowest']} to {spent['highest']}), "
            f"{told['exchanges_per_second_and_core']:5} exchanges/s and core, {told['events']} chunks"
        )
    if given.out is not None:
        about = {"python": platform.python_version(), "machine": platform.machine(), "checks": len(CHECKS)}
        given.out.write_text(json.dumps({**about, "rounds": given.rounds, "shapes": found}, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
