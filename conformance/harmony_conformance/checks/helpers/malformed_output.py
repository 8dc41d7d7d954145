"""Malformed output: no source defines what a server makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import is_malformed
from harmony_conformance.judge.check import Finding, Verdict, ruled
from harmony_conformance.judge.rulings import MALFORMED_OUTPUT


def ruled_if_malformed(finding: Finding, x: Exchange) -> Finding:
    """Return a failure with the ruling on malformed output if the model wrote such output.

    Broken output by its row in the golden data counts too, with precedence over another ruling.
    """
    is_broken = _is_broken(x)
    is_malformed_script = not finding.ruling and x.output.ids is not None and is_malformed(x.output.ids)
    is_excused = finding.verdict is Verdict.FAIL and (is_broken or is_malformed_script)
    return ruled(finding, MALFORMED_OUTPUT) if is_excused else finding


def has_malformed_output(x: Exchange) -> bool:
    """Return True if the model wrote malformed output, or a row of the golden data says so."""
    return _is_broken(x) or (x.output.ids is not None and is_malformed(x.output.ids))


def _is_broken(x: Exchange) -> bool:
    return x.expectation is not None and not x.expectation.is_well_formed


def lenient_on_malformed_output(
    body: Callable[[Exchange], Iterator[Finding]],
) -> Callable[[Exchange], Iterator[Finding]]:
    """Give the failures of a check the ruling on malformed output where the model wrote such output."""

    @wraps(body)
    def run(x: Exchange) -> Iterator[Finding]:
        for finding in body(x):
            yield ruled_if_malformed(finding, x)

    return run
