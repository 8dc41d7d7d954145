"""Serve SGLang on a CPU, without weights: its HTTP server, tokenizer and detokenizer processes, with a scripted scheduler.

SGLang's `launch_server` takes the function of its scheduler process. This one has SGLang's own requests, stop conditions and output streamer.
Only the next token differs: it is the teleprompter's, a function of the prompt, so neither weights nor a GPU are needed.

usage: serve.py ARGUMENTS of sglang.launch_server
"""

from __future__ import annotations

import os
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import zmq
from scripted_output import CONTEXT, LOGPROB, PAUSE, STOPS, VOCABULARY, output_of
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.entrypoints.http_server import launch_server
from sglang.srt.managers.io_struct import (
    AbortReq,
    BatchTokenizedGenerateReqInput,
    FlushCacheReqInput,
    FlushCacheReqOutput,
    GetInternalStateReq,
    GetInternalStateReqOutput,
    TokenizedGenerateReqInput,
    sock_recv,
)
from sglang.srt.managers.schedule_batch import FINISH_ABORT, Req
from sglang.srt.managers.scheduler_components.batch_result_processor import SchedulerBatchResultProcessor
from sglang.srt.managers.scheduler_components.ipc_channels import SchedulerIpcChannels
from sglang.srt.managers.scheduler_components.output_streamer import SchedulerOutputStreamer
from sglang.srt.managers.utils import validate_input_length
from sglang.srt.parser.reasoning_parser import ReasoningParser
from sglang.srt.plugins import load_plugins
from sglang.srt.runtime_context import SpawnRanks, get_serving, publish
from sglang.srt.server_args import prepare_server_args
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.utils.hf_transformers_utils import get_tokenizer

if TYPE_CHECKING:
    from sglang.srt.server_args import PortArgs, ServerArgs

TOKENS_PER_STEP = int(os.environ.get("TOKENS_PER_STEP", "1"))


class ScriptedScheduler:
    """The scheduler's process: each step appends the next tokens of the script to each running request."""

    def __init__(self, server_args: ServerArgs, port_args: PortArgs) -> None:
        self.channels = SchedulerIpcChannels.create(
            port_args=port_args,
            is_rank_zero=True,
            skip_tokenizer_init=False,
            metrics_enabled=False,
            enable_scripted_runtime=False,
        )
        self.streamer = SchedulerOutputStreamer(
            send_to_detokenizer=self.channels.send_to_detokenizer,
            tree_cache=None,
            server_args=server_args,
            is_generation=True,
            spec_algorithm=SpeculativeAlgorithm.NONE,
            disaggregation_mode=DisaggregationMode.NULL,
            enable_hicache_storage=lambda: False,
        )
        self.tokenizer = get_tokenizer(get_serving().tokenizer_path)
        detector = ReasoningParser(get_serving().reasoning_parser, stream_reasoning=False).detector
        ends = {"think_end_ids": detector.get_think_end_token_ids(self.tokenizer), "self_opened_think_start_ids": None}
        self.counter = SimpleNamespace(model_config=SimpleNamespace(**ends))  # what SGLang's count of reasoning reads
        self.running: dict[str, tuple[Req, list[int]]] = {}

    def run(self) -> None:
        """Receive and step until the process is ended."""
        while True:
            busy = bool(self.running)
            while self.channels.recv_from_tokenizer.poll(0 if busy else 1000, zmq.POLLIN):
                self.receive(sock_recv(self.channels.recv_from_tokenizer))
                busy = True
            if self.running:
                self.step()
                time.sleep(PAUSE)

    def receive(self, message: object) -> None:
        """Begin, abort or answer."""
        match message:
            case TokenizedGenerateReqInput():
                self.begin(message)
            case BatchTokenizedGenerateReqInput():
                for one in message:
                    self.begin(one)
            case AbortReq():
                for rid, (request, _) in self.running.items():
                    if message.abort_all or rid.startswith(message.rid or " "):
                        request.to_finish = FINISH_ABORT()
            case FlushCacheReqInput():
                self.channels.send_to_tokenizer.send_output(FlushCacheReqOutput(success=True), message)
            case GetInternalStateReq():
                self.channels.send_to_tokenizer.send_output(GetInternalStateReqOutput(internal_state={}), message)
            case _:
                sys.stderr.write(f"not handled: {type(message).__name__}\n")

    def begin(self, message: TokenizedGenerateReqInput) -> None:
        """Make a request as the scheduler does, with the whole output that the script gives it."""
        message.unwrap_pickle_fields()
        request = Req(
            message.rid,
            message.input_text,
            message.input_ids,
            message.sampling_params,
            return_logprob=message.return_logprob,
            top_logprobs_num=message.top_logprobs_num,
            token_ids_logprob=message.token_ids_logprob,
            stream=message.stream,
            require_reasoning=message.require_reasoning,
            eos_token_ids=set(STOPS),
            vocab_size=VOCABULARY,
            http_worker_ipc=message.http_worker_ipc,
            time_stats=message.time_stats,
        )
        request.tokenizer = self.tokenizer
        if problem := validate_input_length(request, CONTEXT - 6, allow_auto_truncate=False):
            request.set_finish_with_abort(problem)
        wanted = request.sampling_params.max_new_tokens
        most = max(0, min(1 << 30 if wanted is None else wanted, CONTEXT - len(request.origin_input_ids) - 1))
        request.sampling_params.max_new_tokens = most
        self.running[request.rid] = request, output_of(message.input_ids, max(most, 1))

    def step(self) -> None:
        """Append the next tokens of each request, and send what SGLang sends of them."""
        for request, script in self.running.values():
            place = len(request.output_ids)
            tokens = script[place : place + TOKENS_PER_STEP]
            request.output_ids.extend(tokens)
            if request.return_logprob:
                self.append_logprobs(request, tokens)
            # SGLang's own count has no public name
            SchedulerBatchResultProcessor._maybe_update_reasoning_tokens(self.counter, request, tokens)  # noqa: SLF001
            request.update_finish_state(len(tokens))
        requests = [request for request, _ in self.running.values()]
        self.streamer.stream_output(requests, any(one.return_logprob for one in requests))
        self.running = {rid: pair for rid, pair in self.running.items() if not pair[0].finished()}

    @staticmethod
    def append_logprobs(request: Req, tokens: list[int]) -> None:
        """Give each token the same probability, and the rest of it to its neighbours in the vocabulary."""
        store = request.logprob
        if store.input_token_logprobs_val is None:
            store.input_token_logprobs_val, store.input_token_logprobs_idx = [], []
            store.input_top_logprobs_val, store.input_top_logprobs_idx = [], []
            store.input_token_ids_logprobs_val, store.input_token_ids_logprobs_idx = [], []
        for token in tokens:
            ranks = range(store.top_logprobs_num)
            store.output_token_logprobs_val.append(LOGPROB)
            store.output_token_logprobs_idx.append(token)
            store.output_top_logprobs_val.append([LOGPROB - 10 * rank for rank in ranks])
            store.output_top_logprobs_idx.append([(token + rank) % VOCABULARY for rank in ranks])
            store.output_token_ids_logprobs_val.append([LOGPROB for _ in store.token_ids_logprob or ()])
            store.output_token_ids_logprobs_idx.append(list(store.token_ids_logprob or ()))


def run_scripted_scheduler(server_args: ServerArgs, port_args: PortArgs, gpu_id: int, *rest: object) -> None:
    """Run the scheduler's process, with the arguments of SGLang's own: ranks, and last the pipe that waits for it."""
    *_, dp_rank, ready = rest
    load_plugins()
    publish(server_args, role="scheduler", ranks=SpawnRanks(world_rank=0, dp_rank=dp_rank, gpu_id=gpu_id))
    scheduler = ScriptedScheduler(server_args, port_args)
    limits = {"max_total_num_tokens": CONTEXT, "max_req_input_len": CONTEXT - 6}
    ready.send({"status": "ready", **limits, "startup_time": 0.0, "hicache_object_layout": None})
    scheduler.run()


if __name__ == "__main__":
    launch_server(prepare_server_args(sys.argv[1:]), run_scheduler_process_func=run_scripted_scheduler)
