"""A pytest session against an endpoint: an item for each check and scenario, collected without sending anything, judged from one shared run."""

from __future__ import annotations

import pickle
from argparse import ArgumentParser
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, Protocol

import pytest

from harmony_conformance.engines.diagnosis import EndpointUnusableError, KeyRefusedError
from harmony_conformance.engines.target import Target
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.exchange import ALL_APIS, Series
from harmony_conformance.golden.scenario import Scenario
from harmony_conformance.judge.check import Check, Comparison
from harmony_conformance.judge.judge import ScenarioSeries
from harmony_conformance.pytest_plugin.items import MODULE, ConformanceItem, ConformanceModule, Told
from harmony_conformance.pytest_plugin.outcomes import (
    APPLIED,
    SEVERITY,
    Ending,
    ending,
    failure_text,
    properties,
    skip_text,
)
from harmony_conformance.runner.access import cut_short
from harmony_conformance.runner.judge_run import Plan, joined, judge_pair, left_open
from harmony_conformance.runner.options import FAIL_ON, FLAGS, add_options, read_options, read_plan, repeated
from harmony_conformance.runner.reproduce import reproduce_result
from harmony_conformance.runner.run import Options
from harmony_conformance.runner.shared_run import SharedRun, open_run, recorded
from harmony_conformance.transport.messages import FailureKind
from harmony_conformance.transport.redaction import Mask

_MODULE = Path(__file__).parents[1] / "conformance_test.py"
_REFUSED = "access_refused"  # the property of an item whose run was cut short since the key was refused
_FROM_OWNER = "harmony_conformance"  # under which a worker of pytest-xdist is told of the run


@dataclass(frozen=True, kw_only=True)
class PytestOptions:
    """What `--endpoint` and `--harmony` ask for."""

    target: Target
    options: Options
    plan: Plan
    fail_on: str
    key_env: str | None
    out: Path | None


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"--harmony: {message}")


def read_asked(endpoint: str, options: Sequence[str]) -> PytestOptions:
    """What is asked for.

    Raises:
        UsageError: it can not be done; one line that says why.
    """
    parser = _Parser(prog="pytest", add_help=False, allow_abbrev=False)
    add_options(parser)
    parser.add_argument("--out", type=Path)
    for option in options:
        if "=" not in option and option not in FLAGS:
            raise UsageError(f"--harmony {option!r} is no OPTION=VALUE: for example --harmony model=gpt-oss-20b")
    arguments = parser.parse_args([*(f"--{option}" for option in options), "--", endpoint])
    target, read = read_options(arguments)
    return PytestOptions(
        target=target,
        options=read,
        plan=read_plan(read),
        fail_on=arguments.fail_on,
        key_env=arguments.api_key_env,
        out=arguments.out,
    )


def register(config: pytest.Config) -> None:
    """Register the plugin that collects and runs.

    Raises:
        pytest.UsageError: what is asked for can not be done.
    """
    endpoint: str = config.option.harmony_endpoint
    options: list[str] = config.option.harmony_options
    try:
        asked = read_asked(endpoint, options)
    except UsageError as problem:
        raise pytest.UsageError(str(problem)) from None
    config.pluginmanager.register(HarmonySession(config, asked), "harmony_conformance_session")


class _Node(Protocol):
    """A worker, as pytest-xdist tells of it."""

    workerinput: dict[str, object]


class HarmonySession:
    """Collects items, sends what they need once, and keeps the tally of one session."""

    def __init__(self, config: pytest.Config, asked: PytestOptions) -> None:
        self.config = config
        self.asked = asked
        self._mask = Mask(asked.options.secrets)
        self._open = ExitStack()
        self._shared: SharedRun | None = None
        self._series: dict[tuple[str, str], list[Series]] = {}
        self._items = 0
        self._applied_must = 0
        self._refused = ""
        config.add_cleanup(self._open.close)

    def pytest_report_header(self) -> str:
        """The line in the header."""
        plan = self.asked.plan
        return f"harmony-conformance: {self.asked.target}, {len(plan.checks)} checks, {len(plan.scenarios)} scenarios"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Under pytest-xdist the controlling process opens the endpoint, before there is a worker."""
        if self.config.pluginmanager.hasplugin("dsession"):
            self._open_run()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: _Node) -> None:
        """Tell a worker of the run."""
        node.workerinput[_FROM_OWNER] = pickle.dumps(self._shared)

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """The items stand in the place of the module `conformance_test`."""
        return (
            ConformanceModule.of(parent, module_path, self.asked.plan, self._judge) if module_path == _MODULE else None
        )

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Send what the collected items need, before the first of them runs: no item's timeout counts it."""
        items = [item for item in session.items if isinstance(item, ConformanceItem)]
        option = self.config.option
        is_called_off = option.collectonly or (session.testsfailed and not option.continue_on_collection_errors)
        if items and not is_called_off:
            needed = {item.scenario.key for item in items}
            compared = {name for name, api in needed if api == ALL_APIS}
            planned = self.asked.plan.scenarios
            scenarios = [scenario for scenario in planned if scenario.key in needed or scenario.name in compared]
            for one in recorded(self._run(), self.asked.options, scenarios):
                self._series.setdefault((one.name, one.api), []).append(one)
        return (yield)

    def _of(self, scenario: Scenario) -> list[Series]:
        """The series of a scenario; of one that stands for all APIs, what went over them, side by side."""
        if scenario.api != ALL_APIS:
            return self._series.get(scenario.key, [])
        sent = {key: many for key, many in self._series.items() if key[0] == scenario.name}
        return next(joined(sent), list[Series]())

    def _judge(self, rule: Check | Comparison, scenario: Scenario) -> Told:
        """What an item is told when it runs."""
        asked, series = self.asked, self._of(scenario)
        found = self._shared.found if self._shared is not None else None
        limit = asked.options.max_requests if found is not None and not series else None
        result = judge_pair(
            rule, scenario, ScenarioSeries(series), found.judged_apis if found is not None else None, limit
        )
        if found is not None:
            (result,) = left_open([result], found.script_methods, found.unknown)
        end = ending(result, FAIL_ON[asked.fail_on])
        text = ""
        if end in (Ending.FAILED, Ending.ERROR):
            by_id = {x.id: x for one in series for x in one.exchanges.values()}
            text = failure_text(
                rule, result, reproduce_result(asked.target, result, by_id, asked.key_env, repeated(asked.options))
            )
        elif end is Ending.SKIPPED:
            text = skip_text(result)
        cut = cut_short(series)
        refused = ((_REFUSED, cut.detail),) if cut is not None and cut.kind is FailureKind.ACCESS_REFUSED else ()
        told = tuple((name, self._mask.text(value)) for name, value in (*properties(result), *refused))
        return Told(ending=end, text=self._mask.text(text), properties=told)

    def _run(self) -> SharedRun:
        """The run as the owner told it, else one that is opened here."""
        told: Mapping[str, bytes] = getattr(self.config, "workerinput", {})
        if _FROM_OWNER in told:
            self._shared = pickle.loads(told[_FROM_OWNER])  # noqa: S301 - written by the process that started this one
        return self._shared or self._open_run()

    def _open_run(self) -> SharedRun:
        asked = self.asked
        try:
            self._shared = open_run(asked.target, asked.options, asked.out, self._open)
        except KeyRefusedError as problem:
            variable = asked.key_env if asked.options.key else None
            raise pytest.UsageError(f"{asked.target}: {problem.told(variable)}") from None
        except (EndpointUnusableError, UsageError) as problem:
            raise pytest.UsageError(f"{asked.target}: {problem}") from None
        except OSError as problem:
            raise pytest.UsageError(f"{problem.filename}: {problem.strerror}") from None
        return self._shared

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """What is skipped is told of the module, not of the line here that skips."""
        report = yield
        if isinstance(item, ConformanceItem) and isinstance(report.longrepr, tuple):
            report.longrepr = (MODULE, 1, item.told.text)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what the items report, wherever they ran."""
        told = dict(report.user_properties)
        if report.when != "setup" or SEVERITY not in told or APPLIED not in told:
            return
        self._items += 1
        self._applied_must += told[SEVERITY] == "must" and told[APPLIED] != "0"
        self._refused = str(told.get(_REFUSED, self._refused))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Nothing checked is no success, nor is a run that the endpoint cut short."""
        if exitstatus == pytest.ExitCode.OK and (self._nothing_checked() or self._refused):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What the counts of pytest do not say."""
        if self._nothing_checked():
            terminalreporter.write_line(
                f"harmony-conformance: nothing could be checked: no MUST check applied in {self._items} items", red=True
            )
        if self._refused:
            terminalreporter.write_line(f"harmony-conformance: the run was cut short, {self._refused}", red=True)
        if self.asked.out is not None and self._items:
            terminalreporter.write_line(f"harmony-conformance: exchanges kept in {self.asked.out}")

    def _nothing_checked(self) -> bool:
        return self._items > 0 and not self._applied_must and not hasattr(self.config, "workerinput")
