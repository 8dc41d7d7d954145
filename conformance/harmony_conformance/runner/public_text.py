"""Text of the suite that is no secret, though a header of the user may have it too."""

from __future__ import annotations

from functools import cache

from harmony_conformance.golden import data as golden


def is_public(word: str) -> bool:
    """Return True for the name of a model and for text of the scenarios: masking it would change answers."""
    return "gpt-oss" in word.lower() or word.lower() in _public_text()


@cache
def _public_text() -> str:
    """Return the text of the scenarios, in lower case: what the suite sends, and what a correct server answers."""
    return "\n".join(file.read_text(encoding="utf-8") for file in (golden.root() / "scenarios").iterdir()).lower()
