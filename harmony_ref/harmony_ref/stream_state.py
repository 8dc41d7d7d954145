"""The state of a parser between two tokens, and the base class of its events."""

from enum import StrEnum


class StreamState(StrEnum):
    """The three states of openai-harmony 0.0.8 (encoding.rs:1118-1315), under its names."""

    EXPECT_START = "ExpectStart"
    HEADER = "Header"
    CONTENT = "Content"


class ParserEvent:
    """Base of the events in `messages.events`; defined here because `errors` carries events and is imported by them."""

    __slots__ = ()
