"""How a script is written as text, and what the teleprompter makes of a text.

    next token = said(token LAG places before the last one)

A script stands at the end of the last message, filled up with `<|return|>` so that its first token is LAG places before the last one of the prompt:

    ... message text | separator | script | filling | trailer | answer

The trailer is what the chat template writes after the text: `<|end|><|start|>assistant`, more where it quotes the text. Codes are numbers of three digits,
because a run of digits is cut into threes whatever stands around it:

    600 to 699   the numbers 00 to 99, whose two digits would shift those of a code behind them
    700 to 720   the special tokens 199998 to 200018
    721 to 743   runs of 2 to 24 spaces, of which a code behind them would take the last
    744 to 999   the tokens of a single byte

What the numbers 600 to 999 lose by this is said by words of the vocabulary that hardly any text has. A script is written plainly where the tokenizer reads
it back right, and in codes where it would not; `<` and `|` are always codes, so that no marker is ever spelled in a prompt.

Errors: ScriptError
        +- TooLong(length, most)
        +- Unspeakable(position, token)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from harmony_ref import decode_bytes, encode, tokens
from harmony_ref.tokenizer import vocabulary

LAG = 256
"""How many places before the last token the one stands that the next is made of."""
TRAILER = 3
"""Tokens between a script and the answer where the last message ends with it: `<|end|><|start|>assistant`."""

SPECIALS = range(tokens.FIRST_SPECIAL, 200019)
"""The special tokens that can be said: all that have a meaning, and their neighbours."""
_FIRST_PAIR, _FIRST_SPECIAL, _FIRST_RUN, _FIRST_BYTE, _LAST_CODE = 600, 700, 721, 744, 999
_WORD = re.compile(rb"[A-Z][a-z]{3,}")
_LONGEST_CHARACTER = 4  # bytes of UTF-8


class TeleprompterScriptError(ValueError):
    """A script that cannot be written."""


class ScriptTooLongError(TeleprompterScriptError):
    """A script of more tokens than there is room for between the beginning of the window and the trailer."""

    def __init__(self, length: int, most: int) -> None:
        super().__init__(f"the script has {length} tokens, the teleprompter says {most} at most")
        self.length = length
        self.most = most


class UnspeakableTextError(TeleprompterScriptError):
    """A token that no text brings about where it stands."""

    def __init__(self, position: int, token: int) -> None:
        super().__init__(f"no text makes the teleprompter say token {token} at place {position} of the script")
        self.position = position
        self.token = token


def room(trailer: int = TRAILER) -> int:
    """The number of tokens that a script may have before a trailer."""
    return LAG - trailer + 1


@cache
def codes() -> Mapping[int, str]:
    """The text that stands for each token that has a code."""
    ranks = vocabulary.ranks()
    by_token = {ranks[b"%02d" % pair]: _FIRST_PAIR + pair for pair in range(100)}
    by_token |= {token: _FIRST_SPECIAL + place for place, token in enumerate(SPECIALS)}
    by_token |= {ranks[b" " * (code - _FIRST_RUN + 2)]: code for code in range(_FIRST_RUN, _FIRST_BYTE)}
    by_token |= {ranks[bytes([byte])]: _FIRST_BYTE + byte for byte in range(256)}
    found = {token: f"{code:03}" for token, code in by_token.items()}
    numbers = range(_FIRST_PAIR, _LAST_CODE + 1)
    return found | {ranks[b"%03d" % number]: word for number, word in zip(numbers, _words(len(numbers)), strict=True)}


def _words(count: int) -> list[str]:
    """The rarest capitalised words that are one token, and none with a space before them: what they stand for, they cannot say themselves."""
    ranks = vocabulary.ranks()
    known = [token for token in ranks if _WORD.fullmatch(token) and b" " + token not in ranks]
    return [token.decode() for token in known[-count:]]


@cache
def said() -> Mapping[int, int]:
    """What each token that stands for another makes the model say; any token that is not here stands for itself."""
    ranks = vocabulary.ranks()
    return {ranks[code.encode()]: token for token, code in codes().items()}


def read_back(text: str) -> list[int]:
    """The tokens that the model says to a text."""
    return [said().get(token, token) for token in encode(text)]


def answer(prompt: Sequence[int], most: int) -> list[int]:
    """What the checkpoint answers to a prompt, at most so many tokens: up to the first that ends a turn.

    Where nothing stands LAG places before, it is `<|return|>`.
    """
    fed = list(prompt)
    for _ in range(most):
        token = said().get(fed[-1 - LAG], fed[-1 - LAG]) if len(fed) > LAG else tokens.RETURN
        fed.append(token)
        if token in tokens.STOP_TOKENS_FOR_ASSISTANT_ACTIONS or token == tokens.ENDOFTEXT:
            break
    return fed[len(prompt) :]


def write_script(ids: Sequence[int], trailer: int = TRAILER) -> str:
    """The text that makes the model say these tokens, to be put at the end of the last message.

    Raises:
        TooLong: there are more than `room(trailer)`.
        Unspeakable: one of them can not be written where it stands.
    """
    filling = room(trailer) - len(ids)
    if filling < 0:
        raise ScriptTooLongError(len(ids), room(trailer))
    # the separator before the script keeps it apart from what stands before, whatever both are
    wanted = [tokens.RETURN, *ids, *[tokens.RETURN] * filling]
    in_code = [_must_be_coded(token) for token in wanted]
    while True:
        text, broken = _spelled(wanted, in_code)
        place = broken if text is None else _first_difference(wanted, read_back(text))
        if text is not None and place is None:
            return "\n" + text
        assert place is not None
        near = (place, place - 1, place + 1)
        found = next((one for one in near if 0 <= one < len(wanted) and _may_be_coded(wanted, in_code, one)), None)
        if found is None:
            raise UnspeakableTextError(place - 1, wanted[place] if place < len(wanted) else tokens.RETURN)
        in_code[found] = True


def _must_be_coded(token: int) -> bool:
    return token >= tokens.FIRST_SPECIAL or token in _of_markers()


@cache
def _of_markers() -> frozenset[int]:
    return frozenset(vocabulary.ranks()[byte] for byte in (b"<", b"|"))


def _may_be_coded(wanted: Sequence[int], in_code: Sequence[bool], place: int) -> bool:
    return not in_code[place] and wanted[place] in codes()


def _spelled(wanted: Sequence[int], in_code: Sequence[bool]) -> tuple[str | None, int | None]:
    """The text, or the place of the first token whose bytes are no character and none with those after it."""
    spelled: list[str] = []
    held = b""
    for place, (token, coded) in enumerate(zip(wanted, in_code, strict=True)):
        if coded and token not in codes():
            raise UnspeakableTextError(place - 1, token)
        if coded and held:
            return None, place - 1
        held += b"" if coded else decode_bytes([token])
        try:
            spelled.append(codes()[token] if coded else held.decode())
            held = b""
        except UnicodeDecodeError as problem:
            if problem.reason != "unexpected end of data" or len(held) - problem.start >= _LONGEST_CHARACTER:
                return None, place
    return "".join(spelled), None


def _first_difference(wanted: Sequence[int], read: Sequence[int]) -> int | None:
    pairs = zip(wanted, read, strict=False)
    found = next((place for place, (one, other) in enumerate(pairs) if one != other), None)
    return found if found is not None or len(wanted) == len(read) else min(len(wanted), len(read))
