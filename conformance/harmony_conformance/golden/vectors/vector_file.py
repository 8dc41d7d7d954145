"""Vector files: their rules, their reader and their canonical text form.

    {schema, source{name, version}, notes{flag: {bug_class, effect, links}},
     tests: [{id, comment, flags, input, result, expected, printed?, differs?}]}

The result of an implementation is an *answer*: `{"error": {kind, text, …}}`, or an object in the form of the kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from harmony_conformance.golden.data import GoldenError
from harmony_conformance.json_value import InvalidJsonError, Json, JsonObject, items, loads, members, strings, text

WIDTH: Final = 120
"""Maximum characters of a line, unless a single string is longer."""

OTHER_DATA: Final = frozenset({"api", "causes", "coverage", "exchanges", "scenarios", "schema", "tasks"})
"""Folders of the golden data without vectors."""

_NAME: Final = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_FILE_MEMBERS: Final = ("schema", "source", "notes", "tests")
_TEST_MEMBERS: Final = ("id", "comment", "flags", "input", "result", "expected")
_OPTIONAL_MEMBERS: Final = ("printed", "differs")
_NOTE_MEMBERS: Final = ("bug_class", "effect", "links")


class InvalidVectorsError(GoldenError):
    """A folder or file has no valid vectors. The message has its path and the problem."""


class VectorResult(StrEnum):
    """Required result of an implementation: success, an error, or either."""

    VALID = "valid"
    INVALID = "invalid"
    ACCEPTABLE = "acceptable"


@dataclass(frozen=True, kw_only=True)
class Vector:
    """One test of a file.

    Attributes:
        expected: The answer; None in a file that is not complete yet.
        differs: Known different answers, by the name of the implementation.
    """

    id: str
    comment: str
    flags: Sequence[str]
    input: JsonObject
    result: VectorResult
    expected: JsonObject | None
    differs: Mapping[str, Json]


@dataclass(frozen=True, kw_only=True)
class VectorFile:
    """One file, `<kind>/<name>.json`, with its JSON (`document`) and its parsed vectors."""

    kind: str
    name: str
    document: JsonObject
    vectors: Sequence[Vector]

    @property
    def path(self) -> str:
        """Path below the golden folder."""
        return f"{self.kind}/{self.name}.json"


def read_folder(top: Path | Traversable, kinds: Sequence[str]) -> list[VectorFile]:
    """Read all vector files of a golden folder, sorted by kind and name.

    Raises:
        InvalidVectorsError: the folder has no vectors, an unknown kind, or an invalid file.
    """
    if not top.is_dir():
        raise InvalidVectorsError(f"not a directory: {top}")
    folders = sorted((entry for entry in top.iterdir() if entry.is_dir()), key=lambda entry: entry.name)
    files = [file for folder in folders if folder.name not in OTHER_DATA for file in _read_kind(folder, kinds)]
    if not files:
        raise InvalidVectorsError(f"no vectors in {top}: expected .json files in the folders {', '.join(kinds)}")
    first: dict[str, str] = {}
    for file in files:
        for vector in file.vectors:
            if vector.id in first:
                raise InvalidVectorsError(f"{file.path}: duplicate id {vector.id!r}, also in {first[vector.id]}")
            first[vector.id] = file.path
    return files


def read_file(data: bytes, *, kind: str, name: str) -> VectorFile:
    """Parse the file `<kind>/<name>.json`.

    Raises:
        InvalidVectorsError: the file breaks a rule. The message names the test.
    """
    path = f"{kind}/{name}.json"
    try:
        document = loads(data.decode("utf-8"))
    except UnicodeDecodeError as problem:
        raise InvalidVectorsError(f"{path}: invalid UTF-8 at byte {problem.start}") from None
    except InvalidJsonError as problem:
        raise InvalidVectorsError(f"{path}: invalid JSON: {problem}") from None
    if not isinstance(document, dict):
        raise InvalidVectorsError(f"{path}: expected a JSON object")
    if any(_SURROGATE.search(string) for string in strings(document)):
        raise InvalidVectorsError(f"{path}: lone surrogate, which most JSON parsers reject")
    if (first_problem := next(_problems(document, kind=kind, name=name), None)) is not None:
        raise InvalidVectorsError(f"{path}: {first_problem}")
    vectors = [_vector(members(test)) for test in items(document["tests"])]
    return VectorFile(kind=kind, name=name, document=document, vectors=vectors)


def format_document(document: Json) -> str:
    """Format the document canonically: two spaces of indentation; values that fit stay on one line; lists of numbers fill lines."""
    return _format(document, "") + "\n"


def _read_kind(folder: Path | Traversable, kinds: Sequence[str]) -> Iterator[VectorFile]:
    if folder.name not in kinds:
        raise InvalidVectorsError(f"invalid kind of vectors {folder.name}: expected one of {', '.join(kinds)}")
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".json"):
            raise InvalidVectorsError(f"{folder.name}/{file.name}: expected a .json file")
        try:
            data = file.read_bytes()
        except OSError as problem:
            raise InvalidVectorsError(f"cannot read {folder.name}/{file.name}: {problem.strerror}") from None
        yield read_file(data, kind=folder.name, name=file.name.removesuffix(".json"))


def _problems(document: JsonObject, *, kind: str, name: str) -> Iterator[str]:
    """Yield the problems of a file in order, including rules that a JSON Schema cannot express."""
    if tuple(document) != _FILE_MEMBERS:
        yield f"invalid members: expected {', '.join(_FILE_MEMBERS)}, got {', '.join(document) or 'none'}"
    schema = f"../schema/{kind}.schema.json"
    if document["schema"] != schema:
        yield f"invalid schema: expected {schema!r}, got {document['schema']!r}"
    source = members(document["source"])
    if set(source) != {"name", "version"} or not all(text(value) for value in source.values()):
        yield "invalid source: expected the members name and version"
    for flag, note in members(document["notes"]).items():
        if tuple(members(note)) != _NOTE_MEMBERS:
            yield f"invalid note {flag!r}: expected the members {', '.join(_NOTE_MEMBERS)}"
    tests = items(document["tests"])
    if not tests:
        yield "no tests"
    notes = set(members(document["notes"]))
    for number, test in enumerate(tests):
        yield from _problems_of_test(members(test), notes, where=f"test {number}", prefix=f"{kind}/{name}/")
    if unused := notes - {text(flag) for test in tests for flag in items(members(test)["flags"])}:
        yield f"unused note {min(unused)!r}: no test has this flag"


def _problems_of_test(test: JsonObject, notes: set[str], *, where: str, prefix: str) -> Iterator[str]:
    if missing := [name for name in _TEST_MEMBERS if name not in test]:
        yield f"{test.get('id', where)}: missing member {missing[0]}"
    if extra := [name for name in test if name not in (*_TEST_MEMBERS, *_OPTIONAL_MEMBERS)]:
        yield f"{test['id']}: unknown member {extra[0]!r}"
    name = text(test["id"])
    if not name.startswith(prefix) or _NAME.fullmatch(name.removeprefix(prefix)) is None:
        yield f"{where}: invalid id {test['id']!r}: expected {prefix} and a name of lower-case letters, digits and hyphens"
    if not text(test["comment"]).endswith(".") or not text(test["comment"])[0].isupper():
        yield f"{name}: invalid comment: expected a sentence"
    unknown = [flag for flag in items(test["flags"]) if text(flag) not in notes]
    if unknown or not isinstance(test["flags"], list):
        yield f"{name}: invalid flag {unknown[0] if unknown else test['flags']!r}: expected a key of the notes"
    if test["result"] not in list(VectorResult):
        yield f"{name}: invalid result: expected one of {', '.join(VectorResult)}, got {test['result']!r}"
    if not isinstance(test["input"], dict):
        yield f"{name}: invalid input: expected an object"
    has_error, is_invalid = "error" in members(test["expected"]), test["result"] == VectorResult.INVALID
    if test["expected"] is not None and has_error != is_invalid:
        yield f"{name}: an error is expected if and only if the result is invalid"
    if members(test.get("differs")) and not test["flags"]:
        yield f"{name}: `differs` needs a flag with the reason"


def _vector(test: JsonObject) -> Vector:
    return Vector(
        id=text(test["id"]),
        comment=text(test["comment"]),
        flags=tuple(map(text, items(test["flags"]))),
        input=members(test["input"]),
        result=VectorResult(text(test["result"])),
        expected=None if test["expected"] is None else members(test["expected"]),
        differs=members(test.get("differs")),
    )


def _format(value: Json, indent: str) -> str:
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, dict | list):
        return line
    deeper = indent + "  "
    if isinstance(value, dict):
        names = (json.dumps(name, ensure_ascii=False) for name in value)
        parts = [f"{deeper}{name}: {_format(one, deeper)}" for name, one in zip(names, value.values(), strict=True)]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    if all(isinstance(item, int) for item in value):
        return "[\n" + "\n".join(_fill_lines([json.dumps(item) for item in value], deeper)) + f"\n{indent}]"
    return "[\n" + ",\n".join(deeper + _format(item, deeper) for item in value) + f"\n{indent}]"


def _fill_lines(numbers: Sequence[str], indent: str) -> Iterator[str]:
    line = indent
    for number in (*(f"{number}, " for number in numbers[:-1]), numbers[-1]):
        if len(line) + len(number.rstrip()) > WIDTH:
            yield line.rstrip()
            line = indent
        line += number
    yield line
