"""Detect the exchanges that a defect does not change, by a digest of each exchange.

Requests and responses are compared byte by byte. Ids are replaced by their rank of first use in the series.
Times are replaced in the same way, within one response.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from hashlib import sha256

from harmony_conformance.evidence.exchange import Exchange, Series

Digests = Mapping[tuple[str, str], Mapping[str, bytes]]
"""Digest of each exchange, by (name, API) of its series and by step."""

_COMPARED = sorted(
    {member.name for member in fields(Exchange)}
    - {"id", "request", "response", "started", "retry_waits", "script", "expected"}
)
_IGNORED_HEADERS = frozenset({"date", "content-length", "transfer-encoding"})
"""Headers that depend on the time or on the connection."""
_SERIALS = re.compile(
    rb'(?:chatcmpl-|cmpl-|call_|resp_|rs_|msg_|fc_|ci_|ws_|conv_|[a-z]{2,16}_(?=[0-9a-f]{16}))[\w-]+|(?<="id":")[0-9a-f]{32}(?=")'
)
_TIMES = re.compile(rb'"(?:created|created_at|completed_at)": ?(?:\d+|"[^"]*")')


def digests(series: Iterable[Series], *, arrivals: bool) -> Digests:
    """Compute the digests of all exchanges.

    `arrivals`: include chunk sizes and arrival times, which are reproducible with the in-memory transport only.
    """
    return {(one.name, one.api): _of_steps(one, arrivals=arrivals) for one in series}


def changed_series(series: Iterable[Series], right: Digests) -> tuple[Series, ...]:
    """Return the series that differ from `right`, each reduced to its different exchanges.

    A series that lacks a step of `right` is returned whole.
    """
    reduced = (_different(one, _of_steps(one, arrivals=True), right.get((one.name, one.api), {})) for one in series)
    return tuple(one for one in reduced if one.exchanges)


def _different(series: Series, steps: Mapping[str, bytes], right: Mapping[str, bytes]) -> Series:
    exchanges = {step: x for step, x in series.exchanges.items() if steps[step] != right.get(step)}
    return series if right.keys() - steps.keys() else replace(series, exchanges=exchanges)


def _of_steps(series: Series, *, arrivals: bool) -> dict[str, bytes]:
    serials: dict[bytes, bytes] = {}
    return {step: _digest(x, serials, arrivals=arrivals) for step, x in series.exchanges.items()}


def _digest(x: Exchange, serials: dict[bytes, bytes], *, arrivals: bool) -> bytes:
    response, digest = x.response, sha256()
    headers = () if response is None else response.headers.items()
    stable_headers = sorted(one for one in headers if one[0] not in _IGNORED_HEADERS)
    about = ([getattr(x, member) for member in _COMPARED], stable_headers)
    answer = b"" if response is None else b"%d %s" % (response.status, response.body)
    for part in (repr(about).encode(), x.request.body, answer):
        stable = _numbered(_SERIALS, _numbered(_TIMES, part, {}), serials)
        digest.update(b"%d:%s" % (len(stable), stable))
    if arrivals and response is not None:
        digest.update(repr([(round(chunk.arrival_time, 6), len(chunk.data)) for chunk in response.chunks]).encode())
    return digest.digest()


def _numbered(pattern: re.Pattern[bytes], text: bytes, numbers: dict[bytes, bytes]) -> bytes:
    return pattern.sub(lambda match: numbers.setdefault(match.group(), b"#%d" % len(numbers)), text)
