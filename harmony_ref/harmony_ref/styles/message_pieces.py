"""One message in one style, in pieces that each belong to one part of it; joined they are the message's tokens."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from harmony_ref.memo import Memo
from harmony_ref.messages.header import CONSTRAIN_MARKER, EVERYONE, Header, encode_field, write_header
from harmony_ref.messages.message_types import Content, DeveloperContent, Message, Role, SystemContent, TextContent
from harmony_ref.rendering.render import render, system_text
from harmony_ref.styles.json_form import JsonForm, respelled
from harmony_ref.styles.style import ContentTypeForm, RecipientPlace, ResultChannel, Style
from harmony_ref.tokenizer import tokens

COMMENTARY: Final = "commentary"
JSON: Final = "json"
FUNCTIONS_PREFIX: Final = "functions."


class MessagePart(StrEnum):
    """A part of a rendered message, in words."""

    START = "start marker"
    AUTHOR = "role"
    RECIPIENT = "recipient"
    CHANNEL = "channel"
    CONTENT_TYPE = "content type"
    MESSAGE = "message marker"
    CONTENT = "content"
    END = "end marker"


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """The ids of one part."""

    part: MessagePart
    ids: Sequence[int]


def message_pieces(message: Message, style: Style, *, conversation_has_function_tools: bool) -> list[Piece]:
    """The pieces of a message, in order.

    Raises:
        RenderError: a tool without a name, or content in a role that may not carry it.
        MessageError: a string or number that JSON cannot carry.
    """
    form = header_form(message, style)
    pieces = [
        Piece(part=MessagePart.START, ids=(tokens.START,)),
        # Without its first and last token, which are markers, a header of an author alone is the author.
        Piece(part=MessagePart.AUTHOR, ids=write_header(Header(author=form.author))[1:-1]),
        *_addressed(form, style),
    ]
    if form.content_type is not None:
        pieces.append(Piece(part=MessagePart.CONTENT_TYPE, ids=_content_type(form.content_type)))
    pieces.append(Piece(part=MessagePart.MESSAGE, ids=(tokens.MESSAGE,)))
    content: list[int] = []
    for part in form.content:
        content += _content(part, form, style, note=conversation_has_function_tools)
    pieces.append(Piece(part=MessagePart.CONTENT, ids=content))
    is_call = message.author.role is Role.ASSISTANT and message.recipient is not None
    pieces.append(Piece(part=MessagePart.END, ids=(tokens.CALL if is_call else tokens.END,)))
    return pieces


def header_form(message: Message, style: Style) -> Message:
    """The message with the channel, the content type and the arguments that the style writes."""
    is_result = message.author.role is Role.TOOL
    omitted = is_result and style.result_channel is ResultChannel.OMITTED
    written = replace(
        message,
        channel=None if omitted else message.channel,
        content_type=_content_type_name(message, style),
    )
    if style.arguments is JsonForm.AS_GIVEN or not _carries_json(message):
        return written
    match message.content:
        case (TextContent(text=text),):
            return replace(written, content=(TextContent(text=respelled(text, style.arguments)),))
        case _:
            return written


def stands_after_channel(message: Message, style: Style) -> bool:
    """Whether the style names the recipient of this message after its channel."""
    match style.recipient:
        case RecipientPlace.ROLE:
            return False
        case RecipientPlace.COMMENTARY:
            return message.channel == COMMENTARY
        case RecipientPlace.CALLS:
            return message.channel is not None and message.author.role is Role.ASSISTANT


def _addressed(message: Message, style: Style) -> Iterator[Piece]:
    recipient, channel = list(_recipient(message)), list(_channel(message))
    yield from [*channel, *recipient] if stands_after_channel(message, style) else [*recipient, *channel]


def _recipient(message: Message) -> Iterator[Piece]:
    if message.recipient is not None and message.recipient != EVERYONE:
        yield Piece(part=MessagePart.RECIPIENT, ids=encode_field(f" to={message.recipient}"))


def _channel(message: Message) -> Iterator[Piece]:
    if message.channel is not None:
        yield Piece(part=MessagePart.CHANNEL, ids=(tokens.CHANNEL, *encode_field(message.channel)))


def _content_type(content_type: str) -> Sequence[int]:
    header = write_header(Header(author=_ANYONE, content_type=content_type))
    return header[len(write_header(Header(author=_ANYONE))) - 1 : -1]


def _content_type_name(message: Message, style: Style) -> str | None:
    given = message.content_type
    match style.content_type:
        case ContentTypeForm.AS_GIVEN:
            return given
        case ContentTypeForm.MARKER_ADDED:
            marked = given is None or given.startswith(CONSTRAIN_MARKER)
            return given if marked else f"{CONSTRAIN_MARKER}{given}"
        case ContentTypeForm.MARKED | ContentTypeForm.PLAIN:
            name = (given or "").removeprefix(CONSTRAIN_MARKER).strip()
            name = name or (style.call_type if _calls_function(message) else None) or ""
            marker = CONSTRAIN_MARKER if style.content_type is ContentTypeForm.MARKED else ""
            return f"{marker}{name}" if name else None


def _calls_function(message: Message) -> bool:
    is_addressed = message.recipient is not None and message.recipient.startswith(FUNCTIONS_PREFIX)
    return is_addressed and message.author.role is Role.ASSISTANT


def _carries_json(message: Message) -> bool:
    name = (message.content_type or JSON).removeprefix(CONSTRAIN_MARKER).strip()
    return _calls_function(message) and name == JSON


def _content(part: Content, message: Message, style: Style, *, note: bool) -> Sequence[int]:
    match part:
        case TextContent():
            return tokens.encode_text(part.text)
        case SystemContent() if message.author.role is Role.SYSTEM:
            content = style.system_content(part)
            return _encoded(system_text(content, conversation_has_function_tools=note))
        case DeveloperContent() if message.author.role is Role.DEVELOPER:
            return _encoded(style.developer_text(part))
        case _:
            return render(message)  # raises: no style has a form for this content in this role


_ENCODED: Final = Memo[str, tuple[int, ...]]()
"""What system and developer messages say: much the same in every conversation and reading of it."""
_REMEMBERED: Final = 4096
"""The longest of them, in characters."""


def _encoded(text: str) -> Sequence[int]:
    if len(text) > _REMEMBERED:
        return tokens.encode_text(text)
    found = _ENCODED.get(text)
    return found if found is not None else _ENCODED.remember(text, tuple(tokens.encode_text(text)))


_ANYONE: Final = Message(author=Role.USER).author
