"""Format the answer to a Completions request, complete or as a stream: one choice per prompt.

The probability of every scripted token is 1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.completions.request import CompletionsRequest, Prompt
from harmony_conformance.reference_server.defects.stages import ApiFamily, Changes
from harmony_conformance.reference_server.model.generation import Generation
from harmony_conformance.reference_server.model.output_deltas import DONE
from harmony_conformance.reference_server.model.plain_text import PlainTextReader, TextPiece, decode_ids
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_conformance.reference_server.requests.fields import MODEL

_CERTAIN = 0.0  # the logarithm of 1


@dataclass(frozen=True, kw_only=True)
class PromptContinuation:
    """One prompt after prompt defects were applied, and its continuation."""

    prompt: Prompt
    generation: Generation
    text: PlainTextReader
    limit: int

    @property
    def finish_reason(self) -> str:
        """The `finish_reason`."""
        return "length" if self.generation.hit_token_limit or not self.limit else "stop"


@dataclass(frozen=True, kw_only=True)
class CompletionsAnswer:
    """An accepted request and its continuations; either `complete_response` or `stream` can be called, once."""

    id: str
    created: int
    request: CompletionsRequest
    choices: tuple[PromptContinuation, ...]
    changes: Changes

    def complete_response(self) -> JsonObject:
        """Return the complete response body."""
        choices: list[Json] = [self._whole_choice(index, choice) for index, choice in enumerate(self.choices)]
        body: JsonObject = {**self._envelope(), "choices": choices, "usage": self._usage()}
        return self.changes.json(body, ApiFamily.COMPLETIONS)

    def stream(self) -> Iterator[Json]:
        """Yield the data of each event: chunks, then `[DONE]`."""
        return self.changes.stream(self._changed_chunks(), ApiFamily.COMPLETIONS)

    def _changed_chunks(self) -> Iterator[Json]:
        try:
            for chunk in self._chunks():
                yield self.changes.json(chunk, ApiFamily.COMPLETIONS)
        except ApiError as error:
            yield error.body
        yield DONE

    def _chunks(self) -> Iterator[JsonObject]:
        for index, choice in enumerate(self.choices):
            for piece in self._choice_pieces(index, choice):
                yield {**self._envelope(), "choices": [piece]}
        if self.request.usage_in_stream:
            yield {**self._envelope(), "choices": [], "usage": self._usage()}

    def _choice_pieces(self, index: int, choice: PromptContinuation) -> Iterator[JsonObject]:
        """Yield the pieces of one choice, with an echoed prompt first."""
        ids: JsonObject = {"prompt_token_ids": [*choice.prompt.ids]} if self.request.shows_token_ids else {}
        offset = 0
        if self.request.echoes:
            echoed = TextPiece(text=choice.prompt.text, ids=choice.prompt.ids)
            yield {**self._choice(index, echoed, first=0), **ids}
            offset, ids = len(echoed.text), {}
        for piece in choice.text.pieces():
            output: JsonObject = {"token_ids": [*piece.ids]} if self.request.shows_token_ids else {}
            yield {**self._choice(index, piece, first=offset), **ids, **output}
            offset, ids = offset + len(piece.text), {}
        last = self._choice(index, TextPiece(text="", ids=()), first=offset)
        yield {**last, **ids, "finish_reason": choice.finish_reason, "stop_reason": choice.text.stopped_by}

    def _whole_choice(self, index: int, choice: PromptContinuation) -> JsonObject:
        text = "".join(piece.text for piece in choice.text.pieces())
        whole = TextPiece(text=text, ids=tuple(choice.generation.emitted_tokens))
        if self.request.echoes:
            whole = TextPiece(text=choice.prompt.text + text, ids=(*choice.prompt.ids, *whole.ids))
        ids: JsonObject = {"prompt_token_ids": [*choice.prompt.ids], "token_ids": [*choice.generation.emitted_tokens]}
        return {
            **self._choice(index, whole, first=0),
            "finish_reason": choice.finish_reason,
            "stop_reason": choice.text.stopped_by,
            **(ids if self.request.shows_token_ids else {}),
        }

    def _choice(self, index: int, piece: TextPiece, *, first: int) -> JsonObject:
        logprobs = None if self.request.logprobs is None else self._logprobs(piece.ids, first)
        return {"index": index, "text": piece.text, "logprobs": logprobs, "finish_reason": None, "stop_reason": None}

    def _logprobs(self, ids: Sequence[int], first: int) -> JsonObject:
        """Return the logprobs of tokens; the first token of an echoed prompt has no probability."""
        texts = [decode_ids([token], shows_special=True) for token in ids]
        lengths = [len(decode_ids([token], shows_special=self.request.text_options.shows_special)) for token in ids]
        values: list[Json] = [_CERTAIN for _ in ids]
        alternatives: list[Json] = [{text: _CERTAIN} for text in texts]
        if self.request.echoes and first == 0 and ids:
            values[0] = alternatives[0] = None
        return {
            "tokens": [*texts],
            "token_logprobs": values,
            "top_logprobs": alternatives if self.request.logprobs else None,
            "text_offset": [*accumulate(lengths[:-1], initial=first)] if ids else [],
        }

    def _usage(self) -> JsonObject:
        prompt = sum(len(choice.prompt.ids) for choice in self.choices)
        generated = sum(len(choice.generation.emitted_tokens) for choice in self.choices)
        return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}

    def _envelope(self) -> JsonObject:
        return {"id": self.id, "object": "text_completion", "created": self.created, "model": MODEL}
