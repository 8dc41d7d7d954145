"""What a defect leaves as it is: exchanges that two runs have in common, found by a digest of each.

What is sent and what comes back is compared byte for byte. Ids are numbered in the order in which they first come in a series, and so are the times within
one answer: those of two runs agree where their pattern does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from hashlib import sha256

from harmony_conformance.evidence.exchange import Exchange, Series

Digests = Mapping[tuple[str, str], Mapping[str, bytes]]
"""A digest of each exchange, by name and API of its series and by step."""

_SEEN = sorted(
    {member.name for member in fields(Exchange)}
    - {"id", "request", "response", "started", "waited", "script", "expected"}
)
_PASSING = frozenset({"date", "content-length", "transfer-encoding"})
"""Headers that depend on the moment or on the wire."""
_SERIALS = re.compile(rb'(?:chatcmpl-|cmpl-|call_|resp_|rs_|msg_|fc_|ci_|ws_)[\w-]+|(?<="id":")[0-9a-f]{32}(?=")')
_TIMES = re.compile(rb'"(?:created|created_at)": ?(?:\d+|"[^"]*")')


def digests(series: Iterable[Series], *, arrivals: bool) -> Digests:
    """Digests of all exchanges. `arrivals`: with the pieces that answers came in and their times, which two runs share only where nothing waits for a wire."""
    return {(one.name, one.api): _of_steps(one, arrivals=arrivals) for one in series}


def changed(series: Iterable[Series], right: Digests) -> tuple[Series, ...]:
    """The series that are not those of `right`, each with the exchanges that differ."""
    listed = tuple(series)
    found = digests(listed, arrivals=True)
    known = ((one, (one.name, one.api)) for one in listed)
    parted = (_differing(one, found[key], right.get(key, {})) for one, key in known)
    return tuple(one for one in parted if one.exchanges)


def _differing(series: Series, found: Mapping[str, bytes], right: Mapping[str, bytes]) -> Series:
    kept = {step: x for step, x in series.exchanges.items() if found[step] != right.get(step)}
    # what is missing makes the whole series another
    return series if right.keys() - found.keys() else replace(series, exchanges=kept)


def _of_steps(series: Series, *, arrivals: bool) -> dict[str, bytes]:
    serials: dict[bytes, bytes] = {}
    return {step: _digest(x, serials, arrivals=arrivals) for step, x in series.exchanges.items()}


def _digest(x: Exchange, serials: dict[bytes, bytes], *, arrivals: bool) -> bytes:
    response = x.response
    digest = sha256()
    headers = None if response is None else sorted(one for one in response.headers.items() if one[0] not in _PASSING)
    about = ([getattr(x, member) for member in _SEEN], headers)
    told = b"" if response is None else b"%d %s" % (response.status, response.body)
    for part in (repr(about).encode(), x.request.body, told):
        known = _numbered(_SERIALS, _numbered(_TIMES, part, {}), serials)
        digest.update(b"%d:%s" % (len(known), known))
    if arrivals and response is not None:
        digest.update(repr([(round(chunk.at, 6), len(chunk.data)) for chunk in response.chunks]).encode())
    return digest.digest()


def _numbered(what: re.Pattern[bytes], text: bytes, numbers: dict[bytes, bytes]) -> bytes:
    return what.sub(lambda found: numbers.setdefault(found.group(), b"#%d" % len(numbers)), text)
