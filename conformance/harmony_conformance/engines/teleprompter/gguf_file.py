"""The teleprompter as one GGUF file for llama.cpp and derived servers: weights, vocabulary and chat template."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from harmony_conformance.engines.teleprompter import weights
from harmony_conformance.engines.teleprompter.attention import HEAD, STRETCH, THETA, Floats
from harmony_conformance.engines.teleprompter.script import SPECIALS
from harmony_ref import tokens
from harmony_ref.tokenizer import vocabulary

NAME = "teleprompter.gguf"
_ARCHITECTURE = "gpt-oss"
_BLOCK, _BLOCK_BYTES, _ONE = 32, 17, 127  # MXFP4: values and bytes of a block, and the encoding of scale 1
_IN_LAYERS = {
    "attn_norm.weight": "input_layernorm.weight",
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_q.bias": "self_attn.q_proj.bias",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_k.bias": "self_attn.k_proj.bias",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_v.bias": "self_attn.v_proj.bias",
    "attn_output.weight": "self_attn.o_proj.weight",
    "attn_output.bias": "self_attn.o_proj.bias",
    "attn_sinks.weight": "self_attn.sinks",
    "ffn_gate_inp.bias": "mlp.router.bias",
}


def write_gguf(folder: Path, chat_template: str) -> Path:
    """Write the file into a folder and return its path."""
    file = folder / NAME
    writer = gguf.GGUFWriter(file, _ARCHITECTURE)
    _write_shape(writer)
    _write_vocabulary(writer)
    writer.add_chat_template(chat_template)
    _write_tensors(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _write_shape(writer: gguf.GGUFWriter) -> None:
    writer.add_type("model")
    writer.add_name("teleprompter")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_MXFP4_MOE)
    writer.add_block_count(weights.LAYERS)
    writer.add_context_length(weights.CONTEXT)
    writer.add_embedding_length(weights.HIDDEN)
    writer.add_head_count(weights.HEADS)
    writer.add_head_count_kv(weights.KEY_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(THETA)
    writer.add_layer_norm_rms_eps(weights.EPSILON)
    writer.add_expert_count(weights.EXPERTS)
    writer.add_expert_used_count(weights.EXPERTS_USED)
    writer.add_expert_feed_forward_length(weights.FEED_FORWARD)
    writer.add_feed_forward_length(weights.FEED_FORWARD)
    writer.add_sliding_window(weights.SLIDING_WINDOW)
    writer.add_vocab_size(weights.VOCABULARY)
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(STRETCH)
    writer.add_rope_scaling_orig_ctx_len(weights.ORIGINAL_CONTEXT)
    writer.add_float32(f"{_ARCHITECTURE}.rope.scaling.yarn_beta_fast", 32.0)
    writer.add_float32(f"{_ARCHITECTURE}.rope.scaling.yarn_beta_slow", 1.0)


def _write_vocabulary(writer: gguf.GGUFWriter) -> None:
    """Write the vocabulary and merges of the published tokenizer.json, computed from the packaged vocabulary."""
    names = [_spelled(token) for token in vocabulary.ranks()]
    kinds = [gguf.TokenType.NORMAL] * len(names)
    # the name of the last one in the published tokenizer; the guide does not use it
    texts = {token: text for text, token in tokens.SPECIAL_TOKENS.items()} | {SPECIALS[-1]: "<|endofprompt|>"}
    names += [texts[token] for token in SPECIALS]
    kinds += [gguf.TokenType.CONTROL] * len(SPECIALS)
    names += [f"[PAD{token}]" for token in range(len(names), weights.VOCABULARY)]
    kinds += [gguf.TokenType.UNUSED] * (weights.VOCABULARY - len(kinds))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-4o")
    writer.add_token_list(names)
    writer.add_token_types(kinds)
    writer.add_token_merges([f"{_spelled(one)} {_spelled(other)}" for one, other in _merges()])
    writer.add_bos_token_id(tokens.STARTOFTEXT)
    writer.add_eos_token_id(tokens.RETURN)
    # the tokens that end a turn, as Ollama's own files name them: before 0.30 it reads no others. llama.cpp finds them by their texts.
    writer.add_array("tokenizer.ggml.eos_token_ids", [tokens.ENDOFTEXT, tokens.RETURN, tokens.CALL])
    writer.add_pad_token_id(tokens.ENDOFTEXT)
    writer.add_add_bos_token(False)


def _merges() -> Iterator[tuple[bytes, bytes]]:
    """Yield the pairs of tokens that form a token, in merge order: by the merged token, then by the pair."""
    ranks = vocabulary.ranks()
    for token in ranks:
        pairs = ((token[:place], token[place:]) for place in range(1, len(token)))
        valid = [(ranks[one], ranks[other], one, other) for one, other in pairs if one in ranks and other in ranks]
        yield from ((one, other) for _, _, one, other in sorted(valid))


def _bytes_to_unicode() -> dict[int, str]:
    """Map each byte to a character, as GPT-2 does: a visible one to itself, any other to the next from U+0100 on."""
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(0x100) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(0x100 + place) for place, byte in enumerate(others)}


_UNITS = _bytes_to_unicode()


def _spelled(token: bytes) -> str:
    return "".join(map(_UNITS.__getitem__, token))


def _write_tensors(writer: gguf.GGUFWriter) -> None:
    published = weights.tensors()
    _add(writer, "token_embd.weight", published["model.embed_tokens.weight"])
    _add(writer, "output.weight", published["lm_head.weight"])
    _add(writer, "output_norm.weight", published["model.norm.weight"])
    for layer in range(weights.LAYERS):
        target, source = f"blk.{layer}.", f"model.layers.{layer}."
        for name, other in _IN_LAYERS.items():
            _add(writer, target + name, published[source + other])
        writer.add_tensor(target + "ffn_gate_inp.weight", published[source + "mlp.router.weight"])
        _add_experts(writer, target)


def _add(writer: gguf.GGUFWriter, name: str, tensor: Floats) -> None:
    """Add a matrix as bfloat16, a vector as float32."""
    if tensor.ndim == 1:
        writer.add_tensor(name, tensor)
        return
    halves = weights.bfloat16(tensor)
    as_bytes: npt.NDArray[np.uint8] = halves.view(np.uint8).reshape(*halves.shape[:-1], halves.shape[-1] * 2)
    writer.add_tensor(name, as_bytes, raw_dtype=gguf.GGMLQuantizationType.BF16)


def _add_experts(writer: gguf.GGUFWriter, prefix: str) -> None:
    """Add the experts, all zero, in the type of the published file, MXFP4."""
    shapes = (
        ("gate", weights.FEED_FORWARD, weights.HIDDEN),
        ("up", weights.FEED_FORWARD, weights.HIDDEN),
        ("down", weights.HIDDEN, weights.FEED_FORWARD),
    )
    for name, rows, columns in shapes:
        blocks = np.zeros((weights.EXPERTS, rows, columns // _BLOCK * _BLOCK_BYTES), np.uint8)
        blocks[:, :, ::_BLOCK_BYTES] = _ONE
        writer.add_tensor(f"{prefix}ffn_{name}_exps.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.MXFP4)
        writer.add_tensor(f"{prefix}ffn_{name}_exps.bias", np.zeros((weights.EXPERTS, rows), np.float32))
