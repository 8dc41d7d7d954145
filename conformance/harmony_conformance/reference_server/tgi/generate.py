"""Format the answer to /generate and /generate_stream: a text without markers, and the details of all tokens."""

import codecs
from collections.abc import Iterator
from dataclasses import dataclass, field

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.defects.stages import ApiFamily, Changes
from harmony_conformance.reference_server.model.generation import Generation, Sampling
from harmony_conformance.reference_server.model.plain_text import decode_ids, unscripted_continuation
from harmony_conformance.reference_server.tgi.request import TgiGenerateRequest
from harmony_ref import tokens

_CERTAIN = 0.0  # logarithm of 1, the probability of scripted tokens


@dataclass(kw_only=True)
class TgiGeneration:
    """An accepted request and its continuation; either `complete_response` or `stream` can be called, once."""

    request: TgiGenerateRequest
    prompt: tuple[int, ...]
    sampling: Sampling
    generation: Generation
    changes: Changes
    _text: str = ""
    _has_stop: bool = False
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def complete_response(self) -> JsonObject:
        """Return the complete response body."""
        entries: list[Json] = [*self._tokens()]
        body: JsonObject = {"generated_text": self._visible_text()}
        if self.request.shows_details:
            alternatives: JsonObject = {"top_tokens": [[token] for token in entries]} if self.request.top_tokens else {}
            body["details"] = {
                **self._ending(),
                "prefill": self._prefill() if self.request.shows_prompt else [],
                "tokens": entries,
                **alternatives,
            }
        return self.changes.json(body, ApiFamily.TGI)

    def stream(self) -> Iterator[Json]:
        """Yield the data of each event: one per token."""
        return self.changes.stream((self.changes.json(event, ApiFamily.TGI) for event in self._events()), ApiFamily.TGI)

    def _events(self) -> Iterator[JsonObject]:
        for token in self._tokens():
            alternatives: JsonObject = {"top_tokens": [token]} if self.request.top_tokens else {}
            last = self.generation.is_over or self._has_stop
            ending: JsonObject = {**self._ending(), "input_length": len(self.prompt)}
            yield {
                "index": len(self.generation.emitted_tokens),
                "token": token,
                **alternatives,
                "generated_text": self._visible_text() if last else None,
                "details": ending if last and self.request.shows_details else None,
            }

    def _tokens(self) -> Iterator[JsonObject]:
        """Yield the token entries; the text of a character is in the entry of its last token."""
        for token in self.generation:
            is_special = tokens.is_special(token)
            piece = "" if is_special else self._decoder.decode(tokens.TOKEN_BYTES[token])
            before = len(self._text)
            self._text += piece
            self._has_stop = self._has_stop or any(
                self._text.find(stop, max(0, before - len(stop))) >= 0 for stop in self.request.stop_strings
            )
            text = decode_ids([token], shows_special=True) if is_special else piece
            yield {"id": token, "text": text, "logprob": _CERTAIN, "special": is_special}
            if self._has_stop:
                return

    def _visible_text(self) -> str:
        return (self.request.inputs if self.request.returns_prompt else "") + self._text

    def _ending(self) -> JsonObject:
        emitted = self.generation.emitted_tokens
        return {"finish_reason": self._finish(), "generated_tokens": len(emitted), "seed": self.request.seed}

    def _finish(self) -> str:
        if self._has_stop:
            return "stop_sequence"
        emitted = self.generation.emitted_tokens
        reached_stop = bool(emitted) and emitted[-1] in self.sampling.stop_tokens
        return "length" if len(emitted) == self.sampling.limit and not reached_stop else "eos_token"

    def _prefill(self) -> list[Json]:
        """Return the entries of the prompt tokens; the first one has no probability."""
        return [
            {"id": token, "text": decode_ids([token], shows_special=True), "logprob": _CERTAIN if index else None}
            for index, token in enumerate(self.prompt)
        ]


def prepare_generation(request: TgiGenerateRequest, changes: Changes) -> TgiGeneration:
    """Prepare the generation for a request."""
    prompt = changes.prompt(request.prompt)
    sampling = changes.sampling(Sampling(limit=request.limit))
    script = (request.script if request.script is not None else unscripted_continuation(prompt)) or (tokens.ENDOFTEXT,)
    return TgiGeneration(
        request=request, prompt=prompt, sampling=sampling, generation=Generation(script, sampling), changes=changes
    )
