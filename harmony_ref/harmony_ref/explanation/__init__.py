"""Which style a prompt is in, or where it first is in none, in words.

`explain(prompt, conversation)` answers with `Recognised` or `Divergence`; `str` of either is for people.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from harmony_ref.explanation.divergence import Divergence, Part, Problem, Recognised
from harmony_ref.explanation.first_difference import first_difference
from harmony_ref.explanation.nearest_rendering import forms_in_prompt, nearest, shared_length
from harmony_ref.explanation.prompt_reader import show
from harmony_ref.messages.header import EVERYONE
from harmony_ref.messages.message_types import Message, Role
from harmony_ref.styles import STYLES, Style, accepted_renderings

_SHOWN: Final = 8
"""How many tokens of each side a divergence shows."""


def explain(
    prompt: Sequence[int],
    conversation: Iterable[Message],
    *,
    styles: Iterable[Style] = STYLES.values(),
    next_turn_role: Role | None = Role.ASSISTANT,
) -> Recognised | Divergence:
    """Which accepted rendering of a conversation a prompt is, or the first difference from the nearest one.

    Args:
        prompt: token ids, any integers.
        conversation: a Conversation, or its messages: what was to be said.
        styles: the styles to look for, at least one.
        next_turn_role: who is to speak next; None for the messages alone.

    Raises:
        RenderError: a message of the conversation that Harmony has no form for.
        MessageError: a string or number in it that JSON cannot carry.
    """
    messages = list(conversation)
    ids = tuple(prompt)
    known = list(accepted_renderings(messages, styles=styles, next_turn_role=next_turn_role))
    exact = next((one for one in known if one.ids == ids), None)
    if exact is not None:
        return Recognised(styles=exact.styles, histories=exact.histories)
    near = nearest(ids, known)
    at = shared_length(near.ids, ids)
    forms = forms_in_prompt(ids, near, known)
    found = first_difference(near, ids, at, forms)
    expected, actual = near.ids[at : at + _SHOWN], ids[at : at + _SHOWN]
    return Divergence(
        styles=near.styles,
        histories=near.histories,
        token=at,
        message=found.message,
        label="" if found.message is None else _label(messages[found.message]),
        part=found.difference.part,
        problem=found.difference.problem,
        words=found.difference.words,
        expected=expected,
        actual=actual,
        expected_text=show(expected),
        actual_text=show(actual),
        is_only=found.is_only,
        message_styles=() if found.message is None else forms.styles.get(found.message, ()),
        is_mixed=forms.is_whole,
    )


def _label(message: Message) -> str:
    author = message.author
    name = author.name if author.role is Role.TOOL and author.name else author.role.value
    if message.recipient is not None and message.recipient != EVERYONE:
        return f"{name} → {message.recipient}"
    return name if message.channel is None else f"{name}, {message.channel}"


__all__ = ["Divergence", "Part", "Problem", "Recognised", "explain"]
