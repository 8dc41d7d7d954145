"""Sending of a run from the command line: the recording, the progress on the terminal, the errors in one line."""

from __future__ import annotations

import sys
from contextlib import ExitStack

from harmony_conformance.apis.registry import CHAT_COMPLETIONS
from harmony_conformance.cli.run.progress import show_progress
from harmony_conformance.cli.run.run_recording import RunRecording
from harmony_conformance.engines.diagnosis import EndpointUnusableError, KeyRefusedError
from harmony_conformance.engines.discovery import Capabilities
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.target import Target
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import JsonObject
from harmony_conformance.report.formats.terminal import visible
from harmony_conformance.runner.judge_in_background import open_judge
from harmony_conformance.runner.judge_run import Observations, Plan
from harmony_conformance.runner.run import Options, Run, needs_server_process, run, serve_target
from harmony_conformance.runner.sender import Progress
from harmony_conformance.transport.client import run_async
from harmony_conformance.transport.waits import Notice


def send_plan(
    target: Target, options: Options, plan: Plan, recording: RunRecording, key_env: str | None
) -> tuple[Run, Observations]:
    """Send the scenarios, record and judge them. Return the run, and the observations in its exchanges.

    Raises:
        UsageError: The endpoint cannot be tested, or the recording cannot be written.
        KeyboardInterrupt: The user stopped the run. The message says what is recorded.
    """

    def print_progress(event: Capabilities | Notice) -> None:
        if not isinstance(event, Capabilities):
            print(event, file=sys.stderr)
        else:
            _print_capabilities(target, event)
            recording.describe_endpoint(endpoint_facts(target, event))

    try:
        with ExitStack() as stack:
            stack.callback(recording.close)
            # both before any thread starts, because they fork
            base = stack.enter_context(serve_target(target, options)) if needs_server_process(target, options) else None
            judge = stack.enter_context(open_judge(plan, options))
            shown = stack.enter_context(show_progress(plan, options.tries, judge.count_failures, options.timeout))
            for one in recording.reused.values():
                for x in one.exchanges.values():
                    shown.add(x)

            def record(x: Exchange) -> None:
                judge.on_exchange(x, recording.add(x))
                shown.add(x)

            def tell(event: Capabilities | Notice) -> None:
                print_progress(event)
                if isinstance(event, Capabilities):
                    shown.begin(event)

            progress = Progress(recorded=recording.reused, on_finished=recording.finish)
            finished = run_async(run(target, options, plan, record, tell, judge, base, progress))
            recording.end()
            return finished, judge.observations(finished.series)
    except EndpointUnusableError as problem:
        reason = str(problem)
        if isinstance(problem, KeyRefusedError):
            reason = problem.message_with_variable(key_env if options.key else None)
        raise UsageError(f"{target}: {reason}") from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt(recording.describe_stop()) from None


def endpoint_facts(target: Target, found: Capabilities | None) -> JsonObject:
    """Return what a report and a recording say of the endpoint. `found`: None for a recording."""
    return {
        "target": {
            "engine": (found.engine if found else target.engine).name,
            "engine_version": found.engine_version if found else None,
            "model": found.model if found else None,
            "url_host": target.host,
        },
        "capabilities": found.to_json() if found else {},
    }


def _print_capabilities(target: Target, found: Capabilities) -> None:
    engine_version = f" {found.engine_version}" if found.engine_version else ""
    base = target.base_url or "embedded"
    if target.is_engine_unknown:
        base += f" (detected by {', '.join(found.signatures)})" if found.signatures else " (engine not detected)"
    endpoint = visible(f"{found.engine.name}{engine_version} at {base}, model {found.model}")
    print(f"{endpoint}; prompt evidence: {found.prompt_level.value}; output: {found.output}", file=sys.stderr)
    if reason := found.incomplete_probes.get(CHAT_COMPLETIONS.name):
        print(visible(f"  some capabilities are unknown ({reason})"), file=sys.stderr)
    for offer in found.api_support:
        missing = "not offered" if offer.is_known else "support unknown"
        output = "the model's own" if offer.script_method is ScriptMethod.NONE else "scripted"
        support = (
            f"{missing} ({offer.unsupported_reason})"
            if offer.unsupported_reason
            else f"at {offer.path}, output: {output}"
        )
        print(visible(f"  {offer.api.title}: {support}"), file=sys.stderr)
