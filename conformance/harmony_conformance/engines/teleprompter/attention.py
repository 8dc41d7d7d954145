"""How one attention head looks at the token LAG places before, and at no other.

Queries and keys are the same for every token (they come from biases alone), so with rotary position embedding a logit depends on the distance d only:

    logit(d) = PEAK * sum_i WEIGHTS[i] * cos(theta_i * (d - LAG))

It is PEAK at d = LAG and smaller elsewhere. Only the fastest frequencies are used: YaRN, by which gpt-oss stretches its context, leaves those alone in every
engine. The weights are the solution of a linear program (largest gap between LAG and every other distance in a window of 32768 tokens), found once with
scipy.optimize.linprog and rounded, so that the same version always builds the same bytes; the next largest logit is 0.196 of PEAK below.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from harmony_conformance.engines.teleprompter.script import LAG

Floats = npt.NDArray[np.float32]

HEAD = 64
"""Numbers per head: `head_dim` of gpt-oss."""
THETA = 150_000.0
"""`rope_theta` of gpt-oss."""
STRETCH = 32.0
"""`factor` of gpt-oss's YaRN."""
WINDOW = 32_768
"""The longest prompt that the gap is proved for, in tokens."""
PEAK = 1000.0
"""The logit of the token LAG places before."""
WEIGHTS = (0.358, 0.064, 0.088, 0.054, 0.108, 0.083, 0.113, 0.081, 0.051)
"""The share of each frequency in a logit, fastest first."""


def frequencies() -> npt.NDArray[np.float64]:
    """The angles per place of the frequencies that are used, fastest first."""
    return np.asarray([THETA ** (-2 * place / HEAD) for place in range(len(WEIGHTS))], np.float64)


def logits(distances: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """The logit of the token at each distance, by the formula above."""
    shares: npt.NDArray[np.float64] = np.cos(np.outer(distances - LAG, frequencies())) @ np.array(WEIGHTS)
    return PEAK * shares


def gap() -> float:
    """By how much the token LAG places before is ahead of every other of the window."""
    distances = np.arange(WINDOW)
    return float(PEAK - np.delete(logits(distances), LAG).max())


def sink() -> float:
    """The logit of the attention sink: below the token LAG places before, above any other, so that it wins where the prompt is short."""
    return PEAK - gap() / 2


def key() -> Floats:
    """The key of every token, before it is turned: what each frequency gives, once in the key and once in the query."""
    amplitudes = np.zeros(HEAD)
    amplitudes[: len(WEIGHTS)] = np.sqrt(PEAK * np.array(WEIGHTS) * math.sqrt(HEAD)) / _magnitude()
    return amplitudes.astype(np.float32)


def query() -> Floats:
    """The query of every token, before it is turned: the key turned back by LAG places."""
    count, half = len(WEIGHTS), HEAD // 2
    amplitudes, turned = key()[:count], frequencies() * LAG
    vector = np.zeros(HEAD)
    vector[:count] = amplitudes * np.cos(turned)
    vector[half : half + count] = -amplitudes * np.sin(turned)
    return vector.astype(np.float32)


def _magnitude() -> float:
    """What YaRN multiplies queries and keys by, each."""
    return 0.1 * math.log(STRETCH) + 1.0
