"""Prompts before and after: those of the exchanges that show changed results, with each differing token marked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.report.comparison.run_comparison import Change, Comparison
from harmony_conformance.report.text_excerpt import Pieces, contrast
from harmony_ref import decode

MOST_PROMPTS = 100
"""Largest number of exchanges whose prompts a page compares."""
_CHANGED = (Change.NEW, Change.CHANGED, Change.FIXED)


@dataclass(frozen=True, kw_only=True)
class PromptChange:
    """The prompts of one exchange in both runs. Pieces mark the tokens that differ."""

    exchange: str
    before: Pieces
    after: Pieces
    is_equal: bool


def changed_exchanges(compared: Comparison) -> tuple[str, ...]:
    """Return the ids of the exchanges that show new, changed and fixed failures."""
    results = (result for change in _CHANGED for result in compared.with_change(change))
    return tuple(dict.fromkeys(result.exchange for result in results if result.exchange))[:MOST_PROMPTS]


def prompt_changes(
    compared: Comparison, before: Iterable[Exchange], after: Iterable[Exchange], mask: Callable[[str], str] = str
) -> Mapping[str, PromptChange]:
    """Return the prompts of the changed results that both runs show as token ids, by exchange. `mask` is applied to each text."""
    names = changed_exchanges(compared)
    earlier, later = (_prompts(names, exchanges) for exchanges in (before, after))
    return {
        name: _change(name, earlier[name], later[name], mask) for name in names if name in earlier and name in later
    }


def _prompts(names: tuple[str, ...], exchanges: Iterable[Exchange]) -> dict[str, tuple[int, ...]]:
    wanted = frozenset(names)
    return {x.id: tuple(x.prompt.ids) for x in exchanges if x.id in wanted and x.prompt.ids is not None}


def _change(name: str, before: tuple[int, ...], after: tuple[int, ...], mask: Callable[[str], str]) -> PromptChange:
    earlier, later = contrast(mask(decode(before)), mask(decode(after)))
    return PromptChange(exchange=name, before=earlier, after=later, is_equal=before == after)
