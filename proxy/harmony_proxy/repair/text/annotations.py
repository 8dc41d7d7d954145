"""Annotations of a text from which something was cut: those whose text remains, with their new indexes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import takewhile

from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at

_MOST = 4_000_000
"""Maximum product of the lengths of two texts that are compared beyond their common prefix and suffix."""

_MEMBER = "annotations"


def move_annotations(annotations: Sequence[Json], before: str, after: str) -> list[tuple[int, JsonObject]]:
    """Return the annotations that still apply to a shortened text: their former positions in the list, and they with new indexes.

    An annotation without indexes (a cited file, for example) applies to the whole text and is unchanged.
    """
    blocks = _common_blocks(before, after)
    remaining: list[tuple[int, JsonObject]] = []
    for position, annotation in enumerate(annotations):
        one = members(annotation)
        citation = members(one.get("url_citation"))  # holds the indexes in Chat Completions
        start, end = (integer(value_at(citation or one, name)) for name in ("start_index", "end_index"))
        if start is None or end is None:
            remaining.append((position, one))
            continue
        for old, new, size in blocks:
            if old <= start <= end <= old + size:
                indexes: JsonObject = {"start_index": start - old + new, "end_index": end - old + new}
                citing: JsonObject = (
                    {**one, "url_citation": {**citation, **indexes}} if citation else {**one, **indexes}
                )
                remaining.append((position, citing))
                break
    return remaining


@dataclass
class AnnotationMover:
    """Moves the annotations of a choice from the start of its repair. They wait for the end of the choice, when its final text is known.

    Attributes:
        initial_content: Content that was emitted before the repair.
        server_fragments: Fragments of content from the server since then.
        emitted_fragments: Fragments of content that were emitted since then.
        pending: Annotations that wait.
        is_over: True if the choice is complete.
    """

    initial_content: str
    server_fragments: list[str] = field(default_factory=list[str])
    emitted_fragments: list[str] = field(default_factory=list[str])
    pending: list[Json] = field(default_factory=list[Json])
    is_over: bool = False

    def add_message(self, message: JsonObject, content: str) -> frozenset[str]:
        """Store the content and the annotations of a message or delta. Return the names of the stored members."""
        self.server_fragments.append(text(message.get(content)))
        self.pending += items(message.get(_MEMBER))
        return frozenset({_MEMBER})

    def final_deltas(self) -> list[JsonObject]:
        """Return a delta with the annotations that still apply, or nothing before the choice is over."""
        if not (self.is_over and self.pending):
            return []
        remaining = move_annotations(
            self.pending,
            self.initial_content + "".join(self.server_fragments),
            self.initial_content + "".join(self.emitted_fragments),
        )
        self.pending = []
        return [{_MEMBER: [one for _, one in remaining]}] if remaining else []

    def copy(self) -> AnnotationMover:
        """Return a copy to roll back to."""
        return replace(
            self,
            server_fragments=[*self.server_fragments],
            emitted_fragments=[*self.emitted_fragments],
            pending=[*self.pending],
        )


def _common_blocks(before: str, after: str) -> list[tuple[int, int, int]]:
    """Return the common blocks of two texts: position in the first, position in the second, length."""
    if before == after:
        return [(0, 0, len(before))]
    prefix = _common_prefix(before, after)
    suffix = min(_common_prefix(before[::-1], after[::-1]), min(len(before), len(after)) - prefix)
    middle, other = before[prefix : len(before) - suffix], after[prefix : len(after) - suffix]
    blocks = [(0, 0, prefix)] if prefix else []
    if middle and other and len(middle) * len(other) <= _MOST:
        matching = SequenceMatcher(None, middle, other, autojunk=False).get_matching_blocks()
        blocks += [(prefix + one.a, prefix + one.b, one.size) for one in matching if one.size]
    return [*blocks, (len(before) - suffix, len(after) - suffix, suffix)] if suffix else blocks


def _common_prefix(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
