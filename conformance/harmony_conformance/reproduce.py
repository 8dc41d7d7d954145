"""How to see a finding again: a curl command for a server with an address, a run of this program for the embedded one. Never a key, only its variable."""

from __future__ import annotations

from shlex import quote

from harmony_conformance.exchange import Exchange
from harmony_conformance.target import Target

_LONGEST = 6000


def reproduce(target: Target, x: Exchange | None, scenario: str, key_env: str | None) -> str:
    """A command line for the exchange a finding is about, or for the whole scenario."""
    if target.base is None or x is None or len(x.request.body) > _LONGEST:
        key = f" --api-key-env {key_env}" if key_env else ""
        return f"harmony-conformance run {quote(str(target))}{key} --select {quote(scenario)}"
    parts = [
        "curl",
        "-sS",
        "-X",
        x.request.method,
        quote(target.base + x.request.path),
        "-H",
        quote("content-type: application/json"),
    ]
    if x.wants_stream:
        parts.insert(1, "-N")
    if key_env:
        parts += ["-H", f'"authorization: Bearer ${key_env}"']
    parts += ["-d", quote(x.request.body.decode("utf-8", "replace"))]
    return " ".join(parts)
