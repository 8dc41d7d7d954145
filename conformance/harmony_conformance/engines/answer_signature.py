"""The engine that an answer itself names. Nothing is requested, and nothing is guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import text, value_at

SERVER_HEADERS: Mapping[str, str] = MappingProxyType({"harmony-conformance": "reference", "llama.cpp": "llamacpp"})
"""Engines by the beginning of the header `server`. That of many engines names only their HTTP library."""

FINGERPRINTS: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        "vllm": re.compile(r"vllm[-/ ]?v?(\d[\d.]*)?"),
        "llamacpp": re.compile(r"(b\d+)-[0-9a-f]{6,}|llama\.cpp"),
        "ollama": re.compile(r"fp_ollama()"),
    }
)
"""The form of `system_fingerprint` by engine, with the version as group."""

UNKNOWN_ENGINE = "unknown"


def engine_in_answer(x: Exchange) -> str:
    """Return the engine that an answer names, by its header `server` or its `system_fingerprint`; else `UNKNOWN_ENGINE`."""
    header = x.response.headers.get("server", "").lower() if x.response is not None else ""
    prints = [text(value_at(answer, "system_fingerprint")) for answer in (x.chat_completion, *x.chunks[:1])]
    by_header = (engine for name, engine in SERVER_HEADERS.items() if header.startswith(name))
    by_print = (engine for engine, form in FINGERPRINTS.items() if any(map(form.match, prints)))
    return next(by_header, None) or next(by_print, UNKNOWN_ENGINE)
