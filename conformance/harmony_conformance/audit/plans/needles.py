r"""Needles: patterns of bytes, at least one in each record whose text can leak a marker or a channel word.

The needles are a superset of what `NEEDLE_CHECKS` find. These checks judge each record that has one.
A needle does not depend on the order of members or the depth of JSON within JSON.
It does not depend on escapes of JSON and HTML either, nor on the events of a stream.
A stream can cut a word into pieces anywhere. A piece with `_LONG` letters and the quote at its cut is a needle. If all pieces of a word
are shorter, the record has a short piece for each of several letters. Such patterns are needles together.

Not seen: text in base64, except in HTTP archives; text in another encoding than UTF-8; roles, if their name is cut.
A quote is `"`, `\"` or `\u0022`. So `(?:"|u0022)` precedes the first letter of a string, and `["\\]` follows the last one.
`literals.py` has literals that each needle implies.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

NEEDLE_CHECKS = frozenset({"channels.no_marker_leak", "channels.no_channel_words"})
"""The checks whose every failure is in a record with a needle."""

_BEGIN, _END = '(?:"|u0022)', r'["\\]'
_END_OF_VALUE = r'(?:(?:"|\\"|\\\\\\"|\\{1,3}u0022)[^:]|\\{4})'
_END_OF_STRING = r'(?:\\*"|\\+u0022)(?:[ \t\r]|\\+[nrt])*[,}\]:]'
_ESCAPED_SPACE = r"\\+(?:[nrtfv]|u[0-9a-fA-F]{4})"
_ANY_ESCAPE = r"\\[\\nrtfvu]"
_CODE_MARK = r"(?:[`~]|\\+u00(?:60|7[eE]))"
_LONG = 5
_ROLE = "assistant"
_SECOND = ("final", "analysis", "commentary", "json", "code")
_JOINED = tuple(_ROLE + word for word in _SECOND)
_FIRST = ("analysis", "commentary")
"""Words that are a leak at the beginning of a text, in front of `to=`."""
_LETTERS = (8, 6, 4)  # the piece with letter 7 is `_SEVENTH`
"""Letters of joined words whose short pieces are needles together. The pieces of the first one are the rarest."""
_AFTER_A_NAME = r'(?:":"|": "|\\":\\"|\\": \\"|\\u0022:\\u0022)'


def _either(patterns: Iterator[str]) -> str:
    return "(?:" + "|".join(sorted(set(patterns))) + ")"


def _first_pieces(word: str) -> Iterator[str]:
    """Yield a joined word, and its long pieces in front of a first cut behind the role's letter 7."""
    yield word
    yield from (word[:end] + _END for end in range(len(_ROLE) - 1, len(word)) if end != len(_ROLE))


def _long_pieces(word: str) -> Iterator[str]:
    """Yield the other long pieces of a joined word: before the first cut, or after a cut that no long piece precedes."""
    yield from (word[:end] + _END for end in range(_LONG, len(_ROLE) - 1))
    yield from (_BEGIN + word[begin : begin + _LONG] for begin in range(1, _LETTERS[0] + 1))


def _first_long_pieces(word: str) -> Iterator[tuple[str, ...]]:
    """Yield a word at the beginning of a text, and its long pieces: the first one together with the next one."""
    yield (rf'{_BEGIN}{word}(?:t|[^A-Za-z0-9"\\]|{_ANY_ESCAPE}|{_END_OF_VALUE})',)
    yield from ((_BEGIN + word[:end] + _END_OF_VALUE, _piece_from(word, end)) for end in range(_LONG, len(word)))
    yield from ((_BEGIN + word[begin : begin + _LONG],) for begin in range(1, len(word) - _LONG + 1))


def _piece_from(word: str, begin: int) -> str:
    """Return the piece of a word that begins at a letter."""
    return _BEGIN + _either(chain((word[begin:],), (word[begin:end] + _END for end in range(begin + 1, len(word)))))


def _short_pieces(word: str, place: int) -> Iterator[str]:
    """Yield the short pieces that cover one letter of a word."""
    for begin in range(max(1, place - _LONG + 2), place + 1):
        yield from (word[begin:end] for end in range(place + 1, min(begin + _LONG, len(word))))


def _short_joined(place: int) -> str:
    return _BEGIN + _either(chain.from_iterable(_short_pieces(word, place) for word in _JOINED)) + _END


def _first_short_pieces(word: str) -> tuple[str, ...]:
    """Return three pieces of a word at the beginning of a text, if all are short: the first, the last, and one after the first."""
    firsts = _BEGIN + _either(word[:end] for end in range(1, _LONG)) + _END
    place = _LONG - 1
    between = chain(_short_pieces(word, place), (word[place:],))
    return firsts, _BEGIN + _either(between) + "[^a-su-z0-9]", _end_of(word, len(word) - _LONG + 1)


def _end_of(word: str, first: int) -> str:
    """Return the piece with the end of a word in front of `to=`, cut at a letter from the given one."""
    return _BEGIN + _either(word[begin:] for begin in range(first, len(word))) + rf"(?:t(?:o=|o?{_END})|[^a-zA-Z0-9])"


_LAST = len(_ROLE) - 1
_SEVENTH = (
    rf"(?:{_BEGIN + _either(_ROLE[begin:_LAST] for begin in range(1, _LAST))}(?:t|{_END})|{_ROLE[:_LAST] + _END})"
)
"""The piece with letter 7 of the role, if the role is cut: most records lack it."""
_SPACE = (
    r"(?:[\x09-\x0d\x1c-\x20]|\xc2[\x85\xa0]|\xe1\x9a\x80|\xe2(?:\x80[\x80-\x8a\xa8\xa9\xaf]|\x81\x9f)|\xe3\x80\x80)"
)
"""Unicode's white space in UTF-8."""
_ANY_BAR = r"(?:\||u007[cC]|(?:&|u0026)(?:amp;)?[v#])"
_MARKERS = (
    rf"<{_ANY_BAR}",
    rf"u003[cC]{_ANY_BAR}",
    rf"lt;{_ANY_BAR}",
    rf"60;{_ANY_BAR}",
    rf"3[cC];{_ANY_BAR}",
    rf"<\\+{_ANY_BAR}",
    rf"(?:u003[cC]|lt;|60;|3[cC];)\\+{_ANY_BAR}",
)
_ROLES_ASIDE = (  # the word `assistant` at the end of a string, unless it is the whole member `role`
    rf"(?:[^e\\]|[^l]e|[^o]le){_AFTER_A_NAME}{_ROLE}{_END}",
    *(before + _ROLE + _END for before in (r'[^: \\]"', '[^:] "', r'[^: ]\\"', r'[^:] \\"', r"[^:]\\u0022", r'[^"2]')),
    *(rf'[^"2]:{quote}{_ROLE}{_END}' for quote in ('"', ' "', r"\\\"", r" \\\"", r"\\u0022")),
)
_TO = rf"(?:to(?:=|\\+u003[dD])|{_BEGIN}o?(?:=|\\+u003[dD]))"
"""`to=`, or its last piece."""
_WHITE = rf"(?:{_SPACE}|{_ESCAPED_SPACE})"


def _begun(word: str) -> Iterator[str]:
    """Yield a word, and its beginnings in front of a cut."""
    yield from (word, *(word[:end] + _END for end in range(1, len(word))))


_AFTER_ROLE = (
    (_BEGIN + _either(iter(_SECOND)),),
    *((_BEGIN + word[:end] + _END, _piece_from(word, end)) for word in _SECOND for end in range(1, len(word))),
    (_BEGIN + _WHITE + "commentary", _TO),
    *(
        (_BEGIN + _WHITE + "commentary"[:end] + _END, _piece_from("commentary", end), _TO)
        for end in range(1, len("commentary"))
    ),
)
"""Rows of pieces that follow one that ends with `assistant`."""
_NEXT_PIECE = (
    rf"{_BEGIN}(?:{_either(chain.from_iterable(map(_begun, _SECOND)))}|{_WHITE + _either(_begun('commentary'))})"
)
"""The first piece of any of these rows: most records lack it."""
_COMMENTARY_OR_CUT = rf"(?:comm|co?m?{_END}|{_END})"
NEEDLES: tuple[str, ...] = tuple(
    dict.fromkeys(
        (
            *_MARKERS,
            *chain.from_iterable(map(_first_pieces, _JOINED)),
            # `assistant commentary to=functions.`; the checks take code for white space
            _ROLE + _SPACE + _COMMENTARY_OR_CUT,
            rf"{_ROLE}[`~]",
            # with token ids, the checks find more than by texts
            r'(?:token_ids|output_ids)\\*"[ \t]*:[ \t]*[^ \tn]',
            r'"tokens?\\*"[ \t]*:[ \t]*[\[{]',
            # letters in escapes, and bodies of HTTP archives in base64
            r"\\u00(?:[46][1-9a-fA-F]|[57][0-9aA]|5[cC])",
            r'encoding\\*"[ \t]*:[ \t]*\\*"base64',
        )
    )
)
_NAME = r"(?:sta|end|mes|cha|con|ret|res|cal|[a-z]{0,2}[\"\\])"
_CUT_ESCAPE = rf"{_BEGIN}(?:(?:\\{{1,8}}u0026)?[A-Za-z0-9#&;]{{0,20}}[|;]|\\{{0,8}}u?0{{0,2}}3?[cC][|\\&\"]|\\{{0,8}}u?0{{0,2}}7?[cC]{_NAME})"
"""The piece after the last cut in an escape of `<|`: it has at least the last letter."""
_CUT_AT_AND = r"(?:(?:&|u0026)(?:am?p?|lt?)?|amp;(?:lt?)?)"
_BEGIN_OF_BAR = (  # three backslashes and a quote are a quotation mark of JSON within JSON
    rf'{_BEGIN}(?:\||&["\\av#]|\\{{2}}"|\\{{4,}}(?:"|u0022)|\\+u(?:00(?:26|7[cC])|(?:0(?:0[27]?)?)?["\\]))'
)
"""A piece that begins with a bar, or with the beginning of its escape."""
TOGETHER: tuple[tuple[str, ...], ...] = (
    (r'<(?:"|\\(?:["\\]|u0022))', _BEGIN_OF_BAR),
    *(
        (end, _CUT_ESCAPE)
        for end in (
            rf"(?:u003[cC]|lt;|60;|3[cC];){_END}",
            rf"(?:&|amp;|u0026)ve?r?t?b?a?r?{_END}",
            rf"(?:&|amp;|u0026)#[xX0-9a-cC]*{_END}",
            r'\\u(?:0(?:0[37]?)?)?(?:\\*"|\\u0022)',
        )
    ),
    (_CUT_AT_AND + _END, _CUT_AT_AND + _END_OF_STRING, _CUT_ESCAPE),
    # a backslash before the quote, in JSON of depth 1, 2, 3; the next piece begins with the letter of its escape
    (r'[^\\](?:\\{2}"|\\{5}"|\\{11}"|\\{4,}u0022)', rf"{_BEGIN}u(?:0|{_END})", _CUT_ESCAPE),
    (_ROLE + _ANY_ESCAPE, _ROLE + _ESCAPED_SPACE + _COMMENTARY_OR_CUT),
    (_ROLE + _ANY_ESCAPE, _ROLE + _CODE_MARK),
    *((*first, _TO) for first in chain.from_iterable(map(_first_long_pieces, _FIRST))),
    *((role, _NEXT_PIECE, *pieces) for role in _ROLES_ASIDE for pieces in _AFTER_ROLE),
    # assistant`x`commentary: the checks take code for white space
    *((role, rf"(?:commentary|{_end_of('commentary', 1)})", _BEGIN + _CODE_MARK) for role in _ROLES_ASIDE),
    *((piece, _SEVENTH) for piece in dict.fromkeys(chain.from_iterable(map(_long_pieces, _JOINED)))),
    (*map(_short_joined, _LETTERS), _SEVENTH),
    (
        rf"{_BEGIN}(?:tant|ant|nt|t)(?:[^A-Za-z0-9]|c)",
        _BEGIN + _either(_short_pieces(_ROLE, _LETTERS[-1])) + _END,
        rf"{_BEGIN}(?:(?:tant|ant|nt)(?:[^A-Za-z0-9]|c)|{_either(_short_pieces(_ROLE, len(_ROLE) - 2))}{_END})",
        _SEVENTH,
    ),
    (*_first_short_pieces("analysis"), _TO),
    (*_first_short_pieces("commentary")[::-1], _TO),
)
"""Patterns that are a needle if a record has all of a row. The first one is the rarest."""
