"""Lines that a running proxy prints."""

from __future__ import annotations

import sys

from harmony_conformance.runtime.terminal_text import escape_invisible


def print_line(line: str) -> None:
    """Print a line, with invisible characters as escapes, and flush it."""
    sys.stdout.write(escape_invisible(line) + "\n")
    sys.stdout.flush()


def announce(host: str, port: int, upstream: str) -> None:
    """Print the address of the proxy, which listens from now on."""
    print_line(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}, forwarding to {upstream}")
