"""The tokens of a message's content → text, as they come.

A token may hold a part of a character, so text can lag behind the tokens. The rules are those of openai-harmony 0.0.8
(encoding.rs:1118-1315), its losses included:

- invalid bytes become U+FFFD, at most one per token: what follows them in the same token waits for the next one;
- an id outside the vocabulary makes it and everything after it one U+FFFD, which appears at the end.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from harmony_ref.errors import UnknownTokenError
from harmony_ref.tokenizer import tokens

_REPLACEMENT: Final = "\ufffd"
_WINDOW: Final = 256
"""Bytes looked at first; doubled while they are valid, so that waiting bytes are not read again for every token."""


class TokenTexts(dict[int, str]):
    """The text of each token that is whole UTF-8 and does not end a message; "" for every other id.

    Such a token, where no bytes are waiting, is its text and nothing else: one look-up instead of the rules above.
    `table` holds what is known so far: a plain dict is read faster than one with a `__missing__`.
    """

    __slots__ = ("table",)

    def __init__(self) -> None:
        super().__init__()
        self.table: dict[int, str] = {}

    def __missing__(self, token: int) -> str:
        if token in tokens.STOP_TOKENS:
            text = ""
        else:
            try:
                text = tokens.TOKEN_BYTES[token].decode("utf-8")
            except UnicodeDecodeError:
                text = ""
            except UnknownTokenError:
                # Not remembered: there is no end of unknown ids.
                return ""
        self[token] = self.table[token] = text
        return text


class NoText(TokenTexts):
    """The same table where no token may be taken for its text: in a header, or while bytes are waiting."""

    def __missing__(self, token: int) -> str:
        return ""


PLAIN_TEXT: Final = TokenTexts()
"""The shared table; it fills as it is used."""

NO_TEXT: Final = NoText()
"""Stays empty."""


class ContentDecoder:
    """Decodes the content of one message."""

    __slots__ = ("_lost", "_waiting")

    def __init__(self) -> None:
        self._waiting = bytearray()
        self._lost = False

    @property
    def is_clear(self) -> bool:
        """Whether nothing that came before bears on the next token."""
        return not self._waiting and not self._lost

    def push(self, token: int) -> str:
        """The text that this token completes; may be empty."""
        text, replacement = self.push_apart(token)
        return text + replacement

    def push_apart(self, token: int) -> tuple[str, str]:
        """As `push`: the valid text, and then U+FFFD if bytes after it are invalid."""
        if self._lost:
            return "", ""
        try:
            data = tokens.TOKEN_BYTES[token]
        except UnknownTokenError:
            self._lost = True
            return "", ""
        if not self._waiting:
            try:
                return data.decode("utf-8"), ""
            except UnicodeDecodeError:
                pass
        self._waiting += data
        return self._take()

    def push_run(self, run: Sequence[int]) -> str:
        """The text that these tokens complete: what `push` returns for each of them, joined."""
        if self._lost or not run:
            return ""
        try:
            data = bytes(self._waiting) + tokens.decode_bytes(run)
            text = data.decode("utf-8")
        except UnknownTokenError:
            return "".join(map(self.push, run))
        except UnicodeDecodeError as error:
            if not _ends_early(error):
                return "".join(map(self.push, run))
            text = error.object[: error.start].decode("utf-8")
            self._waiting = bytearray(error.object[error.start :])
            return text
        self._waiting.clear()
        return text

    def flush(self) -> str:
        """What is left when the message ends; never part of the library's deltas."""
        rest = self._waiting.decode("utf-8", "replace")
        return _REPLACEMENT + rest if self._lost else rest

    def _take(self) -> tuple[str, str]:
        """The waiting text up to the first invalid byte or unfinished character."""
        waiting = self._waiting
        taken: list[str] = []
        window = _WINDOW
        while waiting:
            head = bytes(waiting[:window])
            try:
                taken.append(head.decode("utf-8"))
                del waiting[: len(head)]
            except UnicodeDecodeError as error:
                taken.append(head[: error.start].decode("utf-8"))
                if not _ends_early(error):
                    del waiting[: error.end]
                    return "".join(taken), _REPLACEMENT
                del waiting[: error.start]
                if len(head) < window:
                    break
            window *= 2
        return "".join(taken), ""


class ContentTokens:
    """The library's `content_tokens`: not the ids that were fed, but those of the text that each of them completed.

    Brought up to date when asked, so that asking after every token takes linear time in total.
    """

    __slots__ = ("_decoder", "_read", "ids")

    def __init__(self, start: int) -> None:
        """Begin at this index of all tokens."""
        self._decoder = ContentDecoder()
        self._read = start
        self.ids: list[int] = []
        """Only ever appended to."""

    def read(self, run: list[int]) -> None:
        """Read what was appended to the tokens since the last time."""
        for token in run[self._read :]:
            for piece in self._decoder.push_apart(token):
                self.ids += _spelled(piece) if len(piece) < _WINDOW else tokens.encode(piece)
        self._read = len(run)


@lru_cache(maxsize=4096)
def _spelled(piece: str) -> tuple[int, ...]:
    return tuple(tokens.encode(piece))


def _ends_early(error: UnicodeDecodeError) -> bool:
    """Whether the bytes stop inside a character, rather than being invalid."""
    return error.reason == "unexpected end of data"
