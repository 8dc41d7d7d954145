"""Restrict the special tokens in a text, and encode it."""

import re
from collections.abc import Collection
from collections.abc import Set as AbstractSet
from functools import lru_cache
from typing import Final, Literal, cast

from harmony_ref.compat.errors import raise_disallowed_special_token
from harmony_ref.tokenizer import tokens

ALL: Final = frozenset(tokens.SPECIAL_TOKENS)
"""The text of every special token."""

_OPENING: Final = "<|"


def refuse_disallowed(
    text: str, allowed: AbstractSet[str] | Literal["all"], disallowed: Collection[str] | Literal["all"]
) -> None:
    """Raise HarmonyError for the first special token in the text that is not allowed."""
    if disallowed != "all":
        refused = disallowed if isinstance(disallowed, frozenset) else frozenset(disallowed)
    elif allowed:
        refused = frozenset[str]() if allowed == "all" else ALL - set(allowed)
    else:
        refused = ALL
    if not refused or (type(text) is str and _OPENING not in text and refused <= ALL):
        return
    if match := _any_of(refused).search(text):
        raise_disallowed_special_token(match.group())


def encode(text: str, allowed: AbstractSet[str] | Literal["all"]) -> list[int]:
    """Return the ids; other special tokens are encoded as ordinary text, and lone surrogates become U+FFFD.

    Raises:
        TypeError: the text is not a string.
        ValueError: an allowed token is not a string.
    """
    if type(text) is not str and not isinstance(cast("object", text), str):
        raise TypeError(f"argument 'text': '{type(text).__name__}' object cannot be converted to 'PyString'")
    special = ALL if allowed == "all" else frozenset(map(_checked, allowed))
    special &= ALL
    return tokens.encode_with_special_tokens(text, allowed=special) if special else tokens.encode(text)


@lru_cache(maxsize=32)
def _any_of(words: frozenset[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, words)))


def _checked(word: object) -> str:
    if not isinstance(word, str):
        raise ValueError(  # noqa: TRY004 - the class that the original raises
            f"invalid allowed_special: TypeError: '{type(word).__name__}' object cannot be converted to 'PyString'"
        )
    try:
        word.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"invalid allowed_special: UnicodeEncodeError: {error}") from None
    return word
