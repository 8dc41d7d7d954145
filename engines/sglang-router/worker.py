"""A worker of SGLang without weights: the protocol `sglang.grpc.scheduler`, with the teleprompter behind it.

The router renders prompts and parses outputs. Workers get and send token ids, so the output is a function of the ids that the router renders.
What is sent when follows the servicer of SGLang: an event for each step, and a last one with the end.

usage: worker.py ADDRESS MODEL_FOLDER NAME
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import grpc
from generation import Output, Stops, generate
from scripted_output import CONTEXT, LOGPROB, PAUSE, STOPS, VOCABULARY
from smg_grpc_proto.generated import sglang_scheduler_pb2 as pb
from smg_grpc_proto.generated import sglang_scheduler_pb2_grpc as service

from harmony_ref import tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

TOKENS_PER_STEP = int(os.environ.get("TOKENS_PER_STEP", "1"))


def stops_of(sampling: pb.SamplingParams) -> Stops:
    """Return where a request ends."""
    limit = sampling.max_new_tokens if sampling.HasField("max_new_tokens") else None
    ids = tuple(sampling.stop_token_ids)
    return Stops(limit=limit, strings=tuple(sampling.stop), ids=ids, ignores_ids=sampling.ignore_eos)


def logprobs(request: pb.GenerateRequest, ids: Sequence[int]) -> pb.OutputLogProbs | None:
    """Return the same probability for each token, and the rest of it for its neighbours in the vocabulary, if the request asks for them."""
    if not request.return_logprob:
        return None
    ranks = range(request.top_logprobs_num)
    top = [
        pb.TopLogProbs(
            values=[LOGPROB - 10 * rank for rank in ranks], token_ids=[(token + rank) % VOCABULARY for rank in ranks]
        )
        for token in ids
    ]
    return pb.OutputLogProbs(token_logprobs=[LOGPROB] * len(ids), token_ids=ids, top_logprobs=top)


class ScriptedScheduler(service.SglangSchedulerServicer):
    """The service."""

    def __init__(self, model: str, name: str) -> None:
        self.model, self.name = model, name

    async def Generate(  # noqa: N802 # the name in the protocol
        self, request: pb.GenerateRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[pb.GenerateResponse]:
        """Send each step of a stream, and the end of each choice."""
        prompt = list(request.tokenized.input_ids)
        if len(prompt) >= CONTEXT:
            problem = f"The input ({len(prompt)} tokens) is longer than the model's context length ({CONTEXT} tokens)."
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        output = generate(prompt, stops_of(request.sampling_params))
        choices = range(max(request.sampling_params.n, 1))
        steps = list(output.steps(TOKENS_PER_STEP))
        if request.stream:
            for number, step in enumerate(steps, start=1):
                written = min(number * TOKENS_PER_STEP, len(output.ids))
                for choice in choices:
                    counts = {"prompt_tokens": len(prompt), "completion_tokens": written, "index": choice}
                    chunk = pb.GenerateStreamChunk(token_ids=step, output_logprobs=logprobs(request, step), **counts)
                    yield pb.GenerateResponse(request_id=request.request_id, chunk=chunk)
                await asyncio.sleep(PAUSE)
        for choice in choices:
            yield self.end(request, output, steps[-1] if request.stream else output.ids, choice)

    @staticmethod
    def end(request: pb.GenerateRequest, output: Output, ids: Sequence[int], choice: int) -> pb.GenerateResponse:
        """Return the last message of a choice."""
        complete = pb.GenerateComplete(
            output_ids=ids,
            finish_reason="length" if output.matched is None else "stop",
            prompt_tokens=len(request.tokenized.input_ids),
            completion_tokens=len(output.ids),
            output_logprobs=logprobs(request, ids),
            index=choice,
        )
        match output.matched:
            case int():
                complete.matched_token_id = output.matched
            case str():
                complete.matched_stop_str = output.matched
        return pb.GenerateResponse(request_id=request.request_id, complete=complete)

    async def HealthCheck(  # noqa: N802
        self, _request: pb.HealthCheckRequest, _context: object
    ) -> pb.HealthCheckResponse:
        """Report that the worker is ready."""
        return pb.HealthCheckResponse(healthy=True, message="Health check passed")

    async def Abort(self, _request: pb.AbortRequest, _context: object) -> pb.AbortResponse:  # noqa: N802
        """Forget a request: its stream ends with its call."""
        return pb.AbortResponse(success=True)

    async def GetModelInfo(  # noqa: N802
        self, _request: pb.GetModelInfoRequest, _context: object
    ) -> pb.GetModelInfoResponse:
        """Report what SGLang reports of a gpt-oss checkpoint."""
        return pb.GetModelInfoResponse(
            model_path=self.model,
            tokenizer_path=self.model,
            is_generation=True,
            served_model_name=self.name,
            max_context_length=CONTEXT,
            vocab_size=VOCABULARY,
            model_type="gpt_oss",
            architectures=["GptOssForCausalLM"],
            eos_token_ids=sorted(STOPS),
            pad_token_id=tokens.ENDOFTEXT,
            max_req_input_len=CONTEXT - 6,
        )

    async def GetServerInfo(  # noqa: N802
        self, _request: pb.GetServerInfoRequest, _context: object
    ) -> pb.GetServerInfoResponse:
        """Report the kind of server."""
        return pb.GetServerInfoResponse(server_type="grpc")


async def serve(address: str, model: str, name: str) -> None:
    """Serve until the process is ended."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)])
    service.add_SglangSchedulerServicer_to_server(ScriptedScheduler(model, name), server)
    server.add_insecure_port(address)
    await server.start()
    stop = asyncio.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, stop.set)
    await stop.wait()
    await server.stop(grace=0)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
