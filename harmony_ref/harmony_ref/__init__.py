"""An independent implementation of the Harmony response format of the gpt-oss models.

    from harmony_ref import Conversation, Message, Role, parse, render_conversation_for_completion

    prompt = render_conversation_for_completion([Message(author=Role.USER, content="What is 2 + 2?")])
    messages = parse(completion, Role.ASSISTANT)

Token for token equal to openai-harmony 0.0.8, errors included. The vocabulary is packaged; it is loaded by the first
call that needs it.
"""

from harmony_ref import tokens
from harmony_ref.declarations import ChannelConfig, ResponseFormat, ToolDescription, ToolNamespaceConfig
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
from harmony_ref.events import Delta, Event, MessageFinished, MessageStarted
from harmony_ref.header import Header, read_header, write_header
from harmony_ref.json_value import Json
from harmony_ref.messages import (
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
from harmony_ref.parser import StreamParser, parse
from harmony_ref.render import (
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
from harmony_ref.stream_state import StreamState
from harmony_ref.tokens import decode, decode_bytes, decode_utf8, encode, encode_with_special_tokens, is_special
from harmony_ref.typescript import json_schema_to_typescript

__all__ = [
    "Author",
    "ChannelConfig",
    "Content",
    "Conversation",
    "Delta",
    "DeveloperContent",
    "Event",
    "HarmonyError",
    "Header",
    "HeaderError",
    "HeaderProblem",
    "InvalidUtf8Error",
    "Json",
    "Message",
    "MessageError",
    "MessageFinished",
    "MessageStarted",
    "ParseError",
    "ReasoningEffort",
    "RenderError",
    "ResponseFormat",
    "Role",
    "StreamParser",
    "StreamState",
    "SystemContent",
    "TextContent",
    "ToolDescription",
    "ToolNamespaceConfig",
    "UnexpectedEndError",
    "UnexpectedTokenError",
    "UnknownTokenError",
    "decode",
    "decode_bytes",
    "decode_utf8",
    "developer_text",
    "encode",
    "encode_with_special_tokens",
    "has_function_tools",
    "is_special",
    "json_schema_to_typescript",
    "parse",
    "read_header",
    "render",
    "render_conversation",
    "render_conversation_for_completion",
    "render_conversation_for_training",
    "response_formats_text",
    "system_text",
    "text_of",
    "tokens",
    "tools_text",
    "without_dropped_analysis",
    "write_header",
]
