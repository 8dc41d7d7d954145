"""The model: it says what its script says, one token at a time, and stops where gpt-oss stops."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harmony_conformance.json_value import dumps
from harmony_conformance.reference_server.chat_request import AnswerForm, ChatRequest
from harmony_conformance.reference_server.schema_instance import instance
from harmony_ref import tokens

STOPPING = frozenset({tokens.RETURN, tokens.CALL, tokens.ENDOFTEXT})
"""The `eos_token_id`s of gpt-oss's generation_config.json."""

_NEXT = "<|start|>assistant"


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What ends a generation: one of these tokens, or this many of any kind."""

    stopping: frozenset[int] = STOPPING
    limit: int | None = None


class Generation:
    """Tokens as they come.

    Attributes:
        emitted: those that have come, the stop token included, which counts as it does in vLLM.
        cut: whether the limit ended it.
    """

    def __init__(self, script: Sequence[int], sampling: Sampling) -> None:
        self._script = script
        self._sampling = sampling
        self.emitted: list[int] = []
        self.cut = False

    def __iter__(self) -> Iterator[int]:
        for token in self._script:
            self.emitted.append(token)
            yield token
            if token in self._sampling.stopping:
                return
            if len(self.emitted) == self._sampling.limit:
                self.cut = True
                return


def script_of(request: ChatRequest) -> tuple[int, ...]:
    """The tokens that answer a request: its script, or a fixed answer that does what the request demands."""
    if request.script is not None:
        return request.script
    if request.demanded is not None:
        header = f"<|channel|>commentary to=functions.{request.demanded.name} <|constrain|>json<|message|>"
        answer = _framed(header, dumps(instance(request.demanded.parameters)), "<|call|>")
    elif request.form is AnswerForm.TEXT:
        answer = _framed("<|channel|>final<|message|>", "Hello! How can I help you?", "<|return|>")
    else:
        answer = _framed("<|channel|>final <|constrain|>json<|message|>", dumps(instance(request.schema)), "<|return|>")
    return (*_framed("<|channel|>analysis<|message|>", "The user wants a short answer.", "<|end|>" + _NEXT), *answer)


def _framed(header: str, content: str, end: str) -> list[int]:
    markup = tokens.encode_with_special_tokens
    return [*markup(header), *tokens.encode(content), *markup(end)]
