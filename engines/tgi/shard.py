"""A model shard of TGI without weights: the protocol `generate.v3` on a Unix socket, the teleprompter behind it.

The router sends rendered prompts as text, and gets one token a step for each request of a batch.

usage: shard.py SOCKET TOKENIZER.json
"""

import asyncio
import signal
import sys
from collections.abc import Sequence

import generate_pb2 as pb
import grpc
from generation import Running, Step, wanted_texts
from grammar import choose_text
from tokenizers import Tokenizer

from harmony_ref import tokens

WINDOW = 131_072
SLOTS = 8  # requests of the full window that are generated at once
BLOCK = 16  # tokens
ALL_BYTES = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class CheckpointTokenizer:
    """The published tokenizer, as the router has it too."""

    def __init__(self, file: str) -> None:
        self._tokenizer = Tokenizer.from_file(file)
        self._special = {one for one, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        return self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)

    def is_special(self, token: int) -> bool:
        return token in self._special


class Entry:
    """A request of a batch, with what the router asks about it."""

    def __init__(self, request: pb.Request, tokenizer: CheckpointTokenizer) -> None:
        prompt = tokenizer.encode(request.inputs, add_special_tokens=request.add_special_tokens)[-request.truncate :]
        stopping = request.stopping_parameters
        self._request, self._tokenizer = request, tokenizer
        self.id, self.is_over = request.id, False
        self.running = Running(
            tokenizer=tokenizer,
            prompt=prompt,
            limit=stopping.max_new_tokens,
            stop_strings=stopping.stop_sequences,
            ignores_stop_ids=stopping.ignore_eos_token,
            forced=self._forced(prompt, request.parameters.grammar),
        )

    def _forced(self, prompt: Sequence[int], grammar: str) -> Sequence[int]:
        return [*self._tokenizer.encode(choose_text(grammar, wanted_texts(prompt))), tokens.RETURN] if grammar else ()

    def step(self) -> pb.Generation:
        """Generate one token."""
        is_first = self.running.count == 0
        step = self.running.step()
        self.is_over = step.end is not None
        generation = pb.Generation(request_id=self.id, tokens=self._tokens([step.token], [step.text]))
        if is_first and self._request.prefill_logprobs:
            ids = self.running.prompt
            generation.prefill_tokens.CopyFrom(self._tokens(ids, [self._tokenizer.decode([one]) for one in ids]))
            generation.prefill_tokens.logprobs[0] = float("nan")
        if self._request.top_n_tokens:
            others = [one for one in range(self._request.top_n_tokens) if one != step.token]
            ids = [step.token, *others[: self._request.top_n_tokens - 1]]
            top = self._tokens(ids, [self._tokenizer.decode([one]) for one in ids])
            top.logprobs[1:] = [-20.0] * (len(ids) - 1)
            generation.top_tokens.append(top)
        if step.end is not None:
            generation.generated_text.CopyFrom(self._whole(step))
        return generation

    def _whole(self, step: Step) -> pb.GeneratedText:
        assert step.end is not None
        text, reason = step.end
        seed = self._request.parameters.seed if self._request.parameters.do_sample else None
        return pb.GeneratedText(text=text, generated_tokens=self.running.count, finish_reason=reason, seed=seed)

    def _tokens(self, ids: Sequence[int], texts: Sequence[str]) -> pb.Tokens:
        """Return tokens, all of them certain."""
        is_special = [self._tokenizer.is_special(one) for one in ids]
        return pb.Tokens(ids=ids, texts=texts, logprobs=[0.0] * len(ids), is_special=is_special)


class Shard:
    """The service. Batches are kept by their id between the steps, until all of their requests are over."""

    def __init__(self, address: str, tokenizer: CheckpointTokenizer) -> None:
        self._address, self._tokenizer = address, tokenizer
        self._batches: dict[int, list[Entry]] = {}

    def handler(self) -> grpc.GenericRpcHandler:
        """Return the table of the calls."""
        calls = {
            "Info": (pb.Empty, self._info),
            "Health": (pb.Empty, self._health),
            "ServiceDiscovery": (pb.Empty, self._discover),
            "Warmup": (pb.Empty, self._warm_up),
            "ClearCache": (pb.ClearCacheRequest, self._clear),
            "FilterBatch": (pb.FilterBatchRequest, self._filter),
            "Prefill": (pb.PrefillRequest, self._prefill),
            "Decode": (pb.DecodeRequest, self._decode),
        }
        return grpc.method_handlers_generic_handler(
            "generate.v3.TextGenerationService",
            {
                name: grpc.unary_unary_rpc_method_handler(
                    call, kind.FromString, lambda reply: reply.SerializeToString()
                )
                for name, (kind, call) in calls.items()
            },
        )

    async def _info(self, _request: pb.Empty, _context: object) -> pb.InfoResponse:
        return pb.InfoResponse(dtype="scripted", device_type="cpu", attention_impl="paged", block_size=BLOCK)

    async def _health(self, _request: pb.Empty, _context: object) -> pb.Empty:
        return pb.Empty()

    async def _discover(self, _request: pb.Empty, _context: object) -> pb.ServiceDiscoveryResponse:
        return pb.ServiceDiscoveryResponse(urls=[self._address])

    async def _warm_up(self, _request: pb.Empty, _context: object) -> pb.WarmupResponse:
        most = SLOTS * WINDOW
        return pb.WarmupResponse(max_supported_total_tokens=most, max_input_tokens=WINDOW - 1, max_total_tokens=WINDOW)

    async def _clear(self, request: pb.ClearCacheRequest, _context: object) -> pb.Empty:
        if request.HasField("id"):
            self._batches.pop(request.id, None)
        else:
            self._batches.clear()
        return pb.Empty()

    async def _filter(self, request: pb.FilterBatchRequest, _context: object) -> pb.FilterBatchResponse:
        entries = [one for one in self._batches.pop(request.batch_id) if one.id in set(request.request_ids)]
        return pb.FilterBatchResponse(batch=self._keep(request.batch_id, entries))

    async def _prefill(self, request: pb.PrefillRequest, _context: object) -> pb.StepResponse:
        return self._step(request.batch.id, [Entry(one, self._tokenizer) for one in request.batch.requests])

    async def _decode(self, request: pb.DecodeRequest, _context: object) -> pb.StepResponse:
        entries = [entry for batch in request.batches for entry in self._batches.pop(batch.id)]
        return self._step(request.batches[0].id, entries)

    def _step(self, batch: int, entries: list[Entry]) -> pb.StepResponse:
        generations = [entry.step() for entry in entries]
        kept = None if all(entry.is_over for entry in entries) else self._keep(batch, entries)
        return pb.StepResponse(generations=generations, batch=kept, forward_ns=1, decode_ns=1, total_ns=2)

    def _keep(self, batch: int, entries: list[Entry]) -> pb.CachedBatch:
        self._batches[batch] = entries
        tokens = sum(len(entry.running.ids) for entry in entries)
        ids, size = [entry.id for entry in entries], len(entries)
        return pb.CachedBatch(id=batch, request_ids=ids, size=size, max_tokens=tokens, current_tokens=size)


async def serve(socket: str, tokenizer: str) -> None:
    """Serve until the process is ended."""
    address = f"unix://{socket}"
    server = grpc.aio.server(options=ALL_BYTES)
    server.add_generic_rpc_handlers([Shard(address, CheckpointTokenizer(tokenizer)).handler()])
    server.add_insecure_port(address)
    await server.start()
    stop = asyncio.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(one, stop.set)
    print("listening on", socket, flush=True)
    await stop.wait()
    await server.stop(grace=0)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
