"""Treatments of the next bytes of a response."""

from __future__ import annotations

from enum import Enum, auto


class Treatment(Enum):
    """The treatment of the body of a response by a guard."""

    PASSING = auto()
    STREAMING = auto()
    UNPACKED = auto()  # passing, after decoding
    BUFFERING = auto()
    REFUSING = auto()
    STOPPED = auto()
