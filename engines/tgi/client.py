"""What huggingface_hub, the official client, makes of the real router: every call whole and streamed, against what the model was asked to say.

usage: client.py URL
"""

import json
import sys

from huggingface_hub import InferenceClient

from harmony_conformance.engines.teleprompter.script import write_script
from harmony_ref import encode_with_special_tokens

MARKUP = (
    "<|channel|>analysis<|message|>Simple.<|end|><|start|>assistant<|channel|>final<|message|>Hello, Zoë!<|return|>"
)
CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
SHOWN = "analysisSimple.assistantfinalHello, Zoë!"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Current weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def asked(markup: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": "Hi." + write_script(encode_with_special_tokens(markup))}]


def chats(client: InferenceClient) -> dict[str, object]:
    whole = client.chat_completion(asked(MARKUP), max_tokens=60, temperature=0.5, seed=1)
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    parts = list(client.chat_completion(asked(MARKUP), max_tokens=60, **streamed))
    pieces = [part.choices[0].delta.content or "" for part in parts if part.choices]
    return {
        "chat": whole.choices[0].message.content == SHOWN,
        "chat, finish": whole.choices[0].finish_reason == "stop",
        "chat, tokens": whole.usage.completion_tokens == len(encode_with_special_tokens(MARKUP)),
        "chat, streamed": "".join(pieces) == SHOWN,
        "chat, streamed, tokens": parts[-1].usage.completion_tokens == whole.usage.completion_tokens,
    }


def calls(client: InferenceClient) -> dict[str, object]:
    options = {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 80}
    [call] = client.chat_completion(asked(CALL), **options).choices[0].message.tool_calls
    parts = client.chat_completion(asked(CALL), stream=True, **options)
    deltas = [part.choices[0].delta.tool_calls[0] for part in parts if part.choices]
    return {
        "call": (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"}),
        "call, streamed": json.loads("".join(delta.function.arguments for delta in deltas)) == {"city": "Paris"},
        "call, streamed, name": deltas[0].function.name == "get_weather",
    }


def continuations(client: InferenceClient) -> dict[str, object]:
    ids = encode_with_special_tokens(MARKUP)
    prompt = f"<|start|>user<|message|>{asked(MARKUP)[0]['content']}<|end|><|start|>assistant"
    # the client asks at `/`, where TGI's default is the prompt with the answer
    options = {"return_full_text": False, "max_new_tokens": 60}
    whole = client.text_generation(prompt, details=True, decoder_input_details=True, **options)
    parts = list(client.text_generation(prompt, details=True, stream=True, **options))
    constrained = client.text_generation(prompt, grammar={"type": "json", "value": SCHEMA}, **options)
    return {
        "continuation": whole.generated_text == SHOWN,
        "continuation, ids": [token.id for token in whole.details.tokens] == ids,
        "continuation, prompt": [token.id for token in whole.details.prefill] == encode_with_special_tokens(prompt),
        "continuation, streamed": [part.token.id for part in parts] == ids,
        "continuation, streamed, text": parts[-1].generated_text == SHOWN,
        "continuation, grammar": json.loads(constrained) == {"n": 0},
    }


def main() -> None:
    """Run each call, print what came out, and exit with 1 if something else was expected."""
    client = InferenceClient(sys.argv[1], timeout=30)
    results = {**chats(client), **calls(client), **continuations(client)}
    print(json.dumps(results, indent=1))
    sys.exit(not all(results.values()))


if __name__ == "__main__":
    main()
