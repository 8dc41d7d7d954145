"""The public Python API of openai_harmony 0.0.8, on top of harmony_ref: import this package in its place.

from harmony_ref.compat import Conversation, HarmonyEncodingName, Message, Role, load_harmony_encoding
"""

try:
    import pydantic as _  # noqa: F401 - asked for here, so that there is one clear error when it is missing
except ModuleNotFoundError as error:
    raise ImportError("harmony_ref.compat needs pydantic: pip install 'harmony-conformance[compat]'") from error

from harmony_ref.compat.declarations import ChannelConfig as ChannelConfig
from harmony_ref.compat.declarations import ReasoningEffort as ReasoningEffort
from harmony_ref.compat.declarations import ToolDescription
from harmony_ref.compat.declarations import ToolNamespaceConfig as ToolNamespaceConfig
from harmony_ref.compat.encoding import (
    HarmonyEncoding,
    HarmonyEncodingName,
    load_harmony_encoding,
)
from harmony_ref.compat.encoding import RenderConversationConfig as RenderConversationConfig
from harmony_ref.compat.encoding import RenderOptions as RenderOptions
from harmony_ref.compat.errors import HarmonyError
from harmony_ref.compat.errors import raise_disallowed_special_token as raise_disallowed_special_token
from harmony_ref.compat.messages import (
    Author,
    Content,
    Conversation,
    DeveloperContent,
    Message,
    Role,
    SystemContent,
    TextContent,
)
from harmony_ref.compat.stream import StreamableParser, StreamState

__all__ = [
    "Author",
    "Content",
    "Conversation",
    "DeveloperContent",
    "HarmonyEncoding",
    "HarmonyEncodingName",
    "HarmonyError",
    "Message",
    "Role",
    "StreamState",
    "StreamableParser",
    "SystemContent",
    "TextContent",
    "ToolDescription",
    "load_harmony_encoding",
]

for _name in (
    *__all__,
    "ChannelConfig",
    "ReasoningEffort",
    "RenderConversationConfig",
    "RenderOptions",
    "ToolNamespaceConfig",
    "raise_disallowed_special_token",
):
    # one home for all, as in the original: what is printed and pickled does not tell of the modules behind it
    globals()[_name].__module__ = __name__
