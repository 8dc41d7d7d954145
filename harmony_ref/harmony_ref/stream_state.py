"""Where a parser stands between two tokens."""

from enum import StrEnum


class StreamState(StrEnum):
    """The three states of openai-harmony 0.0.8 (encoding.rs:1118-1315), under its names."""

    EXPECT_START = "ExpectStart"
    HEADER = "Header"
    CONTENT = "Content"
