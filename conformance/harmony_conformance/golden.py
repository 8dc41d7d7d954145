"""The golden data: where it is, and reading it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path


class NoGoldenData(RuntimeError):  # noqa: N818 - it says what is missing
    """Neither the installed package nor a checkout holds the golden data."""


@cache
def root() -> Path | Traversable:
    """The folder of the golden data: `_golden` beside the package (wheel), else the checkout's `golden/`.

    Raises:
        NoGoldenData: there is neither.
    """
    packaged = files("harmony_conformance") / "_golden"
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[2] / "golden"
    if checkout.is_dir():
        return checkout
    raise NoGoldenData(
        "the golden data is missing: neither harmony_conformance/_golden nor the golden/ folder of a checkout is there"
    )
