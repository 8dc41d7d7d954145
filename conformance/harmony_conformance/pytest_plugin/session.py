"""pytest session against an endpoint: one item per check and scenario, collected offline, judged from one shared run."""

from __future__ import annotations

import pickle
from argparse import ArgumentParser
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NoReturn, Protocol

import pytest

from harmony_conformance.engines.diagnosis import EndpointUnusableError, KeyRefusedError
from harmony_conformance.engines.target import Target
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.exchange import ALL_APIS, Exchange, Series
from harmony_conformance.golden.scenario import Scenario
from harmony_conformance.judge.check import Check, Comparison, Outcome
from harmony_conformance.judge.scenario_series import ScenarioSeries
from harmony_conformance.plugins.loading import load_plugins
from harmony_conformance.plugins.registry import set_plugins
from harmony_conformance.pytest_plugin import outcomes
from harmony_conformance.pytest_plugin.items import MODULE, ConformanceItem, ConformanceModule, ItemResult
from harmony_conformance.pytest_plugin.latency_items import PLUGIN, LatencyItem, latency_items, measures
from harmony_conformance.runner.arguments import add_options, whole_number
from harmony_conformance.runner.judge_run import Plan, explain_incomplete_probes, join_apis, judge_pair
from harmony_conformance.runner.latency.latency_probe import concurrency_levels, load_name, measured_load
from harmony_conformance.runner.limits.access_loss import INCOMPLETE_RUN_KINDS, early_stop_reason
from harmony_conformance.runner.options import (
    FLAGS,
    failing_severities,
    fails_on_inconclusive,
    read_options,
    read_plan,
    reproduction_arguments,
)
from harmony_conformance.runner.reproduce import reproduce_result
from harmony_conformance.runner.run import Options
from harmony_conformance.runner.shared_run import SharedRun, open_run, recorded_latency, recorded_series
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.transport.redaction import Mask

_MODULE = Path(__file__).parents[1] / "conformance_test.py"
_REFUSED = "access_refused"  # property of an item whose run lost access
_WORKER_INPUT = "harmony_conformance"  # key of the shared run in the input of a pytest-xdist worker


@dataclass(frozen=True, kw_only=True)
class PytestOptions:
    """Values of `--endpoint` and `--harmony`."""

    target: Target
    options: Options
    plan: Plan
    fail_on: str
    key_env: str | None
    out: Path | None


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"invalid --harmony: {message}")


def read_pytest_options(endpoint: str, options: Sequence[str]) -> PytestOptions:
    """Parse the values of `--endpoint` and `--harmony`. The checks of `plugin=FILE` are loaded for the process.

    Raises:
        UsageError: A value is invalid; the message has one line.
    """
    parser = _Parser(prog="pytest", add_help=False, allow_abbrev=False)
    add_options(parser)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--latency", type=whole_number(0), default=0)
    for option in options:
        if "=" not in option and option not in FLAGS:
            raise UsageError(f"invalid --harmony: expected OPTION=VALUE, for example model=gpt-oss-20b, got {option!r}")
    arguments = parser.parse_args([*(f"--{option}" for option in options), "--", endpoint])
    if arguments.plugin:
        set_plugins(load_plugins(arguments.plugin))
    target, run_options = read_options(arguments)
    run_options = replace(run_options, latency_requests=arguments.latency)
    if arguments.latency and target.replay is not None:
        raise UsageError("invalid --harmony latency: expected an endpoint, got a recording")
    if arguments.latency and run_options.max_requests is not None:
        raise UsageError("invalid --harmony: expected latency without max-requests, got both")
    return PytestOptions(
        target=target,
        options=run_options,
        plan=read_plan(run_options),
        fail_on=arguments.fail_on,
        key_env=arguments.api_key_env,
        out=arguments.out,
    )


def register(config: pytest.Config) -> None:
    """Register the plugin that collects and runs the items.

    Raises:
        pytest.UsageError: An option is invalid.
    """
    endpoint: str = config.option.harmony_endpoint
    values: list[str] = config.option.harmony_options
    config.add_cleanup(partial(set_plugins, ()))
    try:
        options = read_pytest_options(endpoint, values)
    except UsageError as problem:
        raise pytest.UsageError(str(problem)) from None
    if options.options.latency_requests and not config.pluginmanager.hasplugin(PLUGIN):
        raise pytest.UsageError("invalid --harmony latency: expected pytest-benchmark, got a session without it")
    config.pluginmanager.register(HarmonySession(config, options), "harmony_conformance_session")


class _Node(Protocol):
    """Worker of pytest-xdist."""

    workerinput: dict[str, object]


class HarmonySession:
    """Plugin of one session: collects items, sends their scenarios once, and counts applied checks."""

    def __init__(self, config: pytest.Config, asked: PytestOptions) -> None:
        self.config = config
        self.pytest_options = asked
        self._mask = Mask(asked.options.secrets)
        self._exit_stack = ExitStack()
        self._shared: SharedRun | None = None
        self._series: dict[tuple[str, str], list[Series]] = {}
        self._latency: tuple[Exchange, ...] = ()
        self._items = 0
        self._applied_must = 0
        self._refused = ""
        config.add_cleanup(self._exit_stack.close)

    def pytest_report_header(self) -> str:
        """Return the line for the header."""
        plan = self.pytest_options.plan
        return f"harmony-conformance: {self.pytest_options.target}, {number_of(len(plan.checks), 'check')}, {number_of(len(plan.scenarios), 'scenario')}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Under pytest-xdist, open the endpoint in the controlling process, before workers start."""
        if self.config.pluginmanager.hasplugin("dsession"):
            self._open_run()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: _Node) -> None:
        """Send the shared run to a worker."""
        node.workerinput[_WORKER_INPUT] = pickle.dumps(self._shared)

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Collect the items in place of the module `conformance_test`."""
        if module_path != _MODULE:
            return None
        return ConformanceModule.create(parent, module_path, self.pytest_options.plan, self._judge, self._latency_items)

    def _latency_items(self, parent: pytest.Collector) -> Iterator[pytest.Item]:
        options, target = self.pytest_options.options, self.pytest_options.target
        if options.latency_requests:
            levels = concurrency_levels(options.latency_requests, options.max_concurrency(target))
            loads = tuple(map(load_name, levels))
            yield from latency_items(parent, loads, lambda load: measured_load(self._latency, load))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Send the scenarios of the collected items before the first item runs, outside of any item's timeout."""
        wanted = [item for item in session.items if item.get_closest_marker("skip") is None]
        items = [item for item in wanted if isinstance(item, ConformanceItem)]
        option = self.config.option
        is_cancelled = option.collectonly or (session.testsfailed and not option.continue_on_collection_errors)
        if items and not is_cancelled:
            keys = {item.scenario.key for item in items}
            compared = {name for name, api in keys if api == ALL_APIS}
            scenarios = [one for one in self.pytest_options.plan.scenarios if one.key in keys or one.name in compared]
            for one in recorded_series(self._run(), self.pytest_options.options, scenarios):
                self._series.setdefault((one.name, one.api), []).append(one)
        if not is_cancelled and any(isinstance(item, LatencyItem) for item in wanted) and measures(self.config):
            self._latency = recorded_latency(self._run(), self.pytest_options.options)
        return (yield)

    def _series_of(self, scenario: Scenario) -> list[Series]:
        """Return the series of a scenario; for a comparison of APIs, the joined series."""
        if scenario.api != ALL_APIS:
            return self._series.get(scenario.key, [])
        by_key = {key: tries for key, tries in self._series.items() if key[0] == scenario.name}
        return next(join_apis(by_key), list[Series]())

    def _judge(self, rule: Check | Comparison, scenario: Scenario) -> ItemResult:
        asked, series = self.pytest_options, self._series_of(scenario)
        found = self._shared.capabilities if self._shared is not None else None
        if found is None:
            result = judge_pair(rule, scenario, ScenarioSeries(series))
        else:
            limit = asked.options.max_requests if not series else None
            result = judge_pair(rule, scenario, ScenarioSeries(series), found.judged_apis, limit)
            (result,) = explain_incomplete_probes([result], found.script_methods, found.incomplete_probes)
        end = outcomes.item_status(result, failing_severities(asked.fail_on))
        if result.outcome is Outcome.INCONCLUSIVE and fails_on_inconclusive(asked.fail_on):
            end = outcomes.ItemStatus.FAILED
        text = ""
        if end in (outcomes.ItemStatus.FAILED, outcomes.ItemStatus.ERROR):
            by_id = {x.id: x for one in series for x in one.exchanges.values()}
            options = reproduction_arguments(asked.options)
            command = reproduce_result(asked.target, result, by_id, asked.key_env, options)
            text = outcomes.failure_text(rule, result, command)
        elif end is outcomes.ItemStatus.XFAILED:
            text = outcomes.xfail_text(result)
        elif end is outcomes.ItemStatus.SKIPPED:
            text = outcomes.skip_text(result)
        cut = early_stop_reason(series)
        refused = ((_REFUSED, cut.detail),) if cut is not None and cut.kind in INCOMPLETE_RUN_KINDS else ()
        # plain strings, which workers of pytest-xdist can send
        masked = tuple(
            (name, str(self._mask.mask_text(value))) for name, value in (*outcomes.properties(result), *refused)
        )
        return ItemResult(status=end, text=self._mask.mask_text(text), properties=masked)

    def _run(self) -> SharedRun:
        """Return the shared run of the controlling process, else open one."""
        worker_input: Mapping[str, bytes] = getattr(self.config, "workerinput", {})
        if _WORKER_INPUT in worker_input:
            self._shared = pickle.loads(worker_input[_WORKER_INPUT])  # noqa: S301 - written by the process that started this one
        return self._shared or self._open_run()

    def _open_run(self) -> SharedRun:
        asked = self.pytest_options
        try:
            self._shared = open_run(asked.target, asked.options, asked.out, self._exit_stack)
        except KeyRefusedError as problem:
            variable = asked.key_env if asked.options.key else None
            raise pytest.UsageError(f"{asked.target}: {problem.message_with_variable(variable)}") from None
        except (EndpointUnusableError, UsageError) as problem:
            raise pytest.UsageError(f"{asked.target}: {problem}") from None
        except OSError as problem:
            raise pytest.UsageError(f"{problem.filename}: {problem.strerror}") from None
        return self._shared

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attribute a skip to the module `conformance_test` instead of a line of this package."""
        report = yield
        if isinstance(item, ConformanceItem | LatencyItem) and isinstance(report.longrepr, tuple):
            report.longrepr = (MODULE, 1, report.longrepr[2].removeprefix("Skipped: "))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the reports of items from all processes."""
        values = dict(report.user_properties)
        if report.when != "setup" or outcomes.SEVERITY not in values or outcomes.APPLIED not in values:
            return
        self._items += 1
        self._applied_must += values[outcomes.SEVERITY] == "must" and values[outcomes.APPLIED] != "0"
        self._refused = str(values.get(_REFUSED, self._refused))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Fail the session if no MUST check applied or access was lost."""
        if exitstatus == pytest.ExitCode.OK and (self._nothing_checked() or self._refused):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the reasons of a failed session and the place of the recording."""
        if self._nothing_checked():
            message = f"no MUST check was applicable in {self._items} items; nothing was verified"
            terminalreporter.write_line(f"harmony-conformance: {message}", red=True)
        if self._refused:
            terminalreporter.write_line(f"harmony-conformance: the run was stopped: {self._refused}", red=True)
        if self.pytest_options.out is not None and self._items:
            terminalreporter.write_line(f"harmony-conformance: exchanges saved in {self.pytest_options.out}")

    def _nothing_checked(self) -> bool:
        return self._items > 0 and not self._applied_must and not hasattr(self.config, "workerinput")
