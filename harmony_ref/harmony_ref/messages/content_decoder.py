"""Incremental decoding of the tokens of a message's content.

A token may end inside a character, so text can lag behind the tokens. The rules are those of openai-harmony 0.0.8
(encoding.rs:1118-1315), including its losses:

- Invalid bytes become U+FFFD, at most one per token; the bytes after them wait for the next token.
- An id outside the vocabulary makes it and everything after it one U+FFFD, which appears at the end.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from harmony_ref.errors import UnknownTokenError
from harmony_ref.tokenizer import tokens

_REPLACEMENT: Final = "\ufffd"
_WINDOW: Final = 256
"""Bytes decoded first; doubled while they are valid, so that pending bytes are not decoded again for every token."""


class TokenTexts(dict[int, str]):
    """The text of each token that is whole UTF-8 and does not end a message; "" for every other id.

    Without pending bytes, such a token is decoded by one look-up instead of the rules above. `table` holds the entries
    so far, because reading a plain dict is faster than one with a `__missing__`.
    """

    __slots__ = ("table",)

    def __init__(self) -> None:
        super().__init__()
        self.table: dict[int, str] = {}

    def __missing__(self, token: int) -> str:
        try:
            text = "" if token in tokens.STOP_TOKENS else tokens.TOKEN_BYTES[token].decode("utf-8")
        except UnicodeDecodeError:
            text = ""
        except UnknownTokenError:
            return ""  # not stored, because the number of unknown ids is unlimited
        self[token] = self.table[token] = text
        return text


class NoText(TokenTexts):
    """An empty table, for headers and for pending bytes, where a token must not be decoded by itself."""

    def __missing__(self, token: int) -> str:
        return ""


PLAIN_TEXT: Final = TokenTexts()
"""The shared table; it is filled on use."""

NO_TEXT: Final = NoText()


class ContentDecoder:
    """Decodes the content of one message."""

    __slots__ = ("_has_unknown_id", "_pending")

    def __init__(self) -> None:
        self._pending = bytearray()
        self._has_unknown_id = False

    @property
    def is_clear(self) -> bool:
        """True if earlier tokens do not influence the decoding of the next one."""
        return not self._pending and not self._has_unknown_id

    def push(self, token: int) -> str:
        """Return the text that this token completes; may be empty."""
        text, replacement = self.push_apart(token)
        return text + replacement

    def push_apart(self, token: int) -> tuple[str, str]:
        """Return the result of `push` in two parts: the valid text, and U+FFFD if bytes after it are invalid."""
        if self._has_unknown_id:
            return "", ""
        try:
            data = tokens.TOKEN_BYTES[token]
        except UnknownTokenError:
            self._has_unknown_id = True
            return "", ""
        if not self._pending:
            try:
                return data.decode("utf-8"), ""
            except UnicodeDecodeError:
                pass
        self._pending += data
        return self._decode_pending()

    def push_run(self, run: Sequence[int]) -> str:
        """Return the text that these tokens complete: the results of `push` for each of them, joined."""
        if self._has_unknown_id or not run:
            return ""
        try:
            data = bytes(self._pending) + tokens.decode_bytes(run)
            text = data.decode("utf-8")
        except UnknownTokenError:
            return "".join(map(self.push, run))
        except UnicodeDecodeError as error:
            if not _ends_early(error):
                return "".join(map(self.push, run))
            text = error.object[: error.start].decode("utf-8")
            self._pending = bytearray(error.object[error.start :])
            return text
        self._pending.clear()
        return text

    def flush(self) -> str:
        """Return the text left when the message ends; it is never part of the library's deltas."""
        return (_REPLACEMENT if self._has_unknown_id else "") + self._pending.decode("utf-8", "replace")

    def _decode_pending(self) -> tuple[str, str]:
        """Decode the pending bytes up to the first invalid byte or unfinished character."""
        pending = self._pending
        texts: list[str] = []
        window = _WINDOW
        while pending:
            head = bytes(pending[:window])
            try:
                texts.append(head.decode("utf-8"))
                del pending[: len(head)]
            except UnicodeDecodeError as error:
                texts.append(head[: error.start].decode("utf-8"))
                if not _ends_early(error):
                    del pending[: error.end]
                    return "".join(texts), _REPLACEMENT
                del pending[: error.start]
                if len(head) < window:
                    break
            window *= 2
        return "".join(texts), ""


class ContentTokens:
    """The library's `content_tokens`: the ids of the text that each token completed, not the tokens themselves.

    They are updated on demand, so that reading them after every token takes linear time in total.
    """

    __slots__ = ("_decoder", "_read", "ids")

    def __init__(self, start: int) -> None:
        """Begin at this index of all tokens."""
        self._decoder = ContentDecoder()
        self._read = start
        self.ids: list[int] = []
        """Only ever appended to."""

    def read(self, run: list[int]) -> None:
        """Read the tokens appended since the last call."""
        for token in run[self._read :]:
            for piece in self._decoder.push_apart(token):
                self.ids += _encode_piece(piece) if len(piece) < _WINDOW else tokens.encode(piece)
        self._read = len(run)


@lru_cache(maxsize=4096)
def _encode_piece(piece: str) -> tuple[int, ...]:
    return tuple(tokens.encode(piece))


def _ends_early(error: UnicodeDecodeError) -> bool:
    """Return True if the bytes end inside a character, False if they are invalid."""
    return error.reason == "unexpected end of data"
