"""`harmony-conformance run TARGET`: test an endpoint, or judge a recording again."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harmony_conformance.audit.readers import read_recorded
from harmony_conformance.check import Outcome, Severity
from harmony_conformance.command import Command, Exit, UsageError
from harmony_conformance.discovery import Capabilities, NothingThere
from harmony_conformance.engines import ScriptBy
from harmony_conformance.exchange import Exchange, Series
from harmony_conformance.json_value import JsonObject, NotJson, dumps, loads, members
from harmony_conformance.judge import Result, worst
from harmony_conformance.recording import write_exchange
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.report.files import write_files
from harmony_conformance.report.model import Report, make_report, result_line
from harmony_conformance.report.terminal import print_report
from harmony_conformance.reproduce import reproduce
from harmony_conformance.scenario import expand
from harmony_conformance.suite import NothingSelected, Options, Plan, Run, judge_all, make_plan, run
from harmony_conformance.target import BadTarget, Target, parse_target

FAIL_ON = {
    "must": frozenset({Severity.MUST}),
    "should": frozenset({Severity.MUST, Severity.SHOULD}),
    "never": frozenset[Severity](),
}
_HEADER = re.compile(r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")


def configure(parser: ArgumentParser) -> None:
    """The options of DESIGN's contract."""
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="reference, reference:defect=ID, vllm:URL, openai:URL, …, or replay:exchanges.jsonl",
    )
    parser.add_argument("--model", help="the model to ask for (default: the first one listed)")
    parser.add_argument("--tries", type=_positive, default=1, metavar="N", help="send every scenario N times")
    parser.add_argument(
        "--concurrency",
        type=_positive,
        metavar="N",
        help="requests at a time (default: 8 on this machine, 2 elsewhere)",
    )
    parser.add_argument("--select", action="append", default=[], metavar="GLOB", help="only these checks or scenarios")
    parser.add_argument("--skip", action="append", default=[], metavar="GLOB", help="not these checks or scenarios")
    parser.add_argument(
        "--script",
        choices=["auto", *(way.value for way in ScriptBy)],
        default="auto",
        help="how the model's output is scripted",
    )
    parser.add_argument("--fail-on", choices=list(FAIL_ON), default="must", help="which failures give exit code 1")
    parser.add_argument("--api-key-env", metavar="VAR", help="the environment variable that holds the key")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'K: V'",
        help="a header sent with each request, never recorded",
    )
    parser.add_argument("--extra-body", default="{}", metavar="JSON", help="members added to each request")
    parser.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="longest silence between bytes, in seconds"
    )
    parser.add_argument(
        "--max-requests", type=_positive, metavar="N", help="send no more than N requests after discovery"
    )
    parser.add_argument("--max-rps", type=_seconds, metavar="R", help="start at most R requests a second")
    parser.add_argument("--seed", type=int, metavar="N", help="seed sent with each request")
    parser.add_argument(
        "--latency", type=int, default=20, metavar="N", help="requests of the latency probe after the checks (0: none)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where the run is kept (default: a new folder under runs/)"
    )
    parser.add_argument("--list", action="store_true", help="list checks and scenarios, send nothing")
    parser.add_argument("--dry-run", action="store_true", help="print the requests, send nothing")


def execute(arguments: Namespace) -> int:
    """Run, write, print; the exit code."""
    target, options = _read(arguments)
    plan = _plan(options)
    if arguments.list:
        return _list(plan)
    if arguments.dry_run:
        return _dry_run(plan)
    out: Path = arguments.out or _new_folder(target)
    console = Console(highlight=False)
    finished, latency = (
        _replay(target, plan) if target.replay is not None else _live(target, options, plan, out, arguments.latency)
    )
    report = _report(target, options, finished, latency, arguments.api_key_env)
    out.mkdir(parents=True, exist_ok=True)
    write_files(report, out, FAIL_ON[arguments.fail_on])
    print_report(report, console)
    print(f"run kept in {out}", file=sys.stderr)
    return _exit_code(finished.results, FAIL_ON[arguments.fail_on])


def _read(arguments: Namespace) -> tuple[Target, Options]:
    try:
        target = parse_target(arguments.target)
    except BadTarget as problem:
        raise UsageError(str(problem)) from None
    unknown = [defect for defect in target.defects if defect not in DEFECTS]
    if unknown:
        raise UsageError(f"no defect {unknown[0]!r}: harmony-conformance serve --list-defects lists them")
    try:
        extra = loads(arguments.extra_body)
    except NotJson as problem:
        raise UsageError(f"--extra-body is no JSON: {problem}") from None
    if not isinstance(extra, dict):
        raise UsageError('--extra-body is no JSON object: for example {"top_k": 1}')
    options = Options(
        model=arguments.model,
        tries=arguments.tries,
        concurrency=arguments.concurrency,
        select=tuple(arguments.select),
        skip=tuple(arguments.skip),
        script=arguments.script,
        timeout=arguments.timeout,
        seed=arguments.seed,
        key=_key(arguments.api_key_env, target),
        headers=tuple(_header(header) for header in arguments.header),
        extra_body=members(extra),
        max_requests=arguments.max_requests,
        max_rps=arguments.max_rps,
    )
    return target, options


def _key(variable: str | None, target: Target) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable, "")
    if not key:
        raise UsageError(f"--api-key-env: the variable {variable} is not set or empty")
    if not key.isascii() or any(character.isspace() for character in key):
        raise UsageError(
            f"--api-key-env: the value of {variable} is no key (it holds white space or non-ASCII characters)"
        )
    if target.base is not None and target.base.startswith("http:") and not target.is_local:
        raise UsageError("a key is not sent over plain http to another machine: use https")
    return key


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if (
        not colon
        or not _HEADER.match(name.strip())
        or any(character in value for character in "\r\n\0")
        or not value.isascii()
    ):
        raise UsageError(f"--header {text!r} is no header: 'name: value' in ASCII")
    return name.strip(), value.strip()


def _plan(options: Options) -> Plan:
    try:
        return make_plan(options)
    except NothingSelected as problem:
        raise UsageError(str(problem)) from None


def _list(plan: Plan) -> int:
    for check in plan.checks:
        print(f"check     {check.severity.value:6} {check.id}: {check.requirement}")
    for scenario in plan.scenarios:
        print(f"scenario  {len(scenario.steps):2} steps {scenario.name}: {scenario.about}")
    return Exit.CONFORMS


def _dry_run(plan: Plan) -> int:
    total = 0
    for scenario in plan.scenarios:
        for step in expand(scenario):
            limit = step.request.get("max_tokens")
            bound = limit if isinstance(limit, int) else (len(step.script) + 16 if step.script is not None else 2048)
            total += max(bound, 0)
            print(f"{scenario.name}/chat/{step.name}: {step.raw or dumps(step.request)}")
    print(
        f"{sum(len(tuple(expand(scenario))) for scenario in plan.scenarios)} requests, at most {total} output tokens (unscripted: 2048 a request without a limit)"
    )
    return Exit.CONFORMS


def _live(
    target: Target, options: Options, plan: Plan, out: Path, latency_requests: int
) -> tuple[Run, tuple[JsonObject, ...]]:
    from harmony_conformance.latency_run import measure_latency  # noqa: PLC0415 - not needed by replay, and slow to import

    def told(found: Capabilities) -> None:
        version_told = f" {found.engine_version}" if found.engine_version else ""
        base = target.base or "embedded"
        print(
            f"{target.engine.name}{version_told} at {base}, model {found.model}; prompt evidence: {found.prompt.value}; output: "
            + ("scripted" if found.script_by is not ScriptBy.NONE else "the model's own"),
            file=sys.stderr,
        )

    out.mkdir(parents=True, exist_ok=True)
    try:
        with (
            (out / "exchanges.jsonl").open("w", encoding="utf-8", errors="surrogatepass") as recording,
            _progress(plan, options) as advance,
        ):

            def keep(x: Exchange) -> None:
                recording.write(dumps(write_exchange(x)).encode("utf-8", "backslashreplace").decode() + "\n")
                recording.flush()
                advance()

            finished = asyncio.run(run(target, options, plan, keep, told))
    except NothingThere as problem:
        raise UsageError(f"{target}: {problem}") from None
    found = finished.capabilities
    latency = (
        measure_latency(target, options, found, latency_requests) if found is not None and latency_requests > 0 else ()
    )
    return finished, latency


@contextmanager
def _progress(plan: Plan, options: Options) -> Iterator[object]:
    console = Console(stderr=True)
    requests = sum(len(tuple(expand(scenario))) for scenario in plan.scenarios) * options.tries
    with Progress(
        TextColumn("sending"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("requests", total=requests)
        yield lambda: bar.advance(task)


def _replay(target: Target, plan: Plan) -> tuple[Run, tuple[JsonObject, ...]]:
    path = Path(target.replay or "")
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    series: list[Series] = read_recorded(path)
    if not series:
        raise UsageError(f"{path}: it holds no exchange")
    return Run(capabilities=None, series=tuple(series), results=tuple(judge_all(series, plan))), ()


def _report(
    target: Target, options: Options, finished: Run, latency: tuple[JsonObject, ...], key_env: str | None
) -> Report:
    by_id = {x.id: x for series in finished.series for x in series.exchanges.values()}

    def how(result: Result) -> str:
        if result.outcome not in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE):
            return ""
        shown = next((finding.exchange for finding in result.findings if finding.exchange), None) or (
            result.exchanges[0] if result.exchanges else ""
        )
        return reproduce(target, by_id.get(shown), result.scenario, key_env)

    found = finished.capabilities
    header: JsonObject = {
        "version": version("harmony-conformance"),
        "target": {
            "engine": target.engine.name,
            "engine_version": found.engine_version if found else None,
            "model": found.model if found else None,
            "url_host": target.host,
        },
        "capabilities": found.told() if found else {},
        "tries": options.tries,
        "seed": options.seed,
        "started": finished.started or datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return make_report(header, (result_line(result, how(result)) for result in finished.results), latency)


def _exit_code(results: tuple[Result, ...], fails_on: frozenset[Severity]) -> int:
    match worst(results, fails_on):
        case Outcome.ERROR:
            return Exit.OUR_ERROR
        case Outcome.FAIL:
            code = Exit.DIVERGES
        case _:
            code = Exit.CONFORMS
    if not any(result.applied and result.severity is Severity.MUST for result in results):
        print("nothing could be checked: not one MUST check applied", file=sys.stderr)
        return Exit.USAGE
    return code


def _new_folder(target: Target) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = f"{stamp}-{target.engine.name}"
    taken = {path.name for path in Path("runs").glob(f"{name}*")}
    return Path("runs") / next(
        candidate
        for candidate in (name, *(f"{name}-{index}" for index in range(2, len(taken) + 3)))
        if candidate not in taken
    )


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError
    return value


COMMAND = Command(name="run", help="test an endpoint, or judge a recording again", configure=configure, run=execute)
