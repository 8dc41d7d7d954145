"""Reading the wire form from JSON text as openai_harmony's core reads it, with its errors and where it finds them.

serde reads from left to right and stops at the first thing it does not like, be it the text or the shape; members that
it sets aside (role and name, and each part of a content) are looked at when their object has ended. Positions are
those of serde_json: a line and a column in bytes.

The text is what `to_json` writes, so it is well-formed but for what Python's json module writes and others refuse: NaN,
infinities, halves of surrogate pairs, deep nesting. Of other faults, which take a `to_json` of the user's own, only the
class of the error is that of the original.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NoReturn, TypeVar

from harmony_ref.errors import MessageError
from harmony_ref.json_value import Json
from harmony_ref.messages import message_types, wire_form
from harmony_ref.messages.json_numbers import json_text

_Read = TypeVar("_Read")

_DEPTH_LIMIT: Final = 128
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_ARRAY_GOES_ON: Final = re.compile(r"[ \t\n\r]*(?:\]|,[ \t\n\r]*)?")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_HEX: Final = re.compile(r"u([0-9a-fA-F]{4})")
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: Final[Mapping[str, Json]] = {"null": None, "true": True, "false": False}
_FIRST_HALF: Final = range(0xD800, 0xDC00)
_SECOND_HALF: Final = range(0xDC00, 0xE000)
_BRACKETS: Final = {"{": "map", "[": "sequence"}
_STREAMED: Final = ("recipient", "channel", "content_type")
"""The members of a message that are read as they come; its role and name are set aside."""


def read_message(text: str) -> message_types.Message:
    """The message that the text stands for; ValueError when there is none."""
    return _Reader(text, subject="message", depth=0).whole(_Reader.message)


def read_conversation(text: str) -> message_types.Conversation:
    """The conversation that the text stands for; ValueError when there is none."""
    return _Reader(text, subject="conversation", depth=0).whole(_Reader.conversation)


def read_content(text: str, *, depth: int) -> message_types.Content:
    """One part of a content, inside that many objects and arrays; ValueError when there is none."""
    return _Reader(text, subject="message", depth=depth).whole(_Reader.part)


class _Reader:
    def __init__(self, text: str, *, subject: str, depth: int) -> None:
        self._text = text
        self._subject = subject
        self._depth = depth
        self._at = 0

    def whole(self, read: "Callable[[_Reader], _Read]") -> _Read:
        found = read(self)
        if self._next():
            self._fail("trailing characters", self._at + 1)
        return found

    def conversation(self) -> message_types.Conversation:
        found: list[message_types.Message] = []
        self._expect("{", "struct Conversation")
        seen = False
        for name in self._members():
            if name == "messages":
                seen = True
                self._expect("[", "a sequence")
                found = [self.message() for _ in self._elements()]
            else:
                self.value()
        if not seen:
            self._fail("missing field `messages`", self._at)
        return message_types.Conversation(messages=found)

    def message(self) -> message_types.Message:
        self._expect("{", "struct Message")
        streamed: dict[str, str | None] = {}
        aside: dict[str, Json] = {}
        content: str | list[message_types.Content] | None = None
        for name in self._members():
            if name == "content":
                content = self._content()
            elif name in _STREAMED:
                streamed[name] = self._optional_string()
            else:
                aside[name] = self.value()
        if content is None:
            self._fail("missing field `content`", self._at)
        author = {name: value for name, value in aside.items() if name in {"role", "name"}}
        try:
            said_by = message_types.Message.from_dict({**author, "content": ""}).author
        except MessageError as error:
            self._fail(error.problem, self._at)
        return message_types.Message(author=said_by, content=content, **streamed)

    def part(self) -> message_types.Content:
        part = self.value()
        try:
            return message_types.Message.from_dict({"role": "user", "content": [part]}).content[0]
        except MessageError as error:
            problem = error.problem
        if isinstance(part, Mapping):
            # serde_json looks for the end of the array before it says where it is
            self._matched(_ARRAY_GOES_ON)
        return self._fail(problem, self._at)

    def value(self) -> Json:
        """Any value, as the json module gives it."""
        first = self._next()
        if first == '"':
            return self._string()
        if first == "{":
            self._enter()
            return {name: self.value() for name in self._members()}
        if first == "[":
            self._enter()
            return [self.value() for _ in self._elements()]
        if first == "-" or first.isdigit():
            return self._number()
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        return self._fail("expected value", self._at + 1)

    def _content(self) -> str | list[message_types.Content]:
        first = self._next()
        if first == "[":
            self._enter()
            return [self.part() for _ in self._elements()]
        if first == "{":
            self._fail("invalid type: map, expected string or list of content", self._at + 1)
        found = self.value()
        if isinstance(found, str):
            return found
        return self._fail(f"invalid type: {wire_form.described(found)}, expected string or list of content", self._at)

    def _optional_string(self) -> str | None:
        first = self._next()
        if first in _BRACKETS:
            self._fail(f"invalid type: {_BRACKETS[first]}, expected a string", self._at)
        found = self.value()
        try:
            return wire_form.optional_string(found)
        except wire_form.ShapeError as error:
            self._fail(error.problem, self._at)

    def _string(self) -> str:
        self._at += 1
        found: list[str] = []
        while True:
            plain = self._matched(_PLAIN)
            found.append(plain)
            stop = self._text[self._at : self._at + 1]
            self._at += 1
            if stop == '"':
                return "".join(found)
            if stop != "\\":
                self._fail("control character (\\u0000-\\u001F) found while parsing a string", self._at)
            found.append(self._escaped())

    def _escaped(self) -> str:
        letter = self._text[self._at : self._at + 1]
        if letter in _ESCAPES:
            self._at += 1
            return _ESCAPES[letter]
        code = self._hex()
        if code in _SECOND_HALF:
            self._fail("lone leading surrogate in hex escape", self._at)
        if code not in _FIRST_HALF:
            return chr(code)
        if self._text[self._at : self._at + 1] != "\\":
            self._fail("unexpected end of hex escape", self._at + 1)
        self._at += 1
        if self._text[self._at : self._at + 1] != "u":
            self._fail("unexpected end of hex escape", self._at + 1)
        second = self._hex()
        if second not in _SECOND_HALF:
            self._fail("lone leading surrogate in hex escape", self._at)
        return chr(0x10000 + ((code - _FIRST_HALF.start) << 10) + (second - _SECOND_HALF.start))

    def _hex(self) -> int:
        matched = _HEX.match(self._text, self._at)
        if matched is None:
            self._fail("invalid escape", self._at + 1)
        self._at = matched.end()
        return int(matched[1], 16)

    def _number(self) -> int | float:
        matched = _NUMBER.match(self._text, self._at)
        if matched is None:
            self._fail("invalid number", self._at + 2)
        self._at = matched.end()
        number = float(matched[0]) if matched[1] or matched[2] else int(matched[0])
        try:
            json_text(number)
        except MessageError as error:
            self._fail(error.problem, self._at)
        return number

    def _members(self) -> Iterator[str]:
        """The names of the members of the object that was entered; each value has to be read before the next name."""
        if self._closes("}"):
            return
        while True:
            if self._next() != '"':
                self._fail("key must be a string", self._at + 1)
            name = self._string()
            if self._next() != ":":
                self._fail("expected `:`", self._at + 1)
            self._at += 1
            yield name
            if self._closes("}"):
                return
            self._comma("}")

    def _elements(self) -> Iterator[None]:
        """Once for each element of the array that was entered; it has to be read before the next."""
        if self._closes("]"):
            return
        while True:
            yield
            if self._closes("]"):
                return
            self._comma("]")

    def _closes(self, bracket: str) -> bool:
        if self._next() != bracket:
            return False
        self._at += 1
        self._depth -= 1
        return True

    def _comma(self, bracket: str) -> None:
        if self._next() != ",":
            self._fail(f"expected `,` or `{bracket}`", self._at + 1)
        self._at += 1

    def _enter(self) -> None:
        self._depth += 1
        if self._depth == _DEPTH_LIMIT:
            self._fail("recursion limit exceeded", self._at + 1)
        self._at += 1

    def _expect(self, bracket: str, what: str) -> None:
        first = self._next()
        if first == bracket:
            self._enter()
        elif first in _BRACKETS:
            self._fail(f"invalid type: {_BRACKETS[first]}, expected {what}", self._at)
        else:
            self._fail(f"invalid type: {wire_form.described(self.value())}, expected {what}", self._at)

    def _next(self) -> str:
        """The next character that is no white space; empty at the end."""
        self._matched(_SPACE)
        return self._text[self._at : self._at + 1]

    def _matched(self, pattern: re.Pattern[str]) -> str:
        matched = pattern.match(self._text, self._at)
        assert matched is not None, "the pattern also matches nothing"
        self._at = matched.end()
        return matched.group()

    def _fail(self, problem: str, consumed: int) -> NoReturn:
        before = self._text[:consumed]
        line = before.count("\n") + 1
        column = len(before.rpartition("\n")[2].encode("utf-8", "surrogatepass"))
        raise ValueError(f"invalid {self._subject} JSON: {problem} at line {line} column {column}")
