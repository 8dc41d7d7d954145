"""Parts of the work of harmony_ref, each alone: the profile behind the figures."""

from functools import partial

from workloads import TABLE_SIZE, Inputs

from harmony_ref import tokens
from harmony_ref.parsing.fast_path import _as_characters


class Nothing:
    """A parser that does nothing, to measure the cost of a method call and a property."""

    def process(self, token):
        return self

    @property
    def last_content_delta(self):
        return None


def tasks(inputs: Inputs):
    name = next((name for name in inputs.completions if name.endswith(f"one message, {TABLE_SIZE}")), None)
    run = inputs.completions[name] if name else next(iter(inputs.completions.values()))
    data = tokens.decode_bytes(run)
    text = data.decode()

    def call_only():
        reader = Nothing()
        process = reader.process
        for token in inputs.streams["one message"]:
            process(token)
            reader.last_content_delta  # noqa: B018

    return {
        "part, ids as characters": lambda: len(_as_characters(run)),
        "part, decode_bytes": lambda: len(tokens.decode_bytes(run)),
        "part, bytes as text": lambda: len(data.decode()),
        "part, markers counted": partial(text.count, "<|"),
        "part, calls alone": call_only,
    }
