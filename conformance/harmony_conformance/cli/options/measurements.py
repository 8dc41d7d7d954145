"""Options of the commands that measure and compare: `rates`, `load`, `compare`, `matrix`."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path

from harmony_conformance.runner.arguments import FAIL_ON_WORDS, add_connection_options, folder_path, whole_number
from harmony_conformance.runtime.package_data import package_data

ARRIVALS = ("poisson", "constant")
"""Values of `--arrivals`."""
MATRIX_FORMATS = ("md", "html", "json")
"""Values of `matrix --format`."""
LONGEST_PROMPT = 131_072
"""Tokens of the context of gpt-oss."""
_TRIES = 5


def task_sets() -> list[str]:
    """Return the values of `--set`: the files of the tasks."""
    folder = package_data("golden")
    names = (file.name.removesuffix(".json") for file in (folder / "tasks").iterdir()) if folder is not None else ()
    return sorted(names)


def configure_rates(parser: ArgumentParser) -> None:
    """Add the options of `rates`."""
    add_connection_options(parser)
    add = parser.add_argument_group("tasks").add_argument
    add(
        "--set",
        action="append",
        default=[],
        choices=task_sets(),
        help="set of tasks; may be repeated (default: all but `compatibility`, which has the prompts of OpenAI's test)",
    )
    add(
        "--requests",
        type=Path,
        metavar="FILE",
        help="send these Chat Completions requests, one per line, instead of tasks (Kimi's vendor verifier uses such files)",
    )
    add("--task", action="append", default=[], metavar="GLOB", help="only these tasks; may be repeated")
    add("--tries", type=whole_number(1), default=_TRIES, metavar="N", help=f"tries of each task (default: {_TRIES})")
    add("--temperature", type=float, metavar="T", help="temperature of each request (default: the server's)")
    add("--effort", choices=("low", "medium", "high"), help="reasoning effort, except of the set `effort`")
    add(
        "--min",
        action="append",
        default=[],
        type=_minimum,
        metavar="RATE=SHARE",
        help="exit code 1 if the whole 95 %% interval of a rate is below this; a set of tasks ends early once that is certain",
    )
    add = parser.add_argument_group("second endpoint").add_argument
    add(
        "--against",
        metavar="TARGET",
        help="a second endpoint, whose requests alternate; exit code 1 if a rate is significantly worse",
    )
    add("--against-model", metavar="MODEL", help="name of the model of --against")
    add("--against-key-env", metavar="VAR", help="environment variable with the API key of --against")
    add = parser.add_argument_group("output").add_argument
    add("--out", type=folder_path, metavar="DIR", help="output folder (default: a new folder below runs/)")
    add("--format", choices=("text", "json"), default="text", help="output format (default: text)")
    add = parser.add_argument_group("without sending requests").add_argument
    add("--list", action="store_true", help="list the tasks without sending requests")
    add("--dry-run", action="store_true", help="print bounds of requests, tokens and time without sending anything")


def _minimum(text: str) -> tuple[str, float]:
    name, _, share = text.rpartition("=")
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if not name or not 0 <= value <= 1:
        raise ArgumentTypeError(f"expected RATE=SHARE like quality=0.9, got {text!r}")
    return name, value


def configure_load(parser: ArgumentParser) -> None:
    """Add the options of `load`."""
    add_connection_options(parser, has_pace=False)
    parser.epilog = (
        "Give --clients or --rate, which decide how many requests are in flight. --clients N: always N, each client waits for its answer."
        " --rate R: R new requests a second, however many are in flight, as users do; a server that is too slow gets ever more of them."
        " --concurrency, --max-requests and --max-rps are options of `run` and `rates`, and are refused here."
    )
    add = parser.add_argument_group("load").add_argument
    add(
        "--rate",
        type=partial(_numbers, float),
        metavar="R,…",
        help="open loop: requests per second, at times that do not depend on the answers; several are measured one after the other",
    )
    add("--clients", type=partial(_numbers, int), metavar="N,…", help="closed loop: clients that wait for each answer")
    add(
        "--arrivals",
        choices=ARRIVALS,
        default=ARRIVALS[0],
        help="law of the open loop (default: poisson)",
    )
    add("--requests", type=whole_number(1), default=100, metavar="N", help="requests of each load (default: 100)")
    add("--warm-up", type=int, default=2, metavar="N", help="requests before each load, not counted (default: 2)")
    add(
        "--input-tokens",
        type=partial(_numbers, int, most=LONGEST_PROMPT),
        default=(128,),
        metavar="N,…",
        help="length of the prompts (default: 128)",
    )
    add(
        "--output-tokens",
        type=partial(_numbers, int),
        default=(128,),
        metavar="N,…",
        help="limit of the answers (default: 128)",
    )
    add(
        "--slo",
        default="",
        metavar="OBJECTIVE,…",
        help="such as ttft_p95=500ms,itl_p99=80ms: exit code 1 if one is certainly missed by a load; the goodput counts requests that keep all",
    )
    add = parser.add_argument_group("output").add_argument
    add("--out", type=folder_path, metavar="DIR", help="output folder (default: a new folder below runs/)")
    add("--format", choices=("text", "json"), default="text", help="output format (default: text)")
    add = parser.add_argument_group("without sending requests").add_argument
    add("--dry-run", action="store_true", help="print requests, tokens and time without sending anything")


def _numbers(kind: Callable[[str], float], words: str, most: float = inf) -> tuple[float, ...]:
    try:
        values = tuple(kind(word) for word in words.split(","))
    except ValueError:
        values = ()
    if not values or not all(0 < value <= most and value < inf for value in values):
        limit = "" if most == inf else f" and at most {most:,}"
        raise ArgumentTypeError(f"expected numbers above 0{limit}, separated by commas, got {words!r}")
    return values


def configure_compare(parser: ArgumentParser) -> None:
    """Add the options of `compare`."""
    for name, which in (("before", "earlier"), ("after", "later")):
        parser.add_argument(
            name,
            metavar=name.upper(),
            help=f"the {which} run: its folder, its report.jsonl, or a recording (exchanges.jsonl), which is judged again;"
            " a folder of `rates` or of `load`; or an audit: its folder, or FOLDER@2026-11-01..2026-11-07 with the days of a period",
        )
    parser.add_argument(
        "--format", choices=("text", "html", "json"), default="text", help="output format (default: text)"
    )
    parser.add_argument(
        "--fail-on",
        choices=FAIL_ON_WORDS,
        default="must",
        help="severities of new failures with exit code 1 (default: must)",
    )
    parser.add_argument(
        "--slower-by",
        type=_share,
        metavar="SHARE",
        help="exit code 1 if a percentile of the latency is significantly slower by more than this share (default: 0.1 for loads, not for runs)",
    )


def _share(words: str) -> float:
    try:
        share = float(words)
    except ValueError:
        share = -1.0
    if not 0 <= share < inf:
        raise ArgumentTypeError(f"expected a share from 0, such as 0.1, got {words!r}")
    return share


def configure_matrix(parser: ArgumentParser) -> None:
    """Add the options of `matrix`."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", type=Path, help="folder of a run, of rates or of a load, or a report.jsonl"
    )
    parser.add_argument("--format", choices=MATRIX_FORMATS, default="md", help="output format (default: md)")
