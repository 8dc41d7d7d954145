"""Leaked text read as the Harmony it is, and told again: what is reasoning, what is for the user, what is a call. Incremental, at every split.

    analysisWe greet.assistantfinalHello!                          → reasoning `We greet.`, content `Hello!`
    <|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>     → call of f with `{}`

The reader is only asked once a check has said that the text leaks; it decides nothing but where each part belongs.
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
"""The words of a header, and what else stands in it."""
_CHANNEL = re.compile(r"(?:\A|<\|channel\|>|assistant|\s)\s?(analysis|commentary|final)\b")
_OTHER_ROLE = re.compile(r"\A(?:<\|start\|>)?\s*(?:user|system|developer|tool|functions\.[\w.-]+)\b")


class TextKind(StrEnum):
    """Where a text belongs."""

    CONTENT = "content"
    REASONING = "reasoning"
    CALL = "call"
    NOBODY = "nobody"


@dataclass(frozen=True, kw_only=True)
class ParsedText:
    """A piece of what was said. Of a call the first piece has the function's `name`; the others go on with its arguments."""

    kind: TextKind
    text: str = ""
    name: str | None = None


class NoDestinationError(Exception):
    """A message that has no place in the answer; says which. Completes "the model wrote …"."""


_TELLING = 3
"""So many characters of a marker can hardly be anything else: `<|e`."""


class LeakedTextParser:
    """State: the text not read yet, the header that is open, and where the text of the current message belongs.

    `home`: where text without a header belongs. `before`: what stands in the field before what is fed first. `glued`: whether it is known that special
    tokens were skipped, so that the words of headers need no mark before them. `declared`: the functions that may be called.
    """

    def __init__(self, home: TextKind, declared: frozenset[str], *, before: str = "", glued: bool = False) -> None:
        self._home, self._declared = home, declared
        self._kind = home
        self._is_start, self._glued = not before.strip(), glued
        self._rest = ""
        self._before = before[-1:]
        self._header: str | None = None
        self._tag = ""
        self._trims = False
        self._out: list[ParsedText] = []
        self._raw = ""

    @property
    def unread(self) -> str:
        """What was fed and not told: the header that is open, and what stands behind it."""
        return self._raw + self._rest

    def told(self) -> list[ParsedText]:
        """What was read before a message was found that has no place."""
        out, self._out = self._out, []
        return out

    def feed(self, text: str) -> list[ParsedText]:
        """What the text says, as far as that is certain.

        Raises:
            NoPlace: a message has no place in an answer.
        """
        self._rest += text
        self._read(is_over=False)
        out, self._out = self._out, []
        return out

    def close(self) -> list[ParsedText]:
        """The rest of what was said. A header that never ended is left out, and so is a marker.

        Raises:
            NoPlace: a message has no place in an answer.
        """
        self._read(is_over=True)
        if self._header is not None:
            whole = self._header + self._rest
            if self._open_unmarked(whole[: unfinished_marker(whole)], ""):
                self._read(is_over=True)
        if self._header is None:
            end = unfinished_marker(self._rest)
            self._tell(self._rest if end is None or len(self._rest) - end < _TELLING else self._rest[:end])
        self._rest = ""
        out, self._out = self._out, []
        return out

    def _read(self, *, is_over: bool) -> None:
        if self._is_start and not self._begin(is_over=is_over):
            return
        while self._step(is_over=is_over):
            pass

    def _begin(self, *, is_over: bool) -> bool:
        """Whether it is known how the field begins."""
        if self._begin_tag():
            self._is_start = False
            return True
        found = MARKER.search(self._rest)
        if found is not None and _opens_a_header(self._rest[: found.start()], found["marker"]):
            self._header, self._is_start = "", False
            return True
        if not is_over and found is None and (may_be_header(self._rest) or self._may_go_on_as_header()):
            return False
        self._is_start = False
        if (
            self._glued
            and CALL_SEAM.match(self._rest) is None
            and (begun := BEGINS_GLUED.match(self._rest)) is not None
        ):
            word = begun.group()
            if word != "assistant":
                self._rest = self._rest[len(word) :]
                self._kind = self._place_of(word)
        return True

    def _begin_tag(self) -> bool:
        """Whether a message begins with a thought in tags."""
        tagged = TAG.match(self._rest) if self._home is TextKind.CONTENT else None
        if tagged is not None:
            self._tag, self._kind, self._rest = tagged["tag"], TextKind.REASONING, self._rest[tagged.end() :]
        return tagged is not None

    def _may_go_on_as_header(self) -> bool:
        marker = unfinished_marker(self._rest)
        return marker is not None and BARE_HEADER.fullmatch(self._rest[:marker]) is not None

    def _step(self, *, is_over: bool) -> bool:
        """Whether a token was read, so that there may be another."""
        if self._header is None and not self._tag and self._kind is TextKind.CONTENT and not self._before:
            self._begin_tag()
        if self._tag:
            return self._step_in_tag(is_over=is_over)
        marker = MARKER.search(self._rest)
        if self._header is not None:
            return self._step_in_header(marker)
        seam = self._seam(marker.start() if marker is not None else len(self._rest), is_over=is_over)
        if seam is not None:
            self._tell(self._rest[: seam.start()])
            self._raw = seam.group()
            self._rest = self._rest[seam.end() :]
            self._open(seam.group().replace("assistant", "", 1))
            return True
        if marker is not None:
            self._tell(self._rest[: marker.start()])
            self._raw = marker.group()
            self._rest = self._rest[marker.end() :]
            self._mark(marker["marker"])
            return True
        if not is_over:
            self._tell_certain()
        return False

    def _mark(self, marker: str) -> None:
        if marker in OPENING:
            self._header = f"<|{marker}|>"
            return
        if marker != "message":
            self._kind = self._home
            self._before = ""
        self._raw = ""

    def _step_in_header(self, marker: re.Match[str] | None) -> bool:
        if marker is None:
            if len(self._rest) > _LONGEST_HEADER:
                if self._open_unmarked((self._header or "") + self._rest, ""):
                    return True
                raise NoDestinationError("a header that does not end")
            return False
        header = (self._header or "") + self._rest[: marker.start()]
        if marker["marker"] != "message" and self._open_unmarked(header, self._rest[marker.start() :]):
            return True
        self._raw += self._rest[: marker.end()]
        self._rest = self._rest[marker.end() :]
        name = marker["marker"]
        if name == "message":
            self._open(header)
        elif name in OPENING:
            self._header = header + f"<|{name}|>"
        else:  # a header without a message
            self._header, self._kind, self._raw = None, self._home, ""
        return True

    def _open_unmarked(self, header: str, behind: str) -> bool:
        """Whether a text stands behind the words of a header that has no end: the message whose marker is missing."""
        found = _UNMARKED.fullmatch(header)
        if found is None or may_be_header(found["text"]) or _OTHER_ROLE.match(header) is not None:
            return False
        if _CHANNEL.search(found["words"]) is None and _RECIPIENT.search(found["words"]) is None:
            return False
        self._rest = found["text"].removeprefix(" ") + behind
        self._open(found["words"])
        return True

    def _open(self, header: str) -> None:
        self._header, self._before = None, ""
        self._kind = self._place_of(header)
        self._raw = ""

    def _place_of(self, header: str) -> TextKind:
        recipient = _RECIPIENT.search(header)
        if recipient is not None and recipient[1] not in ("json", "all", "assistant"):
            name = recipient[1].removeprefix(_FUNCTIONS)
            if name not in self._declared:
                raise NoDestinationError("a call of something that the request does not declare, or forbids")
            self._out.append(ParsedText(kind=TextKind.CALL, name=name))
            return TextKind.CALL
        if _OTHER_ROLE.match(header) is not None:
            return TextKind.NOBODY
        channel = _CHANNEL.search(header)
        if channel is None:
            return self._home
        return TextKind.REASONING if channel[1] == "analysis" else TextKind.CONTENT

    def _step_in_tag(self, *, is_over: bool) -> bool:
        closing = f"</{self._tag}>"
        place = self._rest.find(closing)
        if place < 0:
            if not is_over:
                kept = max((n for n in range(1, len(closing)) if self._rest.endswith(closing[:n])), default=0)
                self._tell(self._rest[: len(self._rest) - kept])
                self._rest = self._rest[len(self._rest) - kept :]
            return False
        self._tell(self._rest[:place])
        self._rest = self._rest[place + len(closing) :]
        self._tag, self._kind, self._trims = "", TextKind.CONTENT, True
        return True

    def _seam(self, end: int, *, is_over: bool) -> re.Match[str] | None:
        """The first words of a header that are glued to the text before `end`, and that are complete."""
        place = 0
        while True:
            found = min(
                (
                    one
                    for one in (SEAM.search(self._rest, place, end), CALL_SEAM.search(self._rest, place))
                    if one is not None
                ),
                key=lambda one: (one.start(), -one.end()),
                default=None,
            )
            if found is None or found.start() >= end:
                return None
            begins = not self._before and found.start() == 0
            is_glued = begins or is_seam(self._rest, self._before, found.start())
            is_call = found.re is CALL_SEAM
            if (is_glued or self._glued) and (is_call or self._is_channel(found, is_over=is_over)):
                return found
            place = found.start() + 1

    def _is_channel(self, found: re.Match[str], *, is_over: bool) -> bool:
        """Whether what follows the word begins a text, and is no call."""
        behind = self._rest[found.end() :]
        if _BEGINS_A_RECIPIENT.match(behind) is not None or (
            not is_over and _MAY_BEGIN_ONE.fullmatch(behind) is not None
        ):
            return False
        return (bool(behind) and (self._glued or not behind[0].isspace())) or is_over

    def _tell_certain(self) -> None:
        """Tell all but what may still become a marker or the words of a header."""
        held = [len(self._rest)]
        if (marker := unfinished_marker(self._rest)) is not None:
            held.append(marker)
        held.append(self._open_seam())
        end = min(held)
        self._tell(self._rest[:end])
        self._rest = self._rest[end:]

    def _open_seam(self) -> int:
        """Where words stand that may go on as a seam."""
        if self._glued:
            found = _GOES_ON.search(self._rest)
            return found.start() if found is not None else len(self._rest)
        if not self._before and may_be_header(self._rest):
            return 0
        place = unfinished_seam(self._rest, self._before)
        candidates = [one for one in (place, unfinished_call(self._rest)) if one is not None]
        return min(candidates, default=len(self._rest))

    def _tell(self, text: str) -> None:
        if self._trims:
            text = text.lstrip()
            self._trims = not text
        if not text:
            return
        self._before = text[-1:]
        if self._kind is not TextKind.NOBODY:
            self._out.append(ParsedText(kind=self._kind, text=text))


def _opens_a_header(before: str, marker: str) -> bool:
    """Whether a field begins with a header, whole or without its first marker."""
    if marker == "message":
        return BARE_HEADER.fullmatch(before) is not None
    return marker in OPENING and before.strip() in ("", "assistant")


_BEGINS_A_RECIPIENT = re.compile(r"\s?to=")
_MAY_BEGIN_ONE = re.compile(r"\s?(?:to?)?")
_PARTS = (
    "(?:"
    + "|".join(
        f"assistant\\s?{word[:length]}"
        for word in ("final", "analysis", "commentary")
        for length in range(len(word), -1, -1)
    )
    + ")"
)
_WORD_PARTS = "|".join("assistant"[:length] for length in range(9, 0, -1))
_GOES_ON = re.compile(
    rf"(?:{_PARTS}\s?|{_WORD_PARTS})\Z|(?:assistant\s?)?(?:analysis|commentary)\s?(?:t|to|to=[\w.-]{{0,100}}\s*\w{{0,8}}\s*)\Z"
)
"""What may become a seam, where special tokens are known to have been skipped."""
