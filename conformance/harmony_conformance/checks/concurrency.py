"""Family `concurrency`: requests that run side by side do not see each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harmony_conformance.check import MUST, Finding, comparison, condition
from harmony_conformance.exchange import Series
from harmony_conformance.texts import fields

LANE = "lane "


@condition
def has_lanes(series: Series) -> bool:
    """requests sent side by side, each with a word of its own"""
    return sum(1 for step, x in series.exchanges.items() if step.startswith(LANE) and x.turn is not None) > 1


@comparison(MUST, spec="chat#message", when=has_lanes)
def answers_do_not_cross(series: Series) -> Iterator[Finding]:
    """No answer holds the word that only another request, running at the same time, holds; no two answers share an id."""
    lanes = {step: x for step, x in series.exchanges.items() if step.startswith(LANE) and x.turn is not None}
    words = {step: "canary-" + step.removeprefix(LANE).partition("+")[0] for step in lanes}
    patterns = {word: re.compile(rf"{re.escape(word)}(?!\w)") for word in words.values()}
    seen: dict[str, str] = {}
    for step, x in lanes.items():
        if x.turn is None:
            continue
        texts = " ".join(field.text for field in fields(x.turn))
        foreign = next(
            (word for word, pattern in patterns.items() if word != words[step] and pattern.search(texts)), None
        )
        if foreign is not None:
            yield Finding(
                message="an answer holds the word of another request",
                at="content",
                expected=words[step],
                actual=foreign,
                exchange=x.id,
            )
        if x.turn.id:
            if x.turn.id in seen:
                yield Finding(
                    message="two answers have the same id",
                    at="/id",
                    expected="an id for each answer",
                    actual=f"shared with {seen[x.turn.id]}",
                    exchange=x.id,
                )
            seen.setdefault(x.turn.id, x.id)
