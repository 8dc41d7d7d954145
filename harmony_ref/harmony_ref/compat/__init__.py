"""The public Python API of openai_harmony 0.0.8, on top of harmony_ref: a program only replaces the module's name.

Names, signatures, defaults, mutability, copying, exceptions and their texts are those of the original. That includes
line and column in errors of JSON. The models need pydantic, the extra `compat`.

Preserved, because programs may depend on it:

- `model_dump` and `model_dump_json` of a message write its parts as `{}`, and a message made of dicts has parts without
  text: for pydantic they are `Content`, which has no members. Use `to_dict` and `from_dict`.
- `with_…` methods change their object, mark the member as set, return the object and do not validate. Rendering rejects
  wrong types.
- `from_dict` of system content gives absent members their defaults; the core of the original reads them as absent.
- `render`, `render_conversation` and `render_conversation_for_training` raise RuntimeError where
  `render_conversation_for_completion` raises HarmonyError, a subclass. Invalid JSON raises ValueError.
- One bad token makes `parse_messages_from_completion_tokens` lose every finished message. The `role` argument is
  used again after a first header that failed. `harmony_ref.StreamParser` documents the rest of the parsing.

Different, on purpose:

- The vocabulary is in the package: `load_harmony_encoding` does not download it, is fast from the second call on,
  and does not read TIKTOKEN_ENCODINGS_BASE and TIKTOKEN_RS_CACHE_DIR.
- A HarmonyError has the error of harmony_ref as its `__cause__`, with position, state and expected tokens; HarmonyError
  is a subclass of harmony_ref.HarmonyError.
- `stop_tokens` and `stop_tokens_for_assistant_actions` are sorted; the order of the original changes from call to call.
- An encoding can be pickled and deep-copied, which the original refuses.
- The error text differs for a JSON array in place of an object (`tools["x"] = []`, or the `to_json` of a subclass).
  It also differs if the `to_json` of a subclass writes invalid JSON.
- `encode` ignores changes of `special_tokens_set`.
- StreamableParser ignores its encoding argument: there is only one encoding.
- Absent: the compiled module `openai_harmony.openai_harmony`, other private names, and the unused TypeVar `T`.
"""

from harmony_ref.extras import install_command

try:
    import pydantic as _  # noqa: F401 - imported first, for one clear error if it is missing
except ModuleNotFoundError as error:
    raise ImportError(f"harmony_ref.compat needs pydantic: {install_command('compat')}") from error

from harmony_ref.compat.declarations import ChannelConfig as ChannelConfig
from harmony_ref.compat.declarations import ReasoningEffort as ReasoningEffort
from harmony_ref.compat.declarations import ToolDescription
from harmony_ref.compat.declarations import ToolNamespaceConfig as ToolNamespaceConfig
from harmony_ref.compat.encoding import HarmonyEncoding, HarmonyEncodingName, load_harmony_encoding
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
    # as in the original, one module for all: representations and pickles do not name the modules behind it
    globals()[_name].__module__ = __name__
