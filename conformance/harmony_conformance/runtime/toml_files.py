"""TOML files: their values, and the lines of values for messages. The standard library reads values without their places."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

from harmony_conformance.runtime.text_files import read_text_file


class InvalidTomlError(ValueError):
    """A text is not TOML."""


def read_toml_file(path: Path) -> dict[str, object]:
    """Read a TOML file.

    Raises:
        OSError: The file cannot be read.
        InvalidEncodingError: It is not UTF-8.
        InvalidTomlError: It is not TOML.
    """
    return parse_toml(read_text_file(path))


def parse_toml(content: str) -> dict[str, object]:
    """Return the values of a TOML document.

    Raises:
        InvalidTomlError: It is not TOML.
    """
    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as problem:
        raise InvalidTomlError(f"invalid TOML: {problem}") from None
    except RecursionError:
        raise InvalidTomlError("invalid TOML: nested too deeply") from None
    except ValueError:  # the limit of Python for the digits of an integer
        raise InvalidTomlError("invalid TOML: a number has too many digits") from None


def line_of(content: str, is_there: Callable[[Mapping[str, object]], bool]) -> int:
    """Return the line, from 1, of the first statement after which the document so far has something; the last line if it never has.

    A statement ends where the lines so far are valid TOML.
    """
    lines = content.removesuffix("\n").split("\n")
    begin = 1
    for end in range(1, len(lines) + 1):
        try:
            document = tomllib.loads("\n".join(lines[:end]))
        except tomllib.TOMLDecodeError:  # within a value of several lines
            continue
        if is_there(document):
            return begin
        begin = end + 1
    return max(1, len(lines))
