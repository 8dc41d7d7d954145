"""What carries a request to a server and brings its answer, and how that goes wrong: the network, or a server in the same process."""

from __future__ import annotations

import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import Sequence

from harmony_conformance.wire import FailureKind

Headers = Sequence[tuple[bytes, bytes]]
"""Names and values as they cross the wire, in order."""


class BrokenOff(Exception):  # noqa: N818 - it says what happened
    """A request that got no answer, or an answer that broke off; `was_kept`: on a connection that had been open before."""

    def __init__(self, kind: FailureKind, detail: str, *, was_kept: bool = False) -> None:
        super().__init__(detail)
        self.kind, self.detail, self.was_kept = kind, detail, was_kept


def in_words(problem: Exception) -> str:
    """What went wrong, in one line: what the system calls it, where it is the system's."""
    if isinstance(problem, OSError) and problem.errno and not isinstance(problem, ssl.SSLError):
        return os.strerror(problem.errno)
    return " ".join(str(problem).split()) or type(problem).__name__


class Answer(ABC):
    """An answer whose head has arrived."""

    status: int
    headers: Headers

    @abstractmethod
    async def piece(self) -> bytes | None:
        """The next bytes of the body as they came, a chunk of HTTP by itself; None at its end.

        Raises:
            BrokenOff: it broke off.
        """

    @abstractmethod
    def leave(self) -> None:
        """Done with it, whether or not it is over; it is not read any more."""


class Carrier(ABC):
    """Carries requests to one server, any number at a time."""

    @abstractmethod
    async def ask(self, method: str, path: str, headers: Headers, body: bytes) -> Answer:
        """Send a request; the answer as soon as its head is there. `path`: beneath what the server's address has of a path.

        Raises:
            BrokenOff: there is none.
        """

    @abstractmethod
    async def close(self) -> None:
        """Break off whatever is under way."""
