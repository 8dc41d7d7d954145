"""The implementations there are, and the kinds of vectors that they answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from harmony_conformance.vectors import hugging_face, official, ours
from harmony_conformance.vectors.implementation import Absent, Implementation

KINDS: Final = ("render", "parse", "stream", "typescript", *hugging_face.KINDS)
"""The kinds of vectors, each a folder of the golden data."""


_WITHOUT_EXTRA: Final = Absent(
    name=f"harmony_ref for {' and '.join(hugging_face.KINDS)}", reason="needs harmony-conformance[huggingface]"
)


def present() -> Sequence[Implementation | Absent]:
    """This project's own first, whose answers the files hold; then those it is compared with."""
    own = ours.implementation()
    more = hugging_face.answers()
    everyone = [replace(own, answers={**own.answers, **more}), official.implementation()]
    return everyone if more else [*everyone, _WITHOUT_EXTRA]
