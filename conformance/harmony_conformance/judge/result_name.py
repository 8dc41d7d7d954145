"""Name of a result within a run."""

from __future__ import annotations

from harmony_conformance.apis.registry import CHAT_COMPLETIONS


def result_name(check: str, scenario: str, api: str) -> str:
    """Return `check@scenario`, with `/api` unless that is Chat Completions. `--select` takes the part before `/`."""
    return f"{check}@{scenario}" if api == CHAT_COMPLETIONS.name else f"{check}@{scenario}/{api}"
