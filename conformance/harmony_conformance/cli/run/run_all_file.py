"""The file of `run-all`: its keys, and the endpoints that it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from harmony_conformance.cli.comparison.side_by_side import LOAD_FOLDER, RATES_FOLDER
from harmony_conformance.errors import UsageError
from harmony_conformance.runtime.file_keys import FileKey, names_of
from harmony_conformance.runtime.similar_names import suggestion
from harmony_conformance.runtime.text_files import InvalidEncodingError, read_text_file
from harmony_conformance.runtime.toml_files import InvalidTomlError, line_of, parse_toml

_EXPECTED = 'expected a TOML file with tables [[endpoint]], each with name = "…" and target = "URL"'
ENTRY = "[[endpoint]]"
_LIST = "list of texts"
_EXAMPLES = {
    "connection": ('["--model", "gpt-oss-20b", "--api-key-env", "A_KEY"]', "`run`, `rates` and `load`"),
    "options": ('["--max-time", "20m"]', "`run`"),
    "rates": ('["--set", "tools", "--tries", "10"]', "`rates`, which is called only with this key"),
    "load": ('["--rate", "2", "--slo", "ttft_p95=1s"]', "`load`, which is called only with this key"),
}
_LISTS = tuple(_EXAMPLES)
"""Members with options of the command line."""
_NOT_OPTIONS = ("--out", "--format", "--dry-run", "--list", "--help")
"""Options of the commands that `run-all` sets itself, or with which a command tests nothing."""
KEYS = (
    *(
        FileKey(
            name=name,
            kind=_LIST,
            meaning=f"Options of {of} for every endpoint.",
            example=f"{name} = {example}",
        )
        for name, (example, of) in _EXAMPLES.items()
    ),
    FileKey(
        table=ENTRY,
        name="name",
        kind="text",
        meaning="Name in the matrix, and folder of the run. It must occur once.",
        example='name = "provider-a"',
        required=True,
    ),
    FileKey(
        table=ENTRY,
        name="target",
        kind="text",
        meaning="The endpoint, as in `run TARGET`: a URL, or `ENGINE:URL`.",
        example='target = "https://a.example/v1"',
        required=True,
    ),
    *(
        FileKey(
            table=ENTRY,
            name=name,
            kind=_LIST,
            meaning=f"Further options of {of}, after those of the top of the file.",
            example=f"{name} = {example}",
        )
        for name, (example, of) in _EXAMPLES.items()
    ),
)
"""Keys of the configuration file."""


@dataclass(frozen=True, kw_only=True)
class ConfiguredEndpoint:
    """An endpoint of the file: its name, its target, and the further options of each command.

    Attributes:
        rates: Options of `rates`, None if it is not called.
        load: Options of `load`, None if it is not called.
    """

    name: str
    target: str
    options: tuple[str, ...] = ()
    rates: tuple[str, ...] | None = None
    load: tuple[str, ...] | None = None

    def commands(self, out: Path) -> Iterator[tuple[str, ...]]:
        """Yield the commands in their order, without that of the load."""
        yield "run", self.target, *self.options, "--quiet", "--progress", "--out", str(out)
        if self.rates is not None:
            yield "rates", self.target, *self.rates, "--format", "json", "--out", str(out / RATES_FOLDER)

    def load_command(self, out: Path) -> tuple[str, ...]:
        """Return the command of the load."""
        return "load", self.target, *(self.load or ()), "--format", "json", "--out", str(out / LOAD_FOLDER)

    def dry_commands(self) -> Iterator[tuple[str, ...]]:
        """Yield the commands that print what the others would send."""
        yield "run", self.target, *self.options, "--quiet", "--dry-run"
        for command, options in (("rates", self.rates), ("load", self.load)):
            if options is not None:
                yield command, self.target, *options, "--dry-run"


def read_endpoints(path: Path) -> tuple[ConfiguredEndpoint, ...]:
    """Read the configuration file.

    Raises:
        UsageError: It cannot be read, or an entry is invalid. The message has the file, the line and the key.
    """
    try:
        content = read_text_file(path)
        document = parse_toml(content)
    except OSError as problem:
        raise UsageError(f"{path}: {problem.strerror}; {_EXPECTED}") from None
    except (InvalidEncodingError, InvalidTomlError) as problem:
        raise UsageError(f"{path}: {problem}; {_EXPECTED}") from None
    if unknown := [name for name in document if name not in {"endpoint", *names_of(KEYS)}]:
        line = line_of(content, lambda so_far: unknown[0] in so_far)
        raise UsageError(f"{path}:{line}: {_unknown_key(unknown[0], ('[[endpoint]]', *names_of(KEYS)))}")
    listed = document.get("endpoint")
    entries = cast("list[object]", listed) if isinstance(listed, list) else []
    if not entries:
        raise UsageError(f"{path}: expected a table [[endpoint]], got none; {_EXPECTED}")
    common = _lists(document, lambda key: f"{path}:{line_of(content, lambda so_far: key in so_far)}")
    read = tuple(_endpoint(entry, common, _Place(path, content, n)) for n, entry in enumerate(entries, 1))
    names = [one.name for one in read]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        second = _Place(path, content, len(names) - names[::-1].index(doubled))
        raise UsageError(f"{second('name')}: expected a name for each endpoint, got {doubled!r} twice")
    return read


@dataclass(frozen=True)
class _Place:
    """The place of a table in the file. `number` counts from 1."""

    path: Path
    content: str
    number: int

    def __call__(self, key: str = "") -> str:
        """Return the file and the line of a key, or of the table, and the number of the endpoint."""
        line = line_of(self.content, lambda so_far: self._is_there(so_far, key))
        return f"{self.path}:{line}: endpoint {self.number}"

    def _is_there(self, document: Mapping[str, object], key: str) -> bool:
        listed = document.get("endpoint")
        entries = cast("list[object]", listed) if isinstance(listed, list) else []
        entry = entries[self.number - 1] if len(entries) >= self.number else None
        return entry is not None and (not key or (isinstance(entry, dict) and key in entry))


def _endpoint(entry: object, common: Mapping[str, tuple[str, ...]], place: _Place) -> ConfiguredEndpoint:
    members: Mapping[str, object] = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    if unknown := [name for name in members if name not in names_of(KEYS, ENTRY)]:
        raise UsageError(f"{place(unknown[0])}: {_unknown_key(unknown[0], names_of(KEYS, ENTRY))}")
    name, target = members.get("name"), members.get("target")
    if not isinstance(target, str) or not target:
        got = f"got {target!r}" if "target" in members else "got no key `target`"
        raise UsageError(f'{place("target" if "target" in members else "")}: expected target = "URL", {got}')
    if not isinstance(name, str) or not name.isprintable() or Path(name).name != name or name[:1] in (".", ""):
        got = f"got {name!r}" if "name" in members else "got no key `name`"
        raise UsageError(f"{place('name' if 'name' in members else '')}: expected a name that can be a folder's, {got}")
    own = _lists(members, place)
    connection = (*common.get("connection", ()), *own.get("connection", ()))
    rates, load = (
        (*connection, *common.get(command, ()), *own.get(command, ())) if command in {*common, *own} else None
        for command in ("rates", "load")
    )
    options = (*connection, *common.get("options", ()), *own.get("options", ()))
    return ConfiguredEndpoint(name=name, target=target, options=options, rates=rates, load=load)


def _unknown_key(name: str, known: Sequence[str]) -> str:
    meant = suggestion(name, known) or "; options of the commands are texts in `options` and `connection`"
    return f"invalid key: expected one of {', '.join(known)}, got {name!r}{meant}"


def _lists(members: Mapping[str, object], place: Callable[[str], str]) -> dict[str, tuple[str, ...]]:
    """Return the lists of options of a table, by name."""
    return {name: _options(name, members[name], place) for name in _LISTS if name in members}


def _options(key: str, value: object, place: Callable[[str], str]) -> tuple[str, ...]:
    listed = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(one, str) for one in listed):
        example = _EXAMPLES[key][0]
        raise UsageError(f"{place(key)}: expected {key} as a list of texts like {example}, got {value!r}")
    options = tuple(str(one) for one in listed)
    for one in options:
        if one == "-h" or (
            one[:2] == "--" != one and any(name.startswith(one.partition("=")[0]) for name in _NOT_OPTIONS)
        ):
            raise UsageError(f"{place(key)}: invalid option: expected none of {', '.join(_NOT_OPTIONS)}, got {one!r}")
    return options
