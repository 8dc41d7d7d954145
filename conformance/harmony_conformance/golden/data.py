"""Location of the golden data, and the reader of the checks' examples.

An example is a file `exchanges/<check id>/<kind>-<topic>.json`: a comment and one exchange as in `recording`, or a series.
Token ids may be written as `{"$ids": …}` with a Harmony text or a list of pieces, as in a script.

    GoldenError
    ├── MissingGoldenDataError    the folder is missing
    └── InvalidExampleError       a file is not a valid example
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources.abc import Traversable
from pathlib import Path

from harmony_conformance.evidence.exchange import Series
from harmony_conformance.evidence.exchange_json import InvalidRecordError, read_exchange, read_script
from harmony_conformance.json_value import InvalidJsonError, Json, items, loads, members, text, value_at
from harmony_conformance.judge.check import Outcome
from harmony_conformance.runtime.package_data import package_data

KINDS = {"pass": Outcome.PASS, "fail": Outcome.FAIL, "variant": Outcome.VARIANT, "na": Outcome.NOT_APPLICABLE}
"""Expected outcome of the check by the first word of an example's file name."""


class GoldenError(RuntimeError):
    """The golden data cannot be used."""


class MissingGoldenDataError(GoldenError):
    """Neither the installed package nor a checkout contains the golden data."""


class InvalidExampleError(GoldenError):
    """A file is not a valid example. The message has the file and the problem."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """Content of one example file: exchanges and the expected outcome of a check on them.

    Attributes:
        check: Id of the check.
        name: Name of the file without its suffix.
        is_typical: True for the one that explains the check best.
        defects: Ids in the catalogue `golden/defects.json` that the example is an instance of.
        also_fails: Ids of the only other MUST checks that fail on it.
    """

    check: str
    name: str
    outcome: Outcome
    comment: str
    series: Series
    is_typical: bool = False
    defects: tuple[str, ...] = ()
    also_fails: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """Path of the file below `exchanges`, without its suffix."""
        return f"{self.check}/{self.name}"


@cache
def root() -> Path | Traversable:
    """Return the folder of the golden data: `_golden` in the package (wheel), else `golden/` of the checkout.

    Raises:
        MissingGoldenDataError: neither exists.
    """
    folder = package_data("golden")
    if folder is None:
        places = "neither harmony_conformance/_golden nor the golden/ folder of a checkout"
        raise MissingGoldenDataError(f"the golden data is missing: found {places}")
    return folder


def golden_file_ids() -> Iterator[str]:
    """Yield the ids of all golden files: each path below the folder, without the suffix."""
    for folder in sorted(root().iterdir(), key=lambda entry: entry.name):
        if folder.is_dir() and folder.name != "schema":
            yield from _ids_below(folder, folder.name)


def _ids_below(folder: Path | Traversable, prefix: str) -> Iterator[str]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            yield from _ids_below(entry, f"{prefix}/{entry.name}")
        elif entry.name.endswith(".json"):
            yield f"{prefix}/{entry.name.removesuffix('.json')}"


def examples(folder: Path | Traversable | None = None) -> Iterator[Example]:
    """Yield all examples, sorted by check and name.

    Raises:
        GoldenError: the folder is missing, or a file in it is not a valid example.
    """
    for check in sorted((folder or root() / "exchanges").iterdir(), key=lambda entry: entry.name):
        for file in sorted(check.iterdir(), key=lambda entry: entry.name):
            yield read_example(file.read_bytes(), check=check.name, name=file.name.removesuffix(".json"))


@cache
def read_example(data: bytes, *, check: str, name: str) -> Example:
    """Parse the file `<check>/<name>.json`.

    Raises:
        InvalidExampleError: the file is not a valid example.
    """
    kind, dash, _ = name.partition("-")
    if kind not in KINDS or not dash:
        prefixes = ", ".join(f"{kind}-" for kind in KINDS)
        raise InvalidExampleError(f"invalid file name {check}/{name}: expected one of the prefixes {prefixes}")
    try:
        value = expand_token_ids(loads(data))
        exchanges = {
            step: read_exchange({**members(exchange), "step": step}, name=step or name)
            for step, exchange in (members(value_at(value, "exchanges")) or {"": value}).items()
        }
    except (InvalidJsonError, InvalidRecordError) as problem:
        raise InvalidExampleError(f"{check}/{name}: {problem}") from None
    return Example(
        check=check,
        name=name,
        outcome=KINDS[kind],
        comment=text(value_at(value, "comment")),
        series=Series(name=name, exchanges=exchanges),
        is_typical=value_at(value, "typical") is True,
        defects=tuple(map(text, items(value_at(value, "defects")))),
        also_fails=frozenset(map(text, items(value_at(value, "also_fails")))),
    )


def expand_token_ids(value: Json) -> Json:
    """Replace each `{"$ids": text or pieces}` in the value by its list of token ids.

    Raises:
        InvalidRecordError: the member is neither a text nor a list of pieces.
    """
    match value:
        case {"$ids": pieces, **others} if not others:
            return list(read_script(pieces))
        case dict():
            return {name: expand_token_ids(member) for name, member in value.items()}
        case list():
            return [expand_token_ids(item) for item in value]
        case _:
            return value
