"""The pytest plugin: `pytest --pyargs harmony_conformance.conformance_test --endpoint TARGET`.

pytest imports this module at every start, in every project it is installed beside, so it holds two options and nothing else. What runs with an
endpoint stands in `pytest_session.py`.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Two options; without `--endpoint` this plugin does nothing."""
    group = parser.getgroup("harmony-conformance", "conformance of a gpt-oss endpoint to Harmony")
    group.addoption(
        "--endpoint",
        dest="harmony_endpoint",
        metavar="TARGET",
        help="the endpoint to test: reference, vllm:http://host:8000/v1, … (see harmony-conformance run --help)",
    )
    group.addoption(
        "--harmony",
        dest="harmony_options",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="an option of `harmony-conformance run`, as often as needed: --harmony model=gpt-oss-20b --harmony tries=3; "
        "out=DIR keeps exchanges.jsonl",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register what collects and runs the items, where there is an endpoint."""
    if config.getoption("harmony_endpoint") is not None:
        from harmony_conformance.pytest_plugin.session import register  # noqa: PLC0415 - heavy, and of no use without an endpoint

        register(config)
    elif config.getoption("harmony_options"):
        raise pytest.UsageError("--harmony says how to run against an endpoint: name one by --endpoint")
