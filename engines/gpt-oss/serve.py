"""Serve gpt-oss's reference Responses server on 127.0.0.1, until stopped, with the teleprompter for a model.

The server gets one token at a time from a function of its backend. The teleprompter's next token is a function of the prompt.
So neither the checkpoint nor torch is needed.

usage: serve.py PORT
"""

import sys
from collections.abc import Sequence

import uvicorn
from gpt_oss.responses_api.api_server import create_api_server
from openai_harmony import HarmonyEncodingName, load_harmony_encoding

from harmony_conformance.engines.teleprompter.script import simulate_output
from harmony_ref import encode_with_special_tokens

HELLO = encode_with_special_tokens("<|channel|>final<|message|>Hello.<|return|>")
BEGINNING = encode_with_special_tokens("<|start|>assistant")


def next_token(tokens: Sequence[int], temperature: float = 0.0, *, new_request: bool = False) -> int:
    """Return the checkpoint's next token. Without a script that is a greeting, because an empty answer is HTTP 500 here."""
    del temperature, new_request
    begun = next(
        place for place in range(len(tokens), 0, -1) if list(tokens[place - len(BEGINNING) : place]) == BEGINNING
    )
    said = list(tokens[begun:])
    if said == HELLO[: len(said)] and simulate_output(tokens[:begun], 1) == HELLO[-1:]:
        return HELLO[len(said)]
    return simulate_output(tokens, 1)[0]


if __name__ == "__main__":
    app = create_api_server(next_token, load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
