"""Detection of the API from the end of a request path: servers put arbitrary prefixes before it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from posixpath import normpath
from types import MappingProxyType
from urllib.parse import unquote

from harmony_conformance.apis import registry
from harmony_conformance.json_value import Json, value_at

_ENDINGS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("chat", "completions"): registry.CHAT_COMPLETIONS.name,
        ("v1", "completions"): registry.COMPLETIONS.name,
        ("", "completions"): registry.COMPLETIONS.name,
        ("v1", "responses"): registry.RESPONSES.name,
        ("", "responses"): registry.RESPONSES.name,
        ("api", "chat"): registry.OLLAMA.name,
        ("api", "generate"): registry.OLLAMA_GENERATE.name,
        ("", "generate"): registry.TGI_GENERATE.name,
        ("", "generate_stream"): registry.TGI_GENERATE.name,
        ("sglang", "generate"): registry.SGLANG_GENERATE.name,
        ("", "separate_reasoning"): registry.SGLANG_GENERATE.name,  # its parsers as endpoints
        ("", "parse_function_call"): registry.SGLANG_GENERATE.name,
        ("sglang", "separate_reasoning"): registry.SGLANG_GENERATE.name,
        ("sglang", "parse_function_call"): registry.SGLANG_GENERATE.name,
        ("", "completion"): registry.LLAMACPP_COMPLETION.name,
    }
)
_TGI_CHAT = "/tgi/v1/chat/completions"


def normalize_path(path: str) -> str:
    """Normalize a path as servers may before routing: no escapes, empty segments, `.`, `..` or trailing slash."""
    if "%" in path:
        path = unquote(path)
    return f"/{normpath(path).lstrip('/')}" if "//" in path or "/." in path or path.endswith("/") else path


@lru_cache(maxsize=64)  # called for each request, before anything is sent on
def api_of(path: str) -> str:
    """Return the name of the API at a path without query; empty for any other path."""
    path = normalize_path(path)
    head, _, last = path.rpartition("/")
    name = _ENDINGS.get((head.rpartition("/")[2], last), "")
    return registry.TGI.name if name == registry.CHAT_COMPLETIONS.name and path.endswith(_TGI_CHAT) else name


def refine_api(name: str, request: Json) -> str:
    """Refine the name of the API by the request: Ollama's `raw` mode, and SGLang's names for prompts, unlike TGI's."""
    if name == registry.TGI_GENERATE.name and any(
        value_at(request, prompt) is not None for prompt in ("text", "input_ids")
    ):
        return registry.SGLANG_GENERATE.name
    return (
        registry.OLLAMA_RAW.name if name == registry.OLLAMA_GENERATE.name and value_at(request, "raw") is True else name
    )
