"""Whether a value is what a JSON schema describes, said only where it is certain.

Schemas come from anywhere, so what might be slow, far away or a matter of dialect is not held against a value: patterns with repetitions, references
to other documents, formats. Draft 2020-12, which OpenAI's documentation names, unless the schema names another.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable

from harmony_conformance.json_value import Json, JsonObject, dumps

_REPEATS = re.compile(r"[*+{]")
_LONGEST = 4096  # characters a pattern is tried on


def is_schema(value: Json) -> bool:
    """Whether a value is a JSON schema at all."""
    try:
        return isinstance(value, dict) and _is_schema(_Written(dumps(value), value))
    except RecursionError:
        return False


@dataclass(frozen=True)
class _Written:
    """A JSON object that can be looked up by its text."""

    text: str
    value: JsonObject = field(compare=False)


@lru_cache(maxsize=256)
def _is_schema(written: _Written) -> bool:
    """Whether an object is one: the same tools are offered again and again, and the schema of schemas is long."""
    value = written.value
    try:
        _class_of(value).check_schema(value)
    except (SchemaError, RecursionError, re.error):
        return False
    return True


def first_violation(value: Json, schema: Json) -> tuple[str, str] | None:
    """Where a value is not what the schema describes, as a JSON pointer, and why; None where it is, or where nobody can tell."""
    if not isinstance(schema, dict) or not is_schema(schema):
        return None
    nothing_else: Registry[Any] = Registry()  # other documents are not fetched
    validator: Any = _class_of(schema)(_certain(schema), registry=nothing_else)
    try:
        problem: ValidationError | None = next(iter(validator.iter_errors(value)), None)
    except (Unresolvable, RecursionError, re.error):
        return None
    if problem is None:
        return None
    return "".join(f"/{part}" for part in problem.absolute_path), str(problem.message)


def _class_of(schema: JsonObject) -> Any:  # noqa: ANN401 - the library makes its classes at run time
    named: Any = validator_for(schema, default=Draft202012Validator)
    return named


def _certain(schema: Json) -> Json:
    """The schema without patterns that could take for ever, or mean something else in another dialect."""
    match schema:
        case dict():
            return {name: _certain(member) for name, member in schema.items() if not _is_doubtful(name, member)}
        case list():
            return [_certain(member) for member in schema]
        case _:
            return schema


def _is_doubtful(name: str, member: Json) -> bool:
    if name == "patternProperties":
        return isinstance(member, dict)
    return name == "pattern" and isinstance(member, str) and (len(member) > _LONGEST or bool(_REPEATS.search(member)))
