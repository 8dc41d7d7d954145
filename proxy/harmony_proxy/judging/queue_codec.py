"""Encoding of exchanges for the judge process: many per frame, as plain values in `marshal` format.

`marshal` takes about half the time of `pickle`; both ends run the same interpreter, and the pipe between them is private.
The queue has a few byte strings instead of the objects of all exchanges, which garbage collections would traverse.
"""

from __future__ import annotations

import marshal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from types import EllipsisType

from harmony_proxy.capture.asgi_observer import Note, read_note
from harmony_proxy.capture.recorder import PackedExchange, RecordedExchange, decode_packed
from harmony_proxy.judging.judge_settings import LENGTH_BYTES

QueuedExchange = PackedExchange | Note
"""A finished exchange: from a recorder, or a note of the observer."""

_VERSION = 2  # the version without references to repeated objects: detecting these takes longer than writing them twice


def encode_exchanges(exchanges: Sequence[QueuedExchange]) -> tuple[bytes, int]:
    """Return exchanges as the body of a frame, and their number, without those that cannot be packed."""
    epoch = time.time() - time.perf_counter()
    try:
        return marshal.dumps((epoch, exchanges), _VERSION), len(exchanges)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    except ValueError:  # such as a header of a class that marshal does not know
        plain = [one for exchange in exchanges if (one := _packable(exchange)) is not None]
        return marshal.dumps((epoch, plain), _VERSION), len(plain)  # pyright: ignore[reportArgumentType]


def encode_frame(body: bytes) -> tuple[bytes, bytes]:
    """Return a frame: its length, and its body."""
    return len(body).to_bytes(LENGTH_BYTES), body


def decode_frame(body: bytes) -> list[RecordedExchange | None]:
    """Return the exchanges of a frame body; None for one that cannot be read, such as one with a three-part header."""
    epoch, exchanges = marshal.loads(body)  # noqa: S302 - from the parent process, over a private pipe
    return [_read_or_none(exchange, epoch) for exchange in exchanges]


def decode_exchange(exchange: QueuedExchange, epoch: float = 0.0) -> RecordedExchange:
    """Decode one exchange. `epoch` is the Unix time, in seconds, at which `time.perf_counter` was 0."""
    return read_note(exchange, epoch) if isinstance(exchange, list) else decode_packed(exchange)


def _read_or_none(exchange: QueuedExchange, epoch: float) -> RecordedExchange | None:
    try:
        return decode_exchange(exchange, epoch)
    except Exception:  # noqa: BLE001 - one malformed exchange must not end the judging of others
        return None


def _packable(exchange: QueuedExchange) -> object | None:
    with suppress(ValueError):
        plain = _plain(exchange)
        marshal.dumps(plain, _VERSION)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        return plain
    return None


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
            raise ValueError(f"invalid value: expected a plain type, got {type(value).__name__}")
