"""How to see a finding again: a curl command for a server with an address, a run of this program for the embedded one. Never a key, only its variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote

from harmony_conformance.check import Outcome
from harmony_conformance.exchange import Exchange
from harmony_conformance.judge import Result
from harmony_conformance.target import Target

_LONGEST = 6000


def reproduce_result(
    target: Target,
    result: Result,
    exchanges: Mapping[str, Exchange],
    key_env: str | None,
    options: Sequence[str] = (),
) -> str:
    """A command line that shows the first finding of a result again; empty where there is nothing to see.

    `options` are the words of the run's own options, which a run of the scenario has to repeat.
    """
    if result.outcome not in (Outcome.FAIL, Outcome.ERROR, Outcome.INCONCLUSIVE):
        return ""
    named = (*(finding.exchange for finding in result.findings), *result.exchanges)
    shown = next((exchanges[name] for name in named if name in exchanges), None)
    return reproduce(target, shown, result.scenario, key_env, options)


def reproduce(
    target: Target, x: Exchange | None, scenario: str, key_env: str | None, options: Sequence[str] = ()
) -> str:
    """A command line for the exchange a finding is about, or for the whole scenario."""
    if target.base is None or x is None or len(x.request.body) > _LONGEST:
        key = ("--api-key-env", key_env) if key_env else ()
        words = ("harmony-conformance", "run", str(target), *options, *key, "--select", scenario)
        return " ".join(map(quote, words))
    parts = [
        "curl",
        "-sS",
        "-X",
        x.request.method,
        quote(target.base + x.request.path),
        "-H",
        quote(f"content-type: {x.request.headers.get('content-type', 'application/json')}"),
    ]
    if x.wants_stream:
        parts.insert(1, "-N")
    if key_env:
        parts += ["-H", f'"authorization: Bearer ${key_env}"']
    parts += ["-d", quote(x.request.body.decode("utf-8", "replace"))]
    return " ".join(parts)
