"""`harmony-conformance reproduce RUN ID`: send the requests of a cause again, and report whether the failure still happens."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from harmony_conformance.apis.registry import APIS
from harmony_conformance.cli.command import Command
from harmony_conformance.cli.report import read_run
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.evidence.file_lines import Line, parse_line, read_lines
from harmony_conformance.json_value import JsonObject, dumps, items, members, text, value_at
from harmony_conformance.judge.check import Outcome
from harmony_conformance.report.files import REPORT
from harmony_conformance.report.model import Report, ResultLine
from harmony_conformance.report.summary import failures
from harmony_conformance.runner.selection import PAIR_SEPARATOR
from harmony_conformance.runner.shared_run import EXCHANGES

_BEST_FIRST = (Exit.CONFORMS, Exit.USAGE, Exit.DIVERGES, Exit.INTERNAL_ERROR)


def configure(parser: ArgumentParser) -> None:
    """Add the options of `reproduce`."""
    parser.add_argument("run_dir", metavar="RUN", type=Path, help="folder of a run")
    parser.add_argument(
        "id",
        metavar="ID",
        nargs="?",
        default="",
        help="a cause of its report, a failed check, or CHECK@SCENARIO (default: the example of every cause)",
    )
    parser.add_argument("--against", metavar="TARGET", help="another target than that of the run")
    parser.add_argument("--all", action="store_true", help="every failed result, not the example alone")
    parser.add_argument(
        "--run-options",
        metavar="TEXT",
        type=shlex.split,
        default=[],
        help="further options of `run`, for example --run-options='--api-key-env KEY'",
    )


def execute(arguments: Namespace) -> int:
    """Run the scenarios again and compare the results. Exit code 1: a failure still happens; 0: none does."""
    report = read_run(arguments.run_dir)
    names = [arguments.id] if arguments.id else [text(value_at(cause, "id")) for cause in report.causes]
    found = {id(one): one for name in names for one in _find(report, name, every=arguments.all)}
    recorded = list(found.values())
    if not recorded:
        raise UsageError(f"{arguments.run_dir}: expected a run with failures, got one without")
    facts = _recorded_options(arguments.run_dir)
    target = arguments.against or text(facts.get("target"))
    if not target:
        raise UsageError(f"{arguments.run_dir}: the recording does not name its target: expected --against TARGET")
    options = [*(_run_options(facts) if not arguments.against else ()), *arguments.run_options]
    codes = [
        code
        for api in dict.fromkeys(result.api for result in recorded)
        for code in _repeat(target, [result for result in recorded if result.api == api], options)
    ]
    if len(codes) > 1:
        print(f"{codes.count(Exit.DIVERGES)} of {len(recorded)} failures still happen")
    return max(codes, key=_BEST_FIRST.index)


def _find(report: Report, name: str, *, every: bool) -> list[ResultLine]:
    """Return the failed results of a cause, of a check, or of a check in a scenario."""
    failed = [result for result in report.results if result.outcome is Outcome.FAIL]
    cause = next((one for one in report.causes if text(value_at(one, "id")) == name), None)
    if cause is None:
        check, _, scenario = name.partition(PAIR_SEPARATOR)
        found = [one for one in failed if one.check == check and scenario in ("", one.scenario)]
    else:
        example = members(value_at(cause, "example"))
        names = frozenset(map(text, items(value_at(cause, "failed"))))
        found = [one for one in failed if one.name in names]
        found.sort(key=lambda one: [getattr(one, part) != example[part] for part in ("check", "scenario", "api")])
    if not found:
        known = ", ".join(text(value_at(one, "id")) for one in report.causes) or "none"
        raise UsageError(f"invalid ID: expected a cause ({known}) or a failed check of the run, got {name!r}")
    return found if every else found[:1]


def _recorded_options(run: Path) -> JsonObject:
    """Return the options in the first line of the recording. Older recordings have none."""
    recording = next(filter(Path.is_file, (run / EXCHANGES, run / f"{EXCHANGES}.gz")), run / EXCHANGES)
    first = next(read_lines(recording), None)
    try:
        return members(value_at(parse_line(first), "options")) if isinstance(first, Line) else {}
    except ValueError:
        return {}


def _run_options(facts: JsonObject) -> list[str]:
    """Return the recorded options that determine requests. Values of headers are not recorded."""
    named = [(name, facts.get(name)) for name in ("model", "script", "seed")]
    words = [word for name, value in named if value is not None for word in (f"--{name}", str(value))]
    return [*words, "--extra-body", dumps(extra)] if (extra := facts.get("extra-body")) else words


def _repeat(target: str, recorded: Sequence[ResultLine], options: Sequence[str]) -> list[int]:
    """Run the scenarios of results of one API, and return the exit code that each result calls for."""
    from harmony_conformance.cli.main import main  # noqa: PLC0415 - main imports the commands

    with TemporaryDirectory() as folder:
        selected = [word for one in recorded for word in ("--select", f"{one.check}{PAIR_SEPARATOR}{one.scenario}")]
        one_api = APIS.get(recorded[0].api)  # none for a check that compares APIs
        api = ("--api", one_api.option_name if one_api is not None else "all")
        with redirect_stdout(StringIO()):
            code = main(["run", target, *options, *api, *selected, "--latency", "0", "--out", folder])
        if not (Path(folder) / REPORT).is_file():
            return [code]
        results = {
            (one.check, one.scenario): one for one in read_run(Path(folder)).results if one.api == recorded[0].api
        }
    return [_compare(one, results.get((one.check, one.scenario))) for one in recorded]


def _compare(recorded: ResultLine, now: ResultLine | None) -> int:
    """Print one line about a result, and return the exit code that it calls for."""
    name = f"{recorded.check} in {recorded.scenario}"
    if now is None or now.outcome not in (Outcome.FAIL, Outcome.PASS, Outcome.VARIANT):
        why = now.reason if now is not None else "the scenario was not run"
        print(f"not judged: {name}: {why}")
        return Exit.USAGE
    if now.outcome is not Outcome.FAIL:
        print(f"no longer happens: {name}: {now.outcome.value}")
        return Exit.CONFORMS
    before = {text(value_at(one, "message")) for one in failures(recorded)}
    messages = [text(value_at(one, "message")) for one in failures(now)]
    same = next((message for message in messages if message in before), "")
    print(f"still happens: {name}: {same}" if same else f"fails in another way: {name}: {messages[0]}")
    return Exit.DIVERGES


COMMAND = Command(
    name="reproduce", help="run a cause of a report again: does it still happen?", configure=configure, run=execute
)
