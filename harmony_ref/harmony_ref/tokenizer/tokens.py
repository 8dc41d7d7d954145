"""The encoding of the gpt-oss models: o200k_base and 1,091 special tokens.

It is built on tiktoken, but not on its `o200k_harmony`. That lacks id 201088 and reads 200018 as `<|endofprompt|>`,
where the models' vocabulary has `<|reserved_201088|>` and `<|reserved_200018|>`
(openai-harmony 0.0.8, src/tiktoken_ext/public_encodings.rs:146,270-287).

Token ids are plain `int`; any other argument is a TypeError. Encoding raises EncodingError if tiktoken fails. Decoding
raises UnknownTokenError for an id outside the vocabulary. The vocabulary is loaded on first use.
"""

import json
import re
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import cache
from typing import Final, Literal

import tiktoken

from harmony_ref.errors import InvalidUtf8Error, MessageError, UnknownTokenError
from harmony_ref.tokenizer import vocabulary
from harmony_ref.tokenizer.long_pieces import LONGEST_PIECE, encode_in_pieces, has_long_piece
from harmony_ref.tokenizer.tiktoken_failures import raise_encoding_error

STARTOFTEXT: Final = 199998
ENDOFTEXT: Final = 199999
RETURN: Final = 200002
CONSTRAIN: Final = 200003
CHANNEL: Final = 200005
START: Final = 200006
END: Final = 200007
MESSAGE: Final = 200008
CALL: Final = 200012

STOP_TOKENS: Final = frozenset({RETURN, END, CALL})
"""The tokens that end a message."""

STOP_TOKENS_FOR_ASSISTANT_ACTIONS: Final = frozenset({RETURN, CALL})
"""The tokens that end the model's turn, and so stop sampling."""

FIRST_SPECIAL: Final = STARTOFTEXT
LAST_SPECIAL: Final = 201088

NAMED_SPECIALS: Final = {
    STARTOFTEXT: "<|startoftext|>",
    ENDOFTEXT: "<|endoftext|>",
    RETURN: "<|return|>",
    CONSTRAIN: "<|constrain|>",
    CHANNEL: "<|channel|>",
    START: "<|start|>",
    END: "<|end|>",
    MESSAGE: "<|message|>",
    CALL: "<|call|>",
}
"""The special tokens with a name; each other one is `<|reserved_ID|>`."""

SPECIAL_TOKENS: Final = {
    NAMED_SPECIALS.get(token, f"<|reserved_{token}|>"): token for token in range(FIRST_SPECIAL, LAST_SPECIAL + 1)
}
"""The id of every special token by its text."""

_PATTERN: Final = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"
    r"|\s*[\r\n]+"
    r"|\s+(?!\S)"
    r"|\s+"
)
"""The pattern of o200k_base that splits text before tokens are formed."""


_SPECIAL_TOKEN: Final = re.compile(r"<\|[a-z0-9_]+\|>")
_LONE_SURROGATE: Final = re.compile("(?P<half>[\ud800-\udfff])(?P<after>.?)", re.DOTALL)
_FIRST_SECOND_HALF: Final = "\udc00"
"""In UTF-16 a character beyond U+FFFF has two halves; the second is from here to U+DFFF."""


@cache
def encoding() -> tiktoken.Encoding:
    """Return the encoding, built on the first call (about half a second) and then shared."""
    return tiktoken.Encoding(
        "o200k_harmony", pat_str=_PATTERN, mergeable_ranks=vocabulary.ranks(), special_tokens=SPECIAL_TOKENS
    )


def encode(text: str) -> list[int]:
    """Return the ids of a text without special tokens: a typed `<|start|>` is seven ordinary tokens.

    Lone surrogates become U+FFFD. The time is linear for any text. A long run has the ids that tiktoken would give.

    Raises:
        EncodingError: more than 100,000,000 characters.
    """
    try:
        if len(text) <= LONGEST_PIECE:
            return _encode_ordinary()(text)
        return encode_in_pieces(text, _encode_ordinary(), longest=LONGEST_PIECE)
    except BaseException as error:
        raise_encoding_error(error)
        raise


def encode_text(text: str) -> list[int]:
    """Encode text that JSON can carry: a pair of surrogates is its character, a lone one raises MessageError."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            text = _without_surrogate_pairs(text)
    try:
        if len(text) <= LONGEST_PIECE:
            return _encode_ordinary()(text)
        return encode_in_pieces(text, _encode_ordinary(), longest=LONGEST_PIECE)
    except BaseException as error:
        raise_encoding_error(error)
        raise


def encode_with_special_tokens(text: str, *, allowed: AbstractSet[str] | Literal["all"] = "all") -> list[int]:
    """Return the ids of a text; the allowed special tokens are special, and all others ordinary text."""
    try:
        if len(text) <= LONGEST_PIECE or not has_long_piece(text, longest=LONGEST_PIECE):
            return encoding().encode(text, allowed_special=allowed, disallowed_special=())
        ids: list[int] = []
        done = 0
        for marker in _SPECIAL_TOKEN.finditer(text):
            if marker[0] in SPECIAL_TOKENS and (allowed == "all" or marker[0] in allowed):
                ids += encode(text[done : marker.start()])
                ids.append(SPECIAL_TOKENS[marker[0]])
                done = marker.end()
        return ids + encode(text[done:])
    except BaseException as error:
        raise_encoding_error(error)
        raise


def decode_bytes(tokens: Sequence[int]) -> bytes:
    """Return the bytes of the tokens; those of a special token are its text."""
    try:
        return encoding().decode_bytes(tokens)
    except (KeyError, OverflowError):
        raise UnknownTokenError(next(token for token in tokens if not is_known(token))) from None
    except BaseException as error:
        raise_encoding_error(error)
        raise


def decode(tokens: Sequence[int]) -> str:
    """Return the text of the tokens, with U+FFFD for each maximal invalid part."""
    return decode_bytes(tokens).decode("utf-8", "replace")


def decode_utf8(tokens: Sequence[int]) -> str:
    """Return the text of the tokens, or raise InvalidUtf8Error if their bytes are not UTF-8."""
    try:
        return decode_bytes(tokens).decode("utf-8")
    except UnknownTokenError as error:
        text = f"Could not decode tokens: Invalid token error: {error}"
        raise UnknownTokenError(error.token, text=text) from None
    except UnicodeDecodeError as error:
        length = None if error.reason == "unexpected end of data" else error.end - error.start
        raise InvalidUtf8Error(start=error.start, length=length) from None


def is_special(token: int) -> bool:
    """Return True for the 1,091 special tokens."""
    return FIRST_SPECIAL <= token <= LAST_SPECIAL


def is_known(token: int) -> bool:
    """Return True if the vocabulary has the id."""
    return 0 <= token <= LAST_SPECIAL


class TokenBytes(dict[int, bytes]):
    """The bytes of each token, decoded once: `TokenBytes()[token]`. Raises UnknownTokenError as `decode_bytes` does."""

    def __missing__(self, token: int) -> bytes:
        self[token] = data = decode_bytes((token,))
        return data


TOKEN_BYTES: Final = TokenBytes()
"""The shared table; it is filled on use."""


@cache
def _encode_ordinary() -> Callable[[str], list[int]]:
    """Return the encoder of short texts, cached because the look-up would be a fifth of the time of a word."""
    return encoding().encode_ordinary


def _without_surrogate_pairs(text: str) -> str:
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    lone = _LONE_SURROGATE.search(whole)
    if lone is None:
        return whole
    # JSON writes most characters other than printable ASCII as a \u escape, which the reader mistakes for a second half.
    half, after = lone["half"], lone["after"]
    misread = half >= _FIRST_SECOND_HALF or (after != "" and json.dumps(after).startswith('"\\u'))
    problem = "lone leading surrogate in hex escape" if misread else "unexpected end of hex escape"
    raise MessageError(subject="message", problem=problem)
