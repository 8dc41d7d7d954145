"""Format Ollama's answers: one JSON object per line, or all lines merged.

The output is `thinking` and `content` (`response` of /api/generate). Complete calls are on the last line, with their
arguments as an object. Arguments that are not an object become content, since the API has no other member for them,
unless the token limit truncated them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from harmony_conformance.json_value import Json, JsonObject, items, parse_finite_object, text
from harmony_conformance.reference_server.defects.stages import ApiFamily
from harmony_conformance.reference_server.model.output_deltas import DeltaBuilder, OutputField, call_id
from harmony_conformance.reference_server.model.plain_text import PlainTextReader, decode_ids
from harmony_conformance.reference_server.model.stop_strings_in_messages import until_stop
from harmony_conformance.reference_server.ollama.request import DeliveryOptions
from harmony_conformance.reference_server.pipeline.prompt_run import PromptRun
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_ref import tokens

_LOADING = 1_000_000  # nanoseconds
_READING = 1_000  # nanoseconds per token
_WRITING = 1_000  # nanoseconds per token, unless the request sets a delay
_SECOND = 1_000_000_000  # nanoseconds

OutputPlacement = Callable[[JsonObject], JsonObject]
"""Puts the output of a line in the members of the endpoint."""


def in_message(output: JsonObject) -> JsonObject:
    """Return the members of /api/chat."""
    return {"message": {"role": "assistant", "content": "", **output}}


def in_response(output: JsonObject) -> JsonObject:
    """Return the members of /api/generate."""
    return {"response": output.get("content", ""), **{name: output[name] for name in output if name != "content"}}


@dataclass(frozen=True, kw_only=True)
class _Line:
    """Output of one line, its tokens, and the statistics of the last line."""

    output: JsonObject
    ids: tuple[int, ...]
    statistics: JsonObject


@dataclass(frozen=True, kw_only=True)
class OllamaAnswer:
    """An accepted request and its generation; either `complete_response` or `stream` can be called, once."""

    run: PromptRun
    delivery: DeliveryOptions
    now: Callable[[], float]  # seconds since the epoch
    token_delay: float  # seconds per token
    place_output: OutputPlacement
    raw: PlainTextReader | None = None  # None: parse the output as Harmony
    shows_context: bool = False  # the last line has the token ids of the conversation

    def complete_response(self) -> JsonObject:
        """Return all lines merged; raise an ApiError if a defect causes an error."""
        lines = list(self._lines())
        names = dict.fromkeys(name for line in lines for name in line.output)
        output: JsonObject = {name: _merged(line.output.get(name) for line in lines) for name in names}
        ids = tuple(token for line in lines for token in line.ids)
        body = self._body(_Line(output=output, ids=ids, statistics=lines[-1].statistics))
        return self.run.changes.json({**body, **self._prompt_ids()}, ApiFamily.OLLAMA)

    def stream(self) -> Iterator[Json]:
        """Return the lines of a stream."""
        return self.run.changes.stream(self._bodies(), ApiFamily.OLLAMA)

    def rendered_prompt_response(self) -> JsonObject:
        """Return the rendered prompt instead of an answer."""
        return {
            "model": self.delivery.model,
            "created_at": instant(self.now()),
            **({"response": ""} if self.place_output is in_response else {"message": {"role": "", "content": ""}}),
            "done": False,
            "_debug_info": {"rendered_template": tokens.decode(self.run.prompt)},
            **self._prompt_ids(),
        }

    def _bodies(self) -> Iterator[Json]:
        ids = self._prompt_ids()
        try:
            for line in self._lines():
                yield self.run.changes.json({**self._body(line), **ids}, ApiFamily.OLLAMA)
                ids = {}
        except ApiError as problem:
            yield {"error": problem.message}

    def _prompt_ids(self) -> JsonObject:
        return {"prompt_token_ids": [*self.run.prompt]} if self.delivery.shows_token_ids else {}

    def _body(self, line: _Line) -> JsonObject:
        body: JsonObject = {
            "model": self.delivery.model,
            "created_at": instant(self.now()),
            **self.place_output(line.output),
            "done": bool(line.statistics),
            **line.statistics,
        }
        if self.delivery.logprobs is not None:
            body["logprobs"] = [_logprob(token, self.delivery.logprobs) for token in line.ids]
        if self.delivery.shows_token_ids:
            body["token_ids"] = [*line.ids]
        return body

    def _lines(self) -> Iterator[_Line]:
        sent = 0
        for output in self._texts() if self.raw is None else self._raw_texts(self.raw):
            ids = tuple(self.run.generation.emitted_tokens[sent:])
            sent += len(ids)
            is_last = "content" not in output and "thinking" not in output
            yield _Line(output=output, ids=ids, statistics=self._ending() if is_last else {})

    def _raw_texts(self, raw: PlainTextReader) -> Iterator[JsonObject]:
        for piece in raw.pieces():
            if piece.text:
                yield {"content": piece.text}
        yield {}

    def _texts(self) -> Iterator[JsonObject]:
        """Yield the pieces of text, then the calls."""
        assembler = DeltaBuilder(self.run.client_capabilities)
        names: list[str] = []
        arguments: list[str] = []
        for delta in assembler.deltas(until_stop(self.run.events(), self.delivery.stop_strings)):
            match delta.field:
                case OutputField.NAME:
                    yield from _invalid_arguments(arguments[-1:])
                    names.append(delta.text)
                    arguments.append("")
                case OutputField.ARGUMENTS:
                    arguments[-1] += delta.text
                case OutputField.REASONING:
                    yield {"thinking": delta.text}
                case OutputField.CONTENT:
                    yield {"content": delta.text}
        if not self.run.generation.hit_token_limit:
            yield from _invalid_arguments(arguments[-1:])
        yield self._calls(names, arguments)

    def _calls(self, names: Sequence[str], arguments: Sequence[str]) -> JsonObject:
        parsed = [(name, parse_finite_object(text)) for name, text in zip(names, arguments, strict=True)]
        if self.run.generation.hit_token_limit and arguments and not arguments[-1]:
            parsed.pop()
        valid = [(name, value) for name, value in parsed if value is not None]
        calls: list[Json] = [
            {
                "id": call_id(self.run.id_seed, index)[: len("call_12345678")],
                "function": {"index": index, "name": name, "arguments": value},
            }
            for index, (name, value) in enumerate(valid)
        ]
        return {"tool_calls": calls} if calls else {}

    def _ending(self) -> JsonObject:
        prompt, output = self.run.prompt, self.run.generation.emitted_tokens
        reading = len(prompt) * _READING
        writing = len(output) * (int(self.token_delay * _SECOND) or _WRITING)
        statistics: JsonObject = {
            "total_duration": _LOADING + reading + writing,
            "load_duration": _LOADING,
            "prompt_eval_count": len(prompt),
            "prompt_eval_duration": reading,
            "eval_count": len(output),
            "eval_duration": writing,
        }
        context: JsonObject = {"context": [*prompt, *output]} if self.shows_context else {}
        reason = "length" if self.run.generation.hit_token_limit else "stop"
        return {"done_reason": reason, **context, **{name: value for name, value in statistics.items() if value}}


def instant(now: float) -> str:
    """Format seconds since the epoch as the API does."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _merged(values: Iterator[Json]) -> Json:
    """Join strings; of lists, return the last."""
    present = [value for value in values if value is not None]
    return "".join(text(value) for value in present) if isinstance(present[0], str) else [*items(present[-1])]


def _invalid_arguments(arguments: Sequence[str]) -> Iterator[JsonObject]:
    """Yield the arguments of complete calls that are not a JSON object, as content."""
    return ({"content": text} for text in arguments if text and parse_finite_object(text) is None)


def _logprob(token: int, alternatives: int) -> JsonObject:
    """Return the log probability of a token; the probability of scripted tokens is 1."""
    entry: JsonObject = {
        "token": decode_ids([token], shows_special=True),
        "logprob": 0.0,
        "bytes": [*tokens.decode_bytes([token])],
    }
    return {**entry, "top_logprobs": [entry]} if alternatives else entry
