"""Data folders of the project: inside the package in a wheel, at the root of a checkout otherwise."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[3]


def package_data(name: str) -> Path | Traversable | None:
    """Return the folder `_NAME` of the package, else `NAME` of the checkout, else None."""
    packaged = files("harmony_conformance") / f"_{name}"
    if packaged.is_dir():
        return packaged
    checkout = _CHECKOUT / name
    return checkout if checkout.is_dir() else None
