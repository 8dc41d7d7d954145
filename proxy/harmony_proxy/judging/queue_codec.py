"""How exchanges travel to the process that judges: many in one frame, plain values as `marshal` writes them.

Packing is the path's work, done for some exchanges at once: `marshal` does it in about half the time of `pickle`, and what waits to be judged is a few
strings of bytes instead of all the objects of the exchanges, which every garbage collection would look at. Both ends are the same interpreter, and the pipe
between them is nobody else's.
"""

from __future__ import annotations

import marshal
import time
from collections.abc import Iterable, Mapping, Sequence
from types import EllipsisType

from harmony_proxy.capture.observation import Note, read_note
from harmony_proxy.capture.recorder import Packed, RecordedExchange, kept
from harmony_proxy.judging.judge_settings import LENGTH_BYTES

Handed = Packed | Note
"""One that is over: of a recorder, or noted."""

_VERSION = 2
"""Without looking for what occurs twice: that takes longer than to write it twice."""


def packed(exchanges: Sequence[Handed]) -> tuple[bytes, int]:
    """Exchanges as the body of a frame, and how many are in it: those that hold what cannot be packed, or more than can, are left out."""
    epoch = time.time() - time.perf_counter()
    try:
        return marshal.dumps((epoch, exchanges), _VERSION), len(exchanges)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    except ValueError:  # a header that is of its own kind, say
        plain = [one for exchange in exchanges if (one := _packable(exchange)) is not None]
        return marshal.dumps((epoch, plain), _VERSION), len(plain)  # pyright: ignore[reportArgumentType]


def framed(body: bytes) -> tuple[bytes, bytes]:
    """A frame: its length, and what is in it."""
    return len(body).to_bytes(LENGTH_BYTES), body


def unframed(body: bytes) -> list[RecordedExchange | None]:
    """The exchanges of a frame, without its length; None in the place of one that cannot be read, such as one with a header of three parts."""
    epoch, exchanges = marshal.loads(body)  # noqa: S302 - of our own parent, over a pipe
    return [_read_or_not(exchange, epoch) for exchange in exchanges]


def read(exchange: Handed, epoch: float = 0.0) -> RecordedExchange:
    """One exchange, read. `epoch` is what the 0 of `time.perf_counter` is in seconds since 1970."""
    return read_note(exchange, epoch) if isinstance(exchange, list) else kept(exchange)


def _read_or_not(exchange: Handed, epoch: float) -> RecordedExchange | None:
    try:
        return read(exchange, epoch)
    except Exception:  # noqa: BLE001 - what one application does wrong must not end the judging of the others
        return None


def _packable(exchange: Handed) -> object | None:
    try:
        plain = _plain(exchange)
        marshal.dumps(plain, _VERSION)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    except ValueError:
        return None
    return plain


def _plain(value: object) -> object:
    match value:
        case None | bool() | EllipsisType():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value)  # pyright: ignore[reportUnknownArgumentType]
        case list():
            return [_plain(one) for one in value]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case Mapping():
            return {_plain(name): _plain(one) for name, one in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case Iterable():
            return tuple(_plain(one) for one in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case _:
            raise ValueError(f"a {type(value).__name__} is not packed")
