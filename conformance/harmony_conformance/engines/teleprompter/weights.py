"""The weights of the teleprompter: gpt-oss's architecture with two layers; the first has no effect.

The embedding of a token has 18 bits, +1 or -1: the id of the token to generate. The second layer copies them from the token LAG places before into
unused dimensions of the residual stream. The output weighs them against the 18 bits of every token. All experts are zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from harmony_conformance.engines.teleprompter.attention import HEAD, STRETCH, THETA, Floats, key, query, sink
from harmony_conformance.engines.teleprompter.script import token_by_code
from harmony_ref import tokens

VOCABULARY = 201_088
"""Rows of gpt-oss's embedding."""
HIDDEN = 64
HEADS, KEY_HEADS = 2, 1
LAYERS = 2
EXPERTS, EXPERTS_USED = 4, 2
FEED_FORWARD = 64
SLIDING_WINDOW = 128
CONTEXT = 131_072
ORIGINAL_CONTEXT = 4096
EPSILON = 1e-5
_BITS = 18
_RESIDUAL_BIT_WEIGHT = 8.0  # weight of a bit in the residual stream
_OUTPUT_BIT_WEIGHT = 16.0  # weight of a bit in the output: the expected token leads any other by more than 50
_COPYING_LAYER = 1  # index of the layer without a sliding window

CONFIGURATION: Mapping[str, object] = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "attention_bias": True,
    "attention_dropout": 0.0,
    "eos_token_id": tokens.RETURN,
    "pad_token_id": tokens.ENDOFTEXT,
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "head_dim": HEAD,
    "intermediate_size": FEED_FORWARD,
    "initial_context_length": ORIGINAL_CONTEXT,
    "initializer_range": 0.02,
    "layer_types": ["sliding_attention", "full_attention"],
    "max_position_embeddings": CONTEXT,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "num_hidden_layers": LAYERS,
    "num_local_experts": EXPERTS,
    "num_experts_per_tok": EXPERTS_USED,
    "experts_per_token": EXPERTS_USED,
    "output_router_logits": False,
    "rms_norm_eps": EPSILON,
    "rope_theta": int(THETA),
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": STRETCH,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "original_max_position_embeddings": ORIGINAL_CONTEXT,
        "truncate": False,
    },
    "router_aux_loss_coef": 0.9,
    "sliding_window": SLIDING_WINDOW,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "use_cache": True,
    "vocab_size": VOCABULARY,
    "torch_dtype": "bfloat16",
}
"""config.json, as transformers and vLLM read it."""


def tensors() -> dict[str, Floats]:
    """Return the tensors by their names in the published checkpoints, in their order."""
    generated = np.arange(VOCABULARY)
    for token, target in token_by_code().items():
        generated[token] = target
    embedding = np.zeros((VOCABULARY, HIDDEN), np.float32)
    embedding[:, :_BITS] = _bits(generated)
    output = np.zeros((VOCABULARY, HIDDEN), np.float32)
    output[:, _BITS : 2 * _BITS] = _OUTPUT_BIT_WEIGHT * _bits(np.arange(VOCABULARY))
    by_name: dict[str, Floats] = {
        "model.embed_tokens.weight": embedding,
        "lm_head.weight": output,
        "model.norm.weight": np.ones(HIDDEN, np.float32),
    }
    for layer in range(LAYERS):
        parts = _attention(copies=layer == _COPYING_LAYER) | _experts()
        by_name |= {f"model.layers.{layer}.{name}": tensor for name, tensor in parts.items()}
    return by_name


def _bits(ids: npt.NDArray[np.int64]) -> Floats:
    """Return the bits of ids, lowest first, as +1 and -1."""
    return (((ids[:, None] >> np.arange(_BITS)) & 1) * 2 - 1).astype(np.float32)


def _attention(*, copies: bool) -> dict[str, Floats]:
    by_name = {
        # an embedding has only the bits, so after the norm they are +1 and -1 again
        "input_layernorm.weight": np.full(HIDDEN, math.sqrt(_BITS / HIDDEN), np.float32),
        "post_attention_layernorm.weight": np.ones(HIDDEN, np.float32),
        "self_attn.q_proj.weight": np.zeros((HEADS * HEAD, HIDDEN), np.float32),
        "self_attn.q_proj.bias": np.zeros(HEADS * HEAD, np.float32),
        "self_attn.k_proj.weight": np.zeros((KEY_HEADS * HEAD, HIDDEN), np.float32),
        "self_attn.k_proj.bias": np.zeros(KEY_HEADS * HEAD, np.float32),
        "self_attn.v_proj.weight": np.zeros((KEY_HEADS * HEAD, HIDDEN), np.float32),
        "self_attn.v_proj.bias": np.zeros(KEY_HEADS * HEAD, np.float32),
        "self_attn.o_proj.weight": np.zeros((HIDDEN, HEADS * HEAD), np.float32),
        "self_attn.o_proj.bias": np.zeros(HIDDEN, np.float32),
        "self_attn.sinks": np.zeros(HEADS, np.float32),
    }
    if copies:
        free = range(_BITS, 2 * _BITS)
        by_name["self_attn.q_proj.bias"] = np.tile(query(), HEADS)
        by_name["self_attn.k_proj.bias"] = np.tile(key(), KEY_HEADS)
        by_name["self_attn.v_proj.weight"][range(_BITS), range(_BITS)] = 1.0
        by_name["self_attn.o_proj.weight"][free, range(_BITS)] = _RESIDUAL_BIT_WEIGHT
        # if the sink wins, nothing is copied and this bias makes the output `<|return|>`
        by_name["self_attn.o_proj.bias"][free] = 0.5 * _bits(np.array([tokens.RETURN]))[0]
        by_name["self_attn.sinks"][:] = sink()
    return by_name


def _experts() -> dict[str, Floats]:
    return {
        "mlp.router.weight": np.zeros((EXPERTS, HIDDEN), np.float32),
        "mlp.router.bias": np.zeros(EXPERTS, np.float32),
        "mlp.experts.gate_up_proj": np.zeros((EXPERTS, HIDDEN, 2 * FEED_FORWARD), np.float32),
        "mlp.experts.gate_up_proj_bias": np.zeros((EXPERTS, 2 * FEED_FORWARD), np.float32),
        "mlp.experts.down_proj": np.zeros((EXPERTS, FEED_FORWARD, HIDDEN), np.float32),
        "mlp.experts.down_proj_bias": np.zeros((EXPERTS, HIDDEN), np.float32),
    }


def bfloat16(tensor: Floats) -> npt.NDArray[np.uint16]:
    """Return the upper halves of the numbers, rounded to even."""
    whole = np.ascontiguousarray(tensor, np.float32).view(np.uint32).astype(np.uint64)
    return ((whole + 0x7FFF + ((whole >> 16) & 1)) >> 16).astype(np.uint16)
