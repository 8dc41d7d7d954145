"""A text of this program with values in it, which may be texts of the traffic: the two stay apart, so that a report can mask the values."""

from __future__ import annotations

from typing import LiteralString, Self, TypeAlias


class RedactableText(str):
    """A template of `str.format`, filled. It is the rendered text; `template` and `values` are what that was made of.

    Each value that is a string counts as foreign, whatever it holds. A part of our own is a `Phrase` itself, or a member of an enumeration.
    """

    __slots__ = ("template", "values")
    template: LiteralString
    values: tuple[str | int, ...]

    def __new__(cls, template: LiteralString, *values: object) -> Self:
        """Fill the template. A value that is no string and no whole number, such as an error, counts by its text."""
        plain = tuple(value if isinstance(value, str | int) else str(value) for value in values)
        phrase = super().__new__(cls, template.format(*plain))
        phrase.template, phrase.values = template, plain
        return phrase

    def __reduce__(self) -> tuple[type[RedactableText], tuple[object, ...]]:
        """Return what a copy is made of: phrases go from process to process."""
        return RedactableText, (self.template, *self.values)


ReportText: TypeAlias = LiteralString | RedactableText
"""A literal is wholly ours; of a phrase the template is. The type checker refuses every other string."""


class Location(str):
    """A path into a request or an answer: its indexes and the members that an API names are no secret."""

    __slots__ = ()


def quote(value: object) -> RedactableText:
    """Return a value as a text that is foreign as a whole."""
    return RedactableText("{}", value)


def shorten(value: str, most: int = 80) -> RedactableText:
    """Return a foreign text, without its middle where it is longer than `most` characters."""
    half = most // 2
    if len(value) <= most:
        return quote(value)
    return RedactableText("{}…({} characters)…{}", value[:half], len(value) - 2 * half, value[-half:])
