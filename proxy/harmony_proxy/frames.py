"""How exchanges travel to the process that judges: each as `marshal` writes plain values, several in one frame.

Packing is the path's work, done once for each exchange when it is over: `marshal` does it in about half the time of `pickle`, and what waits to be
judged is a few strings of bytes instead of all the objects of an exchange, which every garbage collection would look at. Both ends are the same
interpreter, and the pipe between them is nobody else's.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Mapping

from harmony_proxy.judge_settings import LENGTH_BYTES
from harmony_proxy.recorder import Kept, Recorder, kept

_VERSION = 2
"""Without looking for what occurs twice: that takes longer than to write it twice."""


def packed(recorder: Recorder, name: str, started: float) -> bytes:
    """One exchange that is over.

    Raises:
        ValueError: it holds what cannot be packed, or more than can.
    """
    told = recorder.packed(name, started)
    try:
        return marshal.dumps(told, _VERSION)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    except ValueError:  # a status that is an Enum, say, which is a number and is not packed as one
        return marshal.dumps(_plain(told), _VERSION)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def framed(exchanges: list[bytes]) -> tuple[bytes, bytes]:
    """A frame: its length, and what is in it."""
    body = marshal.dumps(exchanges, _VERSION)
    return len(body).to_bytes(LENGTH_BYTES), body


def unframed(body: bytes) -> list[Kept]:
    """The exchanges of a frame, without its length."""
    exchanges: list[bytes] = marshal.loads(body)  # noqa: S302 - of our own parent, over a pipe
    return [kept(marshal.loads(exchange)) for exchange in exchanges]  # noqa: S302 - as above


def _plain(value: object) -> object:
    match value:
        case None | bool():
            return value
        case str():
            return str.__str__(value)
        case int():
            return int(value)
        case float():
            return float(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value)  # pyright: ignore[reportUnknownArgumentType]
        case Mapping():
            return {_plain(name): _plain(one) for name, one in value.items()}  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case Iterable():
            return tuple(_plain(one) for one in value)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        case _:
            raise ValueError(f"a {type(value).__name__} is not packed")
