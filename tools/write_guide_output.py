"""Write the output of commands into the guides: what a reader sees who follows a page from its first line.

    python tools/write_guide_output.py [--check] [PAGE …]

A shell block of a page is played if a comment follows it. Without PAGE, these are README.md, CONTRIBUTING.md and the pages of docs/.

    <!-- output -->                           the text block below has the whole output
    <!-- output: first 9, last 2 lines -->    it has these lines, and `…` for the others
    <!-- output: none -->                     the block prints nothing, and no text block follows
    <!-- output: figures vary -->             measured figures: the text stays as long as only its numbers differ
    <!-- environment: FOLDER -->              of the page: the commands of this environment come first, if it exists

All blocks of a page share one shell. Their folder is a checkout without files, but for links to the folders `examples`
and `reports`. Ports of the page become free ones while its blocks are played. With `--check`, nothing is written: exit code 1 names a page that is not current.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import unified_diff
from pathlib import Path
from random import sample
from shutil import which
from tempfile import NamedTemporaryFile, TemporaryDirectory

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(
    r"^```sh\n(?P<commands>(?:(?!^```).*\n)*)```\n\n"
    r"<!-- output(?:: (?P<shown>[^>]*))? -->\n(?P<text>```text\n(?:(?!^```).*\n)*```\n)?",
    re.MULTILINE,
)
_ENVIRONMENT = re.compile(r"^<!-- environment: (\S+) -->$", re.MULTILINE)
_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d{5}|(?<=--port )\d{5}")
_LISTENS = re.compile(
    r"^harmony-conformance (?:serve|proxy) [^\n]*(?:--port |--listen 127\.0\.0\.1:)(\d{5})", re.MULTILINE
)
_LINES = re.compile(r"(first|last) (\d+)")
_PROGRESS = re.compile(r"^\d+ of \d+ requests.*\n", re.MULTILINE)
"""Lines that only a slow machine prints."""
_MEASURED = "figures vary"
_FIGURE = re.compile(r"[\d.]+ \([\d.?]+ to [\d.?]+\)|(?<= )-(?= )|[\d.]+")
_COLUMNS = "120"
_LINKED = ("examples", "reports")
_WIDEST = 200
_BEGIN = "---- the next block ----"
_PORTS = range(20_000, 32_000)
_SECONDS = 900  # a machine that does other work
_FUNCTIONS = """
begin_block() { printf '\\n%s\\n' "$BEGIN"; from=$(wc -c < "$PRINTED"); }
reachable() { (exec 3<> "/dev/tcp/127.0.0.1/$1") 2> /dev/null; }
announced() { tail -c "+$((from + 1))" "$PRINTED" | grep -q "127.0.0.1:$1"; }
until_it_listens() { for ((i = 0; i < 600; i++)); do reachable "$1" && announced "$1" && return; sleep 0.1; done; }
"""


class GuideError(RuntimeError):
    """A block cannot be played, or its comment is invalid."""


class MissingEnvironmentError(GuideError):
    """The environment of a page is missing. Where no page is named, the page stays as it is."""


def written(text: str) -> str:
    """Return a page with the current output of its blocks."""
    blocks = [*_BLOCK.finditer(text)]
    outputs = iter(play([block["commands"] for block in blocks], environment_of(text)) if blocks else ())

    def fill(block: re.Match[str]) -> str:
        output, shown = next(outputs), block["shown"] or ""
        head = block[0].removesuffix(block["text"] or "")
        if shown != "none":
            filled = f"```text\n{_shorten(output, shown.removeprefix(_MEASURED))}```\n"
            same = shown.startswith(_MEASURED) and _form(filled) == _form(block["text"] or "")
            return block[0] if same else f"{head}{filled}"
        if output:
            raise GuideError(f"expected no output of {block['commands']!r}, got {output!r}")
        return head

    return _BLOCK.sub(fill, text)


def environment_of(text: str) -> Path:
    """Return the folder of the environment whose commands a page calls: by default that of this program."""
    named = _ENVIRONMENT.search(text)
    return ROOT / named[1] if named is not None else Path(sys.executable).parents[1]


def play(blocks: Sequence[str], environment: Path) -> list[str]:
    """Run the blocks one after the other in one shell, and return what each printed."""
    if not (environment / "bin" / "python").exists():
        raise MissingEnvironmentError(f"expected the environment {environment}, got none: `make environments` makes it")
    with TemporaryDirectory(prefix="guide-") as folder, NamedTemporaryFile() as printed:
        ports = _free_ports({port for block in blocks for port in _PORT.findall(block)})
        for name in _LINKED:
            (Path(folder) / name).symlink_to(ROOT / name)
        parts = [_FUNCTIONS]
        for block in blocks:
            commands = _PORT.sub(lambda port: ports[port[0]], block)
            parts.append(f"begin_block\n{commands}")
            parts += (f"until_it_listens {port}\n" for port in _LISTENS.findall(commands))
        with subprocess.Popen(  # noqa: S603 - the commands of the pages of this repository
            [which("bash") or "bash", "-c", "".join(parts)],
            cwd=folder,
            env={**_environment(folder, environment / "bin"), "BEGIN": _BEGIN, "PRINTED": printed.name},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as shell:
            try:
                shell.wait(_SECONDS)
            except subprocess.TimeoutExpired as problem:
                raise GuideError(f"expected the commands to end within {_SECONDS} s, got no end") from problem
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)  # the servers of the page too
        printed.seek(0)
        _, *outputs = printed.read().decode().split(f"\n{_BEGIN}\n")
        if len(outputs) != len(blocks):
            raise GuideError(f"expected the output of {len(blocks)} blocks, got {len(outputs)}: {outputs[-1:]}")
        return [_steady(output, ports) for output in outputs]


def _environment(home: str, commands: Path) -> Mapping[str, str]:
    """Return the variables of the shell: nothing of a CI system, whose runs print annotations too."""
    return {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "HOME": home,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "COLUMNS": _COLUMNS,
        "PYTHONUNBUFFERED": "1",  # standard output and standard error stay in the order of a terminal
    }


def _free_ports(names: set[str]) -> Mapping[str, str]:
    """Return a free port for each port of a page: one that the system gives to no connection, since a server may bind it twice."""
    ports = iter(sample(_PORTS, len(_PORTS)))
    return {name: str(next(port for port in ports if _is_free(port))) for name in sorted(names)}


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


def _steady(output: str, ports: Mapping[str, str]) -> str:
    """Return an output without what differs each time."""
    for name, free in ports.items():
        output = output.replace(free, name)
    return _PROGRESS.sub("", output)


def _form(text: str) -> str:
    """Return a text without its figures, and without the blanks that they move."""
    return " ".join(_FIGURE.sub("0", text).split())


def _shorten(output: str, shown: str) -> str:
    """Return the lines that a comment asks for, without blanks at their ends. The rest of a long line is `…`."""
    lines = [line.rstrip() for line in output.rstrip().splitlines()]
    lines = [line if len(line) <= _WIDEST else f"{line[: _WIDEST - 1]}…" for line in lines]
    kept = {end: int(number) for end, number in _LINES.findall(shown)}
    if shown and not kept:
        raise GuideError(f"invalid comment: expected none, first N or last N lines, got {shown!r}")
    first, last = kept.get("first", 0), kept.get("last", 0)
    if kept and first + last < len(lines):
        lines = [*lines[:first], "…", *lines[len(lines) - last :]]
    return "".join(f"{line}\n" for line in lines)


def pages() -> list[Path]:
    """Return the pages with blocks that are played."""
    every = (page for pattern in ("README.md", "CONTRIBUTING.md", "docs/*.md") for page in sorted(ROOT.glob(pattern)))
    return [page for page in every if _BLOCK.search(page.read_text("utf-8"))]


def main() -> int:
    """Write the pages, or compare them."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE")
    arguments = parser.parse_args()
    stale = 0
    for page in arguments.pages or pages():
        text = page.read_text("utf-8")
        try:
            current = written(text)
        except MissingEnvironmentError as problem:
            if arguments.pages:
                raise SystemExit(f"{page}: {problem}") from None
            sys.stderr.write(f"{page}: skipped: {problem}\n")
            continue
        except GuideError as problem:
            raise SystemExit(f"{page}: {problem}") from None
        if current != text and arguments.check:
            stale += 1
            sys.stderr.write(f"{page} is not current: run `python tools/write_guide_output.py {page}`\n")
            sys.stderr.writelines(unified_diff(text.splitlines(True), current.splitlines(True), "page", "output", n=1))
        elif current != text:
            page.write_text(current, "utf-8")
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main())
