"""The public Python API of openai_harmony 0.0.8, on top of harmony_ref: replace the module's name, and nothing else.

Names, signatures, defaults, mutability, what is copied, exceptions and their texts are those of the original, the line
and column of a refused JSON text included. The models need pydantic, the extra `compat`.

Kept, because programs may rest on it:

- `model_dump` and `model_dump_json` of a message write its parts as `{}`, and a message made of dicts has parts without
  text: pydantic knows them as `Content`, which has no members. `to_dict` and `from_dict` are the way to write and read.
- `with_…` methods change their object, return it and do not validate; what is of the wrong type is refused when it is
  rendered. They mark the member as set.
- `from_dict` of system content gives absent members their defaults; the core of the original reads them as absent.
- `render`, `render_conversation` and `render_conversation_for_training` raise RuntimeError where
  `render_conversation_for_completion` raises HarmonyError, a subclass. JSON that is refused is a ValueError.
- One bad token makes `parse_messages_from_completion_tokens` lose every finished message, the role that was given is
  used again after a first header that failed, and all else that `harmony_ref.StreamParser` says of its parsing.

Different, on purpose:

- The vocabulary comes with the package: `load_harmony_encoding` does not download it, is quick from the second call on,
  and TIKTOKEN_ENCODINGS_BASE and TIKTOKEN_RS_CACHE_DIR are not read.
- A HarmonyError that is raised for an error of harmony_ref has it as its `__cause__`, with position, state and what would
  have been right; HarmonyError is a subclass of harmony_ref.HarmonyError.
- `stop_tokens` and `stop_tokens_for_assistant_actions` are sorted; the order of the original changes from call to call.
- An encoding can be pickled and copied deeply, which the original refuses.
- A JSON array that stands for an object (`tools["x"] = []`, a message whose own `to_json` writes one) is refused in other
  words. So is text of an own `to_json` that is no JSON.
- `encode` does not see what was added to or taken from `special_tokens_set`.
- StreamableParser does not look at the encoding that it is given: there is only one.
- Not there: the compiled module `openai_harmony.openai_harmony` and all else that is private, and the unused TypeVar `T`.
"""

try:
    import pydantic as _  # noqa: F401 - asked for here, so that there is one clear error when it is missing
except ModuleNotFoundError as error:
    raise ImportError("harmony_ref.compat needs pydantic: pip install 'harmony-conformance[compat]'") from error

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
    # one home for all, as in the original: what is printed and pickled does not tell of the modules behind it
    globals()[_name].__module__ = __name__
