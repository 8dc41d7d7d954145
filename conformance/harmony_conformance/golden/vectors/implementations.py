"""The implementations there are, and the kinds of vectors that they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from harmony_conformance.golden.vectors import answers_harmony_ref, answers_huggingface, answers_openai_harmony
from harmony_conformance.golden.vectors.implementation import Absent, Implementation

KINDS: Final = ("render", "parse", "stream", "typescript", *answers_huggingface.KINDS)
"""The kinds of vectors, each a folder of the golden data."""


_WITHOUT_EXTRA: Final = Absent(
    name=f"harmony_ref for {' and '.join(answers_huggingface.KINDS)}", reason="needs harmony-conformance[huggingface]"
)


def present() -> Sequence[Implementation | Absent]:
    """This project's own first, whose answers the files hold; then those it is compared with."""
    own = answers_harmony_ref.implementation()
    more = answers_huggingface.answers()
    everyone = [replace(own, answers={**own.answers, **more}), answers_openai_harmony.implementation()]
    return everyone if more else [*everyone, _WITHOUT_EXTRA]
