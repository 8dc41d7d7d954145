"""Options of the commands: `COMMAND --help` imports no package that works, and the values that they repeat are those of the packages."""

import json
import subprocess
import sys

import pytest

from harmony_conformance.apis.registry import APIS
from harmony_conformance.audit.plans.plan import PlanName
from harmony_conformance.audit.processes.workers import AuditEngine
from harmony_conformance.audit.readers.files.formats import CONTAINERS
from harmony_conformance.audit.readers.records.shapes import AUTO, COLUMNS, SHAPES
from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.cli import checks, report
from harmony_conformance.cli.comparison import matrix
from harmony_conformance.cli.harmony import golden_run, render, request_input, teleprompter
from harmony_conformance.cli.main import all_commands
from harmony_conformance.cli.options import harmony, information, logs, measurements, suite
from harmony_conformance.engines.teleprompter.script import LAG, TRAILER_LENGTH
from harmony_conformance.evidence.exchange import ALL_APIS
from harmony_conformance.golden.clients import client_profiles
from harmony_conformance.golden.grading.answer import KINDS
from harmony_conformance.golden.grading.pipe_run import DEFAULT_TIMEOUT
from harmony_conformance.load.arrivals import Arrivals
from harmony_conformance.runner import arguments
from harmony_conformance.runner.features import FEATURES
from harmony_conformance.runner.options import FAIL_ON
from harmony_conformance.sampling.task import read_tasks
from harmony_ref import Role
from harmony_ref.styles import STYLES, History

PACKAGES = (
    *("audit", "causes", "checks", "evidence", "golden", "judge", "load", "prompts", "reference_server", "report"),
    *("plugins", "runner.run", "sampling", "selftest", "transport"),
)
HEAVY = (
    *("asyncio", "concurrent.futures", "multiprocessing", "ssl"),
    *("aiohttp", "certifi", "deepdiff", "h11", "httpx", "jinja2", "jsonschema", "numpy", "prometheus_client", "rich"),
    *("starlette", "tiktoken", "uvicorn", "harmony_ref"),
    *(f"harmony_conformance.{package}" for package in PACKAGES),
)
SHOW_HELP = """
import contextlib, io, json, sys
from harmony_conformance.cli.main import main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main([*sys.argv[1:], "--help"])
print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("command", ["", *(command.name for command in all_commands())])
def test_help_imports_nothing_heavy(command):
    words = [sys.executable, "-c", SHOW_HELP, *filter(None, [command])]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    imported = json.loads(done.stdout)
    assert "harmony_conformance.cli.main" in imported
    assert [name for name in HEAVY if name in imported] == []


@pytest.mark.parametrize(
    ("repeated", "values"),
    [
        (arguments.API_WORDS, dict.fromkeys(api.option_name for api in APIS.values())),
        ((arguments._ALL_APIS,), [ALL_APIS]),
        (arguments.FAIL_ON_WORDS, FAIL_ON),
        (arguments.client_names(), client_profiles()),
        (suite.FEATURES, FEATURES),
        (measurements.ARRIVALS, Arrivals),
        (measurements.MATRIX_FORMATS, matrix._FORMATS),
        (measurements.task_sets(), read_tasks()),
        (information.REPORT_FORMATS, report._FORMATS),
        (information.CHECKS_FORMATS, checks._FORMATS),
        (harmony.CONVERSATION_FORMS, request_input.FORMS),
        (harmony.PURPOSES, render._RENDERERS),
        (harmony.STYLE_NAMES, STYLES),
        (harmony.HISTORY_NAMES, [one.value for one in History]),
        (harmony.ROLE_NAMES, [one.value for one in Role]),
        (harmony.GOLDEN_KINDS, KINDS),
        (harmony.GOLDEN_FORMATS, golden_run._FORMATS),
        ((harmony.GOLDEN_TIMEOUT,), [DEFAULT_TIMEOUT]),
        (harmony.CHECKPOINT_FORMATS, teleprompter._REQUIRED_MODULES),
        ((harmony.TELEPROMPTER_LAG, harmony.TELEPROMPTER_TRAILER), (LAG, TRAILER_LENGTH)),
        (logs.LOG_FORMATS, [AUTO, *CONTAINERS, *SHAPES]),
        (logs.COLUMN_NAMES, COLUMNS),
        (logs.EXCERPTS, [one.value for one in Excerpts]),
        (logs.PLANS, [one.value for one in PlanName]),
        (logs.ENGINES, [one.value for one in AuditEngine]),
    ],
)
def test_the_values_of_options_are_those_of_the_rooms(repeated, values):
    assert list(repeated) == list(values)
