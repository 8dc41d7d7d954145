"""Render a conversation in a named style, and list every accepted rendering of a conversation."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Final, TypeAlias

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
    """One message of a rendering: its index in the conversation, its parts in order, and all its tokens."""

    index: int
    pieces: Sequence[Piece]
    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendering:
    """One accepted prompt.

    Attributes:
        styles: names of the styles that produce it, the library's first.
        histories: ways to drop earlier reasoning that produce it, in the first of those styles.
        ids: token ids.
        messages: the rendered messages.
        dropped: the dropped messages, in the same style.
        disputed: indices of the reasoning that only some histories drop.
    """

    styles: tuple[str, ...]
    histories: tuple[History, ...]
    ids: tuple[int, ...]
    messages: Sequence[RenderedMessage]
    dropped_messages: Sequence[RenderedMessage]
    disputed_indices: frozenset[int]

    @property
    def text(self) -> str:
        """The text of the tokens."""
        return tokens.decode(self.ids)

    @property
    def message_starts(self) -> list[int]:
        """Index of the first token of each message, and of the open header at the end."""
        return list(accumulate((len(message.ids) for message in self.messages), initial=0))


def render_in_style(
    conversation: Iterable[Message],
    style: Style,
    *,
    history: History = History.AS_0_0_8,
    next_turn_role: Role | None = Role.ASSISTANT,
) -> list[int]:
    """Render a conversation as the ids of a prompt in a style.

    Args:
        conversation: a Conversation, or its messages.
        style: one of `STYLES`.
        history: the rule that drops earlier reasoning; independent of style.
        next_turn_role: role of the next turn; None for the messages alone.

    Raises:
        RenderError: a message that Harmony has no form for.
        MessageError: a string or number that JSON cannot represent.
    """
    messages = list(conversation)
    if style is HARMONY_0_0_8 and history is History.AS_0_0_8:
        if next_turn_role is None:
            return render_conversation(messages)
        return render_conversation_for_completion(messages, next_turn_role)
    rendered = rendered_messages(messages, style)
    retained = (rendered[index].ids for index in kept_indices(messages, history))
    return [*chain.from_iterable(retained), *next_turn(next_turn_role)]


def accepted_renderings(
    conversation: Iterable[Message],
    *,
    styles: Iterable[Style] = STYLES.values(),
    histories: Iterable[History] = tuple(History),
    next_turn_role: Role | None = Role.ASSISTANT,
) -> Iterator[Rendering]:
    """Yield every distinct prompt of the styles once, with the names of all styles that produce it.

    Args and Raises as of `render_in_style`; `styles` and `histories` are those to combine.
    """
    messages = list(conversation)
    retained = {history: kept_indices(messages, history) for history in histories}
    times = Counter(chain.from_iterable(retained.values()))
    disputed = frozenset(index for index, count in times.items() if count < len(retained))
    renderings: dict[tuple[int, ...], Rendering] = {}
    for style in styles:
        rendered = rendered_messages(messages, style)
        for history, indices in retained.items():
            ids = (*chain.from_iterable(rendered[index].ids for index in indices), *next_turn(next_turn_role))
            first = renderings.get(ids)
            if first is None:
                renderings[ids] = Rendering(
                    styles=(style.name,),
                    histories=(history,),
                    ids=ids,
                    messages=[rendered[index] for index in indices],
                    dropped_messages=[rendered[index] for index in sorted(set(range(len(rendered))) - set(indices))],
                    disputed_indices=disputed,
                )
                continue
            of_first = (history,) if style.name == first.styles[0] else ()
            names = tuple(dict.fromkeys((*first.styles, style.name)))
            renderings[ids] = replace(first, styles=names, histories=(*first.histories, *of_first))
    yield from renderings.values()


def rendered_messages(messages: Sequence[Message], style: Style) -> list[RenderedMessage]:
    """Render each message in a style, without dropping any; raises as `render_in_style`."""
    return list(each_rendered(messages, style))


def each_rendered(messages: Sequence[Message], style: Style) -> Iterator[RenderedMessage]:
    """Render each message in a style lazily, without dropping any; raises as `render_in_style`."""
    note = has_function_tools(messages)
    try:
        for index, message in enumerate(messages):
            pieces, ids = _render_cached(message, style, note=note)
            yield RenderedMessage(index=index, pieces=pieces, ids=ids)
    except MessageError as error:
        raise MessageError(subject="conversation", problem=error.problem) from None
    except RecursionError:
        raise MessageError(subject="conversation", problem="recursion limit exceeded") from None


def next_turn(role: Role | None) -> tuple[int, ...]:
    """Return the open header at the end of a prompt."""
    return () if role is None else (tokens.START, *encode_field(role.value))


_PiecesAndIds: TypeAlias = tuple[tuple[Piece, ...], tuple[int, ...]]

_RENDERED: Final = Memo[tuple[Message, Style], _PiecesAndIds]()
"""Messages of one short text: each recurs in many renderings of its conversation and of continued conversations."""
_LONGEST_CACHED: Final = 1024
"""In characters."""


def _render_cached(message: Message, style: Style, *, note: bool) -> _PiecesAndIds:
    match message.content:
        case (TextContent(text=text),) if len(text) <= _LONGEST_CACHED:  # `note` only affects system messages
            key = message, style
            return _RENDERED.get(key) or _RENDERED.remember(key, _render(message, style, note=False))
        case _:
            return _render(message, style, note=note)


def _render(message: Message, style: Style, *, note: bool) -> _PiecesAndIds:
    pieces = tuple(message_pieces(message, style, conversation_has_function_tools=note))
    return pieces, tuple(chain.from_iterable(piece.ids for piece in pieces))
