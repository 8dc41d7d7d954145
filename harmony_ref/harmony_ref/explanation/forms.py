"""Which styles the messages of a prompt are in, each on its own: a prompt may mix the forms of several renderers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harmony_ref.explanation.nearest import Candidate


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptForms:
    """The forms of a prompt's messages, from the first on, as far as they are known.

    Attributes:
        styles: of each message that is in another form than the nearest rendering has it, by its index in the
            conversation: the names of the styles that have that form.
        is_whole: whether the prompt consists of such messages, and of those that are as expected, and nothing else.
    """

    styles: Mapping[int, tuple[str, ...]]
    is_whole: bool


def forms_in_prompt(prompt: tuple[int, ...], near: Candidate, among: Iterable[Candidate]) -> PromptForms:
    """The forms of the messages that the nearest rendering has.

    Args:
        prompt: its ids.
        near: the rendering that it is nearest to.
        among: every accepted rendering.
    """
    forms = _forms(among)
    styles: dict[int, tuple[str, ...]] = {}
    at = 0
    for message in near.messages:
        known = forms[message.index]
        ids = next((ids for ids in known if prompt[at : at + len(ids)] == ids), None)
        if ids is None:
            return PromptForms(styles=styles, is_whole=False)
        if ids != message.ids:
            styles[message.index] = tuple(known[ids])
        at += len(ids)
    return PromptForms(styles=styles, is_whole=prompt[at:] == near.ids[near.starts[-1] :])


def _forms(among: Iterable[Candidate]) -> Mapping[int, Mapping[tuple[int, ...], Sequence[str]]]:
    """Of each message, by its index: its ids in every style, with the names of the styles."""
    forms: dict[int, dict[tuple[int, ...], list[str]]] = {}
    for candidate in among:
        for message in candidate.messages:
            names = forms.setdefault(message.index, {}).setdefault(message.ids, [])
            names += [name for name in candidate.styles if name not in names]
    return forms
