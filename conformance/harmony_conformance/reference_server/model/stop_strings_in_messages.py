"""Stop strings in an answer that is read message by message."""

from collections.abc import Iterator, Sequence
from typing import AnyStr

from harmony_conformance.reference_server.model.output_parser import Closed, Event, Text


def until_stop(events: Iterator[Event], stops: Sequence[str]) -> Iterator[Event]:
    """The events up to the first stop string in the text of a message; what may still become one is held back."""
    return _until(events, [stop.encode() for stop in stops if stop]) if any(stops) else events


def _until(events: Iterator[Event], stops: Sequence[bytes]) -> Iterator[Event]:
    held = b""
    for event in events:
        if not isinstance(event, Text):
            if held:
                yield Text(data=held, ids=())
                held = b""
            yield event
            continue
        held += event.data
        found = [held.index(stop) for stop in stops if stop in held]
        if found:
            yield Text(data=held[: min(found)], ids=event.ids)
            yield Closed()
            return
        certain = len(held) - begun(held, stops)
        yield Text(data=held[:certain], ids=event.ids)
        held = held[certain:]


def begun(text: AnyStr, stops: Sequence[AnyStr]) -> int:
    """Return the length of the end of a text that could become a stop string."""
    return max((size for stop in stops for size in range(1, len(stop)) if text[-size:] == stop[:size]), default=0)
