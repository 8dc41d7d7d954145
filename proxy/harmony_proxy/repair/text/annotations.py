"""Annotations of a text from which something was cut: those whose text is still there, at the place where it stands now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import takewhile

from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, text

_MOST = 4_000_000
"""Letters of one text times letters of the other, that are compared where neither their beginnings nor their ends agree."""

_MEMBER = "annotations"

Span = tuple[int, int]


def moved(annotations: Sequence[Json], before: str, after: str) -> list[tuple[int, JsonObject]]:
    """Which of the annotations of a text still hold for what was left of it, each with its place among them before, and with its indexes now.

    One without indexes (a file among those that were cited) holds for the whole text, and stays as it is.
    """
    find = _finder(before, after)
    kept: list[tuple[int, JsonObject]] = []
    for place, annotation in enumerate(annotations):
        one = members(annotation)
        within = members(one.get("url_citation"))  # Chat Completions has the indexes in there
        start, end = (number(at(within or one, name)) for name in ("start_index", "end_index"))
        if start is None or end is None:
            kept.append((place, one))
        elif (now := find((start, end))) is not None:
            indexes: JsonObject = {"start_index": now[0], "end_index": now[1]}
            kept.append((place, {**one, "url_citation": {**within, **indexes}} if within else {**one, **indexes}))
    return kept


@dataclass
class AnnotationMover:
    """State, of a choice of a stream from where it is told anew: the content as the server goes on with it, that as it is told, and annotations that wait.

    They wait until the choice is over: what a text becomes is not known before. `begun`: the content that went out as it came.
    """

    begun: str
    heard: list[str] = field(default_factory=list[str])
    told: list[str] = field(default_factory=list[str])
    waiting: list[Json] = field(default_factory=list[Json])
    is_over: bool = False

    def hear(self, said: JsonObject, content: str) -> frozenset[str]:
        """The server says this of the choice; the members of it that wait."""
        self.heard.append(text(said.get(content)))
        self.waiting += items(said.get(_MEMBER))
        return frozenset({_MEMBER})

    def due(self) -> list[JsonObject]:
        """A delta with those that waited, as they hold now; none before the choice is over."""
        if not (self.is_over and self.waiting):
            return []
        kept = moved(self.waiting, self.begun + "".join(self.heard), self.begun + "".join(self.told))
        self.waiting = []
        held: list[Json] = [one for _, one in kept]
        return [{_MEMBER: held}] if held else []

    def copy(self) -> AnnotationMover:
        """The same, to go back to."""
        return replace(self, heard=[*self.heard], told=[*self.told], waiting=[*self.waiting])


def _finder(before: str, after: str) -> Callable[[Span], Span | None]:
    """What says where a piece of the text stands now, None where it is gone."""
    blocks = _blocks(before, after)

    def find(span: Span) -> Span | None:
        start, end = span
        for theirs, ours, size in blocks:
            if theirs <= start <= end <= theirs + size:
                return start - theirs + ours, end - theirs + ours
        return None

    return find


def _blocks(before: str, after: str) -> list[tuple[int, int, int]]:
    """What both have: where it stands in either, and how long it is."""
    if before == after:
        return [(0, 0, len(before))]
    begins = _agreeing(before, after)
    ends = min(_agreeing(before[::-1], after[::-1]), min(len(before), len(after)) - begins)
    middle, other = before[begins : len(before) - ends], after[begins : len(after) - ends]
    found = [(0, 0, begins)] if begins else []
    if middle and other and len(middle) * len(other) <= _MOST:
        matching = SequenceMatcher(None, middle, other, autojunk=False).get_matching_blocks()
        found += [(begins + one.a, begins + one.b, one.size) for one in matching if one.size]
    return [*found, (len(before) - ends, len(after) - ends, ends)] if ends else found


def _agreeing(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
