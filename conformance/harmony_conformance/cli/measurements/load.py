"""`harmony-conformance load TARGET`: latency under load, with objectives as a gate."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product

from harmony_conformance.cli.measurements.rates import read_measured
from harmony_conformance.cli.run.run_folder import open_run_folder, report_write_errors
from harmony_conformance.cli.run.run_recording import RunRecording
from harmony_conformance.engines.diagnosis import EndpointUnusableError, explain_missing_chat
from harmony_conformance.engines.target import Target
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, dumps, text, value_at
from harmony_conformance.load.arrivals import Arrivals
from harmony_conformance.load.load import LoadedRequest, LoadSender, OfferedLoad
from harmony_conformance.load.load_file import LOAD, LOAD_PAGE
from harmony_conformance.load.objectives import (
    InvalidObjectiveError,
    Objective,
    good_requests,
    judge_objectives,
    read_objectives,
)
from harmony_conformance.load.page import load_html
from harmony_conformance.load.report import load_json, metric_table
from harmony_conformance.report.formats.terminal import report_console, visible
from harmony_conformance.runner.limits.run_limits import RunLimits, count_output_tokens
from harmony_conformance.runner.run import Options, connect_client, discover_target, mask_requests
from harmony_conformance.runtime.build_version import package_version
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.runtime.private_files import write_private
from harmony_conformance.transport.client import SendResult, run_async
from harmony_conformance.transport.messages import Request

_LENGTH_MEMBERS: dict[str, JsonObject] = {"vllm": {"ignore_eos": True}, "sglang": {"ignore_eos": True}}
"""Members that make every answer as long as its limit, by engine."""


def execute(arguments: Namespace) -> int:
    """Send the loads, write the files, print the figures and return the exit code."""
    loads = _loads(arguments)
    for name, own in (("concurrency", "--clients"), ("max_requests", "--requests"), ("max_rps", "--rate")):
        if getattr(arguments, name) is not None:
            raise UsageError(f"invalid --{name.replace('_', '-')}: expected {own}, which `load` has in its place")
    target, options = read_measured(arguments)
    if arguments.dry_run:
        return _dry_run(loads, arguments.warm_up)
    objectives = _objectives(arguments.slo) if arguments.slo else ()
    with ExitStack() as stack:
        out = stack.enter_context(open_run_folder(arguments.out, target))
        recording = RunRecording(out, {"version": package_version(), "load": True}, None, has_scenarios=False)
        stack.callback(recording.close)

        def record(x: Exchange) -> None:
            recording.add(x)

        try:
            measured, stopped = run_async(_send(target, options, loads, arguments.warm_up, record))
        except EndpointUnusableError as problem:
            raise UsageError(f"{target}: {explain_missing_chat(problem, 'load')}") from None
        except KeyboardInterrupt:
            raise KeyboardInterrupt(recording.describe_stop()) from None
        recording.end()
        figures: list[JsonObject] = [load_json(load, requests, objectives) for load, requests in measured]
        document: JsonObject = {
            "$schema": "load.schema.json",
            "target": str(target),
            "seed": options.seed or 0,
            "loads": [*figures],
        }
        with report_write_errors(out, has_scenarios=False):
            write_private(out / LOAD, f"{dumps(document)}\n".encode())
            write_private(out / LOAD_PAGE, load_html(document).encode("utf-8", "backslashreplace"))
        if arguments.format == "json":
            print(dumps(document))
        else:
            for (load, requests), figure in zip(measured, figures, strict=True):
                _print(load, requests, figure, objectives)
            report_console().print(f"report: {visible(str(out / LOAD_PAGE))}", markup=False)
        if stopped:
            print(f"incomplete: {visible(stopped)}", file=sys.stderr)
        code = _exit_code([requests for _, requests in measured], objectives)
        return Exit.USAGE if stopped and code == Exit.CONFORMS else code


def _dry_run(loads: Sequence[OfferedLoad], warm_up: int) -> int:
    for load in loads:
        count = load.requests + warm_up
        read, written = count * load.input_tokens, count * load.output_tokens
        time = f", at least {load.requests / load.rate:.0f} s" if load.rate is not None else ""
        print(
            f"{load.name}: {number_of(count, 'request')}, about {number_of(read, 'input token')}, at most {number_of(written, 'output token')}{time}"
        )
    print("nothing was sent: the URL, the key and the model were not tested")
    return Exit.CONFORMS


def _loads(arguments: Namespace) -> list[OfferedLoad]:
    if (arguments.rate is None) == (arguments.clients is None):
        raise UsageError(
            "invalid options: expected one of --rate and --clients, got " + ("both" if arguments.rate else "none")
        )
    paces: list[tuple[float | None, int | None]] = [(rate, None) for rate in arguments.rate or ()]
    paces += [(None, clients) for clients in arguments.clients or ()]
    return [
        OfferedLoad(
            requests=arguments.requests,
            rate=rate,
            clients=clients,
            input_tokens=read,
            output_tokens=written,
            law=Arrivals(arguments.arrivals),
            seed=arguments.seed or 0,
        )
        for read, written, (rate, clients) in product(arguments.input_tokens, arguments.output_tokens, paces)
    ]


async def _send(
    target: Target, options: Options, loads: Sequence[OfferedLoad], warm_up: int, keep: Callable[[Exchange], None]
) -> tuple[list[tuple[OfferedLoad, tuple[LoadedRequest, ...]]], str]:
    """Return the requests of each load, and the reason why some were not sent, empty for a complete run."""
    found = await discover_target(target, options, partial(print, file=sys.stderr))
    async with connect_client(target, options) as client:
        limits = RunLimits(options.max_time, options.timeout, options.max_tokens)

        async def send(request: Request) -> SendResult:
            return await limits.send(lambda: client.send(request))

        def count_and_keep(x: Exchange) -> None:
            limits.count_tokens(count_output_tokens(x))
            limits.count_refusals(x)
            keep(x)

        sender = LoadSender(
            send=send,
            members={"model": found.model, **_LENGTH_MEMBERS.get(found.engine.name, {}), **options.extra_body},
            engine=found.engine.name,
            keep=mask_requests(options, count_and_keep),
        )
        measured: list[tuple[OfferedLoad, tuple[LoadedRequest, ...]]] = []
        for load in loads:
            await sender.warm_up(load, warm_up)
            measured.append((load, tuple(one for one in await sender.run(load) if not one.is_unsent)))
            if limits.stop_reason is not None:
                return measured, limits.stop_reason.detail
        return measured, ""


def _print(
    load: OfferedLoad, requests: Sequence[LoadedRequest], figure: JsonObject, objectives: Sequence[Objective]
) -> None:
    console = report_console()
    failed = value_at(figure, "failed")
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(_items(figure, "failures")))
    console.print(
        f"[bold]{load.name}[/]: {number_of(len(requests), 'request')}, {failed} failed{f' ({reasons})' if reasons else ''}"
    )
    console.print(metric_table(requests))
    share = value_at(figure, "reasoning_share")
    late = value_at(figure, "client_late_p99")
    parts = [
        f"{_number(figure, 'requests_per_second')} answers/s",
        f"{_number(figure, 'tokens_per_second')} tokens/s",
        f"reasoning {share:.0%} of the text" if isinstance(share, float) else "",
        f"this client sent at most {late * 1000:.1f} ms late (p99)" if isinstance(late, float) else "",
    ]
    console.print("; ".join(filter(None, parts)))
    for one in judge_objectives(requests, objectives):
        word = "missed" if one.is_missed else "met" if one.is_met else "not certain with so few requests"
        console.print(f"  {one.objective}: {word}")
    if objectives:
        good = good_requests(requests, objectives)
        console.print(
            f"  goodput {_number(figure, 'goodput')} requests/s: {good} of {number_of(len(requests), 'request')} kept every limit"
        )
    console.print()


def _items(figure: JsonObject, name: str) -> list[tuple[str, Json]]:
    value = value_at(figure, name)
    return [(visible(text(key)), count) for key, count in value.items()] if isinstance(value, dict) else []


def _number(figure: JsonObject, name: str) -> str:
    value = value_at(figure, name)
    return f"{value:,.1f}" if isinstance(value, int | float) else "unknown"


def _exit_code(measured: Sequence[Sequence[LoadedRequest]], objectives: Sequence[Objective]) -> int:
    if any(one.is_missed for requests in measured for one in judge_objectives(requests, objectives)):
        return Exit.DIVERGES
    has_answers = any(good_requests(requests, ()) for requests in measured)
    if not has_answers:
        print("no request had a complete answer: nothing was measured", file=sys.stderr)
    return Exit.CONFORMS if has_answers else Exit.USAGE


def _objectives(words: str) -> tuple[Objective, ...]:
    try:
        return read_objectives(words)
    except InvalidObjectiveError as problem:
        raise UsageError(f"invalid --slo: {problem}") from None
