"""`run URL_A --against URL_B`: two endpoints at once, whose requests alternate, each with its report, and what differs."""

from __future__ import annotations

import sys
from argparse import Namespace
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from harmony_conformance.cli.comparison.compare import comparison_text
from harmony_conformance.cli.run.baselines import Baselines
from harmony_conformance.cli.run.live_run import endpoint_facts
from harmony_conformance.cli.run.run_folder import COMPARISON, open_run_folder, report_write_errors
from harmony_conformance.cli.run.run_recording import RunRecording
from harmony_conformance.cli.run.run_report import report_run, run_facts
from harmony_conformance.engines.diagnosis import EndpointUnusableError
from harmony_conformance.engines.discovery import Capabilities
from harmony_conformance.engines.target import Target
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.report.comparison.prompt_changes import prompt_changes
from harmony_conformance.report.comparison.run_comparison import compare
from harmony_conformance.report.files import read_report_file
from harmony_conformance.report.formats.terminal import visible
from harmony_conformance.report.pages.html import comparison_html
from harmony_conformance.runner.interleaved_run import run_interleaved
from harmony_conformance.runner.judge_run import Plan, observe
from harmony_conformance.runner.options import failing_severities, read_options
from harmony_conformance.runner.run import Options, serve_target
from harmony_conformance.runtime.private_files import write_private
from harmony_conformance.transport.client import run_async
from harmony_conformance.transport.redaction import Mask
from harmony_conformance.transport.waits import Notice

FOLDERS = ("endpoint", "against")
"""Folders of the two runs below that of the command."""


def second_endpoint(arguments: Namespace) -> Namespace:
    """Return the arguments of the endpoint of `--against`."""
    named = {"target": arguments.against, "model": arguments.against_model, "api_key_env": arguments.against_key_env}
    return Namespace(**{**vars(arguments), **named})


def run_against(arguments: Namespace, target: Target, options: Options, plan: Plan) -> int:
    """Run both endpoints, write their files and print what differs. Exit code 1: the first has failures that the second lacks."""
    second = second_endpoint(arguments)
    other, other_options = read_options(second)
    options_of_one = ("--resume", "--baseline", "--baseline-write")
    for name in options_of_one:
        if vars(arguments)[name.removeprefix("--").replace("-", "_")]:
            raise UsageError(f"invalid options: expected --against without {name}, got both")
    if target.replay is not None or other.replay is not None:
        raise UsageError("invalid --against: expected two endpoints, got a recording; use `compare`")
    other_options = replace(other_options, latency_requests=options.latency_requests)
    endpoints = ((target, options), (other, other_options))
    with ExitStack() as stack:
        out = stack.enter_context(open_run_folder(arguments.out, target))
        folders = [
            stack.enter_context(open_run_folder(out / name, one))
            for name, (one, _) in zip(FOLDERS, endpoints, strict=True)
        ]
        recordings = [
            RunRecording(folder, run_facts(*endpoint), None)
            for folder, endpoint in zip(folders, endpoints, strict=True)
        ]
        for recording in recordings:
            stack.callback(recording.close)
        based = [(one, its, stack.enter_context(serve_target(one, its))) for one, its in endpoints]
        try:
            keep = [partial(_keep, recording) for recording in recordings]
            told = [partial(_tell, recording, one) for recording, (one, _) in zip(recordings, endpoints, strict=True)]
            runs = run_async(run_interleaved(based, plan, keep, told))
        except EndpointUnusableError as problem:
            raise UsageError(str(problem)) from None
        codes: list[int] = []
        for endpoint, finished, recording, words in zip(endpoints, runs, recordings, (arguments, second), strict=True):
            recording.end()
            quiet = Namespace(**{**vars(words), "quiet": True, "verbose": False, "format": "text"})
            codes.append(report_run(quiet, *endpoint, finished, observe(finished.series), recording.out, Baselines()))
        mask = Mask((*options.secrets, *other_options.secrets))
        second_report, first_report = (read_report_file(folder) for folder in reversed(folders))
        compared = compare(second_report, first_report, (mask.mask_text(str(other)), mask.mask_text(str(target))))
        with report_write_errors(out):
            # the earlier side is the second endpoint
            later, earlier = ((x for one in run.series for x in one.exchanges.values()) for run in runs)
            prompts = prompt_changes(compared, earlier, later, mask.mask_text)
            write_private(out / COMPARISON, comparison_html(compared, prompts).encode("utf-8", "backslashreplace"))
    print()
    print("\n".join(comparison_text(compared, ("against", "endpoint"))))
    print(f"page: {visible(str(out / COMPARISON))}")
    broken = [code for code in codes if code not in (Exit.CONFORMS, Exit.DIVERGES)]
    has_regressed = compared.has_regressed(failing_severities(arguments.fail_on))
    return max(broken, default=Exit.DIVERGES if has_regressed else Exit.CONFORMS)


def _keep(recording: RunRecording, x: Exchange) -> None:
    recording.add(x)


def _tell(recording: RunRecording, target: Target, event: Capabilities | Notice) -> None:
    if isinstance(event, Capabilities):
        recording.describe_endpoint(endpoint_facts(target, event))
    else:
        print(f"{target}: {event}", file=sys.stderr)
