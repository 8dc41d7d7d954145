"""Output of the scripted engines: that of the teleprompter, a fixed function of the prompt, without its weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harmony_conformance.engines.teleprompter.script import LAG, simulate_output, token_by_code
from harmony_ref import encode_with_special_tokens, tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

CONTEXT = 131072  # tokens that the model can read and write
VOCABULARY = 201088
STOPS = frozenset({tokens.RETURN, tokens.CALL, tokens.ENDOFTEXT})
PAUSE = 0.002  # seconds between two steps, so that a stream has several events
LOGPROB = -0.001  # of each token; that of its neighbours in the vocabulary falls by ten

_GREETING = encode_with_special_tokens("<|channel|>final<|message|>Hello.<|return|>")


def output_of(prompt: Sequence[int], limit: int) -> list[int]:
    """Return the script in a prompt, up to a stop token or the limit. A prompt without a script is answered with a greeting."""
    output = simulate_output(prompt, limit) if _has_script(prompt) else [tokens.RETURN]
    return output if output != [tokens.RETURN] else list(_GREETING[:limit])


def _has_script(prompt: Sequence[int]) -> bool:
    """Return True if the code that begins a script is where the teleprompter begins to read."""
    return len(prompt) > LAG + 1 and token_by_code().get(prompt[-LAG - 2]) == tokens.RETURN
