"""Which special tokens a text may contain, and encoding it under that rule."""

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
    refused = _refused(allowed, disallowed)
    if not refused or (type(text) is str and _OPENING not in text and refused <= ALL):
        return
    if found := _any_of(refused).search(text):
        raise_disallowed_special_token(found.group())


def encode(text: str, allowed: AbstractSet[str] | Literal["all"]) -> list[int]:
    """The ids; what is not allowed to be special is ordinary text, and lone surrogates become U+FFFD.

    Raises:
        TypeError: the text is no string.
        ValueError: an allowed token is no string.
    """
    if type(text) is not str and not isinstance(cast("object", text), str):
        raise TypeError(f"argument 'text': '{type(text).__name__}' object cannot be converted to 'PyString'")
    special = ALL if allowed == "all" else frozenset(map(_checked, allowed))
    special &= ALL
    return tokens.encode_with_special_tokens(text, allowed=special) if special else tokens.encode(text)


def _refused(
    allowed: AbstractSet[str] | Literal["all"], disallowed: Collection[str] | Literal["all"]
) -> frozenset[str]:
    if disallowed != "all":
        return disallowed if isinstance(disallowed, frozenset) else frozenset(disallowed)
    if not allowed:
        return ALL
    return frozenset() if allowed == "all" else ALL - set(allowed)


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
