"""Incremental parser of leaked text: it separates reasoning, text for the user, and calls, at any split of the input.

    analysisWe greet.assistantfinalHello!                          → reasoning `We greet.`, content `Hello!`
    <|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>     → call of f with `{}`

The parser runs only after a check reported a leak. It decides only where each part belongs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from harmony_proxy.repair.text.leak_prefixes import (
    BARE_HEADER,
    BEGINS_GLUED,
    CALL_SEAM,
    MARKER,
    OPENING,
    SEAM,
    TAG,
    is_seam,
    may_be_header,
    unfinished_call,
    unfinished_marker,
    unfinished_seam,
)

_LONGEST_HEADER = 200
_FUNCTIONS = "functions."
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_UNMARKED = re.compile(
    r"(?P<words>(?:\s?<\|(?:start|channel|constrain)\|>|\s?(?:assistant|analysis|commentary|final|json|code)(?![a-z])|\s?to=[\w.-]+)+)"
    r"(?P<text>.*)",
    re.DOTALL,
)
"""The words of a header, and the text after them."""
_CHANNEL = re.compile(r"(?:\A|<\|channel\|>|assistant|\s)\s?(analysis|commentary|final)\b")
_OTHER_ROLE = re.compile(r"\A(?:<\|start\|>)?\s*(?:user|system|developer|tool|functions\.[\w.-]+)\b")


class TextKind(StrEnum):
    """Destination of a text. `DROPPED`: the text is dropped."""

    CONTENT = "content"
    REASONING = "reasoning"
    CALL = "call"
    DROPPED = "nobody"


@dataclass(frozen=True, kw_only=True)
class ParsedText:
    """A piece of parsed text. The first piece of a call has the name of the function, the following ones its arguments."""

    kind: TextKind
    text: str = ""
    name: str | None = None


class NoDestinationError(Exception):
    """A message that has no place in the answer. The text completes "the model wrote …"."""


_SIGNIFICANT = 3
"""Number of characters after which a partial marker, such as `<|e`, is hardly anything else."""


class LeakedTextParser:
    """Parses one text. Stores its unparsed rest, an incomplete header, and the destination of the current message.

    Args:
        home: Destination of text without a header.
        declared: Names of the functions that may be called.
        before: Text of the same member before the first input.
        glued: True if special tokens are known to be skipped, so that header words count without a marker or sentence end before them.
    """

    def __init__(self, home: TextKind, declared: frozenset[str], *, before: str = "", glued: bool = False) -> None:
        self._default_kind, self._declared = home, declared
        self._kind = home
        self._is_start, self._glued = not before.strip(), glued
        self._rest = ""
        self._before = before[-1:]
        self._header: str | None = None
        self._tag = ""
        self._trims = False
        self._results: list[ParsedText] = []
        self._raw = ""

    @property
    def unparsed_text(self) -> str:
        """Return the input that was not parsed: the incomplete header, and the text after it."""
        return self._raw + self._rest

    def pop_results(self) -> list[ParsedText]:
        """Return the texts that were parsed since the last call; after an error, those before the message without a destination."""
        out, self._results = self._results, []
        return out

    def feed(self, text: str) -> list[ParsedText]:
        """Parse more text, and return the results that later text cannot change.

        Raises:
            NoDestinationError: a message has no place in an answer.
        """
        self._rest += text
        self._parse(is_over=False)
        return self.pop_results()

    def close(self) -> list[ParsedText]:
        """Parse the end of the text, and return the remaining results without an incomplete header or marker.

        Raises:
            NoDestinationError: a message has no place in an answer.
        """
        self._parse(is_over=True)
        if self._header is not None:
            whole = self._header + self._rest
            if self._open_unmarked_message(whole[: unfinished_marker(whole)], ""):
                self._parse(is_over=True)
        if self._header is None:
            end = unfinished_marker(self._rest)
            self._emit(self._rest if end is None or len(self._rest) - end < _SIGNIFICANT else self._rest[:end])
        self._rest = ""
        return self.pop_results()

    def _parse(self, *, is_over: bool) -> None:
        if self._is_start and not self._parse_beginning(is_over=is_over):
            return
        while self._parse_token(is_over=is_over):
            pass

    def _parse_beginning(self, *, is_over: bool) -> bool:
        """Parse the beginning of the text, and return True once it is unambiguous."""
        if self._parse_opening_tag():
            self._is_start = False
            return True
        marker = MARKER.search(self._rest)
        if marker is not None and _opens_a_header(self._rest[: marker.start()], marker["marker"]):
            self._header, self._is_start = "", False
            return True
        if not is_over and marker is None:
            partial = unfinished_marker(self._rest)
            is_header = partial is not None and BARE_HEADER.fullmatch(self._rest[:partial]) is not None
            if is_header or may_be_header(self._rest):
                return False
        self._is_start = False
        start = BEGINS_GLUED.match(self._rest) if self._glued and CALL_SEAM.match(self._rest) is None else None
        if start is not None and start.group() != "assistant":
            self._rest = self._rest[start.end() :]
            self._kind = self._destination_of(start.group())
        return True

    def _parse_opening_tag(self) -> bool:
        """Enter reasoning in tags, and return True if a message begins with it."""
        tagged = TAG.match(self._rest) if self._default_kind is TextKind.CONTENT else None
        if tagged is not None:
            self._tag, self._kind, self._rest = tagged["tag"], TextKind.REASONING, self._rest[tagged.end() :]
        return tagged is not None

    def _parse_token(self, *, is_over: bool) -> bool:
        """Parse one token, and return True if another one may follow."""
        if self._header is None and not self._tag and self._kind is TextKind.CONTENT and not self._before:
            self._parse_opening_tag()
        if self._tag:
            return self._parse_in_tag(is_over=is_over)
        marker = MARKER.search(self._rest)
        if self._header is not None:
            return self._parse_in_header(marker)
        seam = self._find_seam(marker.start() if marker is not None else len(self._rest), is_over=is_over)
        if seam is not None:
            self._emit_until(seam.start(), skip=len(seam.group()))
            self._raw = seam.group()
            self._open_message(seam.group().replace("assistant", "", 1))
            return True
        if marker is not None:
            self._emit_until(marker.start(), skip=len(marker.group()))
            self._raw = marker.group()
            self._apply_marker(marker["marker"])
            return True
        if not is_over:
            partial = unfinished_marker(self._rest)
            self._emit_until(min(self._find_open_seam(), len(self._rest) if partial is None else partial))
        return False

    def _apply_marker(self, marker: str) -> None:
        if marker in OPENING:
            self._header = f"<|{marker}|>"
            return
        if marker != "message":
            self._kind = self._default_kind
            self._before = ""
        self._raw = ""

    def _parse_in_header(self, marker: re.Match[str] | None) -> bool:
        if marker is None:
            if len(self._rest) > _LONGEST_HEADER:
                if self._open_unmarked_message((self._header or "") + self._rest, ""):
                    return True
                raise NoDestinationError("a header without an end")
            return False
        header = (self._header or "") + self._rest[: marker.start()]
        if marker["marker"] != "message" and self._open_unmarked_message(header, self._rest[marker.start() :]):
            return True
        self._raw += self._rest[: marker.end()]
        self._rest = self._rest[marker.end() :]
        name = marker["marker"]
        if name == "message":
            self._open_message(header)
        elif name in OPENING:
            self._header = header + f"<|{name}|>"
        else:  # a header without a message
            self._header, self._kind, self._raw = None, self._default_kind, ""
        return True

    def _open_unmarked_message(self, header: str, suffix: str) -> bool:
        """Open a message whose `<|message|>` marker is missing, and return True if text follows the words of the header."""
        match = _UNMARKED.fullmatch(header)
        if match is None or may_be_header(match["text"]) or _OTHER_ROLE.match(header) is not None:
            return False
        if _CHANNEL.search(match["words"]) is None and _RECIPIENT.search(match["words"]) is None:
            return False
        self._rest = match["text"].removeprefix(" ") + suffix
        self._open_message(match["words"])
        return True

    def _open_message(self, header: str) -> None:
        self._header, self._before = None, ""
        self._kind = self._destination_of(header)
        self._raw = ""

    def _destination_of(self, header: str) -> TextKind:
        recipient = _RECIPIENT.search(header)
        if recipient is not None and recipient[1] not in ("json", "all", "assistant"):
            name = recipient[1].removeprefix(_FUNCTIONS)
            if name not in self._declared:
                raise NoDestinationError("a call of a function that the request does not declare or allow")
            self._results.append(ParsedText(kind=TextKind.CALL, name=name))
            return TextKind.CALL
        if _OTHER_ROLE.match(header) is not None:
            return TextKind.DROPPED
        channel = _CHANNEL.search(header)
        if channel is None:
            return self._default_kind
        return TextKind.REASONING if channel[1] == "analysis" else TextKind.CONTENT

    def _parse_in_tag(self, *, is_over: bool) -> bool:
        closing = f"</{self._tag}>"
        position = self._rest.find(closing)
        if position < 0:
            if not is_over:
                partial = max((n for n in range(1, len(closing)) if self._rest.endswith(closing[:n])), default=0)
                self._emit_until(len(self._rest) - partial)
            return False
        self._emit_until(position, skip=len(closing))
        self._tag, self._kind, self._trims = "", TextKind.CONTENT, True
        return True

    def _find_seam(self, end: int, *, is_over: bool) -> re.Match[str] | None:
        """Return the first complete header words before `end` that are glued to a text."""
        position = 0
        while True:
            seams = SEAM.search(self._rest, position, end), CALL_SEAM.search(self._rest, position)
            matches = (one for one in seams if one is not None)
            found = min(matches, key=lambda one: (one.start(), -one.end()), default=None)
            if found is None or found.start() >= end:
                return None
            is_first = not self._before and found.start() == 0
            is_glued = self._glued or is_first or is_seam(self._rest, self._before, found.start())
            if is_glued and (found.re is CALL_SEAM or self._is_channel_header(found, is_over=is_over)):
                return found
            position = found.start() + 1

    def _is_channel_header(self, found: re.Match[str], *, is_over: bool) -> bool:
        """Return True if the channel name is followed by a text, not by the recipient of a call."""
        suffix = self._rest[found.end() :]
        if _RECIPIENT_START.match(suffix) is not None:
            return False
        if is_over:
            return True
        may_be_recipient = _GROWING_RECIPIENT.fullmatch(suffix) is not None
        return not may_be_recipient and bool(suffix) and (self._glued or not suffix[0].isspace())

    def _find_open_seam(self) -> int:
        """Return the position of words at the end that may become a header; the length of the rest if there are no such words."""
        if self._glued:
            match = _GROWING_SEAM.search(self._rest)
            return match.start() if match is not None else len(self._rest)
        if not self._before and may_be_header(self._rest):
            return 0
        positions = (unfinished_seam(self._rest, self._before), unfinished_call(self._rest))
        return min((one for one in positions if one is not None), default=len(self._rest))

    def _emit_until(self, end: int, *, skip: int = 0) -> None:
        """Emit the rest up to `end`, and skip that many characters after it."""
        emitted, self._rest = self._rest[:end], self._rest[end + skip :]
        self._emit(emitted)

    def _emit(self, text: str) -> None:
        if self._trims:
            text = text.lstrip()
            self._trims = not text
        if not text:
            return
        self._before = text[-1:]
        if self._kind is not TextKind.DROPPED:
            self._results.append(ParsedText(kind=self._kind, text=text))


def _opens_a_header(before: str, marker: str) -> bool:
    """Return True if a text begins with a header, with or without its first marker."""
    if marker == "message":
        return BARE_HEADER.fullmatch(before) is not None
    return marker in OPENING and before.strip() in ("", "assistant")


_RECIPIENT_START = re.compile(r"\s?to=")
_GROWING_RECIPIENT = re.compile(r"\s?(?:to?)?")
_PARTIAL_SEAMS = (
    "(?:"
    + "|".join(
        f"assistant\\s?{word[:length]}"
        for word in ("final", "analysis", "commentary")
        for length in range(len(word), -1, -1)
    )
    + ")"
)
_PARTIAL_WORDS = "|".join("assistant"[:length] for length in range(9, 0, -1))
_GROWING_SEAM = re.compile(
    rf"(?:{_PARTIAL_SEAMS}\s?|{_PARTIAL_WORDS})\Z|(?:assistant\s?)?(?:analysis|commentary)\s?(?:t|to|to=[\w.-]{{0,100}}\s*\w{{0,8}}\s*)\Z"
)
"""Text at the end that may become header words, if special tokens are known to be skipped."""
