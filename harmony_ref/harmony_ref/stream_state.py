"""The state of a parser between two tokens, and the base of its events."""

from enum import StrEnum


class StreamState(StrEnum):
    """The three states of openai-harmony 0.0.8 (encoding.rs:1118-1315), under its names."""

    EXPECT_START = "ExpectStart"
    HEADER = "Header"
    CONTENT = "Content"


class ParserEvent:
    """The base of the events in `events`. The errors are below that module and carry its values."""

    __slots__ = ()
