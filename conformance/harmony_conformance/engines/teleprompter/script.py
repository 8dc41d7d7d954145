"""Scripts as text, and the output of the teleprompter for a text.

    next token = `token_by_code`(token LAG places before the last one)

A script is at the end of the last message. Padding with `<|return|>` puts its first token LAG places before the last one of the prompt:

    ... message text | separator | script | filling | trailer | answer

The trailer is the part of the chat template after the text: `<|end|><|start|>assistant`, longer if the template quotes the text. Codes are numbers of
three digits, because the tokenizer splits any run of digits into groups of three:

    600 to 699   the numbers 00 to 99, whose two digits would shift those of a following code
    700 to 720   the special tokens 199998 to 200018
    721 to 743   runs of 2 to 24 spaces, whose last space a following code would take
    744 to 999   the tokens of a single byte

Rare words of the vocabulary replace the numbers 600 to 999 themselves. A script uses plain text if the tokenizer reads it back unchanged, else codes.

`<` and `|` are always codes, so that no prompt contains a marker as text.

Errors: TeleprompterScriptError
        +- ScriptTooLongError(length, most)
        +- UnspeakableTextError(position, token)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from harmony_ref import decode_bytes, encode, tokens
from harmony_ref.tokenizer import vocabulary

LAG = 256
"""Distance between the last token and the one that determines the next."""
TRAILER_LENGTH = 3
"""Tokens between a script and the answer if the message is not quoted: `<|end|><|start|>assistant`."""

SPECIALS = range(tokens.FIRST_SPECIAL, 200019)
"""Special tokens that a script may contain: all with a meaning, and their neighbours."""
_FIRST_PAIR, _FIRST_SPECIAL, _FIRST_RUN, _FIRST_BYTE, _LAST_CODE = 600, 700, 721, 744, 999
_WORD = re.compile(rb"[A-Z][a-z]{3,}")
_LONGEST_CHARACTER = 4  # bytes of UTF-8


class TeleprompterScriptError(ValueError):
    """A script that cannot be written."""


class ScriptTooLongError(TeleprompterScriptError):
    """A script with more tokens than fit between the beginning of the window and the trailer."""

    def __init__(self, length: int, most: int) -> None:
        super().__init__(f"invalid script: expected at most {most} tokens for the teleprompter, got {length}")
        self.length = length
        self.most = most


class UnencodableTokenError(TeleprompterScriptError):
    """A token that no text produces at its position."""

    def __init__(self, position: int, token: int) -> None:
        super().__init__(f"no text makes the teleprompter generate token {token} at position {position} of the script")
        self.position = position
        self.token = token


def max_script_length(trailer: int = TRAILER_LENGTH) -> int:
    """Return the maximum length of a script, in tokens, before a trailer."""
    return LAG - trailer + 1


@cache
def code_by_token() -> Mapping[int, str]:
    """Return the code of each token that has one, as text."""
    ranks = vocabulary.ranks()
    by_token = {ranks[b"%02d" % pair]: _FIRST_PAIR + pair for pair in range(100)}
    by_token |= {token: _FIRST_SPECIAL + place for place, token in enumerate(SPECIALS)}
    by_token |= {ranks[b" " * (code - _FIRST_RUN + 2)]: code for code in range(_FIRST_RUN, _FIRST_BYTE)}
    by_token |= {ranks[bytes([byte])]: _FIRST_BYTE + byte for byte in range(256)}
    by_code = {token: f"{code:03}" for token, code in by_token.items()}
    numbers = range(_FIRST_PAIR, _LAST_CODE + 1)
    # the rarest capitalised words that are one token without a space before them; they cannot be generated themselves
    words = [token.decode() for token in ranks if _WORD.fullmatch(token) and b" " + token not in ranks]
    numbered = zip(numbers, words[-len(numbers) :], strict=True)
    return by_code | {ranks[b"%03d" % number]: word for number, word in numbered}


@cache
def token_by_code() -> Mapping[int, int]:
    """Return the token that each code makes the model generate; any other token maps to itself."""
    ranks = vocabulary.ranks()
    return {ranks[code.encode()]: token for token, code in code_by_token().items()}


def read_back(text: str) -> list[int]:
    """Return the tokens that the model generates for a text."""
    return [token_by_code().get(token, token) for token in encode(text)]


def simulate_output(prompt: Sequence[int], most: int) -> list[int]:
    """Return the output of the checkpoint for a prompt: at most `most` tokens, up to the first that ends a turn.

    If the prompt is shorter than LAG, the output is `<|return|>`.
    """
    context = list(prompt)
    for _ in range(most):
        token = token_by_code().get(context[-1 - LAG], context[-1 - LAG]) if len(context) > LAG else tokens.RETURN
        context.append(token)
        if token in tokens.STOP_TOKENS_FOR_ASSISTANT_ACTIONS or token == tokens.ENDOFTEXT:
            break
    return context[len(prompt) :]


def write_script(ids: Sequence[int], trailer: int = TRAILER_LENGTH) -> str:
    """Return the text that makes the model generate these tokens, for the end of the last message.

    Raises:
        ScriptTooLongError: There are more tokens than `room(trailer)`.
        UnencodableTokenError: No text produces a token at its position.
    """
    filling = max_script_length(trailer) - len(ids)
    if filling < 0:
        raise ScriptTooLongError(len(ids), max_script_length(trailer))
    # the first token separates the script from the text before it
    wanted = [tokens.RETURN, *ids, *[tokens.RETURN] * filling]
    in_code = [token >= tokens.FIRST_SPECIAL or token in _marker_characters() for token in wanted]
    while True:
        text, broken = _spell(wanted, in_code)
        place = broken if text is None else _first_difference(wanted, read_back(text))
        if text is not None and place is None:
            return "\n" + text
        assert place is not None
        near_inside = [one for one in (place, place - 1, place + 1) if 0 <= one < len(wanted)]
        codable = next((one for one in near_inside if not in_code[one] and wanted[one] in code_by_token()), None)
        if codable is None:
            raise UnencodableTokenError(place - 1, wanted[place] if place < len(wanted) else tokens.RETURN)
        in_code[codable] = True


@cache
def _marker_characters() -> frozenset[int]:
    return frozenset(vocabulary.ranks()[byte] for byte in (b"<", b"|"))


def _spell(wanted: Sequence[int], in_code: Sequence[bool]) -> tuple[str | None, int | None]:
    """Return the text, or the place of the first token whose bytes never complete a character."""
    parts: list[str] = []
    pending = b""
    for place, (token, coded) in enumerate(zip(wanted, in_code, strict=True)):
        if coded and token not in code_by_token():
            raise UnencodableTokenError(place - 1, token)
        if coded and pending:
            return None, place - 1
        pending += b"" if coded else decode_bytes([token])
        try:
            parts.append(code_by_token()[token] if coded else pending.decode())
            pending = b""
        except UnicodeDecodeError as problem:
            if problem.reason != "unexpected end of data" or len(pending) - problem.start >= _LONGEST_CHARACTER:
                return None, place
    return "".join(parts), None


def _first_difference(wanted: Sequence[int], read: Sequence[int]) -> int | None:
    pairs = zip(wanted, read, strict=False)
    place = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
    return place if place is not None or len(wanted) == len(read) else min(len(wanted), len(read))
