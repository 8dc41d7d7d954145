"""An independent implementation of the Harmony response format of the gpt-oss models.

    from harmony_ref import Conversation, Message, Role, parse, render_conversation_for_completion

    prompt = render_conversation_for_completion([Message(author=Role.USER, content="What is 2 + 2?")])
    messages = parse(completion, Role.ASSISTANT)

Equal to openai-harmony 0.0.8 token for token, errors included. The vocabulary is packaged and loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from harmony_ref.errors import (
    HarmonyError,
    HeaderError,
    HeaderProblem,
    InvalidUtf8Error,
    MessageError,
    ParseError,
    RenderError,
    UnexpectedEndError,
    UnexpectedTokenError,
    UnknownTokenError,
)
from harmony_ref.json_value import Json
from harmony_ref.messages.declarations import ChannelConfig, ResponseFormat, ToolDescription, ToolNamespaceConfig
from harmony_ref.messages.events import Delta, Event, MessageFinished, MessageStarted
from harmony_ref.messages.header import Header, read_header, write_header
from harmony_ref.messages.message_types import (
    Author,
    Content,
    Conversation,
    DeveloperContent,
    Message,
    ReasoningEffort,
    Role,
    SystemContent,
    TextContent,
)
from harmony_ref.parsing.parser import StreamParser, parse
from harmony_ref.rendering.render import (
    developer_text,
    has_function_tools,
    render,
    render_conversation,
    render_conversation_for_completion,
    render_conversation_for_training,
    response_formats_text,
    system_text,
    text_of,
    tools_text,
    without_dropped_analysis,
)
from harmony_ref.rendering.typescript import json_schema_to_typescript
from harmony_ref.stream_state import StreamState
from harmony_ref.tokenizer import tokens
from harmony_ref.tokenizer.tiktoken_failures import EncodingError
from harmony_ref.tokenizer.tokens import (
    decode,
    decode_bytes,
    decode_utf8,
    encode,
    encode_with_special_tokens,
    is_special,
)

if TYPE_CHECKING:
    from harmony_ref.explanation import Divergence, Recognised, explain
    from harmony_ref.lenient.errors import RecoveredError
    from harmony_ref.lenient.parse import parse_leniently
    from harmony_ref.lenient.result import LenientParse, Remainder, Segment, SegmentKind
    from harmony_ref.rendering.incremental import GrowingConversation
    from harmony_ref.styles import STYLES, History, Rendering, Style, accepted_renderings, render_in_style

_LATER = {
    "explanation": ("Divergence", "Recognised", "explain"),
    "rendering.incremental": ("GrowingConversation",),
    "lenient.parse": ("parse_leniently",),
    "lenient.errors": ("RecoveredError",),
    "lenient.result": ("LenientParse", "Remainder", "Segment", "SegmentKind"),
    "styles": ("STYLES", "History", "Rendering", "Style", "accepted_renderings", "render_in_style"),
}
"""Names by the module that defines them; imported on first use, because most programs only render and parse."""

_MODULES = {name: module for module, names in _LATER.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


__all__ = [
    "STYLES",
    "Author",
    "ChannelConfig",
    "Content",
    "Conversation",
    "Delta",
    "DeveloperContent",
    "Divergence",
    "EncodingError",
    "Event",
    "GrowingConversation",
    "HarmonyError",
    "Header",
    "HeaderError",
    "HeaderProblem",
    "History",
    "InvalidUtf8Error",
    "Json",
    "LenientParse",
    "Message",
    "MessageError",
    "MessageFinished",
    "MessageStarted",
    "ParseError",
    "ReasoningEffort",
    "Recognised",
    "RecoveredError",
    "Remainder",
    "RenderError",
    "Rendering",
    "ResponseFormat",
    "Role",
    "Segment",
    "SegmentKind",
    "StreamParser",
    "StreamState",
    "Style",
    "SystemContent",
    "TextContent",
    "ToolDescription",
    "ToolNamespaceConfig",
    "UnexpectedEndError",
    "UnexpectedTokenError",
    "UnknownTokenError",
    "accepted_renderings",
    "decode",
    "decode_bytes",
    "decode_utf8",
    "developer_text",
    "encode",
    "encode_with_special_tokens",
    "explain",
    "has_function_tools",
    "is_special",
    "json_schema_to_typescript",
    "parse",
    "parse_leniently",
    "read_header",
    "render",
    "render_conversation",
    "render_conversation_for_completion",
    "render_conversation_for_training",
    "render_in_style",
    "response_formats_text",
    "system_text",
    "text_of",
    "tokens",
    "tools_text",
    "without_dropped_analysis",
    "write_header",
]
