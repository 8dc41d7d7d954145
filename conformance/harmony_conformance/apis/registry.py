"""The table of supported APIs. To support another API, write its adapter and add it here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from harmony_conformance.apis.api import Api, UnsupportedByApiError
from harmony_conformance.apis.chat import CHAT_COMPLETIONS
from harmony_conformance.apis.completions import COMPLETIONS
from harmony_conformance.apis.llamacpp import LLAMACPP_COMPLETION
from harmony_conformance.apis.messages import MESSAGES
from harmony_conformance.apis.ollama.chat import OLLAMA
from harmony_conformance.apis.ollama.generate import OLLAMA_GENERATE, OLLAMA_RAW
from harmony_conformance.apis.responses import RESPONSES
from harmony_conformance.apis.sglang import SGLANG_GENERATE
from harmony_conformance.apis.tgi.chat import TGI
from harmony_conformance.apis.tgi.generate import TGI_GENERATE
from harmony_conformance.json_value import Json, value_at

_ALL = (
    CHAT_COMPLETIONS,
    RESPONSES,
    MESSAGES,
    COMPLETIONS,
    OLLAMA,
    OLLAMA_GENERATE,
    OLLAMA_RAW,
    TGI,
    TGI_GENERATE,
    LLAMACPP_COMPLETION,
    SGLANG_GENERATE,
)

APIS: Mapping[str, Api] = MappingProxyType({api.name: api for api in _ALL})
"""The adapters by name."""

CONVERSATION_APIS = frozenset(api.name for api in APIS.values() if not api.is_raw)
"""The names of the APIs that take messages and return a message."""


def find_api(name: str) -> Api:
    """Return the API of that name, or Chat Completions, which translates nothing, for an unknown name."""
    return APIS.get(name, CHAT_COMPLETIONS)


def refine_api(name: str, request: Json) -> str:
    """Refine the name of the API by the request: Ollama's `raw` mode, and SGLang's names for prompts, unlike TGI's."""
    if name == TGI_GENERATE.name and any(value_at(request, prompt) is not None for prompt in ("text", "input_ids")):
        return SGLANG_GENERATE.name
    return OLLAMA_RAW.name if name == OLLAMA_GENERATE.name and value_at(request, "raw") is True else name


__all__ = [
    "APIS",
    "CHAT_COMPLETIONS",
    "COMPLETIONS",
    "CONVERSATION_APIS",
    "LLAMACPP_COMPLETION",
    "MESSAGES",
    "OLLAMA",
    "OLLAMA_GENERATE",
    "OLLAMA_RAW",
    "RESPONSES",
    "SGLANG_GENERATE",
    "TGI",
    "TGI_GENERATE",
    "Api",
    "UnsupportedByApiError",
    "find_api",
    "refine_api",
]
