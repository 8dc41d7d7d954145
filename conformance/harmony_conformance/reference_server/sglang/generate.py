"""Format the answer to /generate: text, token ids and metadata; each event of a stream repeats the text so far."""

from collections.abc import Iterator
from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.defects.stages import ApiFamily, Changes
from harmony_conformance.reference_server.model.generation import STOP_TOKENS, Generation, Sampling
from harmony_conformance.reference_server.model.output_deltas import DONE
from harmony_conformance.reference_server.model.plain_text import PlainTextReader, unscripted_continuation
from harmony_conformance.reference_server.sglang.request import SglangGenerateRequest
from harmony_ref import tokens

_CERTAIN = 0.0  # logarithm of 1, the probability of scripted tokens


@dataclass(frozen=True, kw_only=True)
class SglangGeneration:
    """An accepted request and its continuation; either `complete_response` or `stream` can be called, once."""

    id: str
    request: SglangGenerateRequest
    prompt: tuple[int, ...]
    generation: Generation
    text: PlainTextReader
    changes: Changes

    def complete_response(self) -> JsonObject:
        """Return the complete response body."""
        text = "".join(piece.text for piece in self.text.pieces())
        return self.changes.json(self._body(text, self._ending()), ApiFamily.SGLANG)

    def stream(self) -> Iterator[Json]:
        """Yield the data of each event, then `[DONE]`."""
        return self.changes.stream(self._events(), ApiFamily.SGLANG)

    def _events(self) -> Iterator[Json]:
        text = ""
        for piece in self.text.pieces():
            text += piece.text
            if not self.generation.is_over and self.text.stopped_by is None:
                yield self.changes.json(self._body(text, None), ApiFamily.SGLANG)
        yield self.changes.json(self._body(text, self._ending()), ApiFamily.SGLANG)
        yield DONE

    def _body(self, text: str, ending: "JsonObject | None") -> JsonObject:
        emitted = self.generation.emitted_tokens
        logprobs: list[Json] = [[_CERTAIN, token, None] for token in emitted]
        return {
            "text": text,
            "output_ids": [*emitted],
            "meta_info": {
                "id": self.id,
                "finish_reason": ending,
                "prompt_tokens": len(self.prompt),
                "weight_version": "default",
                "num_retractions": 0,
                **({"output_token_logprobs": logprobs} if self.request.shows_logprobs else {}),
                "reasoning_tokens": 0,
                "completion_tokens": len(emitted),
                "cached_tokens": 0,
            },
            **({"prompt_token_ids": [*self.prompt]} if self.request.shows_prompt else {}),
        }

    def _ending(self) -> JsonObject:
        """Return the `finish_reason`, with the token or string that ended the generation."""
        emitted = self.generation.emitted_tokens
        if self.text.stopped_by is not None:
            return {"type": "stop", "matched": self.text.stopped_by}
        if self.generation.hit_token_limit or not emitted:
            return {"type": "length", "length": len(emitted)}
        return {"type": "stop", "matched": emitted[-1]}


def prepare_generation(request: SglangGenerateRequest, ident: str, changes: Changes) -> SglangGeneration:
    """Prepare the generation for a request."""
    prompt = changes.prompt(request.prompt)
    stopping = frozenset[int]() if request.ignores_stops else STOP_TOKENS
    sampling = changes.sampling(Sampling(limit=request.limit, stop_tokens=stopping))
    script = (request.script if request.script is not None else unscripted_continuation(prompt)) or (tokens.ENDOFTEXT,)
    generation = Generation(script if request.limit else (), sampling)
    return SglangGeneration(
        id=ident,
        request=request,
        prompt=prompt,
        generation=generation,
        text=PlainTextReader(generation, request.text_options, sampling.stop_tokens),
        changes=changes,
    )
