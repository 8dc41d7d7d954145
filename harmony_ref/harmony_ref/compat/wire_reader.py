"""Read the wire form from JSON text as openai_harmony's core does, with its errors and their positions.

serde reads from left to right and stops at the first error of syntax or shape. It buffers some members (role and name,
and each part of a content) and checks them at the end of their object. Positions are those of serde_json: a line and a
column in bytes.

The text comes from `to_json`, so it is valid but for the extensions of Python's json module: NaN, infinities, lone
surrogates, deep nesting. For other errors, which need the `to_json` of a subclass, only the error's class is the
original's.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NoReturn, TypeVar

from harmony_ref.errors import MessageError
from harmony_ref.json_value import Json
from harmony_ref.messages import message_types, wire_shapes
from harmony_ref.messages.json_numbers import json_text

_Read = TypeVar("_Read")

_DEPTH_LIMIT: Final = 128
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_AFTER_ELEMENT: Final = re.compile(r"[ \t\n\r]*(?:\]|,[ \t\n\r]*)?")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
_HEX: Final = re.compile(r"u([0-9a-fA-F]{4})")
_ESCAPES: Final = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_WORDS: Final[Mapping[str, Json]] = {"null": None, "true": True, "false": False}
_FIRST_HALF: Final = range(0xD800, 0xDC00)
_SECOND_HALF: Final = range(0xDC00, 0xE000)
_BRACKETS: Final = {"{": "map", "[": "sequence"}
_STREAMED: Final = ("recipient", "channel", "content_type")
"""The members of a message that are checked at once; its role and name are buffered."""


def read_message(text: str) -> message_types.Message:
    """Read a message from JSON; ValueError for invalid text."""
    return _Reader(text, subject="message", depth=0).read_whole(_Reader.message)


def read_conversation(text: str) -> message_types.Conversation:
    """Read a conversation from JSON; ValueError for invalid text."""
    return _Reader(text, subject="conversation", depth=0).read_whole(_Reader.conversation)


def read_content(text: str, *, depth: int) -> message_types.Content:
    """Read one part of a content from JSON, nested in `depth` objects and arrays; ValueError for invalid text."""
    return _Reader(text, subject="message", depth=depth).read_whole(_Reader.part)


class _Reader:
    def __init__(self, text: str, *, subject: str, depth: int) -> None:
        self._text = text
        self._subject = subject
        self._depth = depth
        self._at = 0

    def read_whole(self, read: "Callable[[_Reader], _Read]") -> _Read:
        value = read(self)
        if self._next():
            self._fail("trailing characters", self._at + 1)
        return value

    def conversation(self) -> message_types.Conversation:
        messages: list[message_types.Message] | None = None
        self._expect("{", "struct Conversation")
        for name in self._members():
            if name == "messages":
                self._expect("[", "a sequence")
                messages = [self.message() for _ in self._elements()]
            else:
                self.value()
        if messages is None:
            self._fail("missing field `messages`", self._at)
        return message_types.Conversation(messages=messages)

    def message(self) -> message_types.Message:
        self._expect("{", "struct Message")
        streamed: dict[str, str | None] = {}
        buffered: dict[str, Json] = {}
        content: str | list[message_types.Content] | None = None
        for name in self._members():
            if name == "content":
                content = self._content()
            elif name in _STREAMED:
                streamed[name] = self._optional_string()
            else:
                buffered[name] = self.value()
        if content is None:
            self._fail("missing field `content`", self._at)
        fields = {name: value for name, value in buffered.items() if name in {"role", "name"}}
        try:
            author = message_types.Message.from_dict({**fields, "content": ""}).author
        except MessageError as error:
            self._fail(error.problem, self._at)
        return message_types.Message(author=author, content=content, **streamed)

    def part(self) -> message_types.Content:
        part = self.value()
        try:
            return message_types.Message.from_dict({"role": "user", "content": [part]}).content[0]
        except MessageError as error:
            problem = error.problem
        if isinstance(part, Mapping):
            # serde_json searches for the end of the array before it reports the position
            self._take(_AFTER_ELEMENT)
        return self._fail(problem, self._at)

    def value(self) -> Json:
        """Read any value, as the json module does."""
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
        value = self.value()
        if isinstance(value, str):
            return value
        return self._fail(f"invalid type: {wire_shapes.describe(value)}, expected string or list of content", self._at)

    def _optional_string(self) -> str | None:
        first = self._next()
        if first in _BRACKETS:
            self._fail(f"invalid type: {_BRACKETS[first]}, expected a string", self._at)
        value = self.value()
        try:
            return wire_shapes.optional_string(value)
        except wire_shapes.ShapeError as error:
            self._fail(error.problem, self._at)

    def _string(self) -> str:
        self._at += 1
        pieces: list[str] = []
        while True:
            pieces.append(self._take(_PLAIN))
            stop = self._text[self._at : self._at + 1]
            self._at += 1
            if stop == '"':
                return "".join(pieces)
            if stop != "\\":
                self._fail("control character (\\u0000-\\u001F) found while parsing a string", self._at)
            pieces.append(self._escape())

    def _escape(self) -> str:
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
        match = _HEX.match(self._text, self._at)
        if match is None:
            self._fail("invalid escape", self._at + 1)
        self._at = match.end()
        return int(match[1], 16)

    def _number(self) -> int | float:
        match = _NUMBER.match(self._text, self._at)
        if match is None:
            self._fail("invalid number", self._at + 2)
        self._at = match.end()
        number = float(match[0]) if match[1] or match[2] else int(match[0])
        try:
            json_text(number)
        except MessageError as error:
            self._fail(error.problem, self._at)
        return number

    def _members(self) -> Iterator[str]:
        """Yield the names of the entered object's members; the caller reads each value before the next name."""
        for _ in self._elements("}"):
            if self._next() != '"':
                self._fail("key must be a string", self._at + 1)
            name = self._string()
            if self._next() != ":":
                self._fail("expected `:`", self._at + 1)
            self._at += 1
            yield name

    def _elements(self, bracket: str = "]") -> Iterator[None]:
        """Yield before each element up to the closing bracket; the caller reads the element."""
        is_first = True
        while (following := self._next()) != bracket:
            if not is_first:
                if following != ",":
                    self._fail(f"expected `,` or `{bracket}`", self._at + 1)
                self._at += 1
            is_first = False
            yield
        self._at += 1
        self._depth -= 1

    def _enter(self) -> None:
        self._depth += 1
        if self._depth == _DEPTH_LIMIT:
            self._fail("recursion limit exceeded", self._at + 1)
        self._at += 1

    def _expect(self, bracket: str, expected: str) -> None:
        first = self._next()
        if first == bracket:
            self._enter()
        elif first in _BRACKETS:
            self._fail(f"invalid type: {_BRACKETS[first]}, expected {expected}", self._at)
        else:
            self._fail(f"invalid type: {wire_shapes.describe(self.value())}, expected {expected}", self._at)

    def _next(self) -> str:
        """Return the next character that is not white space; empty at the end."""
        self._take(_SPACE)
        return self._text[self._at : self._at + 1]

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        assert match is not None, "the pattern matches the empty text"
        self._at = match.end()
        return match.group()

    def _fail(self, problem: str, consumed: int) -> NoReturn:
        before = self._text[:consumed]
        line = before.count("\n") + 1
        column = len(before.rpartition("\n")[2].encode("utf-8", "surrogatepass"))
        raise ValueError(f"invalid {self._subject} JSON: {problem} at line {line} column {column}")
