"""The model: it says what its script says, one token at a time, and stops where gpt-oss stops."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from harmony_conformance.json_value import dumps
from harmony_conformance.reference_server.model.schema_instance import instance
from harmony_conformance.reference_server.requests.fields import AnswerForm, RequestOptions
from harmony_ref import tokens

STOPPING = frozenset({tokens.RETURN, tokens.CALL, tokens.ENDOFTEXT})
"""The `eos_token_id`s of gpt-oss's generation_config.json; with `ignore_eos` none of them ends a generation."""

_NEXT = "<|start|>assistant"

_Asked = TypeVar("_Asked", bound=RequestOptions)


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """What ends a generation: one of these tokens, this many of any kind, or one of these strings in what the user sees.

    `shows_stops`: whether the string that ended it is shown.
    """

    stopping: frozenset[int] = STOPPING
    limit: int | None = None
    stops: tuple[str, ...] = ()
    shows_stops: bool = False


class Generation:
    """Tokens as they come.

    Attributes:
        sampling: what ends it.
        emitted: those that have come, the stop token included, which counts as it does in vLLM.
        cut: whether the limit ended it.
    """

    def __init__(self, script: Sequence[int], sampling: Sampling) -> None:
        self._script = script
        self.sampling = sampling
        self.emitted: list[int] = []
        self.cut = False

    @property
    def is_over(self) -> bool:
        """Whether no token comes after those that have come."""
        count = len(self.emitted)
        is_stopped = bool(self.emitted) and self.emitted[-1] in self.sampling.stopping
        return is_stopped or count in (len(self._script), self.sampling.limit)

    def again(self) -> "Generation":
        """The same tokens from the beginning."""
        return Generation(self._script, self.sampling)

    def __iter__(self) -> Iterator[int]:
        for token in self._script:
            self.emitted.append(token)
            yield token
            if token in self.sampling.stopping:
                return
            if len(self.emitted) == self.sampling.limit:
                self.cut = True
                return


@dataclass(frozen=True, kw_only=True)
class Words:
    """What the model says where no script says it: all up to the text of its last message, that text, and the token that ends it.

    `serial` tells the server's requests apart; what is said does not depend on it.
    """

    before: tuple[int, ...]
    content: str
    end: int
    serial: int


def own_words(request: RequestOptions, serial: int) -> Words:
    """A fixed answer that does what the request demands; it goes on where the request's script begins one."""
    if request.demanded is not None:
        header = f"<|channel|>commentary to=functions.{request.demanded.name} <|constrain|>json<|message|>"
        content, end = dumps(instance(request.demanded.parameters)), tokens.CALL
    elif request.form is AnswerForm.TEXT:
        header, content, end = "<|channel|>final<|message|>", "Hello! How can I help you?", tokens.RETURN
    else:
        header = "<|channel|>final <|constrain|>json<|message|>"
        content, end = dumps(instance(request.schema)), tokens.RETURN
    before = request.script if request.goes_on else tokens.encode_with_special_tokens(_THOUGHT + header)
    return Words(before=tuple(before or ()), content=content, end=end, serial=serial)


_THOUGHT = f"<|channel|>analysis<|message|>The user wants a short answer.<|end|>{_NEXT}"


def script_of(request: _Asked, changed: Callable[[_Asked, Words], Words], serial: int = 0) -> tuple[int, ...]:
    """The tokens that answer a request: its script, or the model's own words, `changed` by what is wrong with the sampler."""
    if request.script is not None and not request.goes_on:
        return request.script
    words = changed(request, own_words(request, serial))
    return (*words.before, *tokens.encode(words.content), words.end)


def unchanged(_request: RequestOptions, words: Words) -> Words:
    """The sampler of an API that no defect is written for."""
    return words
