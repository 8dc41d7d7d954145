"""Render one message in one style, as pieces: one piece for each part. Joined, they are the message's tokens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from harmony_ref.memo import Memo
from harmony_ref.messages.header import CONSTRAIN_MARKER, RECIPIENT_ALL, Header, encode_field, write_header
from harmony_ref.messages.message_types import Content, DeveloperContent, Message, Role, SystemContent, TextContent
from harmony_ref.rendering.render import render, system_text
from harmony_ref.styles.json_form import JsonForm, respell_json
from harmony_ref.styles.style import ContentTypeForm, RecipientPlace, ResultChannel, Style
from harmony_ref.tokenizer import tokens

COMMENTARY: Final = "commentary"
JSON: Final = "json"
FUNCTIONS_PREFIX: Final = "functions."


class MessagePart(StrEnum):
    """A part of a rendered message."""

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
    """Render a message as pieces, in order.

    Raises:
        RenderError: a tool without a name, or content in a role that may not carry it.
        MessageError: a string or number that JSON cannot represent.
    """
    form = styled_message(message, style)
    pieces = [
        Piece(part=MessagePart.START, ids=(tokens.START,)),
        # The first and the last token of a header are markers.
        Piece(part=MessagePart.AUTHOR, ids=write_header(Header(author=form.author))[1:-1]),
        *_recipient_and_channel(form, style),
    ]
    if form.content_type is not None:
        # the tokens by which the header of a user grows with this content type
        header = write_header(Header(author=_USER, content_type=form.content_type))
        content_type = header[len(write_header(Header(author=_USER))) - 1 : -1]
        pieces.append(Piece(part=MessagePart.CONTENT_TYPE, ids=content_type))
    content: list[int] = []
    for part in form.content:
        content += _content(part, form, style, note=conversation_has_function_tools)
    is_call = message.author.role is Role.ASSISTANT and message.recipient is not None
    return [
        *pieces,
        Piece(part=MessagePart.MESSAGE, ids=(tokens.MESSAGE,)),
        Piece(part=MessagePart.CONTENT, ids=content),
        Piece(part=MessagePart.END, ids=(tokens.CALL if is_call else tokens.END,)),
    ]


def styled_message(message: Message, style: Style) -> Message:
    """Return the message with the channel, the content type and the arguments that the style writes."""
    is_omitted = message.author.role is Role.TOOL and style.result_channel is ResultChannel.OMITTED
    channel = None if is_omitted else message.channel
    form = replace(message, channel=channel, content_type=_content_type(message, style))
    content_type = (message.content_type or JSON).removeprefix(CONSTRAIN_MARKER).strip()
    if style.arguments is JsonForm.AS_GIVEN or not _calls_function(message) or content_type != JSON:
        return form
    match message.content:
        case (TextContent(text=text),):
            return replace(form, content=(TextContent(text=respell_json(text, style.arguments)),))
        case _:
            return form


def has_recipient_after_channel(message: Message, style: Style) -> bool:
    """Return True if the style writes the recipient of this message after its channel."""
    match style.recipient:
        case RecipientPlace.ROLE:
            return False
        case RecipientPlace.COMMENTARY:
            return message.channel == COMMENTARY
        case RecipientPlace.CALLS:
            return message.channel is not None and message.author.role is Role.ASSISTANT


def _recipient_and_channel(message: Message, style: Style) -> list[Piece]:
    pieces: list[Piece] = []
    if message.recipient is not None and message.recipient != RECIPIENT_ALL:
        pieces.append(Piece(part=MessagePart.RECIPIENT, ids=encode_field(f" to={message.recipient}")))
    if message.channel is not None:
        pieces.append(Piece(part=MessagePart.CHANNEL, ids=(tokens.CHANNEL, *encode_field(message.channel))))
    return pieces[::-1] if has_recipient_after_channel(message, style) else pieces


def _content_type(message: Message, style: Style) -> str | None:
    content_type = message.content_type
    match style.content_type:
        case ContentTypeForm.AS_GIVEN:
            return content_type
        case ContentTypeForm.MARKER_ADDED:
            is_complete = content_type is None or content_type.startswith(CONSTRAIN_MARKER)
            return content_type if is_complete else f"{CONSTRAIN_MARKER}{content_type}"
        case ContentTypeForm.MARKED | ContentTypeForm.PLAIN:
            name = (content_type or "").removeprefix(CONSTRAIN_MARKER).strip()
            name = name or (style.call_type if _calls_function(message) else None) or ""
            marker = CONSTRAIN_MARKER if style.content_type is ContentTypeForm.MARKED else ""
            return f"{marker}{name}" if name else None


def _calls_function(message: Message) -> bool:
    is_addressed = message.recipient is not None and message.recipient.startswith(FUNCTIONS_PREFIX)
    return is_addressed and message.author.role is Role.ASSISTANT


def _content(part: Content, message: Message, style: Style, *, note: bool) -> Sequence[int]:
    match part:
        case TextContent():
            return tokens.encode_text(part.text)
        case SystemContent() if message.author.role is Role.SYSTEM:
            return _encode(system_text(style.system_content(part), conversation_has_function_tools=note))
        case DeveloperContent() if message.author.role is Role.DEVELOPER:
            return _encode(style.developer_text(part))
        case _:
            return render(message)  # raises: no style has a form for this content in this role


_ENCODED: Final = Memo[str, tuple[int, ...]]()
"""Texts of system and developer messages, which recur in most conversations and renderings."""
_LONGEST_CACHED: Final = 4096
"""In characters."""


def _encode(text: str) -> Sequence[int]:
    if len(text) > _LONGEST_CACHED:
        return tokens.encode_text(text)
    ids = _ENCODED.get(text)
    return ids if ids is not None else _ENCODED.remember(text, tuple(tokens.encode_text(text)))


_USER: Final = Message(author=Role.USER).author
