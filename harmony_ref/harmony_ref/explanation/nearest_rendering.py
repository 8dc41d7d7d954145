"""Find the accepted rendering nearest to a prompt, and the styles of the prompt's messages."""

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
    """The forms of a prompt's leading messages, up to the first unknown form.

    Attributes:
        styles: names of the styles that write a message as the prompt has it, by its index in the conversation. Has
            only messages that the nearest rendering writes in another form.
        is_whole: True if the prompt consists only of messages in an accepted form.
    """

    styles: Mapping[int, tuple[str, ...]]
    is_whole: bool


def find_nearest_rendering(prompt: Sequence[int], among: Sequence[Rendering]) -> Rendering:
    """Return the rendering that shares most whole messages with the prompt, then the longest prefix, then suffix."""
    if tokens.START not in prompt:  # markers that were fed as ordinary text are read as markers
        text = tokens.decode([token for token in prompt if tokens.is_known(token)])
        prompt = tokens.encode_with_special_tokens(text) if _START_TEXT in text else prompt
    counts = Counter(_all_messages(prompt))

    def nearness(rendering: Rendering) -> tuple[int, int, int]:
        own = Counter(message.ids for message in rendering.messages)
        shared = 2 * (own & counts).total() - len(rendering.messages)
        return shared, shared_length(rendering.ids, prompt), shared_length(rendering.ids[::-1], prompt[::-1])

    return max(among, key=nearness)


def forms_in_prompt(prompt: tuple[int, ...], near: Rendering, among: Iterable[Rendering]) -> PromptForms:
    """Return the forms of the prompt's messages, given the nearest rendering and every accepted one."""
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
    return PromptForms(styles=styles, is_whole=prompt[at:] == near.ids[near.message_starts[-1] :])


def shared_length(one: Sequence[object], other: Sequence[object]) -> int:
    """Return the length of the common prefix of two sequences of tokens or characters."""
    both = enumerate(zip(one, other, strict=False))
    return next((at for at, (first, second) in both if first != second), min(len(one), len(other)))


def _all_messages(prompt: Sequence[int]) -> Iterator[tuple[int, ...]]:
    at = 0
    while at < len(prompt):
        message = next(prompt_messages(prompt, at), None)
        if message is not None:
            yield message.ids
        at += 1 if message is None else len(message.ids)
