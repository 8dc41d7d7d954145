"""The pytest plugin: `pytest --pyargs harmony_conformance.conformance_test --endpoint TARGET`.

pytest imports this module at every start of every project in the environment, so it defines only two options. The module `session` is imported if
there is an endpoint.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add two options; without `--endpoint` this plugin does nothing."""
    group = parser.getgroup("harmony-conformance", "conformance of a gpt-oss endpoint to Harmony")
    group.addoption(
        "--endpoint",
        dest="harmony_endpoint",
        metavar="TARGET",
        help="endpoint to test: reference, a URL, vllm:http://host:8000/v1, … (see harmony-conformance run --help)",
    )
    group.addoption(
        "--harmony",
        dest="harmony_options",
        action="append",
        default=[],
        metavar="OPTION=VALUE",
        help="option of `harmony-conformance run`, repeatable: --harmony model=gpt-oss-20b --harmony tries=3; "
        "out=DIR saves exchanges.jsonl",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the session plugin if there is an endpoint."""
    if config.getoption("harmony_endpoint") is not None:
        from harmony_conformance.pytest_plugin.session import register  # noqa: PLC0415 - heavy, needed only with an endpoint

        register(config)
    elif config.getoption("harmony_options"):
        raise pytest.UsageError("invalid --harmony: expected --endpoint TARGET too, got --harmony alone")
