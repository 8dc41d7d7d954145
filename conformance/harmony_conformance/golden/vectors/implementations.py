"""The available implementations, and the kinds of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from harmony_conformance.golden.vectors import answers_harmony_ref, answers_huggingface, answers_openai_harmony
from harmony_conformance.golden.vectors.implementation import Implementation, UnavailableImplementation

KINDS: Final = ("render", "parse", "stream", "typescript", *answers_huggingface.KINDS)
"""The kinds of vectors, each a folder of the golden data."""

_WITHOUT_EXTRA: Final = UnavailableImplementation(
    name=f"harmony_ref for {' and '.join(answers_huggingface.KINDS)}", reason="needs the extra huggingface"
)


def present() -> Sequence[Implementation | UnavailableImplementation]:
    """Return harmony_ref first, whose answers are written to the files, then the others."""
    own, extra = answers_harmony_ref.implementation(), answers_huggingface.answers()
    both = [replace(own, answers={**own.answers, **extra}), answers_openai_harmony.implementation()]
    return both if extra else [*both, _WITHOUT_EXTRA]
