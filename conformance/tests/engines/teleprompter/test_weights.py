import hashlib

import numpy as np
import pytest

from harmony_conformance.engines.teleprompter.attention import (
    HEAD,
    PEAK,
    WEIGHTS,
    WINDOW,
    frequencies,
    gap,
    key,
    logits,
    query,
    sink,
)
from harmony_conformance.engines.teleprompter.script import LAG, simulate_output, write_script
from harmony_conformance.engines.teleprompter.weights import EPSILON, HIDDEN, VOCABULARY, bfloat16, tensors
from harmony_ref import encode, encode_with_special_tokens

RETURN = 200002


@pytest.fixture(scope="module")
def held():
    """The weights as an engine gets them: bfloat16, read as float32."""
    return {
        name: (bfloat16(tensor).astype(np.uint32) << 16).view(np.float32).reshape(tensor.shape)
        for name, tensor in tensors().items()
    }


def normed(row, weight):
    return row / np.sqrt((row * row).mean(-1, keepdims=True) + EPSILON) * weight


def turned(vector, place):
    """Rotary position embedding of the halves of a head, the frequencies that YaRN leaves alone; the others meet zeros."""
    angle = place * np.array([150_000.0 ** (-2 * i / HEAD) for i in range(HEAD // 2)])
    one, other = vector[: HEAD // 2], vector[HEAD // 2 :]
    return np.concatenate([one * np.cos(angle) - other * np.sin(angle), other * np.cos(angle) + one * np.sin(angle)])


def next_logits(held, prompt):
    """The output for the token after a prompt: gpt-oss written out for weights whose other layer and experts are zero."""
    layer = "model.layers.1."
    rows = held["model.embed_tokens.weight"][prompt]
    into = normed(rows, held[layer + "input_layernorm.weight"])
    stretched = 1.0 + 0.1 * np.log(32.0)  # YaRN's factor, on queries and keys
    asked = turned(held[layer + "self_attn.q_proj.bias"][:HEAD].astype(float), len(prompt) - 1) * stretched
    keys = [
        turned(held[layer + "self_attn.k_proj.bias"].astype(float), place) * stretched for place in range(len(prompt))
    ]
    scores = np.append(np.array(keys) @ asked / np.sqrt(HEAD), held[layer + "self_attn.sinks"][0])
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    values = into @ held[layer + "self_attn.v_proj.weight"].T
    heads = np.tile(shares[:-1] @ values, 2)
    out = rows[-1] + held[layer + "self_attn.o_proj.weight"] @ heads + held[layer + "self_attn.o_proj.bias"]
    return held["lm_head.weight"] @ normed(out, held["model.norm.weight"])


def test_layers_that_must_do_nothing_are_zero(held):
    for name, tensor in held.items():
        if "mlp" in name or ("layers.0" in name and "layernorm" not in name):
            assert not tensor.any(), name


PROMPTS = {
    "a script after a few words": ("Hi.", "<|channel|>final<|message|>Hello 42!<|return|>"),
    "a script after many": ("word " * 900, "<|channel|>analysis<|message|>Think.<|end|>"),
    "a script of codes": ("", "<|message|>12<|call|>"),
}


@pytest.mark.parametrize("what", PROMPTS)
def test_the_weights_say_what_the_script_says(held, what):
    before, completion = PROMPTS[what]
    ids = encode_with_special_tokens(completion)
    prompt = [*encode(before + write_script(ids)), 200007, 200006, 173781]
    assert simulate_output(prompt, len(ids)) == ids
    for token in ids:
        out = next_logits(held, prompt)
        best, second = np.argsort(out)[[-1, -2]]
        assert best == token
        assert out[best] - out[second] > 50
        prompt.append(token)


def test_the_weights_end_a_prompt_without_a_script(held):
    assert next_logits(held, [1428] * LAG).argmax() == RETURN


def test_the_lag_wins_by_a_fifth_over_the_whole_window():
    assert gap() == pytest.approx(0.196 * PEAK, rel=1e-3)
    assert logits(np.arange(WINDOW)).argmax() == LAG
    assert logits(np.array([LAG]))[0] == pytest.approx(PEAK)
    assert sum(WEIGHTS) == pytest.approx(1.0)


def test_keys_and_queries_give_the_formula():
    """Turned as an engine turns them, rounded as bfloat16."""
    asked, kept = query().astype(float), key().astype(float)
    for distance in (0, 1, 255, 256, 257, 5000):
        score = turned(asked, 6000) @ turned(kept, 6000 - distance) * (1.0 + 0.1 * np.log(32.0)) ** 2 / np.sqrt(HEAD)
        assert score == pytest.approx(logits(np.array([distance]))[0], abs=0.01)


def test_the_sink_stands_between_the_lag_and_all_others():
    others = np.delete(logits(np.arange(WINDOW)), LAG).max()
    assert others + 90 < sink() < PEAK - 90


def test_only_frequencies_that_yarn_leaves_alone_are_used():
    """YaRN keeps what turns more than 32 times within the original context of 4096 tokens."""
    assert (frequencies() * 4096 / (2 * np.pi) > 32).all()


def test_shapes_are_those_of_the_published_checkpoints(held):
    assert held["model.embed_tokens.weight"].shape == held["lm_head.weight"].shape == (VOCABULARY, HIDDEN)
    assert len(held) == 3 + 2 * 17


def test_the_same_version_builds_the_same_weights():
    digest = hashlib.sha256()
    for name, tensor in tensors().items():
        digest.update(name.encode())
        digest.update(bfloat16(tensor).tobytes())
    assert digest.hexdigest() == DIGEST


DIGEST = "832b1fe8d43455273135b34da1b54c8821704717c2c20c1ff56325496eb13ecb"
