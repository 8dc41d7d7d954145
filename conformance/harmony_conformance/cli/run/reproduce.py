"""`harmony-conformance reproduce RUN ID`: send the requests of a cause again, and report whether the failure still happens."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from harmony_conformance.apis.registry import APIS
from harmony_conformance.cli.report import read_run
from harmony_conformance.engines.target import InvalidTargetError, parse_target
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.evidence.file_lines import Line, parse_line, read_lines
from harmony_conformance.evidence.recording_file import BrokenRecordingError, read_recording
from harmony_conformance.json_value import JsonObject, dumps, items, members, text, value_at
from harmony_conformance.judge.check import Outcome
from harmony_conformance.plugins.registry import find_check, plugin_sources
from harmony_conformance.report.files import REPORT
from harmony_conformance.report.model import Report, ResultLine
from harmony_conformance.report.summary import failures
from harmony_conformance.runner.selection import PAIR_SEPARATOR
from harmony_conformance.runner.shared_run import recording_in
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.runtime.similar_names import suggestion
from harmony_conformance.transport.messages import FailureKind

_NAMES_SHOWN = 5
_BEST_FIRST = (Exit.CONFORMS, Exit.USAGE, Exit.DIVERGES, Exit.INTERNAL_ERROR)


def execute(arguments: Namespace) -> int:
    """Run the scenarios again and compare the results. Exit code 1: a failure still happens; 0: none does."""
    report = read_run(arguments.run_dir)
    names = [arguments.id] if arguments.id else [text(value_at(cause, "id")) for cause in report.causes]
    found = {id(one): one for name in names for one in _find(report, name, every=arguments.all)}
    recorded = list(found.values())
    if not recorded:
        raise UsageError(f"{arguments.run_dir}: expected a run with failures, got one without")
    _check_plugins(report, recorded)
    facts = _recorded_options(arguments.run_dir, report)
    target = text(facts.get("target")) if arguments.against is None else str(arguments.against)
    if arguments.against is None and not target:
        raise UsageError(f"{arguments.run_dir}: the recording does not name its target: expected --against TARGET")
    options = [*_run_options(facts, _engine(report, facts), target, arguments.run_options), *arguments.run_options]
    options += [f"--plugin={name}" for name in arguments.plugin]
    codes = [
        code
        for api in dict.fromkeys(result.api for result in recorded)
        for code in _repeat(arguments.run_dir, target, [result for result in recorded if result.api == api], options)
    ]
    for cause in report.causes:
        if text(value_at(cause, "id")) in names and (timing := text(value_at(cause, "timing"))):
            print(f"{text(value_at(cause, 'id'))}: {timing}", file=sys.stderr)
    if len(codes) > 1:
        print(
            f"{codes.count(Exit.DIVERGES)} of {number_of(len(recorded), 'failure')} still {'happens' if len(recorded) == 1 else 'happen'}"
        )
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
        found.sort(key=lambda one: [getattr(one, part) != example.get(part) for part in ("check", "scenario", "api")])
    if not found:
        known = [text(value_at(one, "id")) for one in report.causes]
        meant = suggestion(name, (*known, *(one.check for one in failed), *(one.name for one in failed)))
        causes = ", ".join(known) or "none"
        raise UsageError(f"invalid ID: expected a cause ({causes}) or a failed check of the run, got {name!r}{meant}")
    return found if every else found[:1]


def _check_plugins(report: Report, recorded: Sequence[ResultLine]) -> None:
    """Refuse the failures of a check that nothing here has. A report is data: a plug-in that it names is never loaded for that.

    Raises:
        UsageError: The user did not name the plug-in of a check.
    """
    named = {text(value_at(one, "prefix")): one for one in items(value_at(report.header, "plugins"))}
    for result in recorded:
        source = named.get(result.check.partition(".")[0])
        if find_check(result.check) is None:
            option = (
                f"--plugin {shlex.quote(text(value_at(source, 'name')))}" if source is not None else "--plugin FILE"
            )
            raise UsageError(
                f"invalid ID: {result.check} is a check of a plug-in: expected {option}, which executes it, got none"
            )
    hashes = {one.prefix: one.sha256 for one in plugin_sources()}
    for prefix, source in named.items():
        if prefix in hashes and hashes[prefix] != text(value_at(source, "sha256")):
            print(f"the plug-in {prefix} is not the one of the run, whose hash differs", file=sys.stderr)


def _recorded_options(run: Path, report: Report) -> JsonObject:
    """Return the options in the first line of the recording, or of its report. Older ones have only the model and the method of scripts."""
    first = next(read_lines(recording_in(run)), None)
    try:
        recorded = members(value_at(parse_line(first), "options")) if isinstance(first, Line) else {}
    except ValueError:
        recorded = {}
    known = {
        "model": value_at(report.header, "target", "model"),
        "script": value_at(report.header, "capabilities", "script"),
    }
    return recorded or members(value_at(report.header, "options")) or known


def _engine(report: Report, facts: JsonObject) -> str:
    """Return the name of the engine that the run names in its target, or that its report names. Empty if neither does."""
    try:
        recorded = parse_target(text(facts.get("target")))
    except InvalidTargetError:
        return text(value_at(report.header, "target", "engine"))
    return "" if recorded.is_engine_unknown else recorded.engine.name


def _run_options(facts: JsonObject, engine: str, target: str, given: Sequence[str]) -> list[str]:
    """Return the recorded options that determine requests, and report which are used. Options of one engine are not used for another."""
    try:
        other = parse_target(target)
    except InvalidTargetError as problem:
        raise UsageError(str(problem)) from None
    replaced = {word.partition("=")[0] for word in given}
    names = [name for name in ("model", "script", "seed", "extra-body") if f"--{name}" not in replaced]
    if target == text(facts.get("target")) and "--api-key-env" not in replaced:
        names.append("api-key-env")  # a key is for one endpoint
    is_other = bool(engine) and not other.is_engine_unknown and other.engine.name != engine
    used, dropped = list[str](), list[str]()
    for name in names:
        if (value := facts.get(name)) not in (None, {}, "auto"):
            words = dropped if is_other and name != "seed" else used
            words += (f"--{name}", value if isinstance(value, str) else dumps(value))
    _note("options of the recording, which --run-options can replace", used)
    _note(
        f"options of the recording that are not used, as {target} is not {engine} (--run-options gives them)", dropped
    )
    for header in map(text, items(facts.get("header"))):
        if not any(word.lower().startswith(f"{header}:") for word in given):
            option = shlex.quote("--run-options=" + shlex.join(["--header", f"{header}: VALUE"]))
            print(f"the run sent the header {header}, whose value is not recorded: {option}", file=sys.stderr)
    return used


def _note(what: str, words: Sequence[str]) -> None:
    if words:
        print(f"{what}: {shlex.join(words)}", file=sys.stderr)


def _repeat(run: Path, target: str, recorded: Sequence[ResultLine], options: Sequence[str]) -> list[int]:
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
        codes = [_compare(one, results.get((one.check, one.scenario))) for one in recorded]
        gone = [one for one, code in zip(recorded, codes, strict=True) if code != Exit.DIVERGES]
        _note_other_requests(run, Path(folder), [one for one in gone if (one.check, one.scenario) in results])
    return codes


def _note_other_requests(run: Path, folder: Path, gone: Sequence[ResultLine]) -> None:
    """Report results that do not fail now, and whose requests are not the recorded ones: the suite may have changed, not the server."""
    failing = {one.name: {text(value_at(finding, "exchange")) for finding in failures(one)} for one in gone}
    recorded, now = (_request_bodies(path, frozenset[str]().union(*failing.values())) for path in (run, folder))
    if names := [
        name for name, ids in failing.items() if any(now.get(one) != recorded[one] for one in ids & recorded.keys())
    ]:
        shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
        print(
            f"now with another request than the recorded one, which the command of the report sends: {shown}",
            file=sys.stderr,
        )


def _request_bodies(folder: Path, ids: frozenset[str]) -> dict[str, bytes]:
    """Return the bodies of the requests that a run sent, by the ids of their exchanges; none without a readable recording."""
    recording = recording_in(folder)
    if not ids or not recording.is_file():
        return {}
    try:
        series = read_recording(recording).series
    except BrokenRecordingError:
        return {}
    sent = (x for one in series for x in one.exchanges.values() if x.id in ids)
    return {x.id: x.request.body for x in sent if x.failure is None or x.failure.kind is not FailureKind.NOT_SENT}


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
