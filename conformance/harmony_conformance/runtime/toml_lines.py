"""Lines of a TOML file, for messages. The standard library reads values without their places."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping


def line_of(content: str, is_there: Callable[[Mapping[str, object]], bool]) -> int:
    """Return the line, from 1, of the first statement after which the document so far has something; the last line if it never has.

    A statement ends where the lines so far are valid TOML.
    """
    lines = content.splitlines()
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
