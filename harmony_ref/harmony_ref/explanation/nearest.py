"""Which accepted rendering a prompt is nearest to."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Final

from harmony_ref import tokens
from harmony_ref.explanation.reading import prompt_messages
from harmony_ref.messages import Message, Role
from harmony_ref.styles import History, Style, kept_indices
from harmony_ref.styles.rendering import RenderedMessage, next_turn, rendered_messages

_START_TEXT: Final = tokens.NAMED_SPECIALS[tokens.START].encode()


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One accepted rendering, in parts.

    Attributes:
        styles: the names of the styles that give it.
        histories: the ways to leave out earlier reasoning that give it, under the first of those styles.
        messages: those that are rendered.
        dropped: those that are left out, in the same style.
        disputed: indices of the reasoning that some histories keep and some drop.
        starts: where each message begins, and where the open header at the end does.
        ids: all its tokens.
    """

    styles: tuple[str, ...]
    histories: tuple[History, ...]
    messages: Sequence[RenderedMessage]
    dropped: Sequence[RenderedMessage]
    disputed: frozenset[int]
    starts: Sequence[int]
    ids: tuple[int, ...]

    def ordinal(self, token: int) -> int:
        """Which message a token belongs to; their number for the open header at the end."""
        return max(0, bisect_right(self.starts, token) - 1)


def candidates(messages: Sequence[Message], styles: Iterable[Style], next_turn_role: Role | None) -> list[Candidate]:
    """Every distinct accepted rendering.

    Raises:
        RenderError: a message that Harmony has no form for.
        MessageError: a string or number that JSON cannot carry.
    """
    kept = {history: kept_indices(messages, history) for history in History}
    times = Counter(chain.from_iterable(kept.values()))
    disputed = frozenset(index for index, count in times.items() if count < len(kept))
    found: dict[tuple[int, ...], Candidate] = {}
    for style in styles:
        rendered = rendered_messages(messages, style)
        for history, indices in kept.items():
            ids = (*chain.from_iterable(rendered[index].ids for index in indices), *next_turn(next_turn_role))
            made = Candidate(
                styles=(style.name,),
                histories=(history,),
                messages=[rendered[index] for index in indices],
                dropped=[rendered[index] for index in sorted(set(range(len(rendered))) - set(indices))],
                disputed=disputed,
                starts=list(accumulate((len(rendered[index].ids) for index in indices), initial=0)),
                ids=ids,
            )
            found[made.ids] = _merged(found[made.ids], made) if made.ids in found else made
    return list(found.values())


def nearest(prompt: Sequence[int], among: Sequence[Candidate]) -> Candidate:
    """The rendering that shares most whole messages with the prompt, then the longest beginning, then the longest end."""
    spelled = _with_markers(prompt)
    counted = Counter(map(tuple, _all_messages(spelled)))
    return max(among, key=lambda candidate: _nearness(candidate, spelled, counted))


def shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two sequences begin with in common."""
    both = enumerate(zip(one, other, strict=False))
    return next((at for at, (first, second) in both if first != second), min(len(one), len(other)))


def _merged(first: Candidate, other: Candidate) -> Candidate:
    new_history = other.styles == first.styles[:1]
    return replace(
        first,
        styles=tuple(dict.fromkeys((*first.styles, *other.styles))),
        histories=(*first.histories, *other.histories) if new_history else first.histories,
    )


def _nearness(candidate: Candidate, prompt: Sequence[int], counted: Counter[tuple[int, ...]]) -> tuple[int, int, int]:
    own = Counter(message.ids for message in candidate.messages)
    shared = sum(min(count, counted[ids]) for ids, count in own.items())
    end = shared_length(candidate.ids[::-1], prompt[::-1])
    return 2 * shared - len(candidate.messages), shared_length(candidate.ids, prompt), end


def _with_markers(prompt: Sequence[int]) -> Sequence[int]:
    """The prompt; when its markers were fed as ordinary text, as it would have been with markers."""
    if tokens.START in prompt:
        return prompt
    text = tokens.decode([token for token in prompt if tokens.is_known(token)])
    return tokens.encode_with_special_tokens(text) if _START_TEXT.decode() in text else prompt


def _all_messages(prompt: Sequence[int]) -> Iterable[Sequence[int]]:
    at = 0
    while at < len(prompt):
        if prompt[at] != tokens.START:
            at += 1
            continue
        for message in prompt_messages(prompt, at):
            yield message.ids
            at += len(message.ids)
