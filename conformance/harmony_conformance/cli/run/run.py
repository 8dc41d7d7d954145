"""`harmony-conformance run TARGET`: test an endpoint, or judge a recording."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable
from contextlib import ExitStack, redirect_stderr
from dataclasses import replace
from pathlib import Path, PurePath

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS
from harmony_conformance.cli.options.suite import LATENCY_REQUESTS
from harmony_conformance.cli.run.baselines import read_baselines
from harmony_conformance.cli.run.dry_run import print_dry_run
from harmony_conformance.cli.run.live_run import send_plan
from harmony_conformance.cli.run.run_against import run_against
from harmony_conformance.cli.run.run_folder import announce_replacement, open_run_folder
from harmony_conformance.cli.run.run_recording import RunRecording, read_earlier
from harmony_conformance.cli.run.run_report import report_run, run_facts
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.target import Target
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.evidence.exchange import Series
from harmony_conformance.evidence.recording_file import Recording, read_recording
from harmony_conformance.json_value import JsonObject, members, text, value_at
from harmony_conformance.report.files import read_report_file
from harmony_conformance.report.model import InvalidReportError, Report, rate_limited
from harmony_conformance.runner.judge_run import Plan, explain_incomplete_probes, judge_all, observe, sort_series
from harmony_conformance.runner.options import read_options, read_plan
from harmony_conformance.runner.resume import is_finished
from harmony_conformance.runner.run import Options, Run
from harmony_conformance.runner.shared_run import EXCHANGES, recording_in
from harmony_conformance.runner.websocket_use import WebSocketUse
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.runtime.processes import reduce_garbage_collection
from harmony_conformance.transport.redaction import Mask


def execute(arguments: Namespace) -> int:
    """Run the checks, write the files, print the report and return the exit code."""
    target, options = read_options(arguments)
    if target.replay is not None and Path(target.replay).is_dir():
        target = replace(target, replay=recording_in(Path(target.replay)))
    latency = arguments.latency if arguments.latency is not None else 0 if options.select else LATENCY_REQUESTS
    options = replace(options, latency_requests=latency)
    sends_nothing = arguments.list or arguments.dry_run
    _check_resume(arguments, target)
    baselines = read_baselines(arguments)
    recorded = _recorded(target.replay) if target.replay is not None and not sends_nothing else None
    if recorded is not None and arguments.api is None and arguments.client is None:
        options = replace(options, apis=_apis_of(recorded.series))
    if recorded is not None and any(x.websocket for series in recorded.series for x in series.exchanges.values()):
        options = replace(options, websocket_use=WebSocketUse.SCENARIOS)
    plan = read_plan(options)
    if arguments.list:
        return _list(plan)
    if arguments.dry_run:
        print_dry_run(target, options, plan, with_rows=not arguments.quiet, with_requests=arguments.verbose)
        return Exit.CONFORMS
    reduce_garbage_collection()
    if arguments.against is not None:
        return run_against(arguments, target, options, plan)
    with ExitStack() as stack:
        if arguments.quiet and not arguments.progress:
            stack.enter_context(redirect_stderr(stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))))
        out = stack.enter_context(open_run_folder(arguments.out, target))
        if target.replay is not None and recorded is not None:
            finished = _replay(Path(target.replay), recorded, plan)
            observed = observe(finished.series)
            announce_replacement(out)
        else:
            earlier = read_earlier(out) if arguments.resume else None
            recording = RunRecording(out, run_facts(target, options), earlier)
            if recording.reused:
                print(
                    f"{number_of(len(recording.reused), 'series', 'series')} taken from the recording in {out}",
                    file=sys.stderr,
                )
            try:
                finished, observed = send_plan(target, options, plan, recording, arguments.api_key_env)
            except KeyboardInterrupt as stopped:
                again = (
                    f"; to continue: {_resuming_command(arguments, options, out)}" if recording.has_responses else ""
                )
                raise KeyboardInterrupt(f"{stopped}{again}") from None
        code = report_run(arguments, target, options, finished, observed, out, baselines)
        if target.replay is None and (finished.unsent_part or not all(map(is_finished, finished.series))):
            limited = rate_limited(finished.results)
            reason = (
                f"{number_of(limited, 'result')} inconclusive because of the rate limit (HTTP 429); " if limited else ""
            )
            print(f"{reason}to continue: {_resuming_command(arguments, options, out)}", file=sys.stderr)
        return code


def _resuming_command(arguments: Namespace, options: Options, out: Path) -> str:
    """Return the command that continues a stopped run. Secrets in its options are masked."""
    words = ["harmony-conformance", *arguments.words]
    words += ["--out", str(out)] if arguments.out is None else []
    words += ["--resume"] if not arguments.resume else []
    return shlex.join(map(Mask(options.secrets).mask_text, words))


def _list(plan: Plan) -> int:
    for check in plan.checks:
        print(f"check     {check.severity.value:6} {check.id}: {check.requirement}")
    for scenario in plan.scenarios:
        api = "" if scenario.api == CHAT_COMPLETIONS.name else f" ({scenario.api})"
        print(f"scenario  {number_of(len(scenario.steps), 'step'):8} {scenario.name}{api}: {scenario.description}")
    return Exit.CONFORMS


def _check_resume(arguments: Namespace, target: Target) -> None:
    if arguments.resume and target.replay is not None:
        raise UsageError(f"invalid --resume: expected an endpoint, got {target}")
    if arguments.resume and arguments.out is None:
        raise UsageError("invalid --resume: expected --out with the folder of the earlier run, got none")


def _recorded(path: PurePath) -> Recording:
    recording = read_recording(Path(path))
    if not recording.series:
        raise UsageError(f"{path}: invalid recording: expected exchanges, got none")
    return recording


def _apis_of(recorded: Iterable[Series]) -> tuple[str, ...]:
    """Return the names of the APIs in a recording, in the order of `APIS`."""
    names = {x.api for series in recorded for x in series.exchanges.values()}
    return tuple(name for name in APIS if name in names) or (CHAT_COMPLETIONS.name,)


def _replay(path: Path, recorded: Recording, plan: Plan) -> Run:
    series = sort_series(recorded.series, plan.scenarios)
    first = _first_report(path)
    header = {**recorded.header, **(first.header if first is not None else {})}
    methods, unknown = _script_methods(header), _unknown_apis(header)
    known = {
        api: method
        for api, method in (methods or {}).items()
        if api not in unknown
        or api == CHAT_COMPLETIONS.name
        or value_at(header, "capabilities", "apis", api, "offered") is True
    }
    return Run(
        capabilities=None,
        series=series,
        results=tuple(explain_incomplete_probes(judge_all(series, plan, methods), known, unknown)),
        latency=first.latency if first is not None else (),
        recorded_header=header,
        missing_part=recorded.missing_part,
    )


def _first_report(recording: Path) -> Report | None:
    """Return the report in the folder of a recording, which has facts that exchanges lack. None if there is no such report."""
    try:
        return read_report_file(recording.parent) if recording.name.removesuffix(".gz") == EXCHANGES else None
    except InvalidReportError:
        return None


def _script_methods(header: JsonObject) -> dict[str, ScriptMethod] | None:
    """Return the script method of each API of a recorded run, by API name. None if the header lacks that of Chat Completions."""
    capabilities = value_at(header, "capabilities")
    methods = {CHAT_COMPLETIONS.name: text(value_at(capabilities, "script"))} | {
        name: text(value_at(offer, "script")) for name, offer in members(value_at(capabilities, "apis")).items()
    }
    known = {name: ScriptMethod(method) for name, method in methods.items() if method in set(ScriptMethod)}
    if CHAT_COMPLETIONS.name not in known:
        return None
    by_default = known[CHAT_COMPLETIONS.name]
    if value_at(capabilities, "chat") is False:
        del known[CHAT_COMPLETIONS.name]
    return dict.fromkeys(_unknown_apis(header), by_default) | known


def _unknown_apis(header: JsonObject) -> dict[str, str]:
    """Return the APIs with unknown capabilities, and the reasons."""
    return {name: text(reason) for name, reason in members(value_at(header, "capabilities", "unknown")).items()}
