"""The checks, by family, in the order of their list."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

from harmony_conformance.checks import (
    accounting,
    apis,
    channels,
    choices,
    client,
    completions,
    concurrency,
    errors,
    headers,
    hierarchy,
    multi_turn,
    native,
    prompt,
    reasoning,
    responses,
    robustness,
    stop_tokens,
    streaming,
    structured,
    tool_calls,
    tools,
    usage,
)
from harmony_conformance.judge.check import Check, CheckBase, Comparison

FAMILIES: tuple[ModuleType, ...] = (
    prompt,
    headers,
    hierarchy,
    multi_turn,
    accounting,
    reasoning,
    channels,
    tool_calls,
    tools,
    stop_tokens,
    structured,
    choices,
    streaming,
    responses,
    usage,
    errors,
    robustness,
    concurrency,
    client,
    apis,
    native,
    completions,
)


def _rules() -> Iterator[Check | Comparison]:
    for family in FAMILIES:
        yield from (value for value in vars(family).values() if isinstance(value, CheckBase))


CHECKS: tuple[Check | Comparison, ...] = tuple(_rules())
"""All checks and comparisons."""
