"""Ways to change the events of a whole output, of which the defects of reading are made."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from harmony_conformance.reference_server.model.output_events import ClientCapabilities, OutputField, destination
from harmony_conformance.reference_server.model.output_header import OutputHeader
from harmony_conformance.reference_server.model.output_parser import Closed, Event, Opened, Skipped, Text
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_ref import tokens

EventChange: TypeAlias = Callable[[Iterator[Event]], Iterator[Event]]

_ANY_CALL = ClientCapabilities(names=frozenset(), takes_calls=True)
FINAL = OutputHeader(channel="final")


def goes_to(header: OutputHeader) -> OutputField:
    """Where the text under a header goes when every call is welcome."""
    return destination(header, _ANY_CALL).field


def is_call(header: OutputHeader) -> bool:
    """Whether a header calls a function."""
    return goes_to(header) is OutputField.ARGUMENTS


def dropping(unwanted: Callable[[Opened], bool]) -> EventChange:
    """Events without the messages that are unwanted."""

    def changed(events: Iterator[Event]) -> Iterator[Event]:
        keeping = True
        for event in events:
            if isinstance(event, Opened):
                keeping = not unwanted(event)
            if keeping or isinstance(event, Skipped):
                yield event

    return changed


def opening(change: Callable[[Opened], Opened]) -> EventChange:
    """Events with each header changed."""
    return lambda events: (change(event) if isinstance(event, Opened) else event for event in events)


def headed(
    wanted: Callable[[Opened], bool], change: Callable[[OutputHeader], OutputHeader]
) -> Callable[[Opened], Opened]:
    """The wanted messages under a changed header."""
    return lambda opened: replace(opened, header=change(opened.header)) if wanted(opened) else opened


def raising(wanted: Callable[[Opened], bool], error: Callable[[Opened], ApiError]) -> Callable[[Opened], Opened]:
    """An error at the first wanted message."""

    def changed(opened: Opened) -> Opened:
        if wanted(opened):
            raise error(opened)
        return opened

    return changed


def with_calls_whole(
    change: Callable[[str, Closed], str | None],
) -> EventChange:
    """Events in which the text of each call is held back until it is whole, and then changed, or dropped with the call."""

    def changed(events: Iterator[Event]) -> Iterator[Event]:
        held: list[Event] = []
        for event in events:
            if isinstance(event, Opened) and is_call(event.header):
                held = [event]
            elif held and isinstance(event, Closed):
                yield from _changed_call(held, event, change)
                held = []
            elif held:
                held.append(event)
            else:
                yield event

    return changed


def _changed_call(
    held: Sequence[Event], closed: Closed, change: Callable[[str, Closed], str | None]
) -> Iterator[Event]:
    before = b"".join(event.data for event in held if isinstance(event, Text)).decode("utf-8", "replace")
    after = change(before, closed)
    if after == before:
        yield from [*held, closed]
    elif after is not None:
        ids = tuple(token for event in held[1:] for token in event.ids)
        yield from [held[0], Text(data=after.encode(), ids=ids), closed]


def without_markers(ids: Sequence[int]) -> bytes:
    """The text of tokens, the special ones left out."""
    return tokens.decode_bytes([token for token in ids if not tokens.is_special(token)])


def as_text(event: Event, show: Callable[[Sequence[int]], bytes]) -> Text:
    """All of an event's tokens as text of the open message."""
    return Text(data=show(event.ids), ids=event.ids)


def showing_raw(wanted: Callable[[Opened], bool], show: Callable[[Sequence[int]], bytes]) -> EventChange:
    """Events in which the wanted messages are shown as content, header and all."""

    def changed(events: Iterator[Event]) -> Iterator[Event]:
        showing = False
        for event in events:
            if isinstance(event, Opened) and wanted(event):
                showing = True
                yield Opened(header=FINAL, ids=())
            yield as_text(event, show) if showing else event
            if showing and isinstance(event, Closed):
                showing = False
                yield Closed(cut=event.cut)

    return changed


def on(predicate: Callable[[OutputHeader], bool]) -> Callable[[Opened], bool]:
    """A predicate of headers as one of messages."""
    return lambda opened: predicate(opened.header)
