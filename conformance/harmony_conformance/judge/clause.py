"""A clause of a document that a check may cite."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Clause:
    """What a document says, word for word, and which document. `differs` tells where library or template do otherwise."""

    id: str
    quotation: str
    source: str
    differs: str = ""
