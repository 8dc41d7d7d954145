"""One text of a streamed answer as it grows: whether it can go out, has to wait, or is to be judged."""

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
"""How far back what is new is looked at together with what stands before it."""
_TAIL = 12
_RISKY = re.compile(
    r"[<&\\]|assistant|commentary|(?<=[.!?\u2026\u3002\uff01\uff1f)}*`\]\"'\u201d])(?:"
    + "|".join("assistant"[:length] for length in range(8, 0, -1))
    + r")\Z"
)
"""What may be part of a needle; the rest goes by without another look."""
_NAMELESS = re.compile(r"assistant(?:json|code)\{")
_MARKED = ("<", "\\", "&")


class Status(Enum):
    """What a text that has not gone out yet may hold: nothing, what may become a leak, or what a check has to look at."""

    CLEAR = 0
    OPEN = 1
    READY = 2


class TextTracker:
    """State: the end of what went out, and what did not go out yet, as far as it was looked at."""

    def __init__(self) -> None:
        self.before = ""
        self.unsent = ""
        self.reader: LeakedTextParser | None = None
        self.is_given_up = False
        self._looked_at = 0
        self._is_ready = False

    @property
    def is_start(self) -> bool:
        """Whether nothing went out yet."""
        return not self.before.strip()

    @property
    def is_read(self) -> bool:
        """Whether its text is told anew, or is no longer looked at."""
        return self.reader is not None or self.is_given_up

    @property
    def is_glued(self) -> bool:
        """Whether it begins like a text whose special tokens were skipped, and has a second header."""
        begun = self.unsent.lstrip()
        return (
            self.is_start
            and BEGINS_GLUED.match(begun) is not None
            and any(one.search(begun) is not None for one in (SEAM, CALL_SEAM))
        )

    def add(self, text: str) -> None:
        """More of the text."""
        if not self.is_read:
            self.unsent += text

    def passes(self, text: str) -> bool:
        """Whether this can go out at once, and nothing of it is to be looked at again; it counts as gone then."""
        if self.is_given_up:
            return True
        end = self.before[-_TAIL:] + text
        if self.unsent or self.reader is not None or self.is_start or _RISKY.search(end) is not None:
            return False
        self.before = end[-_CONTEXT:] if len(text) >= _CONTEXT else (self.before + text)[-_CONTEXT:]
        return True

    def settle(self) -> None:
        """All of it went out."""
        self.before = (self.before + self.unsent)[-_CONTEXT:]
        self.unsent = ""
        self._looked_at, self._is_ready = 0, False

    def status(self) -> Status:
        """What it may hold."""
        if self.is_read or not self.unsent.strip():
            return Status.CLEAR
        if self._is_ready:
            return Status.READY
        new = self.unsent[max(0, self._looked_at - _WINDOW) :]
        self._looked_at = len(self.unsent)
        of_start = self._of_start(new)
        status = of_start if of_start is Status.READY else self._of_middle(new)
        status = of_start if status is Status.CLEAR else status
        self._is_ready = status is Status.READY
        return status

    @property
    def goes_on(self) -> bool:
        """Whether what passed so far may still become a leak: a header is not complete, or a marker that may begin one stands at the end."""
        end = self.unsent[-_WINDOW:]
        if self._of_start(end) is Status.OPEN:
            return True
        if any(
            one is not None for one in (unfinished_marker(end), unfinished_seam(end, self.before), unfinished_call(end))
        ):
            return True
        markers = list(MARKER.finditer(end))
        if not markers:
            return False
        last = markers[-1]
        behind = end[last.end() :]
        if last["marker"] in OPENING:
            return _IN_A_HEADER.fullmatch(behind) is not None
        return not behind.strip()

    def _of_start(self, new: str) -> Status:
        """What a text may hold for how it begins."""
        if not self.is_start:
            return Status.CLEAR
        text = self.unsent.lstrip()
        if (tagged := TAG.match(text)) is not None:
            return Status.READY if f"</{tagged['tag']}>" in new else Status.OPEN
        if may_be_header(text):
            return Status.OPEN
        if CALL_SEAM.match(text) is not None or _NAMELESS.match(text) is not None:
            return Status.READY
        if BEGINS_GLUED.match(text) is None:
            return Status.CLEAR
        return Status.READY if any(one.search(new) for one in (SEAM, CALL_SEAM)) else Status.OPEN

    def _of_middle(self, new: str) -> Status:
        if any(first in new for first in _MARKED):
            if MARKER.search(new) is not None:
                return Status.READY
            if unfinished_marker(new) is not None:
                return Status.OPEN
        if any(is_seam(new, self.before, found.start()) for found in SEAM_COMPLETE.finditer(new)):
            return Status.READY
        if CALL_SEAM.search(new) is not None:
            return Status.READY
        is_open = unfinished_seam(new, self.before) is not None or unfinished_call(new) is not None
        return Status.OPEN if is_open else Status.CLEAR


class ArgumentsTracker(TextTracker):
    """The arguments of a call: only a marker behind their JSON is looked for. State: all of them, and whether they are cut there."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False
        self._is_over = False
        self._pieces: list[str] = []

    def passes(self, text: str) -> bool:
        """Whether this can go out at once."""
        if self.unsent or self.is_cut or any(first in text for first in _MARKED):
            return False
        self._pieces.append(text)
        return True

    def add(self, text: str) -> None:
        """More of the arguments."""
        super().add(text)
        self._pieces.append(text)

    def kept(self, text: str) -> str:
        """What is left of the next piece, where they are cut behind their JSON."""
        if not self.is_cut:
            return text
        if self._is_over:
            return ""
        found = MARKER.search(text)
        start = found.start() if found is not None else unfinished_marker(text)
        self._is_over = start is not None
        return text[:start]

    def status(self) -> Status:
        """What they may hold."""
        if self.is_cut or self.is_given_up or not any(first in self.unsent for first in _MARKED):
            return Status.CLEAR
        marker = MARKER.search(self.unsent)
        start = marker.start() if marker is not None else unfinished_marker(self.unsent)
        if start is None:
            return Status.CLEAR
        whole = "".join(self._pieces)
        if not _is_whole(whole[: len(whole) - len(self.unsent) + start]):
            return Status.CLEAR
        return Status.READY if marker is not None else Status.OPEN

    @property
    def goes_on(self) -> bool:
        """Whether a marker may still become one."""
        return self.status() is Status.OPEN


def _is_whole(arguments: str) -> bool:
    if not arguments.rstrip().endswith(("}", "]")):
        return False
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True
