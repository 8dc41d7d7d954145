"""The golden data: where it is, and reading the examples of the checks.

An example is a file `exchanges/<check id>/<kind>-<what it shows>.json`: one exchange in the form of `recording`, or a series of them, and a comment.
Token ids in it may be written `{"$ids": …}`, with a Harmony text or a list of pieces, as a script is.

    GoldenError
    ├── NoGoldenData    the folder is missing
    └── BadExample      a file is no example
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from harmony_conformance.evidence.exchange import Series
from harmony_conformance.evidence.recording import InvalidRecordError, read_exchange, read_script
from harmony_conformance.json_value import InvalidJsonError, Json, at, items, loads, members, text
from harmony_conformance.judge.check import Outcome

KINDS = {
    "pass": Outcome.PASS,
    "fail": Outcome.FAIL,
    "variant": Outcome.VARIANT,
    "na": Outcome.NOT_APPLICABLE,
}
"""What the first word of a file's name says about the check it stands under."""


class GoldenError(RuntimeError):
    """The golden data can not be used."""


class MissingGoldenDataError(GoldenError):
    """Neither the installed package nor a checkout holds the golden data."""


class InvalidExampleError(GoldenError):
    """A file that is no example; says which, and what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """What one file shows: exchanges, and what the check it stands under has to say of them.

    `also_fails` are the other MUST checks that fail on it, and no others do; `defects` are the catalogued ones it is an instance of.
    """

    check: str
    name: str
    outcome: Outcome
    comment: str
    series: Series
    defects: tuple[str, ...] = ()
    also_fails: frozenset[str] = frozenset()

    @property
    def id(self) -> str:
        """The file's place below `exchanges`, without its suffix."""
        return f"{self.check}/{self.name}"


@cache
def root() -> Path | Traversable:
    """The folder of the golden data: `_golden` beside the package (wheel), else the checkout's `golden/`.

    Raises:
        NoGoldenData: there is neither.
    """
    packaged = files("harmony_conformance") / "_golden"
    if packaged.is_dir():
        return packaged
    checkout = Path(__file__).resolve().parents[3] / "golden"
    if checkout.is_dir():
        return checkout
    raise MissingGoldenDataError(
        "the golden data is missing: neither harmony_conformance/_golden nor the golden/ folder of a checkout is there"
    )


def ids() -> Iterator[str]:
    """The ids of all golden data: each file's place below the folder, without its suffix."""
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
    """All examples, by check and name.

    Raises:
        GoldenError: the folder is missing, or a file in it is no example.
    """
    top = folder if folder is not None else root() / "exchanges"
    for check in sorted(top.iterdir(), key=lambda entry: entry.name):
        for file in sorted(check.iterdir(), key=lambda entry: entry.name):
            yield read_example(file.read_bytes(), check=check.name, name=file.name.removesuffix(".json"))


@cache
def read_example(data: bytes, *, check: str, name: str) -> Example:
    """The example that a file `<check>/<name>.json` holds.

    Raises:
        BadExample: it holds none.
    """
    kind, dash, _ = name.partition("-")
    if kind not in KINDS or not dash:
        raise InvalidExampleError(
            f"{check}/{name}: a name begins with one of {', '.join(f'{kind}-' for kind in KINDS)}"
        )
    try:
        value = with_ids(loads(data))
        steps = members(at(value, "exchanges")) or {"": value}
        exchanges = {
            step: read_exchange({**members(exchange), "step": step}, name=step or name)
            for step, exchange in steps.items()
        }
    except (InvalidJsonError, InvalidRecordError) as problem:
        raise InvalidExampleError(f"{check}/{name}: {problem}") from None
    return Example(
        check=check,
        name=name,
        outcome=KINDS[kind],
        comment=text(at(value, "comment")),
        series=Series(name=name, exchanges=exchanges),
        defects=tuple(text(defect) for defect in items(at(value, "defects"))),
        also_fails=frozenset(text(other) for other in items(at(value, "also_fails"))),
    )


def with_ids(value: Json) -> Json:
    """The value with each `{"$ids": text or pieces}` in it replaced by the list of token ids it stands for.

    Raises:
        BadRecording: what stands there is neither.
    """
    match value:
        case {"$ids": pieces, **others} if not others:
            return list(read_script(pieces))
        case dict():
            return {name: with_ids(member) for name, member in value.items()}
        case list():
            return [with_ids(item) for item in value]
        case _:
            return value
