"""Stop strings in an answer that is parsed into messages."""

from collections.abc import Iterator, Sequence
from typing import AnyStr

from harmony_conformance.reference_server.model.output_parser import MessageEnd, OutputEvent, TextBytes


def until_stop(events: Iterator[OutputEvent], stops: Sequence[str]) -> Iterator[OutputEvent]:
    """Yield the events up to the first stop string in a message's text; buffer text that can become one."""
    return _until(events, [stop.encode() for stop in stops if stop]) if any(stops) else events


def _until(events: Iterator[OutputEvent], stops: Sequence[bytes]) -> Iterator[OutputEvent]:
    buffer = b""
    for event in events:
        if not isinstance(event, TextBytes):
            if buffer:
                yield TextBytes(data=buffer, ids=())
                buffer = b""
            yield event
            continue
        buffer += event.data
        starts = [buffer.index(stop) for stop in stops if stop in buffer]
        if starts:
            yield TextBytes(data=buffer[: min(starts)], ids=event.ids)
            yield MessageEnd()
            return
        certain = len(buffer) - partial_match_length(buffer, stops)
        yield TextBytes(data=buffer[:certain], ids=event.ids)
        buffer = buffer[certain:]


def partial_match_length(text: AnyStr, stops: Sequence[AnyStr]) -> int:
    """Return the length of the longest suffix of a text that can become a stop string."""
    return max(
        (size for stop in stops for size in range(1, min(len(stop), len(text) + 1)) if text[-size:] == stop[:size]),
        default=0,
    )
