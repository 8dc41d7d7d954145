"""`harmony-conformance serve`: run the reference server, optionally with defects."""

from __future__ import annotations

from argparse import Namespace

from harmony_conformance.errors import Exit, UsageError, listen_error
from harmony_conformance.reference_server.defects import DEFECTS, SURFACE_DEFECTS
from harmony_conformance.reference_server.server.serving import serve


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
