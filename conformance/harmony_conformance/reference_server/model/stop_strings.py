"""Stop strings: the text that the user sees ends before the first of them, however its tokens and deltas are cut."""

from collections.abc import Iterable, Iterator

from harmony_conformance.reference_server.model.generation import Sampling
from harmony_conformance.reference_server.model.output_events import OutputDelta, OutputField
from harmony_conformance.reference_server.model.stop_strings_in_messages import begun
from harmony_ref import tokens


class StopStrings:
    """Ends the deltas of one answer; what could still become a stop string is held back.

    Attributes:
        met: whether one of them was met, which ends the generation.
    """

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._held = ""
        self._ids: list[int] = []
        self._bytes = 0
        self.met = False

    def cut(self, deltas: Iterable[OutputDelta]) -> Iterator[OutputDelta]:
        """The deltas up to a stop string in the content."""
        for delta in deltas:
            if delta.field is not OutputField.CONTENT:
                yield from self._give(len(self._held))
                yield delta
                continue
            self._held += delta.text
            self._ids += delta.ids
            end = self._end()
            if end is not None:
                self.met = True
                yield from self._give(end)
                return
            yield from self._give(len(self._held) - begun(self._held, self._sampling.stops))
        yield from self._give(len(self._held))

    def _end(self) -> int | None:
        """Where the content ends, None where no stop string is met."""
        found = [(place, len(stop)) for stop in self._sampling.stops if (place := self._held.find(stop)) >= 0]
        if not found:
            return None
        place, length = min(found)
        return place + length if self._sampling.shows_stops else place

    def _give(self, length: int) -> Iterator[OutputDelta]:
        """So much of what is held, with the tokens that are in it whole."""
        text, self._held = self._held[:length], self._held[length:]
        self._bytes += len(text.encode())
        taken = 0
        while taken < len(self._ids) and (size := len(tokens.TOKEN_BYTES[self._ids[taken]])) <= self._bytes:
            self._bytes -= size
            taken += 1
        ids, self._ids = self._ids[:taken], self._ids[taken:]
        if text:
            yield OutputDelta(field=OutputField.CONTENT, text=text, ids=tuple(ids))
