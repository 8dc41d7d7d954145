"""Tracks one text of a streamed answer: whether it can be emitted, has to wait, or must be judged."""

from __future__ import annotations

import json
import re
from enum import Enum

from harmony_proxy.repair.text.leak_prefixes import (
    BEGINS_GLUED,
    CALL_SEAM,
    MARKER,
    OPENING,
    SEAM,
    SEAM_COMPLETE,
    TAG,
    is_seam,
    may_be_header,
    unfinished_call,
    unfinished_marker,
    unfinished_seam,
)
from harmony_proxy.repair.text.leaked_text_parser import LeakedTextParser

_CONTEXT = 64
_IN_A_HEADER = re.compile(r"(?:\s?\w[^<\n]{0,80})?(?:<\|?\w*\|?)?")
_WINDOW = 200
"""Number of earlier characters that are searched together with new ones."""
_TAIL = 12
_RISKY = re.compile(
    r"[<&\\]|assistant|commentary|(?:(?<=[.!?\u2026\u3002\uff01\uff1f)}*`\]\"'\u201d\n])|(?<=[.!?] ))(?:"
    + "|".join("assistant"[:length] for length in range(8, 0, -1))
    + r")\Z"
)
"""Characters that may be part of a leak; a text without them passes without further search."""
_NAMELESS = re.compile(r"assistant(?:json|code)\{")
_MARKED = ("<", "\\", "&")


class Status(Enum):
    """Content of a text that was not emitted yet: no leak, a possible beginning of a leak, or a candidate that the checks must judge."""

    CLEAR = 0
    OPEN = 1
    READY = 2


class TextTracker:
    """Tracks one text.

    Attributes:
        emitted_tail: End of the emitted text.
        pending: Text that was not emitted yet.
        parser: Parser of the text once it leaks.
        is_ignored: True if the text is no longer examined.
    """

    def __init__(self) -> None:
        self.emitted_tail = ""
        self.pending = ""
        self.parser: LeakedTextParser | None = None
        self.is_ignored = False
        self._examined = 0
        self._is_ready = False

    @property
    def is_start(self) -> bool:
        """True if nothing was emitted yet."""
        return not self.emitted_tail.strip()

    @property
    def is_resolved(self) -> bool:
        """True if the text is rewritten, or no longer examined."""
        return self.parser is not None or self.is_ignored

    @property
    def is_glued(self) -> bool:
        """True if the text begins like one whose special tokens were skipped, and has a second header."""
        text = self.pending.lstrip()
        is_match = self.is_start and BEGINS_GLUED.match(text) is not None
        return is_match and any(one.search(text) is not None for one in (SEAM, CALL_SEAM))

    def add(self, text: str) -> None:
        """Add text that was not emitted yet."""
        if not self.is_resolved:
            self.pending += text

    def pass_if_safe(self, text: str) -> bool:
        """Return True if the text can be emitted at once without being searched again. It then counts as emitted."""
        if self.is_ignored:
            return True
        end = self.emitted_tail[-_TAIL:] + text
        if self.pending or self.parser is not None or self.is_start or _RISKY.search(end) is not None:
            return False
        self.emitted_tail = end[-_CONTEXT:] if len(text) >= _CONTEXT else (self.emitted_tail + text)[-_CONTEXT:]
        return True

    def mark_emitted(self) -> None:
        """Record that all text was emitted."""
        self.emitted_tail = (self.emitted_tail + self.pending)[-_CONTEXT:]
        self.pending = ""
        self._examined, self._is_ready = 0, False

    def status(self) -> Status:
        """Return the status of the text that was not emitted yet."""
        if self.is_resolved or not self.pending.strip():
            return Status.CLEAR
        if self._is_ready:
            return Status.READY
        new = self.pending[max(0, self._examined - _WINDOW) :]
        self._examined = len(self.pending)
        at_start = self._status_of_start(new)
        status = at_start if at_start is Status.READY else self._status_of_middle(new)
        status = at_start if status is Status.CLEAR else status
        self._is_ready = status is Status.READY
        return status

    @property
    def can_become_leak(self) -> bool:
        """True if the text may still become a leak: a header is incomplete, or a marker at the end may begin one."""
        end = self.pending[-_WINDOW:]
        if self._status_of_start(end) is Status.OPEN:
            return True
        partial = (unfinished_marker(end), unfinished_seam(end, self.emitted_tail), unfinished_call(end))
        if any(one is not None for one in partial):
            return True
        markers = list(MARKER.finditer(end))
        suffix = end[markers[-1].end() :] if markers else end
        if markers and markers[-1]["marker"] in OPENING:
            return _IN_A_HEADER.fullmatch(suffix) is not None
        return bool(markers) and not suffix.strip()

    def _status_of_start(self, new: str) -> Status:
        """Return the status that follows from the beginning of the text."""
        if not self.is_start:
            return Status.CLEAR
        text = self.pending.lstrip()
        if (tagged := TAG.match(text)) is not None:
            return Status.READY if f"</{tagged['tag']}>" in new else Status.OPEN
        if may_be_header(text):
            return Status.OPEN
        if CALL_SEAM.match(text) is not None or _NAMELESS.match(text) is not None:
            return Status.READY
        if BEGINS_GLUED.match(text) is None:
            return Status.CLEAR
        return Status.READY if any(one.search(new) for one in (SEAM, CALL_SEAM)) else Status.OPEN

    def _status_of_middle(self, new: str) -> Status:
        if any(first in new for first in _MARKED):
            if MARKER.search(new) is not None:
                return Status.READY
            if unfinished_marker(new) is not None:
                return Status.OPEN
        if unfinished_seam(new, self.emitted_tail) is not None or unfinished_call(new) is not None:
            return Status.OPEN
        headers = SEAM_COMPLETE.finditer(new)
        if (
            any(is_seam(new, self.emitted_tail, match.start()) for match in headers)
            or CALL_SEAM.search(new) is not None
        ):
            return Status.READY
        return Status.CLEAR


class ArgumentsTracker(TextTracker):
    """Tracks the arguments of a call. Only a marker after their JSON is a leak. Stores all arguments, and whether they are truncated there."""

    def __init__(self) -> None:
        super().__init__()
        self.is_truncated = False
        self._is_over = False
        self._pieces: list[str] = []

    def pass_if_safe(self, text: str) -> bool:
        """Return True if the text can be emitted at once."""
        if self.pending or self.is_truncated or any(first in text for first in _MARKED):
            return False
        self._pieces.append(text)
        return True

    def add(self, text: str) -> None:
        """Add arguments that were not emitted yet."""
        super().add(text)
        self._pieces.append(text)

    def truncate(self, text: str) -> str:
        """Return the next fragment, truncated after the JSON of the arguments if these are truncated."""
        if not self.is_truncated:
            return text
        if self._is_over:
            return ""
        match = MARKER.search(text)
        start = match.start() if match is not None else unfinished_marker(text)
        self._is_over = start is not None
        return text[:start]

    def status(self) -> Status:
        """Return the status of the arguments that were not emitted yet."""
        if self.is_truncated or self.is_ignored or not any(first in self.pending for first in _MARKED):
            return Status.CLEAR
        marker = MARKER.search(self.pending)
        start = marker.start() if marker is not None else unfinished_marker(self.pending)
        if start is None:
            return Status.CLEAR
        whole = "".join(self._pieces)
        if not _is_complete_json(whole[: len(whole) - len(self.pending) + start]):
            return Status.CLEAR
        return Status.READY if marker is not None else Status.OPEN

    @property
    def can_become_leak(self) -> bool:
        """True if the arguments may still become a leak."""
        return self.status() is Status.OPEN


def _is_complete_json(arguments: str) -> bool:
    if not arguments.rstrip().endswith(("}", "]")):
        return False
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True
