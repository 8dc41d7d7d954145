"""Attention head that attends only to the token LAG places before.

Queries and keys come from biases alone, so they are equal for all tokens. With rotary position embedding a logit then depends only on the distance d:

    logit(d) = PEAK * sum_i WEIGHTS[i] * cos(theta_i * (d - LAG))

It is PEAK at d = LAG and smaller elsewhere. Only the fastest frequencies are used: YaRN, the context extension of gpt-oss, leaves those unchanged in
every engine. The weights solve a linear program: the largest gap between LAG and every other distance in a window of 32768 tokens. They were computed
once with scipy.optimize.linprog and rounded, so that a version always builds the same bytes. The next largest logit is 0.196 of PEAK below.
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
"""Longest prompt, in tokens, for which the gap is proved."""
PEAK = 1000.0
"""Logit of the token LAG places before."""
WEIGHTS = (0.358, 0.064, 0.088, 0.054, 0.108, 0.083, 0.113, 0.081, 0.051)
"""Share of each frequency in a logit, fastest first."""


def frequencies() -> npt.NDArray[np.float64]:
    """Return the used frequencies in radians per place, fastest first."""
    return np.asarray([THETA ** (-2 * place / HEAD) for place in range(len(WEIGHTS))], np.float64)


def logits(distances: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the logit at each distance, by the formula of the module."""
    shares: npt.NDArray[np.float64] = np.cos(np.outer(distances - LAG, frequencies())) @ np.array(WEIGHTS)
    return PEAK * shares


def gap() -> float:
    """Return the distance between PEAK and the next largest logit of the window."""
    return float(PEAK - np.delete(logits(np.arange(WINDOW)), LAG).max())


def sink() -> float:
    """Return the logit of the attention sink: below PEAK and above any other, so that it wins if the prompt is short."""
    return PEAK - gap() / 2


def key() -> Floats:
    """Return the key of every token before rotation: the square root of each share, as the query has the same factor."""
    yarn_magnitude = 0.1 * math.log(STRETCH) + 1.0  # factor of YaRN for queries and for keys
    amplitudes = np.zeros(HEAD)
    amplitudes[: len(WEIGHTS)] = np.sqrt(PEAK * np.array(WEIGHTS) * math.sqrt(HEAD)) / yarn_magnitude
    return amplitudes.astype(np.float32)


def query() -> Floats:
    """Return the query of every token before rotation: the key rotated back by LAG places."""
    count, half = len(WEIGHTS), HEAD // 2
    amplitudes, angles = key()[:count], frequencies() * LAG
    vector = np.zeros(HEAD)
    vector[:count] = amplitudes * np.cos(angles)
    vector[half : half + count] = -amplitudes * np.sin(angles)
    return vector.astype(np.float32)
