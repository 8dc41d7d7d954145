r"""All that is written to the terminal: characters that steer it, reorder text or are invisible are written as escapes.

So are the beginnings of commands that CI systems read from logs: `##[error]` (GitHub, Azure), `##vso[…]` (Azure), `##teamcity[…]`.

The escapes are those of JSON (`\u009b`), so a JSON text stays equal and a command that quotes one can still be pasted.
What the encoding of a stream lacks (`LC_ALL` of another encoding, `PYTHONIOENCODING`) is written as such an escape too.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import sys
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager
from typing import BinaryIO, TextIO

_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]")
"""Characters that Python calls printable but terminals show as nothing."""
_COMMAND = re.compile(r"##(?=\[|vso\[|teamcity\[)", re.IGNORECASE)
"""The beginning of a command that a CI system obeys anywhere in a line of a log."""
_ESCAPED_COMMAND = r"#\u0023"
_LINE_COMMAND = re.compile(r"(?<![^\n])([^\S\n]*+):(?=:)")
"""The beginning of a command that GitHub obeys at the beginning of a line: `::error::`."""
_LAYOUT = "\n\t"
_ENCODING_ERRORS = "harmony_conformance.json_escapes"
"""Name of the error handler of stdout and stderr."""


def escape_invisible(value: str, *, keep: str = "") -> str:
    """Return the text with invisible and steering characters as JSON escapes, except those in `keep`.

    These are C0 and C1 controls, bidi controls, line and paragraph separators, zero-width characters, tags, surrogates,
    and spaces other than U+0020. The second `#` of a command for a CI system is escaped too.
    """
    if "##" in value:
        value = _COMMAND.sub(lambda _: _ESCAPED_COMMAND, value)
    if value.isprintable() and (value.isascii() or not _BLANK.search(value)):  # the usual case
        return value
    if keep:
        return re.sub(f"[^{re.escape(keep)}]+", lambda run: escape_invisible(run[0]), value)
    return "".join(char if _is_visible(char) else _escape(char) for char in value)


def escape_line_commands(value: str) -> str:
    """Return lines with `::` as the first characters of one escaped, so that GitHub reads no command in it."""
    return _LINE_COMMAND.sub(r"\1\\u003a", value) if "::" in value else value


def line_beginning(value: str) -> str:
    """Return what decides whether more text makes a command of the last line: its blanks, or its first sign."""
    line = value.rpartition("\n")[2]
    return line.strip()[:1] or line[-1:]


def _is_visible(char: str) -> bool:
    return char.isprintable() and not _BLANK.match(char)


def _escape(char: str) -> str:
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]


class EscapingStream(io.TextIOBase):
    """A text stream that escapes what it passes on, except line breaks and tabs. No line of it is a command for a CI system.

    State: the beginning of the current line. `file` is the stream behind it, for writers that escape foreign text themselves and then add colours.
    """

    def __init__(self, file: TextIO) -> None:
        self.file = file
        self._line = ""

    def write(self, text: str) -> int:
        """Write the escaped text and return the length of the text."""
        shown = escape_line_commands(self._line + escape_invisible(text, keep=_LAYOUT))[len(self._line) :]
        self.file.write(shown)
        self._line = line_beginning(f"{self._line}{shown}")
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        """Write the lines, escaped."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the stream behind it."""
        self.file.flush()

    def isatty(self) -> bool:
        """Return True for a terminal."""
        return self.file.isatty()

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self.file.fileno()

    def writable(self) -> bool:
        """Return True."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream behind it."""
        return self.file.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """The error handler of the stream behind it."""
        return self.file.errors


@contextmanager
def escaped_output() -> Generator[None]:
    """Escape everything that is printed to stdout and stderr, and what their encodings lack."""
    before = sys.stdout, sys.stderr
    with ExitStack() as stack:
        for stream in before:
            stack.enter_context(_encodable(stream))
        sys.stdout, sys.stderr = (_escaping(stream) for stream in before)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before


@contextmanager
def _encodable(stream: TextIO) -> Generator[None]:
    """Let a stream of a file write JSON escapes for the characters that its encoding lacks."""
    if not isinstance(stream, io.TextIOWrapper):
        yield
        return
    errors = stream.errors
    stream.reconfigure(errors=_ENCODING_ERRORS)
    try:
        yield
    finally:
        if not stream.closed:
            stream.reconfigure(errors=errors)


def _json_escapes(problem: UnicodeError) -> tuple[str, int]:
    """Return the escapes of what cannot be encoded, and where the encoding continues: an error handler of `codecs`."""
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    return json.dumps(problem.object[problem.start : problem.end])[1:-1], problem.end


codecs.register_error(_ENCODING_ERRORS, _json_escapes)


def _escaping(stream: TextIO) -> TextIO:
    return stream if stream is None or isinstance(stream, EscapingStream) else EscapingStream(stream)  # type: ignore[return-value]


def print_commands(value: str, stream: TextIO) -> None:
    """Print lines that are commands for GitHub, and whose foreign texts are escaped."""
    file = unescaped(stream)
    file.write(escape_invisible(f"{value}\n", keep=_LAYOUT))
    file.flush()


def print_document(value: str) -> None:
    """Print a document: escaped, and as UTF-8 if it goes into a file or a pipe."""
    sys.stdout.flush()
    shown = escape_line_commands(escape_invisible(f"{value}\n", keep=_LAYOUT))
    file = unescaped(sys.stdout)
    bytes_of_file: BinaryIO | None = None if file.isatty() else getattr(file, "buffer", None)
    if bytes_of_file is None:
        file.write(shown)
    else:
        bytes_of_file.write(shown.encode())
    file.flush()


def unescaped(stream: TextIO) -> TextIO:
    """Return the stream behind an escaping one, for a writer that escapes foreign text itself."""
    return stream.file if isinstance(stream, EscapingStream) else stream
