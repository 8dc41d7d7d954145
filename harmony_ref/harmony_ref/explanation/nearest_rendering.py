"""The accepted rendering that a prompt is nearest to, and the forms in which a prompt has its messages."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harmony_ref.explanation.prompt_reader import prompt_messages
from harmony_ref.styles import Rendering
from harmony_ref.tokenizer import tokens

_START_TEXT: Final = tokens.NAMED_SPECIALS[tokens.START]


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptForms:
    """The forms of a prompt's messages, from the first on, as far as they are known.

    Attributes:
        styles: names of the styles that have the form of a message, by its index in the conversation; only messages
            that the nearest rendering has in another form.
        is_whole: whether the prompt consists of messages in an accepted form, and nothing else.
    """

    styles: Mapping[int, tuple[str, ...]]
    is_whole: bool


def nearest(prompt: Sequence[int], among: Sequence[Rendering]) -> Rendering:
    """The rendering that shares most whole messages with the prompt, then the longest beginning, then the longest end."""
    spelled = _with_markers(prompt)
    counted = Counter(_all_messages(spelled))

    def nearness(rendering: Rendering) -> tuple[int, int, int]:
        own = Counter(message.ids for message in rendering.messages)
        shared = 2 * (own & counted).total() - len(rendering.messages)
        end = shared_length(rendering.ids[::-1], spelled[::-1])
        return shared, shared_length(rendering.ids, spelled), end

    return max(among, key=nearness)


def forms_in_prompt(prompt: tuple[int, ...], near: Rendering, among: Iterable[Rendering]) -> PromptForms:
    """The forms of the messages that the nearest rendering has.

    Args:
        prompt: its ids.
        near: the rendering that it is nearest to.
        among: every accepted rendering.
    """
    forms: dict[int, dict[tuple[int, ...], list[str]]] = {}
    for rendering in among:
        for message in rendering.messages:
            forms.setdefault(message.index, {}).setdefault(message.ids, []).extend(rendering.styles)
    styles: dict[int, tuple[str, ...]] = {}
    at = 0
    for message in near.messages:
        known = forms[message.index]
        ids = next((ids for ids in known if prompt[at : at + len(ids)] == ids), None)
        if ids is None:
            return PromptForms(styles=styles, is_whole=False)
        if ids != message.ids:
            styles[message.index] = tuple(dict.fromkeys(known[ids]))
        at += len(ids)
    return PromptForms(styles=styles, is_whole=prompt[at:] == near.ids[near.starts[-1] :])


def shared_length(one: Sequence[object], other: Sequence[object]) -> int:
    """How many tokens or characters two sequences begin with in common."""
    both = enumerate(zip(one, other, strict=False))
    return next((at for at, (first, second) in both if first != second), min(len(one), len(other)))


def _with_markers(prompt: Sequence[int]) -> Sequence[int]:
    """The prompt; when its markers were fed as ordinary text, as it would have been with markers."""
    if tokens.START in prompt:
        return prompt
    text = tokens.decode([token for token in prompt if tokens.is_known(token)])
    return tokens.encode_with_special_tokens(text) if _START_TEXT in text else prompt


def _all_messages(prompt: Sequence[int]) -> Iterator[tuple[int, ...]]:
    at = 0
    while at < len(prompt):
        message = next(prompt_messages(prompt, at), None)
        if message is not None:
            yield message.ids
        at += 1 if message is None else len(message.ids)
