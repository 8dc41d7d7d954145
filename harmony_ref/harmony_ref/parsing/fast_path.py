"""Parsing of a whole, well-framed completion from its text, without looking at each token.

A marker typed in ordinary tokens looks in text like the special token. If no `<|` comes from ordinary tokens, the text
can be split at its markers: one decoding and a few string searches. Any other completion gives `None`; the state
machine, which knows every rule and error, then parses it.
"""

import sys
from array import array
from collections.abc import Sequence
from typing import Final

from harmony_ref.errors import UnknownTokenError
from harmony_ref.messages.header import Header, read_header_text
from harmony_ref.messages.message_types import Message, Role
from harmony_ref.messages.unchecked_construction import message_of
from harmony_ref.tokenizer import tokens

_OPENING: Final = "<|"
_START: Final = tokens.NAMED_SPECIALS[tokens.START]
_MESSAGE: Final = tokens.NAMED_SPECIALS[tokens.MESSAGE]
_STOPS: Final = frozenset(tokens.NAMED_SPECIALS[token].removeprefix(_OPENING) for token in tokens.STOP_TOKENS)
"""The texts of the stop tokens after `<|`."""

_MARKER_CHARACTERS: Final = [chr(token) for token in tokens.NAMED_SPECIALS]
_STOP_CHARACTERS: Final = [chr(token) for token in tokens.STOP_TOKENS]
_UTF_32: Final = f"utf-32-{sys.byteorder[0]}e"


def read_well_framed(completion: Sequence[int], role: Role | None) -> list[Message] | None:
    """Return the messages of a completion of the form

        [header] <|message|> content stop (<|start|> header <|message|> content stop)*

    where the last stop may be missing, no `<|` is in ordinary tokens, and all content is UTF-8.

    Args:
        completion: the ids.
        role: the role that the prompt had after the last `<|start|>`; None if the tokens begin with `<|start|>`.

    Returns:
        The messages; None if the completion has another form, valid or not.
    """
    try:
        characters = _as_characters(completion)
        text = tokens.decode_bytes(completion).decode("utf-8")
    except (OverflowError, TypeError, UnicodeDecodeError, UnknownTokenError):
        return None
    if text.count(_OPENING) != sum(map(characters.count, _MARKER_CHARACTERS)):
        return None
    pieces = text.split(_START)
    if role is None and pieces.pop(0):
        return None
    messages: list[Message] = []
    cut_off = False
    for piece in pieces:
        header_text, marker, rest = piece.partition(_MESSAGE)
        header = read_header_text(header_text, role)
        if cut_off or not marker or not isinstance(header, Header):
            return None
        content, _, last = rest.rpartition(_OPENING)
        cut_off = last not in _STOPS
        messages.append(message_of(header, rest if cut_off else content))
        role = None
    # The state machine reads completions with a stop token in any other place.
    return messages if sum(map(characters.count, _STOP_CHARACTERS)) == len(messages) - cut_off else None


def _as_characters(run: Sequence[int]) -> str:
    """Return a string with the ids as characters: counting in it takes a hundredth of the time of a list."""
    return array("I", run).tobytes().decode(_UTF_32, "surrogatepass")
