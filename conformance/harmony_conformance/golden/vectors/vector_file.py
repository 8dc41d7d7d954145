"""A vector file: what it has to hold, reading it, and the one form it is written in.

    {schema, source{name, version}, notes{flag: {bug_class, effect, links}},
     tests: [{id, comment, flags, input, result, expected, printed?, differs?}]}

Everything an implementation says is an *answer*: `{"error": {kind, text, …}}`, or an object of the kind's own form.
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
"""Characters of a line, unless a single text is longer."""

OTHER_DATA: Final = frozenset({"api", "exchanges", "scenarios", "schema"})
"""Folders of the golden data that hold no vectors."""

_NAME: Final = re.compile(r"[a-z0-9]+(?:[-_.][a-z0-9]+)*")
_HALF_A_CHARACTER: Final = re.compile("[\ud800-\udfff]")
_FILE_MEMBERS: Final = ("schema", "source", "notes", "tests")
_TEST_MEMBERS: Final = ("id", "comment", "flags", "input", "result", "expected")
_OPTIONAL_MEMBERS: Final = ("printed", "differs")
_NOTE_MEMBERS: Final = ("bug_class", "effect", "links")


class InvalidVectorsError(GoldenError):
    """A folder or file that holds no vectors; says which, and what is wrong with it."""


class VectorResult(StrEnum):
    """What an implementation owes a vector."""

    VALID = "valid"
    INVALID = "invalid"
    ACCEPTABLE = "acceptable"


@dataclass(frozen=True, kw_only=True)
class Vector:
    """One test of a file.

    Attributes:
        expected: the answer; None in a file that is yet to be completed.
        differs: the answers of implementations, by name, that are known to say something else.
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
    """One file, `<kind>/<name>.json`; `document` is what it holds."""

    kind: str
    name: str
    document: JsonObject
    vectors: Sequence[Vector]

    @property
    def path(self) -> str:
        """Its place below the golden folder."""
        return f"{self.kind}/{self.name}.json"


def read_folder(top: Path | Traversable, kinds: Sequence[str]) -> list[VectorFile]:
    """All vector files of a golden folder, by kind and name.

    Raises:
        BadVectors: the folder holds no vectors, an unknown kind of them, or a file that is none.
    """
    if not top.is_dir():
        raise InvalidVectorsError(f"{top} is no folder")
    folders = sorted((entry for entry in top.iterdir() if entry.is_dir()), key=lambda entry: entry.name)
    files = [file for folder in folders if folder.name not in OTHER_DATA for file in _read_kind(folder, kinds)]
    if not files:
        raise InvalidVectorsError(
            f"{top} holds no vectors: none of the folders {', '.join(kinds)} with a .json file is there"
        )
    _refuse_doubled_ids(files)
    return files


def read_file(data: bytes, *, kind: str, name: str) -> VectorFile:
    """The file `<kind>/<name>.json` from its bytes.

    Raises:
        BadVectors: it breaks a rule; says at which test.
    """
    path = f"{kind}/{name}.json"
    try:
        document = loads(data.decode("utf-8"))
    except UnicodeDecodeError as problem:
        raise InvalidVectorsError(f"{path} is no UTF-8: byte {problem.start}") from None
    except InvalidJsonError as problem:
        raise InvalidVectorsError(f"{path} is no JSON: {problem}") from None
    if not isinstance(document, dict):
        raise InvalidVectorsError(f"{path} is no JSON object")
    if any(_HALF_A_CHARACTER.search(string) for string in strings(document)):
        raise InvalidVectorsError(f"{path} holds a lone surrogate, which most readers of JSON refuse")
    broken = next(_problems(document, kind=kind, name=name), None)
    if broken is not None:
        raise InvalidVectorsError(f"{path}: {broken}")
    vectors = [_vector(members(test)) for test in items(document["tests"])]
    return VectorFile(kind=kind, name=name, document=document, vectors=vectors)


def written(document: Json) -> str:
    """The document in its one form: two blanks of indentation, what fits on a line on one line, numbers in filled lines."""
    return _written(document, "") + "\n"


def _read_kind(folder: Path | Traversable, kinds: Sequence[str]) -> Iterator[VectorFile]:
    if folder.name not in kinds:
        raise InvalidVectorsError(f"{folder.name} is no kind of vectors; the kinds are {', '.join(kinds)}")
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if not file.name.endswith(".json"):
            raise InvalidVectorsError(f"{folder.name}/{file.name} is no .json file")
        try:
            data = file.read_bytes()
        except OSError as problem:
            raise InvalidVectorsError(f"{folder.name}/{file.name} can not be read: {problem.strerror}") from None
        yield read_file(data, kind=folder.name, name=file.name.removesuffix(".json"))


def _refuse_doubled_ids(files: Sequence[VectorFile]) -> None:
    first: dict[str, str] = {}
    for file in files:
        for vector in file.vectors:
            if vector.id in first:
                raise InvalidVectorsError(
                    f"{file.path}: the id {vector.id!r} is already that of a test of {first[vector.id]}"
                )
            first[vector.id] = file.path


def _problems(document: JsonObject, *, kind: str, name: str) -> Iterator[str]:
    """What is wrong with a file, the first first. The rules that a JSON Schema can not say stand here too."""
    if tuple(document) != _FILE_MEMBERS:
        yield f"its members are {', '.join(document) or 'none'}, not {', '.join(_FILE_MEMBERS)}"
    schema = f"../schema/{kind}.schema.json"
    if document["schema"] != schema:
        yield f"schema is {document['schema']!r}, not {schema!r}"
    source = members(document["source"])
    if set(source) != {"name", "version"} or not all(text(value) for value in source.values()):
        yield "source has not the members name and version"
    for flag, note in members(document["notes"]).items():
        if tuple(members(note)) != _NOTE_MEMBERS:
            yield f"the note {flag!r} has not the members {', '.join(_NOTE_MEMBERS)}"
    tests = items(document["tests"])
    if not tests:
        yield "no tests"
    notes = set(members(document["notes"]))
    for number, test in enumerate(tests):
        yield from _problems_of_test(members(test), notes, where=f"test {number}", prefix=f"{kind}/{name}/")
    unused = notes - {text(flag) for test in tests for flag in items(members(test)["flags"])}
    if unused:
        yield f"no test has the flag {min(unused)!r} of the notes"


def _problems_of_test(test: JsonObject, notes: set[str], *, where: str, prefix: str) -> Iterator[str]:
    missing = [name for name in _TEST_MEMBERS if name not in test]
    if missing:
        yield f"{test.get('id', where)} has no {missing[0]}"
    extra = [name for name in test if name not in (*_TEST_MEMBERS, *_OPTIONAL_MEMBERS)]
    if extra:
        yield f"{test['id']} has a member {extra[0]!r}"
    name = text(test["id"])
    if not name.startswith(prefix) or _NAME.fullmatch(name.removeprefix(prefix)) is None:
        yield f"{where}: the id {test['id']!r} is not {prefix} and a name of small letters, digits and hyphens"
    if not text(test["comment"]).endswith(".") or not text(test["comment"])[0].isupper():
        yield f"{name}: its comment is no sentence"
    unknown = [flag for flag in items(test["flags"]) if text(flag) not in notes]
    if unknown or not isinstance(test["flags"], list):
        yield f"{name}: {unknown[0] if unknown else test['flags']!r} is no flag of the notes"
    if test["result"] not in list(VectorResult):
        yield f"{name}: result is {test['result']!r}, not one of {', '.join(VectorResult)}"
    if not isinstance(test["input"], dict):
        yield f"{name}: input is no object"
    if test["expected"] is not None and ("error" in members(test["expected"])) != (
        test["result"] == VectorResult.INVALID
    ):
        yield f"{name}: an error is expected if and only if the result is invalid"
    if members(test.get("differs")) and not test["flags"]:
        yield f"{name}: an implementation differs, and no flag says why"


def _vector(test: JsonObject) -> Vector:
    return Vector(
        id=text(test["id"]),
        comment=text(test["comment"]),
        flags=tuple(text(flag) for flag in items(test["flags"])),
        input=members(test["input"]),
        result=VectorResult(text(test["result"])),
        expected=None if test["expected"] is None else members(test["expected"]),
        differs=members(test.get("differs")),
    )


def _written(value: Json, indent: str) -> str:
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, dict | list):
        return line
    deeper = indent + "  "
    if isinstance(value, dict):
        parts = [
            f"{deeper}{json.dumps(name, ensure_ascii=False)}: {_written(member, deeper)}"
            for name, member in value.items()
        ]
        return "{\n" + ",\n".join(parts) + f"\n{indent}}}"
    if all(isinstance(item, int) for item in value):
        return "[\n" + "\n".join(_filled([json.dumps(item) for item in value], deeper)) + f"\n{indent}]"
    return "[\n" + ",\n".join(deeper + _written(item, deeper) for item in value) + f"\n{indent}]"


def _filled(numbers: Sequence[str], indent: str) -> Iterator[str]:
    line = indent
    for number in [f"{number}, " for number in numbers[:-1]] + [numbers[-1]]:
        if len(line) + len(number.rstrip()) > WIDTH:
            yield line.rstrip()
            line = indent
        line += number
    yield line
