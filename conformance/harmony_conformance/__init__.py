"""Checks that live endpoints and logged traffic of gpt-oss models conform to the Harmony format.

    from harmony_conformance import assert_conforms

The names below are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harmony_conformance.golden.assertion import assert_conforms, assert_vector, vector_parameters

__all__ = ["assert_conforms", "assert_vector", "vector_parameters"]


def __getattr__(name: str) -> object:
    if name in __all__:
        value: object = getattr(import_module("harmony_conformance.golden.assertion"), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
