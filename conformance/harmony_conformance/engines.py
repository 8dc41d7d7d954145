"""The servers this project knows: how each spells things, shows its prompt, and can be scripted. A table; adding a server is adding a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class ScriptBy(StrEnum):
    """How the exact tokens of an answer travel to a server that can be scripted."""

    NONE = "none"
    REFERENCE = "reference"
    VLLM = "vllm"


@dataclass(frozen=True, kw_only=True)
class Engine:
    """One kind of server.

    `ids_field` asks a chat request for the ids of prompt and output; `render_path` is a side endpoint that answers a chat request with the
    ids it would feed. Both are probed before they are believed. `script_by` is only used on a server that identified itself, or on request.
    """

    name: str
    ids_field: str | None = None
    render_path: str | None = None
    script_by: ScriptBy = ScriptBy.NONE


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        engine.name: engine
        for engine in (
            Engine(name="reference", ids_field="return_token_ids", script_by=ScriptBy.REFERENCE),
            Engine(
                name="vllm",
                ids_field="return_token_ids",
                render_path="/v1/chat/completions/render",
                script_by=ScriptBy.VLLM,
            ),
            Engine(name="ollama"),
            Engine(name="tgi"),
            Engine(name="llamacpp"),
            Engine(name="sglang"),
            Engine(name="transformers"),
            Engine(name="openai"),
        )
    }
)

REASONING_FIELDS = ("reasoning", "reasoning_content", "thinking")
"""The names under which chat messages carry the chain of thought, in the order they are looked for."""
