"""The JSON Schema of each kind of vectors, applied where jsonschema is installed: it is no dependency of this package."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Protocol

from harmony_conformance.golden.vectors.vector_file import InvalidVectorsError, VectorFile
from harmony_conformance.json_value import InvalidJsonError, Json, loads


class _Error(Protocol):
    json_path: str
    message: str


class _Validator(Protocol):
    def iter_errors(self, instance: Json) -> Iterator[_Error]: ...


def validator_version() -> str | None:
    """The version of jsonschema; None where it is not installed."""
    try:
        return version("jsonschema")
    except PackageNotFoundError:
        return None


def follow_schemas(top: Path | Traversable, files: list[VectorFile]) -> None:
    """Hold every file against the schema of its kind, `schema/<kind>.schema.json`.

    Raises:
        BadVectors: a file that does not follow it, or a schema that is missing.
    """
    validator: Callable[[Json], _Validator] = vars(importlib.import_module("jsonschema"))["Draft202012Validator"]
    validators = {kind: validator(_schema(top, kind)) for kind in sorted({file.kind for file in files})}
    for file in files:
        problem = next(validators[file.kind].iter_errors(file.document), None)
        if problem is not None:
            said = problem.message if len(problem.message) <= 200 else f"{problem.message[:200]}…"  # noqa: PLR2004 - a line
            raise InvalidVectorsError(f"{file.path} does not follow its schema at {problem.json_path}: {said}")


def _schema(top: Path | Traversable, kind: str) -> Json:
    path = f"schema/{kind}.schema.json"
    file = top / "schema" / f"{kind}.schema.json"
    if not file.is_file():
        raise InvalidVectorsError(f"{path} is missing")
    try:
        return loads(file.read_bytes())
    except InvalidJsonError as problem:
        raise InvalidVectorsError(f"{path} is no JSON: {problem}") from None
