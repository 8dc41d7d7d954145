"""Serve vLLM's Rust front end before a scripted engine, in the foreground.

`vllm serve` binds three sockets, starts `vllm-rs frontend` with them, and its engine connects. So does this program. Its engine needs neither weights
nor a GPU: the next token is the teleprompter's, a function of the prompt. Messages are those of vllm/v1/engine of vLLM 0.33.0, in msgpack.

usage: serve.py BINARY MODEL_FOLDER NAME PORT
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

import msgspec
import zmq
from scripted_output import CONTEXT, LOGPROB, PAUSE, output_of

IDENTITY = (0).to_bytes(2, "little")
ADD, ABORT, UTILITY = b"\x00", b"\x01", b"\x03"
STOP, LENGTH, ABORTED = 0, 1, 2
RAW_VIEW = 3  # msgpack extension of the bytes of an array
TOKENS_PER_STEP = int(os.environ.get("TOKENS_PER_STEP", "1"))
READY: dict[str, Any] = {
    "max_model_len": CONTEXT,
    "num_gpu_blocks": 100_000,
    "block_size": 16,
    "dp_stats_address": None,
    "dtype": "bfloat16",
    "vllm_version": "0.33.0",
    "world_size": 1,
    "data_parallel_size": 1,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "decode_context_parallel_size": 1,
    "data_parallel_rank": 0,
    "max_num_seqs": 64,
    "max_num_batched_tokens": CONTEXT,
    "instance_id": "scripted",
    "supports_lora": False,
    "max_loras": 0,
}


@dataclass
class Generation:
    """One request that is being answered."""

    request: str
    script: list[int]
    sampling: dict[str, Any]
    place: int = 0

    def step(self) -> list[Any]:
        """Return the next EngineCoreOutput, as its array."""
        tokens: list[int] = []
        finish, reason = None, None
        while finish is None and len(tokens) < TOKENS_PER_STEP:
            tokens.append(self.script[self.place])
            self.place += 1
            finish, reason = self.stop_of(tokens[-1])
        return [self.request, tokens, self.logprobs(tokens), None, None, finish, reason]

    def stop_of(self, token: int) -> tuple[int | None, int | None]:
        """Return finish reason and stop reason after a token, by the rules of vLLM's scheduler."""
        if token == self.sampling.get("_eos_token_id"):
            return STOP, None
        if token in (self.sampling.get("stop_token_ids") or ()):
            return STOP, token
        return (LENGTH if self.place == len(self.script) else None), None

    def logprobs(self, tokens: list[int]) -> list[Any] | None:
        """Return LogprobsLists of made-up probabilities, if the request wants them: the sampled token, then its neighbours."""
        wanted = self.sampling.get("logprobs")
        if wanted is None:
            return None
        width = max(wanted, 0) + 1
        ids = [token if rank == 0 else token + rank - 1 for token in tokens for rank in range(width)]
        values = [LOGPROB if rank == 0 else LOGPROB - 10 * (rank - 1) for _ in tokens for rank in range(width)]
        shape = [len(tokens), width]
        return [
            array("<i4", shape, "i", ids),
            array("<f4", shape, "f", values),
            array("<i4", [len(tokens)], "i", [1 for _ in tokens]),
            None,
        ]


def array(dtype: str, shape: list[int], code: str, values: list[Any]) -> list[Any]:
    """Return an array in the notation of vLLM's messages."""
    return [dtype, shape, msgspec.msgpack.Ext(RAW_VIEW, struct.pack(f"<{len(values)}{code}", *values))]


class ScriptedEngine:
    """The engine's side of the two queues."""

    def __init__(self, requests: str, outputs: str) -> None:
        context = zmq.Context.instance()
        self.requests = context.socket(zmq.DEALER)
        self.requests.setsockopt(zmq.IDENTITY, IDENTITY)
        self.requests.connect(requests)
        self.requests.send(msgspec.msgpack.encode(READY))
        self.outputs = context.socket(zmq.PUSH)
        self.outputs.connect(outputs)
        self.running: dict[str, Generation] = {}

    def run(self, frontend: subprocess.Popen[bytes]) -> None:
        """Answer requests until the front end ends."""
        while frontend.poll() is None:
            while self.requests.poll(0 if self.running else 500):
                kind, *frames = self.requests.recv_multipart()
                self.receive(kind, frames)
            if self.running:
                outputs = [one.step() for one in self.running.values()]
                self.running = {output[0]: self.running[output[0]] for output in outputs if output[5] is None}
                self.send(outputs)
                time.sleep(PAUSE)

    def send(self, outputs: list[Any], utility: list[Any] | None = None) -> None:
        """Send one EngineCoreOutputs."""
        finished = [output[0] for output in outputs if output[5] is not None]
        self.outputs.send(msgspec.msgpack.encode([0, outputs, None, time.monotonic(), utility, finished or None]))

    def receive(self, kind: bytes, frames: list[bytes]) -> None:
        """Begin or abort requests, or answer a call."""
        message = msgspec.msgpack.decode(frames[0])
        if kind == ADD:
            request, prompt, _, sampling = message[:4]
            limit = min(sampling.get("max_tokens") or CONTEXT, CONTEXT - len(prompt))
            self.running[request] = Generation(request, output_of(prompt, limit), sampling)
        elif kind == ABORT:
            aborted = [request for request in message if self.running.pop(request, None)]
            if aborted:
                self.send([[request, [], None, None, None, ABORTED] for request in aborted])
        elif kind == UTILITY:
            _, call, method, _ = message
            sys.stderr.write(f"call of {method}\n")
            self.send([], [call, None, [None, True]])


def listener(port: int = 0) -> socket.socket:
    """Return a listening socket that a child can inherit."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("127.0.0.1", port))
    one.listen()
    one.set_inheritable(True)
    return one


def main(binary: str, model: str, name: str, port: str) -> int:
    """Start both sides. Return the front end's exit code."""
    http, requests, outputs = listener(int(port)), listener(), listener()
    addresses = [f"tcp://127.0.0.1:{one.getsockname()[1]}" for one in (requests, outputs)]
    arguments = {
        "model_tag": model,
        "model": model,
        "served_model_name": [name],
        "tool_call_parser": "auto",
        "reasoning_parser": "auto",
        "max_logprobs": 20,
        "engine_ready_timeout_secs": 60,
        "http_timeout_keep_alive": 120,
    }
    descriptors = [one.fileno() for one in (http, requests, outputs)]
    options = zip(("--listen-fd", "--input-listener-fd", "--output-listener-fd"), map(str, descriptors), strict=True)
    command = [binary, "frontend", *(word for pair in options for word in pair), "--args-json", json.dumps(arguments)]
    frontend = subprocess.Popen(command, pass_fds=descriptors)
    signal.signal(signal.SIGTERM, lambda *_: frontend.terminate())
    for one in (http, requests, outputs):
        one.close()
    ScriptedEngine(*addresses).run(frontend)
    return frontend.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
