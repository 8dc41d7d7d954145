"""Validate values against JSON schemas, and report only certain violations.

Schemas are untrusted. Parts that may be slow, remote or depend on the dialect are ignored: patterns with repetitions,
references to other documents, formats. The default is Draft 2020-12, named by OpenAI's documentation.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from harmony_conformance.json_value import Json, JsonObject, dumps

_REPEATS = re.compile(r"[*+{]")
_LONGEST_PATTERN = 4096  # characters


def is_schema(value: Json) -> bool:
    """Return True if a value is a valid JSON schema."""
    try:
        return isinstance(value, dict) and _is_schema(_HashableObject(dumps(value), value))
    except RecursionError:
        return False


@dataclass(frozen=True)
class _HashableObject:
    """A JSON object that is hashed and compared by its text."""

    text: str
    value: JsonObject = field(compare=False)


@lru_cache(maxsize=256)
def _is_schema(candidate: _HashableObject) -> bool:
    # cached: the same tools are declared in many requests, and the meta-schema is long
    try:
        with warnings.catch_warnings(action="ignore"):  # of odd patterns, which are the client's
            _validator_class(candidate.value).check_schema(candidate.value)
    except (SchemaError, RecursionError, re.error):
        return False
    return True


def first_violation(value: Json, schema: Json) -> tuple[str, str] | None:
    """Return the JSON pointer and the description of the first violation, None if the value is valid or it is uncertain."""
    return violation_finder(schema)(value)


def violation_finder(schema: Json) -> Callable[[Json], tuple[str, str] | None]:
    """Return `first_violation` for many values of one schema, which is prepared once."""
    if not isinstance(schema, dict) or not is_schema(schema):
        return lambda _: None
    no_documents: Registry[Any] = Registry()  # other documents are not fetched
    return partial(_first_violation, _validator_class(schema)(_without_uncertain(schema), registry=no_documents))


def _first_violation(validator: Any, value: Json) -> tuple[str, str] | None:  # noqa: ANN401 - see `_validator_class`
    try:
        problem: ValidationError | None = next(iter(validator.iter_errors(value)), None)
    except (Unresolvable, RecursionError, re.error):
        return None
    if problem is None:
        return None
    return "".join(f"/{part}" for part in problem.absolute_path), str(problem.message)


def _validator_class(schema: JsonObject) -> Any:  # noqa: ANN401 - the library makes its classes at run time
    validator: Any = validator_for(schema, default=Draft202012Validator)
    return validator


def _without_uncertain(schema: Json) -> Json:
    """Return the schema without patterns that could run very long, or differ in meaning between dialects."""
    match schema:
        case dict():
            certain = ((name, member) for name, member in schema.items() if not _is_uncertain(name, member))
            return {name: _without_uncertain(member) for name, member in certain}
        case list():
            return [_without_uncertain(member) for member in schema]
        case _:
            return schema


def _is_uncertain(name: str, member: Json) -> bool:
    if name == "patternProperties":
        return isinstance(member, dict)
    if name != "pattern" or not isinstance(member, str):
        return False
    return len(member) > _LONGEST_PATTERN or bool(_REPEATS.search(member))
