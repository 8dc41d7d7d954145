"""The same server measured by `harmony-conformance load` and by guidellm, in turns: do the two agree?

    .venv/bin/python benchmarks/load_beside_guidellm.py GUIDELLM [--rounds 3] [--out FILE] [--page docs/load.md]

GUIDELLM is the command of a separate environment (`make bench-guidellm`), which needs no tokenizer: the server counts the tokens.
The server is `harmony-conformance serve` with 20 ms a token. Both tools send the same prompts with four clients that wait for their answers.
Each round starts both, in changing order. The first requests of guidellm open its connections. As many as `load` sends as a warm-up are left out.
guidellm's `inter_token_latency` is the mean of a request, which `load` calls `tpot`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from harmony_conformance.evidence.exchange_json import read_exchange
from harmony_conformance.json_value import loads, value_at
from harmony_conformance.load.arrivals import make_prompt
from harmony_conformance.runner.latency.latency_probe import Timing, measure
from harmony_conformance.runner.latency.statistics import percentile

COMMAND = [sys.executable, "-m", "harmony_conformance"]
TPOT = 20  # ms
CLIENTS, REQUESTS, WARM_UP, TOKENS = 4, 100, 20, 64
METRICS = {
    "ttft": "first token",
    "answer": "first token of the answer",
    "tpot": "per token after the first",
    "e2e": "end",
}
MARKS = ("<!-- guidellm -->\n", "<!-- end of guidellm -->\n")


@contextmanager
def serving() -> Iterator[str]:
    """Serve, and yield the URL."""
    command = [*COMMAND, "serve", "--port", "0", "--tpot", str(TPOT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def guidellm_times(report: dict) -> list[dict[str, float]]:
    """Return the times of each request of a report of guidellm that was not a warm-up, in seconds."""
    (benchmark,) = report["benchmarks"]
    assert not benchmark["requests"]["errored"], "every request is answered"
    requests = sorted(benchmark["requests"]["successful"], key=lambda one: one["info"]["timings"]["request_start"])
    return [guidellm_request(one) for one in requests[WARM_UP:]]


def guidellm_request(request: dict) -> dict[str, float]:
    """Return the times of one request by guidellm's own figures, under the names of `load`."""
    return {
        "ttft": request["time_to_first_token_ms"] / 1000,
        "answer": request["time_to_first_output_token_ms"] / 1000,
        "tpot": request["inter_token_latency_ms"] / 1000,
        "e2e": request["request_latency"],
    }


def by_guidellm(command: str, url: str, number: int, folder: Path) -> list[dict[str, float]]:
    """Measure with guidellm."""
    prompts, report = folder / f"prompts-{number}.jsonl", folder / f"guidellm-{number}.json"
    lines = (
        {"prompt": make_prompt(128, place, number), "output_tokens_count": TOKENS}
        for place in range(-WARM_UP, REQUESTS)
    )
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    subprocess.run(
        [
            *(command, "run", "--disable-console"),
            *("--backend", f"kind=openai_http,target={url.removesuffix('/v1')},model=gpt-oss-reference"),
            *("--profile", f"kind=concurrent,streams={CLIENTS}"),
            *("--constraint", f"kind=max_requests,count={REQUESTS + WARM_UP}"),
            *("--data", f"kind=json_file,path={prompts}"),
            *("--output", f"kind=json,path={report}"),
        ],
        check=True,
        capture_output=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    return guidellm_times(json.loads(report.read_text("utf-8")))


def by_load(url: str, number: int, folder: Path) -> list[dict[str, float]]:
    """Measure with `load`, and read the times from its recording."""
    out = folder / f"load-{number}"
    options = [
        "--clients",
        CLIENTS,
        "--requests",
        REQUESTS,
        "--warm-up",
        WARM_UP,
        "--output-tokens",
        TOKENS,
        "--seed",
        number,
    ]
    command = [*COMMAND, "load", url, *map(str, options), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    lines = map(loads, (out / "exchanges.jsonl").read_bytes().splitlines())
    exchanges = [read_exchange(line) for line in lines if value_at(line, "scenario") == "load"]
    timings = [measure(x) for x in exchanges if not x.id.rpartition("/")[2].startswith("-")]
    assert len(timings) == REQUESTS
    assert all(isinstance(timing, Timing) for timing in timings), "every request is answered"
    return [
        {"ttft": one.first_token, "answer": one.first_answer, "tpot": one.time_per_output_token, "e2e": one.end}
        for one in timings
    ]


def compare(load: list[dict[str, float]], guidellm: list[dict[str, float]]) -> list[dict]:
    """Return the median and the 95th percentile of each metric by both tools, in milliseconds, and the difference in percent."""
    rows = []
    for metric in METRICS:
        for percent in (50, 95):
            one, other = (
                1000 * percentile(sorted(times[metric] for times in its), percent) for its in (load, guidellm)
            )
            figures = {"load": one, "guidellm": other, "difference %": 100 * (one - other) / other}
            rows.append(
                {"metric": metric, "percent": percent, **{name: round(value, 2) for name, value in figures.items()}}
            )
    return rows


def table(figures: dict) -> str:
    """Return the figures as a table."""
    lines = ["| metric | percentile | `load`, ms | guidellm, ms | difference |", "| --- | --- | ---: | ---: | ---: |"]
    for row in figures["rows"]:
        cells = (f"`{row['metric']}`, {METRICS[row['metric']]}", f"p{row['percent']}", f"{row['load']:.1f}")
        lines.append(f"| {' | '.join(cells)} | {row['guidellm']:.1f} | {row['difference %']:+.1f} % |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, print and write."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("guidellm", help="the command")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path, help="a page with the marks between which the table is written")
    arguments = parser.parse_args()
    load: list[dict[str, float]] = []
    guidellm: list[dict[str, float]] = []
    with TemporaryDirectory() as name, serving() as url:
        for number in range(arguments.rounds):
            for is_load in (number % 2 == 0, number % 2 == 1):
                if is_load:
                    load += by_load(url, number, Path(name))
                else:
                    guidellm += by_guidellm(arguments.guidellm, url, number, Path(name))
            print(f"round {number + 1}: {len(load)} and {len(guidellm)} requests", flush=True)
    shown = subprocess.run([arguments.guidellm, "--version"], check=True, capture_output=True, text=True).stdout
    figures = {
        "guidellm": re.findall(r"\d+\.\d+\.\d+", shown)[0],
        "harmony-conformance": version("harmony-conformance"),
        "ms per token": TPOT,
        "clients": CLIENTS,
        "requests": len(load),
        "rows": compare(load, guidellm),
    }
    print(table(figures))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    if arguments.page is not None:
        before, _, rest = arguments.page.read_text("utf-8").partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        arguments.page.write_text(f"{before}{MARKS[0]}{table(figures)}{MARKS[1]}{after}", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
