"""Functions that build changes of the parser's events; the defects of output parsing use them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from harmony_conformance.reference_server.model.output_deltas import ClientCapabilities, OutputField, destination
from harmony_conformance.reference_server.model.output_header import OutputHeader
from harmony_conformance.reference_server.model.output_parser import (
    MessageEnd,
    MessageStart,
    OutputEvent,
    SkippedHeader,
    TextBytes,
)
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_ref import tokens

EventChange: TypeAlias = Callable[[Iterator[OutputEvent]], Iterator[OutputEvent]]

_ANY_CALL = ClientCapabilities(declared_functions=frozenset(), accepts_calls=True)
FINAL = OutputHeader(channel="final")


def destination_field(header: OutputHeader) -> OutputField:
    """Return the field of the response for a message with this header, if all calls are allowed."""
    return destination(header, _ANY_CALL).field


def is_call(header: OutputHeader) -> bool:
    """Return True if the header belongs to a function call."""
    return destination_field(header) is OutputField.ARGUMENTS


def is_reasoning(header: OutputHeader) -> bool:
    """Return True if the header belongs to reasoning."""
    return destination_field(header) is OutputField.REASONING


def dropping(unwanted: Callable[[MessageStart], bool]) -> EventChange:
    """Drop the messages that `unwanted` selects."""

    def changed(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
        is_wanted = True
        for event in events:
            if isinstance(event, MessageStart):
                is_wanted = not unwanted(event)
            if is_wanted or isinstance(event, SkippedHeader):
                yield event

    return changed


def opening(change: Callable[[MessageStart], MessageStart]) -> EventChange:
    """Change the header of every message."""
    return lambda events: (change(event) if isinstance(event, MessageStart) else event for event in events)


def headed(
    wanted: Callable[[MessageStart], bool], change: Callable[[OutputHeader], OutputHeader]
) -> Callable[[MessageStart], MessageStart]:
    """Change the header of the messages that `wanted` selects."""
    return lambda opened: replace(opened, header=change(opened.header)) if wanted(opened) else opened


def raising(
    wanted: Callable[[MessageStart], bool], error: Callable[[MessageStart], ApiError]
) -> Callable[[MessageStart], MessageStart]:
    """Raise an error at the first message that `wanted` selects."""

    def changed(opened: MessageStart) -> MessageStart:
        if wanted(opened):
            raise error(opened)
        return opened

    return changed


def buffer_messages(
    wanted: Callable[[OutputHeader], bool], change: Callable[[Sequence[OutputEvent], MessageEnd], Iterable[OutputEvent]]
) -> EventChange:
    """Buffer each message that `wanted` selects, and replace its events by those that `change` returns."""

    def changed(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
        buffer: list[OutputEvent] = []
        for event in events:
            if isinstance(event, MessageStart) and wanted(event.header):
                buffer = [event]
            elif buffer and isinstance(event, MessageEnd):
                yield from change(buffer, event)
                buffer = []
            elif buffer:
                buffer.append(event)
            else:
                yield event

    return changed


def buffer_calls(change: Callable[[str, MessageEnd], str | None]) -> EventChange:
    """Buffer each call and change its whole text. If `change` returns None, drop the call."""

    def changed(call: Sequence[OutputEvent], closed: MessageEnd) -> Iterable[OutputEvent]:
        before = b"".join(event.data for event in call if isinstance(event, TextBytes)).decode("utf-8", "replace")
        after = change(before, closed)
        if after is None:
            return ()
        ids = tuple(token for event in call[1:] for token in event.ids)
        return [*call, closed] if after == before else [call[0], TextBytes(data=after.encode(), ids=ids), closed]

    return buffer_messages(is_call, changed)


def without_markers(ids: Sequence[int]) -> bytes:
    """Decode tokens without the special ones."""
    return tokens.decode_bytes([token for token in ids if not tokens.is_special(token)])


def as_text(event: OutputEvent, show: Callable[[Sequence[int]], bytes]) -> TextBytes:
    """Return all tokens of an event as text of the open message."""
    return TextBytes(data=show(event.ids), ids=event.ids)


def showing_raw(wanted: Callable[[MessageStart], bool], show: Callable[[Sequence[int]], bytes]) -> EventChange:
    """Return the messages that `wanted` selects as content, headers included."""

    def changed(events: Iterator[OutputEvent]) -> Iterator[OutputEvent]:
        showing = False
        for event in events:
            if isinstance(event, MessageStart) and wanted(event):
                showing = True
                yield MessageStart(header=FINAL, ids=())
            yield as_text(event, show) if showing else event
            if showing and isinstance(event, MessageEnd):
                showing = False
                yield MessageEnd(hit_token_limit=event.hit_token_limit)

    return changed


def by_header(predicate: Callable[[OutputHeader], bool]) -> Callable[[MessageStart], bool]:
    """Turn a predicate of headers into one of messages."""
    return lambda opened: predicate(opened.header)
