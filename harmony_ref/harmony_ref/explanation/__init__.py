"""Name the style of a prompt, or describe the first place where it differs from every accepted style.

`explain(prompt, conversation)` returns `Recognised` or `Divergence`; `str` of either is a readable description.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from harmony_ref.explanation.divergence import Divergence, Part, Problem, Recognised
from harmony_ref.explanation.first_difference import first_difference
from harmony_ref.explanation.nearest_rendering import find_nearest_rendering, forms_in_prompt, shared_length
from harmony_ref.explanation.prompt_reader import format_ids
from harmony_ref.messages.header import RECIPIENT_ALL
from harmony_ref.messages.message_types import Message, Role
from harmony_ref.styles import STYLES, Style, accepted_renderings

_SHOWN: Final = 8
"""Number of tokens of each side in a divergence."""


def explain(
    prompt: Sequence[int],
    conversation: Iterable[Message],
    *,
    styles: Iterable[Style] = STYLES.values(),
    next_turn_role: Role | None = Role.ASSISTANT,
) -> Recognised | Divergence:
    """Identify a prompt as an accepted rendering of a conversation, or find the first difference from the nearest one.

    Args:
        prompt: token ids, any integers.
        conversation: the intended Conversation, or its messages.
        styles: the styles to compare with, at least one.
        next_turn_role: role of the next turn; None if the prompt ends after the last message.

    Raises:
        RenderError: a message of the conversation that Harmony has no form for.
        MessageError: a string or number in it that JSON cannot carry.
    """
    messages = list(conversation)
    ids = tuple(prompt)
    accepted = list(accepted_renderings(messages, styles=styles, next_turn_role=next_turn_role))
    exact = next((rendering for rendering in accepted if rendering.ids == ids), None)
    if exact is not None:
        return Recognised(styles=exact.styles, histories=exact.histories)
    near = find_nearest_rendering(ids, accepted)
    at = shared_length(near.ids, ids)
    forms = forms_in_prompt(ids, near, accepted)
    located = first_difference(near, ids, at, forms)
    expected, actual = near.ids[at : at + _SHOWN], ids[at : at + _SHOWN]
    return Divergence(
        styles=near.styles,
        histories=near.histories,
        token=at,
        message=located.message_index,
        label="" if located.message_index is None else _label(messages[located.message_index]),
        part=located.difference.part,
        problem=located.difference.problem,
        words=located.difference.description,
        expected=expected,
        actual=actual,
        expected_text=format_ids(expected),
        actual_text=format_ids(actual),
        is_only=located.is_only,
        message_styles=() if located.message_index is None else forms.styles.get(located.message_index, ()),
        is_mixed=forms.is_whole,
    )


def _label(message: Message) -> str:
    author = message.author
    name = author.name if author.role is Role.TOOL and author.name else author.role.value
    if message.recipient is not None and message.recipient != RECIPIENT_ALL:
        return f"{name} → {message.recipient}"
    return name if message.channel is None else f"{name}, {message.channel}"


__all__ = ["Divergence", "Part", "Problem", "Recognised", "explain"]
