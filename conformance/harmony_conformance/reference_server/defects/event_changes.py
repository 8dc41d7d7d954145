"""Functions that build changes of the parser's events; the defects of output parsing use them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """Return the field of the response for a message with this header, if all calls are allowed."""
    return destination(header, _ANY_CALL).field


def is_call(header: OutputHeader) -> bool:
    """Return True if the header belongs to a function call."""
    return goes_to(header) is OutputField.ARGUMENTS


def is_reasoning(header: OutputHeader) -> bool:
    """Return True if the header belongs to reasoning."""
    return goes_to(header) is OutputField.REASONING


def dropping(unwanted: Callable[[Opened], bool]) -> EventChange:
    """Drop the messages that `unwanted` selects."""

    def changed(events: Iterator[Event]) -> Iterator[Event]:
        is_wanted = True
        for event in events:
            if isinstance(event, Opened):
                is_wanted = not unwanted(event)
            if is_wanted or isinstance(event, Skipped):
                yield event

    return changed


def opening(change: Callable[[Opened], Opened]) -> EventChange:
    """Change the header of every message."""
    return lambda events: (change(event) if isinstance(event, Opened) else event for event in events)


def headed(
    wanted: Callable[[Opened], bool], change: Callable[[OutputHeader], OutputHeader]
) -> Callable[[Opened], Opened]:
    """Change the header of the messages that `wanted` selects."""
    return lambda opened: replace(opened, header=change(opened.header)) if wanted(opened) else opened


def raising(wanted: Callable[[Opened], bool], error: Callable[[Opened], ApiError]) -> Callable[[Opened], Opened]:
    """Raise an error at the first message that `wanted` selects."""

    def changed(opened: Opened) -> Opened:
        if wanted(opened):
            raise error(opened)
        return opened

    return changed


def with_messages_whole(
    wanted: Callable[[OutputHeader], bool], change: Callable[[Sequence[Event], Closed], Iterable[Event]]
) -> EventChange:
    """Buffer each message that `wanted` selects, and replace its events by those that `change` returns."""

    def changed(events: Iterator[Event]) -> Iterator[Event]:
        buffer: list[Event] = []
        for event in events:
            if isinstance(event, Opened) and wanted(event.header):
                buffer = [event]
            elif buffer and isinstance(event, Closed):
                yield from change(buffer, event)
                buffer = []
            elif buffer:
                buffer.append(event)
            else:
                yield event

    return changed


def with_calls_whole(change: Callable[[str, Closed], str | None]) -> EventChange:
    """Buffer each call and change its whole text. If `change` returns None, drop the call."""

    def changed(call: Sequence[Event], closed: Closed) -> Iterable[Event]:
        before = b"".join(event.data for event in call if isinstance(event, Text)).decode("utf-8", "replace")
        after = change(before, closed)
        if after is None:
            return ()
        ids = tuple(token for event in call[1:] for token in event.ids)
        return [*call, closed] if after == before else [call[0], Text(data=after.encode(), ids=ids), closed]

    return with_messages_whole(is_call, changed)


def without_markers(ids: Sequence[int]) -> bytes:
    """Decode tokens without the special ones."""
    return tokens.decode_bytes([token for token in ids if not tokens.is_special(token)])


def as_text(event: Event, show: Callable[[Sequence[int]], bytes]) -> Text:
    """Return all tokens of an event as text of the open message."""
    return Text(data=show(event.ids), ids=event.ids)


def showing_raw(wanted: Callable[[Opened], bool], show: Callable[[Sequence[int]], bytes]) -> EventChange:
    """Return the messages that `wanted` selects as content, headers included."""

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
    """Turn a predicate of headers into one of messages."""
    return lambda opened: predicate(opened.header)
