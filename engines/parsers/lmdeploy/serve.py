"""Serve LMDeploy without a GPU: its API server, prompt processor, tokenizer, detokenizer and parsers, with a scripted engine.

`AsyncEngine` builds its engine in a separate method, which is the one thing that is replaced here. The engine's next token is the teleprompter's, a
function of the prompt, so neither weights nor a GPU are needed.

usage: serve.py MODEL_FOLDER NAME PORT
"""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lmdeploy.messages import EngineOutput, PytorchEngineConfig, ResponseType, ScheduleMetrics
from lmdeploy.serve.core import AsyncEngine
from lmdeploy.serve.openai.api_server import serve
from scripted_output import CONTEXT, LOGPROB, PAUSE, STOPS, output_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from lmdeploy.messages import GenerationConfig

TOKENS_PER_STEP = int(os.environ.get("TOKENS_PER_STEP", "1"))


class ScriptedHandle:
    """One of the engine's handles, which answers one request at a time."""

    def __init__(self) -> None:
        self.cancelled: set[int] = set()

    async def async_stream_infer(
        self, session_id: int, input_ids: list[int], gen_config: GenerationConfig, **_: object
    ) -> AsyncIterator[EngineOutput]:
        """Yield the script, up to a stop token of the request or the limit."""
        limit = max(1, min(gen_config.max_new_tokens or CONTEXT, CONTEXT - len(input_ids)))
        script = output_of(input_ids, limit)
        stops = set() if gen_config.ignore_eos else set(gen_config.stop_token_ids or ()) | STOPS
        place = 0
        while place < len(script):
            if session_id in self.cancelled:
                self.cancelled.discard(session_id)
                yield EngineOutput(ResponseType.CANCEL, [])
                return
            tokens: list[int] = []
            while len(tokens) < TOKENS_PER_STEP and place < len(script):
                tokens.append(script[place])
                place = len(script) if tokens[-1] in stops else place + 1
            wanted = gen_config.logprobs
            logprobs = (
                [{token + rank: LOGPROB - 10 * rank for rank in range(wanted)} for token in tokens] if wanted else None
            )
            status = ResponseType.SUCCESS if place < len(script) else ResponseType.FINISH
            yield EngineOutput(status, tokens, logprobs=logprobs)
            await asyncio.sleep(PAUSE)

    async def async_cancel(self, session_id: int) -> None:
        """End a request."""
        self.cancelled.add(session_id)


@dataclass
class ScriptedEngine:
    """Stand where LMDeploy's engines stand."""

    engine_config: PytorchEngineConfig
    handles: list[ScriptedHandle] = field(default_factory=list)

    def create_instance(self) -> ScriptedHandle:
        """Return another handle."""
        self.handles.append(ScriptedHandle())
        return self.handles[-1]

    def start_loop(self) -> bool:
        """Begin: there is nothing to start."""
        return True

    async def get_health_status(self) -> dict[str, object]:
        """Return that it lives."""
        return {"alive": True, "message": "", "schedule_metrics": ScheduleMetrics()}

    def get_schedule_metrics(self) -> ScheduleMetrics:
        """Return metrics of nothing."""
        return ScheduleMetrics()

    def close(self) -> None:
        """Release nothing."""


def build_engine(self: AsyncEngine, backend_config: PytorchEngineConfig, **_: object) -> ScriptedEngine:
    """Take the place of `AsyncEngine._build_pytorch`."""
    del self
    return ScriptedEngine(backend_config)


if __name__ == "__main__":
    folder, name, port = sys.argv[1:]
    AsyncEngine._build_pytorch = build_engine  # noqa: SLF001 # the method that builds the engine has no public name
    serve(
        folder,
        model_name=name,
        backend="pytorch",
        backend_config=PytorchEngineConfig(max_batch_size=64),
        server_name="127.0.0.1",
        server_port=int(port),
        log_level="WARNING",
    )
