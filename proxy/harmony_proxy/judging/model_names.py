"""Names of models as values of a label: bounded, since clients choose them."""

from __future__ import annotations

import re

MOST_MODELS = 16
"""Largest number of names with a value of their own."""

OTHER = "other"
_NAME = re.compile(r"[\w.:/@+-]{1,128}", re.ASCII)


def is_plain_name(name: str) -> bool:
    """Return True if a name is a plain word of at most 128 characters, such as the name of a model."""
    return _NAME.fullmatch(name) is not None


class ModelNames:
    """State: the first names of models that a server answered. They stay, so that no counter decreases."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def label(self, name: str, *, is_served: bool) -> str:
        """Return the value for a name: itself, or `other`. Only a name that is served is added; empty stays empty."""
        if is_served and len(self._names) < MOST_MODELS and is_plain_name(name):
            self._names.add(name)
        return name if not name or name in self._names else OTHER
