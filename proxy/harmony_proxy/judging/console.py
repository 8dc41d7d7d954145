"""Lines that a running proxy prints."""

from __future__ import annotations

import sys


def print_line(line: str) -> None:
    """Print a line and flush it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def announce(host: str, port: int, upstream: str) -> None:
    """Print the address of the proxy, which listens from now on."""
    print_line(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}, forwarding to {upstream}")
