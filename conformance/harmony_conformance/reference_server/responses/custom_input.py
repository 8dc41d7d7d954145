"""The input of a custom tool, read from the model's call while it is written."""

import json
import re

_HEAD = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_UNITS = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\["\\/bfnrt])*'
)
_LONGEST_HEAD = 64
"""Maximum characters before the text; more of them are no head."""


class InputReader:
    """Extracts the text of `{"input": "…"}`. Any other text is the input itself, as the model wrote it."""

    def __init__(self) -> None:
        self._pending = ""
        self._is_wrapped: bool | None = None  # None: still unknown
        self._is_closed = False

    def read(self, piece: str) -> str:
        """Return the next part of the input, which may be empty."""
        self._pending += piece
        if self._is_wrapped is None:
            if head := _HEAD.match(self._pending):
                self._is_wrapped, self._pending = True, self._pending[head.end() :]
            elif not _may_become_head(self._pending):
                self._is_wrapped = False
        if self._is_wrapped is None:
            return ""
        if not self._is_wrapped:
            return self._take(len(self._pending))
        return self._unescaped()

    def rest(self) -> str:
        """Return what is left at the end of the call: text that might have become a head, or an escape that is cut."""
        return "" if self._is_closed else self._take(len(self._pending))

    def _unescaped(self) -> str:
        if self._is_closed:
            return ""
        units = _UNITS.match(self._pending)
        written = self._take(units.end() if units else 0)
        text = json.loads(f'"{written}"', strict=False)
        if self._pending.startswith('"'):
            self._is_closed = True
        elif self._pending.startswith("\\") and len(self._pending) >= len("\\ud83d\\ude00"):
            text += self._take(1) + self._unescaped()  # no escape of JSON: its characters are text
        return str(text)

    def _take(self, length: int) -> str:
        taken, self._pending = self._pending[:length], self._pending[length:]
        return taken


def _may_become_head(text: str) -> bool:
    bare = "".join(text.split())
    return len(text) < _LONGEST_HEAD and '{"input":"'.startswith(bare)
