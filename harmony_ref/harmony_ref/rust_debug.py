"""Quoting of text as Rust's `{:?}` does it, which the library uses for words in an error.

Rust leaves a character unescaped if it is printable and does not extend the one before it. The two tables give the
result of the library's Unicode version (16), independent of Python's.
"""

import unicodedata
from typing import Final

_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\0": "\\0", "\t": "\\t", "\n": "\\n", "\r": "\\r"}

_NEWLY_ASSIGNED: Final = (
    "CF3 1B4E-1B4F 1B7F 1C89-1C8A 2427-2429 2FFC-2FFF 31E4-31E5 31EF A7CB-A7CD A7DA-A7DC 105C0-105F3 10D40-10D65 "
    "10D6E-10D85 10D8E-10D8F 10EC2-10EC4 1123F-11240 11380-11389 1138B 1138E 11390-113B5 113B7 113B9-113BA 113CA "
    "113CC-113CD 113D1 113D3-113D5 113D7-113D8 116D0-116E3 1171E 11B00-11B09 11BC0-11BE1 11BF0-11BF9 11F02-11F10 "
    "11F12-11F35 11F3E-11F3F 11F43-11F59 1342F 13441-13446 13460-143FA 16100-1611D 1612A-1612C 16130-16139 "
    "16D40-16D79 18CFF 1B132 1B155 1CC00-1CCF9 1CD00-1CEB3 1D2C0-1D2D3 1DF25-1DF2A 1E030-1E06D 1E4D0-1E4EB "
    "1E4F0-1E4F9 1E5D0-1E5ED 1E5F0-1E5FA 1E5FF 1F6DC 1F774-1F776 1F77B-1F77F 1F7D9 1F8B2-1F8BB 1F8C0-1F8C1 "
    "1FA75-1FA77 1FA87-1FA89 1FA8F 1FAAD-1FAAF 1FABB-1FABF 1FAC6 1FACE-1FACF 1FADA-1FADC 1FADF 1FAE8-1FAE9 "
    "1FAF7-1FAF8 1FBCB-1FBEF 2B739 2EBF0-2EE5D 31350-323AF"
)
"""Characters that Rust leaves unescaped since Unicode 15 or 16, in hexadecimal."""

_EXTENDING: Final = (
    "9BE 9D7 B3E B57 BBE BD7 CC0 CC2 CC7-CC8 CCA-CCB CD5-CD6 D3E D57 DCF DDF 1715 1734 1B35 1B3B 1B3D 1B43-1B44 "
    "1BAA 1BF2-1BF3 302E-302F A953 A9C0 FF9E-FF9F 111C0 11235 1133E 1134D 11357 114B0 114BD 115AF 116B6 11930 "
    "1193D 16FF0-16FF1 1D165-1D166 1D16D-1D172"
)
"""Characters with Grapheme_Extend outside the categories Mn and Me, in hexadecimal."""


def _characters(spans: str) -> frozenset[str]:
    bounds = [[int(bound, 16) for bound in span.split("-")] for span in spans.split()]
    return frozenset(chr(code) for span in bounds for code in range(span[0], span[-1] + 1))


_PRINTABLE: Final = _characters(_NEWLY_ASSIGNED)
_EXTENDERS: Final = _characters(_EXTENDING)


def debug_quote(text: str) -> str:
    r"""Return the text in quotes, with `\u{…}` for characters that do not print on their own."""
    return f'"{"".join(map(_debug, text))}"'


def _debug(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character in _PRINTABLE:
        return character
    extends = character in _EXTENDERS or unicodedata.category(character) in {"Mn", "Me"}
    return character if character.isprintable() and not extends else f"\\u{{{ord(character):x}}}"
