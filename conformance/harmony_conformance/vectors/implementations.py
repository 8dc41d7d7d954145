"""The implementations there are, and the kinds of vectors that they answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harmony_conformance.vectors import official, ours
from harmony_conformance.vectors.implementation import Absent, Implementation

KINDS: Final = ("render", "parse", "stream", "typescript")
"""The kinds of vectors, each a folder of the golden data."""


def present() -> Sequence[Implementation | Absent]:
    """This project's own first, whose answers the files hold; then those it is compared with."""
    return [ours.implementation(), official.implementation()]
