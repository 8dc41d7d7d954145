"""How to see a finding again: a curl command for a server with an address, a run of this program for the embedded one. Never a key, only its variable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from shlex import quote
from types import MappingProxyType

from harmony_conformance.engines.render_derender import render_request, whole_request
from harmony_conformance.engines.target import Target
from harmony_conformance.evidence.exchange import AnsweredBy, Exchange
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import Result
from harmony_conformance.transport.messages import Request

_LONGEST = 6000
_CURL_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "--proxy": "--proxy",
        "--unix-socket": "--unix-socket",
        "--ca-file": "--cacert",
        "--client-cert": "--cert",
        "--client-key": "--key",
    }
)
"""Options of a run that curl needs as well, by its name of each."""


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
    requests = tuple(_requests(x)) if x is not None else ()
    if target.base is None or x is None or not requests or sum(len(one.body) for one in requests) > _LONGEST:
        key = ("--api-key-env", key_env) if key_env else ()
        words = ("harmony-conformance", "run", str(target), *options, *key, "--select", scenario)
        return " ".join(map(quote, words))
    return "; ".join(_curl(target.base, request, key_env, options, is_stream=x.wants_stream) for request in requests)


def _requests(x: Exchange) -> Iterator[Request]:
    """The requests that were sent for an exchange; none, where each depends on the answer to the one before."""
    if x.answered_by is AnsweredBy.API:
        yield x.request
    elif x.answered_by is AnsweredBy.RENDER:
        yield render_request(x)
    elif not x.wants_stream:
        yield from (render_request(x), whole_request(x))


def _curl(base: str, request: Request, key_env: str | None, options: Sequence[str], *, is_stream: bool) -> str:
    parts = [
        "curl",
        "-sS",
        "-X",
        request.method,
        quote(base + request.path),
        "-H",
        quote(f"content-type: {request.headers.get('content-type', 'application/json')}"),
    ]
    for name, value in pairwise(options):
        parts += [_CURL_OPTIONS[name], quote(value)] if name in _CURL_OPTIONS else []
    parts += ["--http2"] if "--http2" in options else []
    if is_stream:
        parts.insert(1, "-N")
    if key_env:
        parts += ["-H", f'"authorization: Bearer ${key_env}"']
    parts += ["-d", quote(request.body.decode("utf-8", "replace"))]
    return " ".join(parts)
