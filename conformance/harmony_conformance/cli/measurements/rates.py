"""`harmony-conformance rates TARGET`: send graded tasks many times, and report rates with intervals."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from harmony_conformance.cli.run.dry_run import Cost, print_assumptions, request_cost
from harmony_conformance.cli.run.run_against import second_endpoint
from harmony_conformance.cli.run.run_folder import open_run_folder, report_write_errors
from harmony_conformance.cli.run.run_recording import RunRecording
from harmony_conformance.engines.diagnosis import EndpointUnusableError, explain_missing_chat
from harmony_conformance.engines.target import InvalidTargetError, Target, parse_target
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.json_value import JsonObject, dumps, value_at
from harmony_conformance.report.formats.terminal import report_console, visible
from harmony_conformance.runner.arguments import add_options
from harmony_conformance.runner.options import read_options
from harmony_conformance.runner.run import Options
from harmony_conformance.runtime.build_version import package_version
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.runtime.private_files import write_private
from harmony_conformance.sampling.rates import all_rates, pass_rates, rate_names
from harmony_conformance.sampling.rates_file import RATES
from harmony_conformance.sampling.report import (
    below_minimum,
    compare_rates,
    difference_lines,
    legacy_lines,
    rate_table,
    sampled_json,
    unsolved_lines,
)
from harmony_conformance.sampling.request_file import read_requests
from harmony_conformance.sampling.run import Endpoint, Sampled, sample_endpoints
from harmony_conformance.sampling.sampler import DEFAULT_LIMIT, MOST_TURNS, TaskTry
from harmony_conformance.sampling.task import COMPATIBILITY, Task, read_tasks
from harmony_conformance.transport.client import run_async


def execute(arguments: Namespace) -> int:
    """Send the tasks, write the files, print the rates and return the exit code."""
    tasks = _tasks(arguments)
    minima = dict(arguments.min)
    if unknown := sorted(minima.keys() - rate_names()):
        similar = get_close_matches(unknown[0], sorted(rate_names()), n=3) or sorted(read_tasks())
        raise UsageError(
            f"invalid --min: expected a rate such as {', '.join(similar)} (all: harmony-conformance help rates), got {unknown[0]!r}"
        )
    if arguments.list:
        print("\n".join(f"{task.set:10} {task.kind:14} {task.id}" for task in tasks))
        return Exit.CONFORMS
    if arguments.dry_run:
        return _dry_run(arguments, tasks, 1 + (arguments.against is not None))
    target, options = read_measured(arguments)
    with ExitStack() as stack:
        out = stack.enter_context(open_run_folder(arguments.out, target))
        recording = RunRecording(out, {"version": package_version(), "rates": True}, None, has_scenarios=False)
        stack.callback(recording.close)
        endpoints = [_endpoint(arguments, target, options, recording)]
        if arguments.against is not None:
            endpoints.append(_endpoint(arguments, *read_measured(second_endpoint(arguments)), recording))
        try:
            sampled = run_async(
                sample_endpoints(endpoints, tasks, arguments.tries, minima, partial(print, file=sys.stderr))
            )
        except EndpointUnusableError as problem:
            raise UsageError(f"{target}: {explain_missing_chat(problem, 'rates')}") from None
        except KeyboardInterrupt:
            raise KeyboardInterrupt(recording.describe_stop()) from None
        if not any(one.samples for one in sampled):
            raise UsageError(f"{target}: expected answers, got none ({sampled[0].stopped or 'nothing was sent'})")
        recording.end()
        document: JsonObject = {
            "$schema": "rates.schema.json",
            "endpoints": [sampled_json(one, minima, right) for one, right in _with_right(sampled)],
        }
        if len(sampled) > 1:
            differences = compare_rates(*(all_rates(one.samples) for one in sampled))
            document["differences"] = [one.to_json() for one in differences]
        with report_write_errors(out, has_scenarios=False):
            write_private(out / RATES, f"{dumps(document)}\n".encode())
        print(dumps(document)) if arguments.format == "json" else _print(sampled, endpoints, minima, out)
        return _exit_code(sampled, minima)


def _dry_run(arguments: Namespace, tasks: Sequence[Task], endpoints: int) -> int:
    """Print the cost of the tasks. The input of a task with calls counts for each of its turns, without the answers."""
    try:
        target = parse_target(arguments.target)
    except InvalidTargetError as problem:
        raise UsageError(str(problem)) from None
    at_once = Options(concurrency=arguments.concurrency).max_concurrency(target)
    tries = arguments.tries * endpoints
    turns = [(task, MOST_TURNS if task.results else 1) for task in tasks]
    costs = (request_cost(dumps(task.request), _limit(task), count * tries) for task, count in turns)
    cost = sum(costs, start=Cost()).within(arguments.max_requests, arguments.max_tokens)
    conversations = number_of(len(tasks) * tries, "conversation")
    print(
        f"{number_of(len(tasks), 'task')}, {conversations}: at most {cost}, {cost.duration(at_once, arguments.max_time)}"
    )
    print_assumptions(at_once)
    return Exit.CONFORMS


def _print(sampled: Sequence[Sampled], endpoints: Sequence[Endpoint], minima: dict[str, float], out: Path) -> None:
    console = report_console()
    for (one, right), endpoint in zip(_with_right(sampled), endpoints, strict=True):
        found = one.capabilities
        place = f"{endpoint.target}: " if len(endpoints) > 1 else ""
        tested = f"{place}{found.model} on {found.engine.name} {found.engine_version or ''}: {number_of(len(one.samples), 'try', 'tries')}"
        console.print(visible(tested), markup=False, soft_wrap=True)
        console.print(rate_table(all_rates(one.samples), minima))
        for its_set, rows in pass_rates(one.samples).items():
            last = rows[-1] if isinstance(rows, list) and rows else None
            k = value_at(last, "k")
            if k != 1:
                console.print(
                    f"{its_set}: pass@{k} {value_at(last, 'pass_at_k'):.3f}, pass^{k} {value_at(last, 'pass_hat_k'):.3f}"
                )
        for line in unsolved_lines(one.samples):
            console.print(line, markup=False)
        for line in legacy_lines(one.samples, right):
            console.print(line, markup=False, soft_wrap=True)
        if one.stopped:
            print(f"incomplete: {visible(one.stopped)}", file=sys.stderr)
        console.print()
    if len(sampled) > 1:
        differences = compare_rates(*(all_rates(one.samples) for one in sampled))
        for line in difference_lines(differences):
            console.print(line, markup=False)
    console.print(f"rates: {visible(str(out / RATES))}", markup=False)


def _with_right(sampled: Sequence[Sampled]) -> Iterator[tuple[Sampled, Sequence[TaskTry]]]:
    """Yield each endpoint with the tries that it is compared to: the first with those of the second."""
    for place, one in enumerate(sampled):
        yield one, sampled[1].samples if place == 0 and len(sampled) > 1 else ()


def _exit_code(sampled: Sequence[Sampled], minima: dict[str, float]) -> int:
    rates = [all_rates(one.samples) for one in sampled]
    if any(below_minimum(one, minima) for one in rates[:1]):
        return Exit.DIVERGES
    if len(rates) > 1 and any(one.is_worse for one in compare_rates(*rates)):
        return Exit.DIVERGES
    if not all(any(rate.name == "answered" and rate.count for rate in one) for one in rates):
        print("no request was answered: nothing was measured", file=sys.stderr)
        return Exit.USAGE
    without_case = sorted(minima.keys() - {rate.name for rate in rates[0] if rate.of})
    for name in without_case:
        print(f"{name}: no case, so its minimum was not checked", file=sys.stderr)
    incomplete = any(one.stopped for one in sampled) or bool(without_case)
    return Exit.USAGE if incomplete else Exit.CONFORMS


def _tasks(arguments: Namespace) -> tuple[Task, ...]:
    sets = read_tasks()
    if arguments.requests is not None and (arguments.set or arguments.task):
        raise UsageError("invalid --requests: expected neither --set nor --task with it")
    if arguments.requests is not None:
        return read_requests(arguments.requests)
    names = arguments.set or (name for name in sets if name != COMPATIBILITY)
    chosen = [task for name in names for task in sets[name]]
    if arguments.task:
        chosen = [task for task in chosen if any(fnmatchcase(task.id, one) for one in arguments.task)]
    if not chosen:
        raise UsageError(
            f"invalid --task: expected a task of `harmony-conformance rates reference --list`, got {arguments.task[0]!r}"
        )
    return tuple(chosen)


def _limit(task: Task) -> int:
    limits = (value_at(task.request, name) for name in ("max_completion_tokens", "max_tokens"))
    return next((limit for limit in limits if isinstance(limit, int)), DEFAULT_LIMIT)


def read_measured(arguments: Namespace) -> tuple[Target, Options]:
    """Return target and options of an endpoint that is measured. Options that the command lacks have their defaults.

    Raises:
        UsageError: An option is invalid, or the target is a recording.
    """
    defaults = ArgumentParser()
    add_options(defaults)
    every = {**vars(defaults.parse_args([arguments.target])), **vars(arguments)}
    target, options = read_options(Namespace(**every))
    if target.replay is not None:
        raise UsageError(f"invalid target: expected an endpoint, got {arguments.target}")
    return target, replace(options, script="none")


def _endpoint(arguments: Namespace, target: Target, options: Options, recording: RunRecording) -> Endpoint:
    members: JsonObject = {}
    if arguments.temperature is not None:
        members["temperature"] = arguments.temperature
    if arguments.effort is not None:
        members["reasoning_effort"] = arguments.effort
    return Endpoint(target=target, options=options, keep=recording.add, members=members)
