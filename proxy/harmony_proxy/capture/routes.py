"""Detection of the API from the end of a request path: servers put arbitrary prefixes before it. Paths that show no output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from posixpath import normpath
from types import MappingProxyType
from urllib.parse import unquote

from harmony_conformance.apis import registry

_ENDINGS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        ("chat", "completions"): registry.CHAT_COMPLETIONS.name,
        ("v1", "completions"): registry.COMPLETIONS.name,
        ("", "completions"): registry.COMPLETIONS.name,
        ("v1", "responses"): registry.RESPONSES.name,
        ("", "responses"): registry.RESPONSES.name,
        ("v1", "messages"): registry.MESSAGES.name,
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


_READ = frozenset({"GET", "HEAD"})
HARMLESS_PATHS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "POST": frozenset(
            {
                *("/tokenize", "/detokenize", "/apply-template", "/api/show", "/v1/messages/count_tokens"),
                *("/v1/embeddings", "/embeddings", "/embedding", "/embed", "/api/embed", "/api/embeddings"),
                *("/v1/rerank", "/v2/rerank", "/rerank", "/v1/score", "/score", "/classify", "/pooling"),
            }
        ),
        "GET": frozenset(
            {
                *(
                    "/",
                    "/health",
                    "/healthz",
                    "/readyz",
                    "/ping",
                    "/version",
                    "/info",
                    "/metrics",
                    "/load",
                    "/server_info",
                ),
                *("/docs", "/redoc", "/openapi.json", "/favicon.ico", "/props", "/get_model_info", "/get_server_info"),
                *("/models", "/v1/models", "/api/tags", "/api/ps", "/api/version"),
            }
        ),
    }
)
"""Paths that show no text of a model, by method. A HEAD is as harmless as the GET, an OPTIONS on any path too.

Below `/v1/models/` any name of a model is harmless. Any other spelling of these paths is unknown.
"""
_MODEL = "/v1/models/"
_PLAIN = re.compile(r"/|(?:/(?!\.{1,2}(?:/|\Z))[\w.~:@+,=-]+)+", re.ASCII)


class PathKind(StrEnum):
    """The treatment of a request by its method and path."""

    GUARDED = "guarded"  # recorded, and repaired or blocked as the policy says
    HARMLESS = "harmless"  # passes
    UNKNOWN = "unknown"  # passes and is counted; refused if the policy fails closed


@lru_cache(maxsize=256)
def classify_path(method: str, path: str) -> PathKind:
    """Return the kind of a request. `path` has no query, and its escapes are decoded once, as in ASGI."""
    if method == "POST" and api_of(path):
        return PathKind.GUARDED
    if method == "OPTIONS":
        return PathKind.HARMLESS
    paths = HARMLESS_PATHS.get("GET" if method in _READ else method, frozenset[str]())
    is_model = method in _READ and path.startswith(_MODEL)
    return PathKind.HARMLESS if (path in paths or is_model) and is_plain(path) else PathKind.UNKNOWN


def is_plain(path: str) -> bool:
    """Return True if all servers read a path alike: without escapes, blanks, control characters, empty or dot segments."""
    return _PLAIN.fullmatch(path) is not None


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


@lru_cache(maxsize=64)
def route_of(path: str) -> str:
    """Return the known end of a path, such as `/chat/completions`, as the label of a metric; empty for any other path."""
    head, _, last = normalize_path(path).rpartition("/")
    ending = head.rpartition("/")[2], last
    return "/" + "/".join(filter(None, ending)) if ending in _ENDINGS else ""
