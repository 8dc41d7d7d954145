"""Validation of vector files by JSON Schema, if the optional package jsonschema is installed."""

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
    """Return the version of jsonschema, or None if it is not installed."""
    try:
        return version("jsonschema")
    except PackageNotFoundError:
        return None


def validate_files(top: Path | Traversable, files: list[VectorFile]) -> None:
    """Validate every file against the schema of its kind, `schema/<kind>.schema.json`.

    Raises:
        InvalidVectorsError: a file violates its schema, or the schema is missing.
    """
    validator: Callable[[Json], _Validator] = vars(importlib.import_module("jsonschema"))["Draft202012Validator"]
    validators = {kind: validator(_schema(top, kind)) for kind in sorted({file.kind for file in files})}
    for file in files:
        if (problem := next(validators[file.kind].iter_errors(file.document), None)) is not None:
            message = problem.message if len(problem.message) <= 200 else f"{problem.message[:200]}…"  # noqa: PLR2004 - a line
            raise InvalidVectorsError(f"{file.path} violates its schema at {problem.json_path}: {message}")


def _schema(top: Path | Traversable, kind: str) -> Json:
    path = f"schema/{kind}.schema.json"
    file = top / "schema" / f"{kind}.schema.json"
    if not file.is_file():
        raise InvalidVectorsError(f"{path} is missing")
    try:
        return loads(file.read_bytes())
    except InvalidJsonError as problem:
        raise InvalidVectorsError(f"{path}: invalid JSON: {problem}") from None
