"""Text of any tokens, and headers read from them with each fault traced to its tokens."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Final

from harmony_ref.errors import UnknownTokenError
from harmony_ref.lenient.errors import RecoveryRule
from harmony_ref.lenient.header import Fault, HeaderReader, HeaderReading
from harmony_ref.lenient.header_words import TOOL_NAME, header_length
from harmony_ref.messages.header import CHANNEL_MARKER, CONSTRAIN_MARKER, RECIPIENT_PREFIX, Header
from harmony_ref.messages.message_types import Author, Role
from harmony_ref.tokenizer import tokens

_REPLACEMENT: Final = "\ufffd".encode()
_MARKER: Final = re.compile("|".join(map(re.escape, (CHANNEL_MARKER, CONSTRAIN_MARKER))))
_UNFINISHED: Final = re.compile(r"\s+to")  # the beginning of ` to=` where the input was cut
_INVALID: Final = re.compile("[\udc80-\udcff]+")  # bytes that are not UTF-8, as `surrogateescape` writes them
_LONGEST_BEGINNING: Final = 3  # maximum number of bytes of an unfinished character
_CACHED_LENGTH: Final = 64  # headers of more tokens are not cached, to keep the cache small


def read_header_tokens(run: Sequence[int], *, role: Role | None, fallback: Author) -> HeaderReading:
    """Read a header that `<|message|>` ended; `run` has its tokens.

    `role` is the role that the prompt had after the last `<|start|>`. `fallback` is the author if neither `role` nor
    the words name one.
    """
    return (_read_cached if len(run) <= _CACHED_LENGTH else _read_all)(tuple(run), role, fallback)


def read_header_and_text(
    run: Sequence[int], *, role: Role | None, fallback: Author, is_cut: bool
) -> tuple[HeaderReading, str]:
    """Read a header without `<|message|>`, and the content that follows it; `run` has the tokens of both.

    For `role` and `fallback` see `read_header_tokens`. `is_cut` is True if the input ended here.
    """
    traced = TracedText(run)
    # Text that only looks like a marker is content: no model writes its header in ordinary tokens.
    fake = next((match for match in _MARKER.finditer(traced.text) if not traced.is_special_at(match.start())), None)
    candidate = traced.text if fake is None else traced.text[: fake.start()]
    unfinished = _UNFINISHED if is_cut and fake is None else None
    length = header_length(candidate, role=role, begins_token=traced.begins_token, unfinished=unfinished)
    if length == len(candidate) and fake is not None:
        length = len(candidate.rstrip())
    text = traced.text[length:]
    stop = traced.token_from(length) if text else len(run)
    reading = HeaderReader(traced.text[:length], role=role, fallback=fallback, is_guessed=True).read()
    return _trace(reading, traced, length=length, stop=stop), replace_invalid(text)


def _read_all(run: tuple[int, ...], role: Role | None, fallback: Author) -> HeaderReading:
    traced = TracedText(run)
    reading = HeaderReader(traced.text, role=role, fallback=fallback, is_guessed=False).read()
    return _trace(reading, traced, length=len(traced.text), stop=len(run))


_read_cached = lru_cache(maxsize=4096)(_read_all)


def _trace(reading: HeaderReading, traced: "TracedText", *, length: int, stop: int) -> HeaderReading:
    header = reading.header
    faults = [
        Fault(
            rule=fault.rule,
            start=traced.token_at(fault.start) if fault.end else 0,
            end=traced.token_at(fault.end - 1) + 1 if fault.end else 0,
        )
        for fault in reading.faults
    ]
    if not traced.is_text(length):
        faults.append(Fault(rule=RecoveryRule.HEADER_BYTES, start=0, end=stop))
    return HeaderReading(
        header=Header(
            author=Author(role=header.author.role, name=_clean_optional(header.author.name)),
            recipient=_clean_optional(header.recipient),
            channel=_clean_optional(header.channel),
            content_type=_clean_optional(header.content_type),
        ),
        is_understood=reading.is_understood,
        length=stop,
        faults=tuple(sorted(_join(faults), key=lambda fault: fault.start)),
    )


def _join(faults: Iterable[Fault]) -> list[Fault]:
    """Merge adjacent faults of the same rule."""
    joined: list[Fault] = []
    for fault in sorted(faults, key=lambda fault: (fault.rule, fault.start)):
        last = joined[-1] if joined else None
        if last is not None and last.rule is fault.rule and fault.start <= last.end:
            joined[-1] = Fault(rule=fault.rule, start=last.start, end=max(last.end, fault.end))
        else:
            joined.append(fault)
    return joined


def _clean_optional(text: str | None) -> str | None:
    return None if text is None else replace_invalid(text)


def lossy_bytes(run: Sequence[int]) -> bytes:
    """Return the bytes of the tokens; an unknown id gives one U+FFFD."""
    try:
        return tokens.decode_bytes(run)
    except UnknownTokenError:
        return b"".join(map(_bytes_of_one, run))


def text_of_tokens(run: Sequence[int]) -> str:
    """Return the text of the tokens, with U+FFFD for unknown ids and maximal invalid parts."""
    return lossy_bytes(run).decode("utf-8", "replace")


def find_recipient(run: Sequence[int]) -> int:
    """Return the token of the last `to=`, or of a tool's name before it; the number of tokens without `to=`."""
    traced = TracedText(run)
    start = traced.text.rfind(RECIPIENT_PREFIX)
    while start > 0 and not traced.text[start - 1].isspace():
        start = traced.text.rfind(RECIPIENT_PREFIX, 0, start)
    if start < 0:
        return len(run)
    before = traced.text[:start].rstrip()
    name = "".join(before.rsplit(maxsplit=1)[-1:])
    return traced.token_at(len(before) - (len(name) if TOOL_NAME.fullmatch(name) else 0))


def _bytes_of_one(token: int) -> bytes:
    return tokens.decode_bytes((token,)) if tokens.is_known(token) else _REPLACEMENT


class TracedText:
    """The text of a run of tokens, with the token that each character comes from.

    Attributes:
        text: bytes that are not UTF-8 are lone surrogates in it; `replace_invalid` replaces them by U+FFFD.
    """

    def __init__(self, run: Sequence[int]) -> None:
        self._run = run
        self.text = lossy_bytes(run).decode("utf-8", "surrogateescape")

    @cached_property
    def _token_ends(self) -> list[int]:
        return list(accumulate(len(_bytes_of_one(token)) for token in self._run))

    @cached_property
    def _byte_offsets(self) -> Sequence[int]:
        """The byte offset of each character and of the end."""
        if self.text.isascii():
            return range(len(self.text) + 1)
        lengths = (len(character.encode("utf-8", "surrogateescape")) for character in self.text)
        return list(accumulate(lengths, initial=0))

    def invalid_runs(self, *, is_cut: bool) -> Iterator[tuple[int, int]]:
        """Yield spans of tokens that hold bytes that are not UTF-8.

        Args:
            is_cut: True if the input ended here; a character cut by that is no fault.
        """
        last: tuple[int, int] | None = None
        for match in () if self.text.isascii() else _INVALID.finditer(self.text):
            end = match.end()
            if is_cut and end == len(self.text):
                end -= _unfinished_length(match.group())
            if end == match.start():
                continue
            first, after = self.token_at(match.start()), self.token_at(end - 1) + 1
            if last is not None and first > last[1]:
                yield last
                last = None
            last = (first if last is None else last[0], after)
        if last is not None:
            yield last

    def is_text(self, length: int) -> bool:
        """Return True if the first `length` characters are known tokens and valid UTF-8."""
        known = all(map(tokens.is_known, self._run[: self.token_from(length)]))
        return known and (self.text.isascii() or replace_invalid(self.text[:length]) == self.text[:length])

    def token_at(self, character: int) -> int:
        """Return the index of the token that holds the character; for the end, the number of tokens."""
        return bisect_right(self._token_ends, self._byte_offsets[character])

    def token_from(self, character: int) -> int:
        """Return the index of the first token that begins at the character or after it."""
        offset = self._byte_offsets[character]
        return 0 if offset == 0 else bisect_left(self._token_ends, offset) + 1

    def begins_token(self, character: int) -> bool:
        """Return True if a token begins at the character."""
        index = self.token_at(character)
        return (self._token_ends[index - 1] if index else 0) == self._byte_offsets[character]

    def is_special_at(self, character: int) -> bool:
        """Return True if a special token begins at the character, not ordinary text that looks like one."""
        index = self.token_at(character)
        return self.begins_token(character) and index < len(self._run) and tokens.is_special(self._run[index])


def _unfinished_length(invalid: str) -> int:
    """Return how many of the last bytes could begin a character."""
    data = invalid.encode("utf-8", "surrogateescape")
    for length in range(1, min(len(data), _LONGEST_BEGINNING) + 1):
        try:
            data[-length:].decode("utf-8")
        except UnicodeDecodeError as error:
            if error.start == 0 and error.reason == "unexpected end of data":
                return length
    return 0


def replace_invalid(text: str) -> str:
    """Replace each maximal invalid part by U+FFFD."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
