"""`harmony-conformance serve`: run the reference server, optionally with defects."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace

from harmony_conformance.errors import Exit, UsageError, listen_error
from harmony_conformance.reference_server.defects import DEFECTS, SURFACE_DEFECTS
from harmony_conformance.reference_server.server.serving import serve

_HIGHEST = 65535
_SLOWEST = 10_000
_DIGITS = len(str(_HIGHEST))


def configure(parser: ArgumentParser) -> None:
    """Add the options of `serve`."""
    parser.add_argument("--host", default="127.0.0.1", metavar="H", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=_port, default=8000, metavar="P", help="port (default: 8000; 0: any free port)")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="answer requests for this host too (repeatable)",
    )
    parser.add_argument("--defect", action="append", default=[], metavar="ID", help="enable this defect (repeatable)")
    parser.add_argument(
        "--tpot", type=_milliseconds, default=0.0, metavar="MS", help="time per output token in ms (default: 0)"
    )
    parser.add_argument("--list-defects", action="store_true", help="list the defects and exit")


def execute(arguments: Namespace) -> int:
    """Serve until stopped."""
    if arguments.list_defects:
        for defect in (*DEFECTS.values(), *SURFACE_DEFECTS.values()):
            print(f"{defect.id}  ({', '.join(defect.catalogue) or 'no catalogue id'})  {defect.summary}")
        return Exit.CONFORMS
    unknown = [defect for defect in arguments.defect if defect not in DEFECTS and defect not in SURFACE_DEFECTS]
    if unknown:
        raise UsageError(f"invalid --defect: expected an id of --list-defects, got {unknown[0]!r}")
    try:
        serve(arguments.host, arguments.port, arguments.defect, arguments.allow_host, arguments.tpot / 1000)
    except OSError as problem:
        raise listen_error(arguments.host, arguments.port, problem) from None
    return Exit.CONFORMS


def _milliseconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _SLOWEST:
        raise ArgumentTypeError(f"expected milliseconds from 0 to {_SLOWEST}, got {text!r}")
    return value


def _port(text: str) -> int:
    digits = text.lstrip("0") or "0"
    if not text.isascii() or not text.isdigit() or len(digits) > _DIGITS or int(digits) > _HIGHEST:
        raise ArgumentTypeError(f"expected a port from 0 to {_HIGHEST}, got {text!r}")
    return int(digits)
