"""Ollama's answers: one JSON object a line, or all of them added up.

What the model says comes as `thinking` and `content` (`response` of /api/generate). Calls come whole, on the last
line, with their arguments as an object; arguments that are none are shown as content, since the API has no other place
for them, unless the limit cut them off.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from harmony_conformance.json_value import Json, JsonObject, items, object_in, text
from harmony_conformance.reference_server.defects.stages import ApiFamily
from harmony_conformance.reference_server.model.output_events import Assembler, OutputField, call_id
from harmony_conformance.reference_server.model.plain_text import PlainTextReader, spelled
from harmony_conformance.reference_server.model.stop_strings_in_messages import until_stop
from harmony_conformance.reference_server.ollama.request import Delivery
from harmony_conformance.reference_server.pipeline.prompt_run import PromptRun
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_ref import tokens

_LOADING = 1_000_000  # nanoseconds
_READING = 1_000  # nanoseconds a token
_WRITING = 1_000  # nanoseconds a token, where the request does not say how long one takes
_SECOND = 1_000_000_000  # nanoseconds

Place = Callable[[JsonObject], JsonObject]
"""Puts what a line says where the endpoint has it."""


def in_message(said: JsonObject) -> JsonObject:
    """The place of /api/chat."""
    return {"message": {"role": "assistant", "content": "", **said}}


def in_response(said: JsonObject) -> JsonObject:
    """The place of /api/generate."""
    return {"response": said.get("content", ""), **{name: said[name] for name in said if name != "content"}}


@dataclass(frozen=True, kw_only=True)
class _Line:
    """What one line says, the tokens that came with it, and for the last one how it ended."""

    said: JsonObject
    ids: tuple[int, ...]
    ending: JsonObject


@dataclass(frozen=True, kw_only=True)
class OllamaAnswer:
    """A request that was accepted, and the generation that answers it; to be told once.

    Attributes:
        now: seconds since the epoch.
        raw: reads the generation as a text; None where it is read as Harmony.
        tells_context: whether the last line has the token ids of the conversation.
    """

    run: PromptRun
    delivery: Delivery
    now: Callable[[], float]
    token_delay: float
    place: Place
    raw: PlainTextReader | None = None
    tells_context: bool = False

    def whole(self) -> JsonObject:
        """All lines added up.

        Raises:
            ApiError: a defect made it one.
        """
        lines = list(self._lines())
        names = dict.fromkeys(name for line in lines for name in line.said)
        said: JsonObject = {name: _added(line.said.get(name) for line in lines) for name in names}
        ids = tuple(token for line in lines for token in line.ids)
        body = self._body(_Line(said=said, ids=ids, ending=lines[-1].ending))
        return self.run.changes.json({**body, **self._prompt_ids()}, ApiFamily.OLLAMA)

    def stream(self) -> Iterator[Json]:
        """The lines of a stream."""
        return self.run.changes.stream(self._told(), ApiFamily.OLLAMA)

    def rendered(self) -> JsonObject:
        """The prompt as a text, in place of an answer."""
        return {
            "model": self.delivery.model,
            "created_at": instant(self.now()),
            **({"response": ""} if self.place is in_response else {"message": {"role": "", "content": ""}}),
            "done": False,
            "_debug_info": {"rendered_template": tokens.decode(self.run.prompt)},
            **self._prompt_ids(),
        }

    def _told(self) -> Iterator[Json]:
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
            **self.place(line.said),
            "done": bool(line.ending),
            **line.ending,
        }
        if self.delivery.logprobs is not None:
            body["logprobs"] = [_logprob(token, self.delivery.logprobs) for token in line.ids]
        if self.delivery.shows_token_ids:
            body["token_ids"] = [*line.ids]
        return body

    def _lines(self) -> Iterator[_Line]:
        shown = 0
        for said in self._raw_texts(self.raw) if self.raw is not None else self._texts():
            ids = tuple(self.run.generation.emitted[shown:])
            shown += len(ids)
            is_last = "content" not in said and "thinking" not in said
            yield _Line(said=said, ids=ids, ending=self._ending() if is_last else {})

    def _raw_texts(self, raw: PlainTextReader) -> Iterator[JsonObject]:
        for piece in raw.pieces():
            if piece.text:
                yield {"content": piece.text}
        yield {}

    def _texts(self) -> Iterator[JsonObject]:
        """Pieces of text, and last the calls, if any."""
        assembler = Assembler(self.run.offer)
        names: list[str] = []
        arguments: list[str] = []
        for delta in assembler.deltas(until_stop(self.run.events(), self.delivery.stops)):
            match delta.field:
                case OutputField.NAME:
                    yield from _unfit(arguments[-1:])
                    names.append(delta.text)
                    arguments.append("")
                case OutputField.ARGUMENTS:
                    arguments[-1] += delta.text
                case OutputField.REASONING:
                    yield {"thinking": delta.text}
                case OutputField.CONTENT:
                    yield {"content": delta.text}
        if not self.run.generation.cut:
            yield from _unfit(arguments[-1:])
        yield self._calls(names, arguments)

    def _calls(self, names: Sequence[str], arguments: Sequence[str]) -> JsonObject:
        parsed = [(name, object_in(written)) for name, written in zip(names, arguments, strict=True)]
        if self.run.generation.cut and arguments and not arguments[-1]:
            parsed.pop()
        fit = [(name, read) for name, read in parsed if read is not None]
        calls: list[Json] = [
            {
                "id": call_id(self.run.seed, place)[: len("call_12345678")],
                "function": {"index": place, "name": name, "arguments": read},
            }
            for place, (name, read) in enumerate(fit)
        ]
        return {"tool_calls": calls} if calls else {}

    def _ending(self) -> JsonObject:
        prompt, written = len(self.run.prompt), len(self.run.generation.emitted)
        reading = prompt * _READING
        writing = written * (int(self.token_delay * _SECOND) or _WRITING)
        measured: JsonObject = {
            "total_duration": _LOADING + reading + writing,
            "load_duration": _LOADING,
            "prompt_eval_count": prompt,
            "prompt_eval_duration": reading,
            "eval_count": written,
            "eval_duration": writing,
        }
        context: JsonObject = (
            {"context": [*self.run.prompt, *self.run.generation.emitted]} if self.tells_context else {}
        )
        reason = "length" if self.run.generation.cut else "stop"
        return {"done_reason": reason, **context, **{name: value for name, value in measured.items() if value}}


def instant(now: float) -> str:
    """Seconds since the epoch as the API tells times."""
    return datetime.fromtimestamp(now, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _added(values: Iterator[Json]) -> Json:
    """Texts joined, and of lists the last."""
    given = [value for value in values if value is not None]
    return "".join(text(value) for value in given) if isinstance(given[0], str) else [*items(given[-1])]


def _unfit(arguments: Sequence[str]) -> Iterator[JsonObject]:
    """Arguments of a finished call that are no object."""
    return ({"content": written} for written in arguments if written and object_in(written) is None)


def _logprob(token: int, alternatives: int) -> JsonObject:
    """The model is sure of what its script says."""
    sure: JsonObject = {
        "token": spelled([token], shows_special=True),
        "logprob": 0.0,
        "bytes": [*tokens.decode_bytes([token])],
    }
    return {**sure, "top_logprobs": [sure]} if alternatives else sure
