"""Clauses of documents that checks cite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Clause:
    """A quotation and its document. `differs` describes where the library or the template behaves differently."""

    id: str
    quotation: str
    source: str
    differs: str = ""
