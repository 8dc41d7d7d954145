"""Stop strings: end the visible text before the first of them, wherever token and delta boundaries are."""

from collections.abc import Iterable, Iterator

from harmony_conformance.reference_server.model.generation import Sampling
from harmony_conformance.reference_server.model.output_deltas import OutputDelta, OutputField
from harmony_conformance.reference_server.model.stop_strings_in_messages import partial_match_length
from harmony_ref import tokens


class StopStringFilter:
    """Truncates the deltas of one answer; `match` is the stop string that ended it, empty without one."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._buffer = ""
        self._ids: list[int] = []
        self._bytes = 0
        self.match = ""

    def truncate(self, deltas: Iterable[OutputDelta]) -> Iterator[OutputDelta]:
        """Yield the deltas up to a stop string in the content; buffer text that can become one."""
        for delta in deltas:
            if delta.field is not OutputField.CONTENT:
                yield from self._release(len(self._buffer))
                yield delta
                continue
            self._buffer += delta.text
            self._ids += delta.ids
            stops = self._sampling.stop_strings
            matches = [(start, len(stop), stop) for stop in stops if (start := self._buffer.find(stop)) >= 0]
            if matches:
                start, length, self.match = min(matches)
                yield from self._release(start + length if self._sampling.shows_stops else start)
                return
            yield from self._release(len(self._buffer) - partial_match_length(self._buffer, stops))
        yield from self._release(len(self._buffer))

    def _release(self, length: int) -> Iterator[OutputDelta]:
        """Yield this many characters of the buffer, with the tokens that they complete."""
        text, self._buffer = self._buffer[:length], self._buffer[length:]
        self._bytes += len(text.encode())
        count = 0
        while count < len(self._ids) and (size := len(tokens.TOKEN_BYTES[self._ids[count]])) <= self._bytes:
            self._bytes -= size
            count += 1
        ids, self._ids = self._ids[:count], self._ids[count:]
        if text:
            yield OutputDelta(field=OutputField.CONTENT, text=text, ids=tuple(ids))
