"""tiktoken alone on the same text or tokens: what no implementation on top of it can be faster than."""

from functools import partial

from workloads import Inputs


def tasks(inputs: Inputs):
    from harmony_ref import tokens

    encoding = tokens.encoding()

    def encode(texts):
        return list(map(encoding.encode_ordinary, texts))

    def decode(run):
        return len(encoding.decode_bytes(run))

    table = {
        f"render, {name}": partial(encode, [message["content"] for message in conversation])
        for name, conversation in inputs.conversations.items()
        if all(isinstance(message["content"], str) for message in conversation)
    }
    return table | {f"parse, {name}": partial(decode, run) for name, run in inputs.completions.items()}
