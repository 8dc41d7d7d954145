"""`harmony-conformance checks`: list every check with its requirement and clause."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from types import MappingProxyType

from harmony_conformance.checks.helpers.counted_requests import BASE_STEP, REPEATED_BASE_STEP
from harmony_conformance.errors import Exit
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.scenario import read_scenario
from harmony_conformance.json_value import dumps, loads
from harmony_conformance.prompts.token_accounting import RequestSet
from harmony_conformance.report.formats.check_list import accounting_markdown, checks_json, checks_markdown
from harmony_conformance.selftest.prompt_evidence import evidence_markdown


def execute(arguments: Namespace) -> int:
    """Print the list of checks, or one of the tables."""
    print(_FORMATS[arguments.format]())
    return Exit.CONFORMS


def _accounting() -> str:
    file = golden.root() / "scenarios" / "prompt_accounting.json"
    steps = read_scenario(loads(file.read_text("utf-8")), "prompt_accounting").steps
    bodies = tuple((step.name, dumps(step.request).encode()) for step in steps if step.name != REPEATED_BASE_STEP)
    return accounting_markdown(RequestSet(bodies=bodies, base_name=BASE_STEP)).rstrip()


def _evidence() -> str:
    evidence, defects = (loads((golden.root() / f"{name}.json").read_text("utf-8")) for name in ("evidence", "defects"))
    return evidence_markdown(evidence, defects)


_FORMATS: Mapping[str, Callable[[], str]] = MappingProxyType(
    {"md": checks_markdown, "json": checks_json, "accounting": _accounting, "evidence": _evidence}
)
