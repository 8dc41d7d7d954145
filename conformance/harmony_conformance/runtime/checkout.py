"""The commit of a checkout or of its archive, read from its files: git is not needed. The build of the wheel runs this file alone."""

from __future__ import annotations

import re
from pathlib import Path

_HEX = re.compile(r"[0-9a-f]{40,64}")
_ARCHIVED = re.compile(r"^node: ([0-9a-f]{40,64})$", re.MULTILINE)
COMMIT_FILE = "_commit.txt"
"""File of the package that has the commit of a build. It is empty in a release."""
UNKNOWN = "unknown"
"""The commit of a build of sources that do not have it."""


def commit_of(root: Path) -> str:
    """Return the commit of the sources in this folder: empty for the sdist of a release, UNKNOWN if they do not have it."""
    written = _text(root / COMMIT_FILE)
    if written is not None:  # an unpacked sdist
        return written.strip()
    archived = _ARCHIVED.search(_text(root / ".git_archival.txt") or "")
    return archived[1] if archived is not None else _checked_out(root / ".git") or UNKNOWN


def _checked_out(git: Path) -> str:
    linked = _text(git)
    if linked is not None:  # a further worktree, or a submodule
        git = git.parent / linked.removeprefix("gitdir: ").strip()
    head = (_text(git / "HEAD") or "").strip()
    if head.startswith("ref: "):
        shared = git / (_text(git / "commondir") or ".").strip()
        name = head.removeprefix("ref: ")
        head = (_text(shared / name) or _packed(shared, name)).strip()
    return head if _HEX.fullmatch(head) else ""


def _packed(git: Path, name: str) -> str:
    lines = (_text(git / "packed-refs") or "").splitlines()
    return next((line.partition(" ")[0] for line in lines if line.endswith(f" {name}")), "")


def _text(file: Path) -> str | None:
    try:
        return file.read_text("utf-8")
    except (OSError, ValueError):
        return None
