"""The report of a finished run: its header, results and causes, and the files of the folder."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path

from harmony_conformance.causes.attribution import find_causes
from harmony_conformance.causes.known import causes_of_version
from harmony_conformance.cli.run.baselines import Baselines
from harmony_conformance.cli.run.live_run import endpoint_facts
from harmony_conformance.cli.run.run_folder import report_write_errors
from harmony_conformance.cli.run.run_output import print_run
from harmony_conformance.engines.target import InvalidTargetError, Target, parse_target
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import JsonObject, members, text, value_at
from harmony_conformance.plugins.registry import plugin_header
from harmony_conformance.report.client_verdict import with_client
from harmony_conformance.report.comparison.baseline import with_baseline
from harmony_conformance.report.comparison.baseline_file import update_for_run
from harmony_conformance.report.files import write_files
from harmony_conformance.report.model import Report, make_report, mask_report, result_line
from harmony_conformance.report.pages.exchange_view import exchange_views, shown_exchanges
from harmony_conformance.runner.judge_run import Observations
from harmony_conformance.runner.limits.access_loss import early_stop_reason
from harmony_conformance.runner.options import failing_severities, read_client, reproduction_arguments
from harmony_conformance.runner.reproduce import reproduce_result, script_text, shown_exchange
from harmony_conformance.runner.resume import recorded_options
from harmony_conformance.runner.run import Options, Run
from harmony_conformance.runtime.build_version import build_version, package_version
from harmony_conformance.transport.redaction import Mask

_LARGE = 1 << 40
_RECORDED_MEMBERS = ("target", "capabilities", "tries", "seed", "started")
"""Header members that are copied from the report of a recording."""


def report_run(  # noqa: PLR0913, PLR0917 - the run and the command
    arguments: Namespace,
    target: Target,
    options: Options,
    finished: Run,
    observed: Observations,
    out: Path,
    baselines: Baselines,
) -> int:
    """Write the files, print the run and return the exit code."""
    mask = Mask(options.secrets)
    report = _report(target, options, finished, observed, arguments)
    report = report if mask.is_empty else mask_report(report, mask.mask_text)
    if (profile := read_client(arguments)) is not None:
        report = with_client(report, profile, failing_severities(arguments.fail_on))
    report = with_baseline(report, baselines.expected) if baselines.expected is not None else report
    update = update_for_run(baselines.file, report) if baselines.file is not None else None
    with report_write_errors(out):
        exchanges = (x for series in finished.series for x in series.exchanges.values())
        views = exchange_views(shown_exchanges(report), exchanges, mask.mask_text)
        write_files(report, out, failing_severities(arguments.fail_on), views)
    if update is not None:
        try:
            update.write()
        except OSError as problem:
            raise UsageError(
                f"--baseline-write {update.file.path}: {problem.strerror}; the report is in {out}"
            ) from None
    return print_run(arguments, report, finished, out, update)


def _report(target: Target, options: Options, finished: Run, observed: Observations, arguments: Namespace) -> Report:
    by_id = {x.id: x for series in finished.series for x in series.exchanges.values()}
    cut = early_stop_reason(finished.series)
    incomplete = finished.missing_part or (cut.detail if cut is not None else finished.unsent_part)
    missing = [name for name in arguments.require if not observed.features[name]]
    header: JsonObject = {
        "version": build_version(),
        **endpoint_facts(target, finished.capabilities),
        **({"incomplete": incomplete} if incomplete else {}),
        "renderer": observed.renderer.to_json() if observed.renderer is not None else None,
        "features": observed.features,
        **({"missing_features": missing} if missing else {}),
        "tries": options.tries,
        "seed": options.seed,
        **plugin_header(),
        "started": finished.start_time or datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: finished.recorded_header[name] for name in _RECORDED_MEMBERS if name in finished.recorded_header},
    }
    if arguments.engine:
        name, _, version_ = arguments.engine.partition(" ")
        header["target"] = {**members(header["target"]), "engine": name, "engine_version": version_ or None}
    words = reproduction_arguments(options)
    shown = _shown_target(target, finished.recorded_header, arguments.recorded_target)
    header["options"] = members(finished.recorded_header.get("options")) or _options_of(shown, options)
    lines = (
        result_line(result, command, script_text(shown_exchange(result, by_id)) if command else "")
        for result in finished.results
        for command in (reproduce_result(shown, result, by_id, arguments.api_key_env, words),)
    )
    engine, release = (text(value_at(header, "target", name)) for name in ("engine", "engine_version"))
    known = causes_of_version(engine, release)
    causes = find_causes(
        finished.results, known=known, sizes={name: _size(x) for name, x in by_id.items()}, exchanges=by_id
    )
    cause_lines = [cause.to_json() for cause in causes]
    for cause, line in zip(causes, cause_lines, strict=True):
        result = cause.results[0]._replace(findings=(cause.example,))
        command = reproduce_result(shown, result, by_id, arguments.api_key_env, words)
        script = script_text(shown_exchange(result, by_id))
        line["example"] = {**members(line["example"]), "reproduce": command, **({"script": script} if script else {})}
    return make_report(header, lines, finished.latency, cause_lines)


def _options_of(target: Target, options: Options) -> JsonObject:
    """Return the options that determine requests. The file of a recording is no target that can be asked again."""
    values = recorded_options(target, options)
    return values if target.replay is None else {name: value for name, value in values.items() if name != "target"}


def _shown_target(target: Target, recorded: JsonObject, named: str | None) -> Target:
    """Return the target of printed commands. That of a recording is in its first line, unless the user names it.

    Raises:
        UsageError: The user names an invalid one.
    """
    try:
        return parse_target(named or text(value_at(recorded, "options", "target")) or str(target))
    except InvalidTargetError as problem:
        if named:
            raise UsageError(str(problem)) from None
        return target


def _size(x: Exchange) -> int:
    """Return the bytes of an exchange; a body that is no JSON, which a printed command cannot repeat, comes after all others."""
    unusual = 0 if isinstance(x.request.json, dict) and _is_text(x.request.body) else _LARGE
    return unusual + len(x.request.body) + (sum(len(chunk.data) for chunk in x.response.chunks) if x.response else 0)


def _is_text(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\\ud" not in body.lower()


def run_facts(target: Target, options: Options) -> JsonObject:
    """Return the facts of a run that its continuation must share."""
    return {
        "version": package_version(),
        "tries": options.tries,
        "seed": options.seed,
        "options": recorded_options(target, options),
    }
