"""harmony_ref's answers to the vectors of chat templates and response schemas, where what they need is installed.

Some of these vectors are about a text that is somebody else's, and hold its name and hash only: they are not answered here.
The implementation that they are agreed with, transformers, is asked by the tests of `harmony_ref`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from harmony_conformance.golden.vectors.answers_harmony_ref import as_json
from harmony_conformance.golden.vectors.implementation import Answer, UnsupportedVectorError
from harmony_conformance.json_value import JsonObject
from harmony_ref import Json

_Answer: TypeAlias = Callable[[Mapping[str, Json], Mapping[str, str]], Mapping[str, Json]]

KINDS: Final = ("template", "response_schema")
"""The kinds that need the extra `huggingface`."""


def answers() -> Mapping[str, Answer]:
    """By kind; none without the extra."""
    try:
        from harmony_ref.huggingface import golden_answers as parts  # noqa: PLC0415 - an extra
    except ImportError:
        return {}

    def answered(function: _Answer) -> Answer:
        def answer(given: JsonObject) -> JsonObject:
            try:
                said = function(given, {})
            except parts.AbsentSourceError as absent:
                raise UnsupportedVectorError(absent.name) from None
            return {name: as_json(member) for name, member in said.items()}

        return answer

    return {"template": answered(parts.template_answer), "response_schema": answered(parts.response_schema_answer)}
