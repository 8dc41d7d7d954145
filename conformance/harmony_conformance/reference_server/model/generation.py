"""Scripted model: emits its script one token at a time and stops at the stop tokens of gpt-oss."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from harmony_conformance.json_value import Json, dumps
from harmony_conformance.reference_server.model.schema_instance import InstanceSizeError, instance
from harmony_conformance.reference_server.requests.errors import wrong_value
from harmony_conformance.reference_server.requests.fields import AnswerForm, RequestOptions
from harmony_ref import tokens

STOP_TOKENS = frozenset({tokens.RETURN, tokens.CALL, tokens.ENDOFTEXT})
"""The `eos_token_id`s of gpt-oss's generation_config.json; with `ignore_eos` none of them ends a generation."""

_Request = TypeVar("_Request", bound=RequestOptions)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Conditions that end a generation: stop tokens, a maximum number of tokens, and strings in the visible content."""

    stop_tokens: frozenset[int] = STOP_TOKENS
    limit: int | None = None
    stop_strings: tuple[str, ...] = ()
    shows_stops: bool = False  # the stop string is part of the visible content


class Generation:
    """Iterator over the output tokens.

    Attributes:
        emitted: tokens emitted so far, including the stop token, which counts as it does in vLLM.
        hit_token_limit: True if the limit ended it.
    """

    def __init__(self, script: Sequence[int], sampling: Sampling) -> None:
        self._script = script
        self.sampling = sampling
        self.emitted_tokens: list[int] = []
        self.hit_token_limit = False

    @property
    def is_over(self) -> bool:
        """Return True if no further token follows."""
        is_stopped = bool(self.emitted_tokens) and self.emitted_tokens[-1] in self.sampling.stop_tokens
        return is_stopped or len(self.emitted_tokens) in (len(self._script), self.sampling.limit)

    def fresh_copy(self) -> "Generation":
        """Return a new generation of the same tokens."""
        return Generation(self._script, self.sampling)

    def __iter__(self) -> Iterator[int]:
        for token in self._script:
            self.emitted_tokens.append(token)
            yield token
            if token in self.sampling.stop_tokens:
                return
            if len(self.emitted_tokens) == self.sampling.limit:
                self.hit_token_limit = True
                return


@dataclass(frozen=True, kw_only=True)
class UnscriptedOutput:
    """Unscripted output: tokens up to the text of the last message, that text, and its end token."""

    prefix_tokens: tuple[int, ...]
    content: str
    end: int
    serial: int  # number of the request, for defects


def default_output(request: RequestOptions, serial: int) -> UnscriptedOutput:
    """Return a fixed answer that satisfies the request and continues a script that begins the answer."""
    if request.required_tool is not None:
        header = f"<|channel|>commentary to={request.required_tool.recipient} <|constrain|>json<|message|>"
        content, end = _instance_of(request.required_tool.parameters, "tools"), tokens.CALL
    elif request.form is AnswerForm.TEXT:
        header, content, end = "<|channel|>final<|message|>", "Hello! How can I help you?", tokens.RETURN
    else:
        header = "<|channel|>final <|constrain|>json<|message|>"
        content, end = _instance_of(request.schema, "schema"), tokens.RETURN
    before = request.script if request.continues_after_script else tokens.encode_with_special_tokens(_THOUGHT + header)
    return UnscriptedOutput(prefix_tokens=tuple(before or ()), content=content, end=end, serial=serial)


def _instance_of(schema: Json, param: str) -> str:
    try:
        return dumps(instance(schema))
    except InstanceSizeError as problem:
        raise wrong_value(param, f"{problem}.") from None


_THOUGHT = "<|channel|>analysis<|message|>The user wants a short answer.<|end|><|start|>assistant"


def output_tokens(
    request: _Request, changed: Callable[[_Request, UnscriptedOutput], UnscriptedOutput], serial: int = 0
) -> tuple[int, ...]:
    """Return the output tokens for a request: its script, or the unscripted output after `changed` was applied to it.

    `changed` applies the sampler defects.
    """
    if request.script is not None and not request.continues_after_script:
        return request.script
    words = changed(request, default_output(request, serial))
    return (*words.prefix_tokens, *tokens.encode(words.content), words.end)


def keep_output(_request: RequestOptions, words: UnscriptedOutput) -> UnscriptedOutput:
    """Return the output unchanged, for an API without sampler defects."""
    return words
