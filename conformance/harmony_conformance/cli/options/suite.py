"""Options of the commands that test servers: `run`, `run-all`, `serve`, `selftest`."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path

from harmony_conformance.runner.arguments import add_options, folder_path, whole_number

LATENCY_REQUESTS = 20
"""Requests of the latency probe after all checks."""
FEATURES = ("reasoning", "tools", "usage", "token-ids", "prompt-ids", "output-ids", "streaming")
"""Values of `--require`."""
_DEFAULT_FILE = Path("harmony-conformance.toml")
_HIGHEST = 65535
_SLOWEST = 10_000
_DIGITS = len(str(_HIGHEST))


def configure_run(parser: ArgumentParser) -> None:
    """Add the options of `run`."""
    add_options(parser)
    parser.epilog = (
        "Examples: `run vllm:http://127.0.0.1:8000/v1 --model gpt-oss-20b`; `run https://api.example.com/v1 --api-key-env EXAMPLE_KEY --max-tokens 200000`;"
        " `run URL --dry-run -q` for the cost; `run URL --select 'tool_calls.*@tool_call'` for some checks on a scenario;"
        " `run replay:runs/NAME/exchanges.jsonl` to judge a recording again."
        " SSL_CERT_FILE and SSL_CERT_DIR name trusted certificates that replace the default ones, for example of a private CA."
        " HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY apply unless --proxy or --unix-socket is given; the embedded server is never proxied."
    )
    add = parser.add_argument_group("recording and report").add_argument
    add(
        "--latency",
        type=whole_number(0),
        metavar="N",
        help=f"number of requests of the latency probe after the checks (default: {LATENCY_REQUESTS}, with --select 0; 0: no probe)",
    )
    add(
        "--engine",
        metavar="NAME[ VERSION]",
        help="engine of the report, if the server does not name itself, for example 'llamacpp b11549'",
    )
    add(
        "--recorded-target",
        metavar="TARGET",
        help="target in the printed commands, for a recording that does not name its own",
    )
    add("--out", type=folder_path, metavar="DIR", help="output folder (default: a new folder below runs/)")
    add(
        "--resume",
        action="store_true",
        help="continue the run in --out: send only the series that its recording lacks",
    )
    _add_against_options(parser)
    _add_output_options(parser)
    add = parser.add_argument_group("without sending requests").add_argument
    add("--list", action="store_true", help="list checks and scenarios without sending requests")
    add(
        "--dry-run",
        action="store_true",
        help="print the requests, tokens and time of each scenario without sending anything; -v: each request too; -q: only the sum",
    )


def configure_run_all(parser: ArgumentParser) -> None:
    """Add the options of `run-all`."""
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=Path,
        default=_DEFAULT_FILE,
        help=f"configuration (default: {_DEFAULT_FILE})",
    )
    parser.add_argument(
        "--out", metavar="DIR", type=folder_path, default=Path("runs/all"), help="output folder (default: runs/all)"
    )
    parser.add_argument("--jobs", metavar="N", type=whole_number(1), default=2, help="endpoints at a time (default: 2)")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the requests, tokens and time of each endpoint without sending anything",
    )
    parser.epilog = (
        "The file has a table [[endpoint]] for each: name, target, and options as a list of texts, for example"
        ' name = "a", target = "https://a.example/v1", options = ["--model", "gpt-oss-20b", "--api-key-env", "A_KEY"].'
        " Above the first table the same for all: options = [...]. With rates = [...] or load = [...],"
        " the command of that name is called too, with these options."
        " connection = [...], such as the model and the key, are options of all three."
        " Exit code: 3 if one had an internal error, else 1 if one does not conform, else 2 if one could not be tested, else 0."
    )


def configure_selftest(parser: ArgumentParser) -> None:
    """Add the options of `selftest`."""
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write [{defect, caught, caught_by, unrelated}] to FILE"
    )
    parser.add_argument(
        "--every",
        type=whole_number(1),
        default=1,
        metavar="N",
        help="test only every Nth defect, without mutants (default: 1, all)",
    )
    parser.add_argument(
        "--through", metavar="NAME", help="run through NAME (e.g. `proxy`) and list which defects it detects"
    )
    parser.add_argument(
        "--evidence",
        type=Path,
        metavar="FILE",
        help="write the evidence for each prompt defect (evidence.json) to FILE",
    )


def configure_serve(parser: ArgumentParser) -> None:
    """Add the options of `serve`."""
    parser.add_argument(
        "--host", type=_host, default="127.0.0.1", metavar="H", help="address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument("--port", type=_port, default=8000, metavar="P", help="port (default: 8000; 0: any free port)")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="answer requests for this host too (repeatable)",
    )
    parser.add_argument("--defect", action="append", default=[], metavar="ID", help="enable this defect (repeatable)")
    parser.add_argument(
        "--tpot", type=_milliseconds, default=0.0, metavar="MS", help="time per output token in ms (default: 0)"
    )
    parser.add_argument("--list-defects", action="store_true", help="list the defects and exit")


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _SLOWEST:
        raise ArgumentTypeError(f"expected milliseconds from 0 to {_SLOWEST}, got {text!r}")
    return value


def _host(value: str) -> str:
    if not value.strip():  # the system would take it for every address of the machine
        raise ArgumentTypeError(f"expected an address such as 127.0.0.1, got {value!r}")
    return value


def _port(text: str) -> int:
    digits = text.lstrip("0") or "0"
    if not text.isascii() or not text.isdigit() or len(digits) > _DIGITS or int(digits) > _HIGHEST:
        raise ArgumentTypeError(f"expected a port from 0 to {_HIGHEST}, got {text!r}")
    return int(digits)


def _add_against_options(parser: ArgumentParser) -> None:
    """Add the options of a second endpoint."""
    add = parser.add_argument_group("second endpoint").add_argument
    add(
        "--against",
        metavar="TARGET",
        help="a second endpoint, whose requests alternate; exit code 1 only for failures that it does not have",
    )
    add("--against-model", metavar="MODEL", help="name of the model of --against")
    add("--against-key-env", metavar="VAR", help="environment variable with the API key of --against")


def _add_output_options(parser: ArgumentParser) -> None:
    """Add the options of the output of a run."""
    output = parser.add_argument_group("output")
    amount = output.add_mutually_exclusive_group()
    amount.add_argument(
        "-v", "--verbose", action="store_true", help="print every check and every failure with its evidence"
    )
    amount.add_argument(
        "-q", "--quiet", action="store_true", help="print one line, or only the JSON document, and no progress"
    )
    output.add_argument(
        "--progress", action="store_true", help="print progress and notes on standard error, with -q too"
    )
    output.add_argument(
        "--format",
        choices=["text", "json"],
        default="text",
        help="json: one JSON document on standard output with verdict, counts, causes and paths (default: text)",
    )
    gate = parser.add_argument_group("gate").add_argument
    gate(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="TOML file of expected failures: exit code 1 for other failures, and for entries that explain none",
    )
    gate(
        "--baseline-write",
        type=Path,
        metavar="FILE",
        help="write a baseline that expects the causes of this run; entries of FILE that still match are kept",
    )
    gate(
        "--require",
        type=_features,
        default=(),
        metavar="FEATURE,…",
        help=f"exit code 1 if no answer of the run has one of these: {', '.join(FEATURES)}",
    )


def _features(words: str) -> tuple[str, ...]:
    names = tuple(words.split(","))
    for name in names:
        if name not in FEATURES:
            raise ArgumentTypeError(f"expected names of {', '.join(FEATURES)}, got {name!r}")
    return names
