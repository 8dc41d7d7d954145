"""The files of an audit, and how each begins, so that no other command overwrites them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

AUDIT, JOURNAL, PAGE = "audit.jsonl", "journal.jsonl", "report.html"
_BEGIN = 65536
_TEXT = rb'"(?:[^"\\]|\\.)*"'
MARKS: Mapping[str, re.Pattern[bytes]] = MappingProxyType(
    {
        AUDIT: re.compile(rb'\{"kind":"header","version":' + _TEXT + rb',"source":"audit",'),
        JOURNAL: re.compile(rb'\{"version":' + _TEXT + rb',"files":\['),
        "failures.jsonl": re.compile(rb'\{"exchange":' + _TEXT + rb',"check":'),
        PAGE: re.compile(rb'(?s).{,600}<meta name="generator" content="harmony-conformance audit">'),
        "unreadable.jsonl": re.compile(rb'\{"file":' + _TEXT + rb',"offset":'),
    }
)
"""The files of an audit, with the beginning that identifies each."""


def is_of_audit(path: Path) -> bool:
    """Return True for a file of an audit that begins like one.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        return MARKS[path.name].match(file.read(_BEGIN)) is not None


def find_audit_file(folder: Path) -> str:
    """Return the name of a file of an audit in a folder, or an empty text.

    Raises:
        OSError: A file cannot be read.
    """
    return next((name for name in MARKS if (folder / name).is_file() and is_of_audit(folder / name)), "")
