"""A whole completion that is framed as it should be, read at once from its text.

A marker typed in ordinary tokens looks in text like the special token. Where every `<|` of the text comes from a
special token there is no such thing, and the text can be cut at its markers. That leaves one decoding of everything
and a few searches in strings instead of looking at each token.

Whatever is unusual is not decided here: `None` sends it to the state machine, which knows every rule and every error.
"""

import sys
from array import array
from collections.abc import Sequence
from typing import Final

from harmony_ref.errors import UnknownTokenError
from harmony_ref.messages.construction import message_of
from harmony_ref.messages.header import Header, read_header_text
from harmony_ref.messages.message_types import Message, Role
from harmony_ref.tokenizer import tokens

_OPENING: Final = "<|"
_START: Final = tokens.NAMED_SPECIALS[tokens.START]
_MESSAGE: Final = tokens.NAMED_SPECIALS[tokens.MESSAGE]
_STOPS: Final = frozenset(tokens.NAMED_SPECIALS[token].removeprefix(_OPENING) for token in tokens.STOP_TOKENS)
"""What the texts of the stop tokens have after `<|`."""

_MARKER_CHARACTERS: Final = [chr(token) for token in tokens.NAMED_SPECIALS]
_STOP_CHARACTERS: Final = [chr(token) for token in tokens.STOP_TOKENS]
_UTF_32: Final = f"utf-32-{sys.byteorder[0]}e"


def read_well_framed(completion: Sequence[int], role: Role | None) -> list[Message] | None:
    """The messages of a completion of the form

        [header] <|message|> content stop (<|start|> header <|message|> content stop)*

    where the last stop may be missing, and no `<|` is in ordinary tokens and no content broken UTF-8.

    Args:
        completion: the ids.
        role: the role that stood in the prompt after the last `<|start|>`; None when the tokens begin with `<|start|>`.

    Returns:
        The messages; None when the completion has another form, be it right or wrong.
    """
    try:
        characters = _as_characters(completion)
        text = tokens.decode_bytes(completion).decode("utf-8")
    except (OverflowError, TypeError, UnicodeDecodeError, UnknownTokenError):
        return None
    if text.count(_OPENING) != _occurrences(characters, _MARKER_CHARACTERS):
        return None
    pieces = text.split(_START)
    if role is None and pieces.pop(0):
        return None
    messages: list[Message] = []
    cut_off = False
    for piece in pieces:
        written, marker, rest = piece.partition(_MESSAGE)
        header = read_header_text(written, role)
        if cut_off or not marker or not isinstance(header, Header):
            return None
        content, _, last = rest.rpartition(_OPENING)
        cut_off = last not in _STOPS
        messages.append(message_of(header, rest if cut_off else content))
        role = None
    # A stop token in any other place is the state machine's.
    return messages if _occurrences(characters, _STOP_CHARACTERS) == len(messages) - cut_off else None


def _as_characters(run: Sequence[int]) -> str:
    """A string that has the ids as its characters: counting in it takes a hundredth of the time of a list."""
    return array("I", run).tobytes().decode(_UTF_32, "surrogatepass")


def _occurrences(characters: str, wanted: Sequence[str]) -> int:
    return sum(map(characters.count, wanted))
