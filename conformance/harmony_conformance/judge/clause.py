"""Clauses of documents that checks cite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Clause:
    """A quotation and its document. `differs` describes where the library or the template behaves differently, `id` is the key in `CLAUSES`."""

    source: str
    quotation: str
    differs: str = ""
    id: str = ""
