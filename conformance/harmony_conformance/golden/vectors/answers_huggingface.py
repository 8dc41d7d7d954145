"""Answers of harmony_ref to the vectors of chat templates and response schemas, if the extra is installed.

Some of these vectors refer to a third party's text by name and hash only; they are not answered here.
The tests of `harmony_ref` compare these vectors with the other implementation, transformers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from harmony_conformance.golden.vectors.answers_harmony_ref import as_json
from harmony_conformance.golden.vectors.implementation import AnswerFunction, UnsupportedVectorError
from harmony_conformance.json_value import JsonObject
from harmony_ref import Json

_Answer: TypeAlias = Callable[[Mapping[str, Json], Mapping[str, str]], Mapping[str, Json]]

KINDS: Final = ("template", "response_schema")
"""The kinds that need the extra `huggingface`."""


def answers() -> Mapping[str, AnswerFunction]:
    """Return the answers by kind; an empty mapping without the extra."""
    try:
        from harmony_ref.huggingface import golden_answers as parts  # noqa: PLC0415 - an extra
    except ImportError:
        return {}

    def adapt(function: _Answer) -> AnswerFunction:
        def answer(vector_input: JsonObject) -> JsonObject:
            try:
                result = function(vector_input, {})
            except parts.AbsentSourceError as absent:
                raise UnsupportedVectorError(absent.name) from None
            return {name: as_json(member) for name, member in result.items()}

        return answer

    return {"template": adapt(parts.template_answer), "response_schema": adapt(parts.response_schema_answer)}
