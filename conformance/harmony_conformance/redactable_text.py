"""Texts with values that may come from traffic. Template and values are stored separately, so that a report can mask the values."""

from __future__ import annotations

from typing import LiteralString, Self, TypeAlias


class RedactableText(str):
    """The result of `template.format(*values)`, with its template and values.

    Every string among the values is treated as traffic. Exceptions are `RedactableText` and members of an enumeration.
    """

    __slots__ = ("template", "values")
    template: LiteralString
    values: tuple[str | int, ...]

    def __new__(cls, template: LiteralString, *values: object) -> Self:
        """Fill the template. A value that is neither a string nor an integer, such as an exception, is converted to text."""
        plain = tuple(value if isinstance(value, str | int) else str(value) for value in values)
        filled = super().__new__(cls, template.format(*plain))
        filled.template, filled.values = template, plain
        return filled

    def __reduce__(self) -> tuple[type[RedactableText], tuple[object, ...]]:
        """Return the constructor and its arguments, for pickling between processes."""
        return RedactableText, (self.template, *self.values)


ReportText: TypeAlias = LiteralString | RedactableText
"""A text without traffic outside of `values`. The type checker rejects every other string."""


class Location(str):
    """A path into a request or response. Its indexes and the member names of an API need no masking."""

    __slots__ = ()


def quote(value: object) -> RedactableText:
    """Return a value as a text that consists of traffic only."""
    return RedactableText("{}", value)


def shorten(value: str, most: int = 80) -> RedactableText:
    """Return a text of traffic. If it is longer than `most` characters, its middle is omitted."""
    half = most // 2
    if len(value) <= most:
        return quote(value)
    return RedactableText("{}…({} characters)…{}", value[:half], len(value) - 2 * half, value[-half:])
