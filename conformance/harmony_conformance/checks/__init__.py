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
    messages,
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
    messages,
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
    """Yield the checks of each family in their order there; those of a package by module and name."""
    for family in FAMILIES:
        modules: tuple[ModuleType, ...] = getattr(family, "MODULES", ())
        by_name = [value for module in modules for _, value in sorted(vars(module).items())]
        yield from (value for value in by_name or vars(family).values() if isinstance(value, CheckBase))


CHECKS: tuple[Check | Comparison, ...] = tuple(_rules())
"""All checks and comparisons."""
