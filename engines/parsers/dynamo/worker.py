"""Run a worker of Dynamo whose engine is the teleprompter. Its tokens are a function of the prompt, so it needs neither weights nor a GPU.

Dynamo's front end renders the prompt and parses the output. Its workers get and send token ids, over Dynamo's own backend interface.

usage: worker.py MODEL_FOLDER NAME
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

from dynamo.common.backend.engine import EngineConfig, LLMEngine, LlmRegistration
from dynamo.common.backend.run import run
from dynamo.common.backend.worker import WorkerConfig
from scripted_output import CONTEXT, LOGPROB, PAUSE, STOPS, output_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from dynamo._core import Context

TOKENS_PER_STEP = int(os.environ.get("TOKENS_PER_STEP", "1"))


class ScriptedEngine(LLMEngine):
    """Engine that emits the script in the prompt."""

    def __init__(self, model: str, name: str) -> None:
        self.model, self.name = model, name

    @classmethod
    async def from_args(cls, argv: list[str] | None = None) -> tuple[ScriptedEngine, WorkerConfig]:
        """Return the engine and its registration, with the parsers that Dynamo documents for gpt-oss."""
        model, name = argv or sys.argv[1:]
        registration = WorkerConfig(
            namespace="dynamo",
            model_name=model,
            served_model_name=name,
            discovery_backend="file",
            tool_call_parser="harmony",
            reasoning_parser="gpt_oss",
            enable_kv_routing=False,
        )
        return cls(model, name), registration

    async def start(self, worker_id: int) -> EngineConfig:
        """Return what the front end needs to know."""
        del worker_id
        return EngineConfig(
            model=self.model,
            served_model_name=self.name,
            llm=LlmRegistration(
                context_length=CONTEXT, kv_cache_block_size=16, total_kv_blocks=100_000, max_num_seqs=64
            ),
        )

    async def generate(self, request: dict[str, Any], context: Context) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the script, up to a stop token or the limit, as an engine does."""
        prompt = request["token_ids"]
        limit = (request.get("stop_conditions") or {}).get("max_tokens") or CONTEXT - len(prompt)
        logprobs = (request.get("output_options") or {}).get("logprobs")
        script = output_of(prompt, max(limit, 1))
        for place in range(0, len(script), TOKENS_PER_STEP):
            if context.is_stopped():
                yield {"token_ids": [], "index": 0, "finish_reason": "cancelled"}
                return
            tokens = script[place : place + TOKENS_PER_STEP]
            chunk: dict[str, Any] = {"token_ids": tokens, "index": 0}
            if logprobs is not None:
                ranks = range(max(logprobs, 1))
                chunk["log_probs"] = [LOGPROB for _ in tokens]
                chunk["top_logprobs"] = [
                    [{"rank": rank + 1, "token_id": token + rank, "logprob": LOGPROB - 10 * rank} for rank in ranks]
                    for token in tokens
                ]
            if place + TOKENS_PER_STEP >= len(script):
                chunk["finish_reason"] = "stop" if script[-1] in STOPS else "length"
                counts = {"prompt_tokens": len(prompt), "completion_tokens": len(script)}
                chunk["completion_usage"] = {**counts, "total_tokens": sum(counts.values())}
            yield chunk
            await asyncio.sleep(PAUSE)

    async def cleanup(self) -> None:
        """Release nothing."""


if __name__ == "__main__":
    run(ScriptedEngine)
