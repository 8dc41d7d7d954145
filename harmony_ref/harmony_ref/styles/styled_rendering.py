"""Conversation → tokens in a named style, and every rendering that is accepted for a conversation."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Final

from harmony_ref.errors import MessageError
from harmony_ref.memo import Memo
from harmony_ref.messages.header import encode_field
from harmony_ref.messages.message_types import Message, Role, TextContent
from harmony_ref.rendering.render import has_function_tools, render_conversation, render_conversation_for_completion
from harmony_ref.styles.history import History, kept_indices
from harmony_ref.styles.message_pieces import Piece, message_pieces
from harmony_ref.styles.style import HARMONY_0_0_8, STYLES, Style
from harmony_ref.tokenizer import tokens


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedMessage:
    """One message of a rendering.

    Attributes:
        index: its place in the conversation, from 0.
        pieces: its parts, in order.
        ids: all its tokens.
    """

    index: int
    pieces: Sequence[Piece]
    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendering:
    """One accepted prompt.

    Attributes:
        styles: the names of the styles that give it, the library's first.
        histories: the ways to leave out earlier reasoning that give it, under the first of those styles.
        ids: its tokens.
        messages: those that are rendered.
        dropped: those that are left out, in the same style.
        disputed: indices of the reasoning that some histories keep and some drop.
    """

    styles: tuple[str, ...]
    histories: tuple[History, ...]
    ids: tuple[int, ...]
    messages: Sequence[RenderedMessage]
    dropped: Sequence[RenderedMessage]
    disputed: frozenset[int]

    @property
    def text(self) -> str:
        """The text of its tokens."""
        return tokens.decode(self.ids)

    @property
    def starts(self) -> list[int]:
        """Index of the first token of each message, and of the open header at the end."""
        return list(accumulate((len(message.ids) for message in self.messages), initial=0))


def render_in_style(
    conversation: Iterable[Message],
    style: Style,
    *,
    history: History = History.AS_0_0_8,
    next_turn_role: Role | None = Role.ASSISTANT,
) -> list[int]:
    """The ids of a prompt in a style.

    Args:
        conversation: a Conversation, or its messages.
        style: one of `STYLES`.
        history: which earlier reasoning is left out; not a matter of style.
        next_turn_role: who is to speak next; None for the messages alone.

    Raises:
        RenderError: a message that Harmony has no form for.
        MessageError: a string or number that JSON cannot carry.
    """
    messages = list(conversation)
    if style is HARMONY_0_0_8 and history is History.AS_0_0_8:
        if next_turn_role is None:
            return render_conversation(messages)
        return render_conversation_for_completion(messages, next_turn_role)
    rendered = rendered_messages(messages, style)
    kept = (rendered[index].ids for index in kept_indices(messages, history))
    return [*chain.from_iterable(kept), *next_turn(next_turn_role)]


def accepted_renderings(
    conversation: Iterable[Message],
    *,
    styles: Iterable[Style] = STYLES.values(),
    histories: Iterable[History] = tuple(History),
    next_turn_role: Role | None = Role.ASSISTANT,
) -> Iterator[Rendering]:
    """Every distinct prompt that one of the styles gives, each once, with the names of all that give it.

    Args:
        conversation: a Conversation, or its messages.
        styles: those to look at.
        histories: the ways to leave out earlier reasoning to look at.
        next_turn_role: who is to speak next; None for the messages alone.

    Raises:
        RenderError: a message that Harmony has no form for.
        MessageError: a string or number that JSON cannot carry.
    """
    messages = list(conversation)
    kept = {history: kept_indices(messages, history) for history in histories}
    times = Counter(chain.from_iterable(kept.values()))
    disputed = frozenset(index for index, count in times.items() if count < len(kept))
    found: dict[tuple[int, ...], Rendering] = {}
    for style in styles:
        rendered = rendered_messages(messages, style)
        for history, indices in kept.items():
            ids = (*chain.from_iterable(rendered[index].ids for index in indices), *next_turn(next_turn_role))
            first = found.get(ids)
            if first is None:
                found[ids] = Rendering(
                    styles=(style.name,),
                    histories=(history,),
                    ids=ids,
                    messages=[rendered[index] for index in indices],
                    dropped=[rendered[index] for index in sorted(set(range(len(rendered))) - set(indices))],
                    disputed=disputed,
                )
                continue
            of_first = (history,) if style.name == first.styles[0] else ()
            names = tuple(dict.fromkeys((*first.styles, style.name)))
            found[ids] = replace(first, styles=names, histories=(*first.histories, *of_first))
    yield from found.values()


def rendered_messages(messages: Sequence[Message], style: Style) -> list[RenderedMessage]:
    """Each message in a style, none left out.

    Raises:
        RenderError: a message that Harmony has no form for.
        MessageError: a string or number that JSON cannot carry.
    """
    return list(each_rendered(messages, style))


def each_rendered(messages: Sequence[Message], style: Style) -> Iterator[RenderedMessage]:
    """The same, one by one, each when it is asked for."""
    note = has_function_tools(messages)
    try:
        for index, message in enumerate(messages):
            yield _rendered(index, message, style, note=note)
    except MessageError as error:
        raise MessageError(subject="conversation", problem=error.problem) from None
    except RecursionError:
        raise MessageError(subject="conversation", problem="recursion limit exceeded") from None


def next_turn(role: Role | None) -> tuple[int, ...]:
    """The open header that a prompt ends in."""
    return () if role is None else (tokens.START, *encode_field(role.value))


_WRITTEN: Final = Memo[tuple[Message, Style], tuple[tuple[Piece, ...], tuple[int, ...]]]()
"""Messages of one short text: each stands in many renderings of its conversation, and those of one conversation in the next."""
_REMEMBERED: Final = 1024
"""The longest of them, in characters."""


def _rendered(index: int, message: Message, style: Style, *, note: bool) -> RenderedMessage:
    match message.content:
        case (TextContent(text=text),) if len(text) <= _REMEMBERED:  # what `note` is about is no text
            pieces, ids = _WRITTEN.get((message, style)) or _WRITTEN.remember(
                (message, style), _written(message, style)
            )
        case _:
            pieces, ids = _written(message, style, note=note)
    return RenderedMessage(index=index, pieces=pieces, ids=ids)


def _written(message: Message, style: Style, *, note: bool = False) -> tuple[tuple[Piece, ...], tuple[int, ...]]:
    pieces = tuple(message_pieces(message, style, conversation_has_function_tools=note))
    return pieces, tuple(chain.from_iterable(piece.ids for piece in pieces))
