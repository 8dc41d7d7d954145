"""Signs of defects: what an answer must have before its defect is named. A signature alone has messages, which other defects share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from harmony_conformance.evidence.exchange import Exchange

_BRACKETS = ("{", "[")


def _has_json(content: str) -> bool:
    return content.lstrip().startswith(_BRACKETS)


SIGNS: Mapping[str, Callable[[str], bool]] = {
    "demanded-call-as-content": _has_json,
    "schema-not-enforced-in-streams": lambda content: "```" in content,
}
"""By defect: whether the content of an answer has its sign."""


def has_sign(defect: str, exchange: Exchange | None) -> bool:
    """Return True if an exchange shows the sign of a defect, or if the defect needs none."""
    sign = SIGNS.get(defect)
    turn = exchange.turn if exchange is not None else None
    return sign is None or (turn is not None and sign(turn.content or ""))
