"""Format the answer to a request of Messages: the events of a stream, or the message that they form.

Reasoning is a thinking block, text a text block, and each call a `tool_use` block. A call is sent when its input is complete. Input that is no
JSON object becomes text, since `input` cannot have it, unless the token limit cut it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256

from harmony_conformance.json_value import Json, JsonObject, members, parse_finite_object, text
from harmony_conformance.reference_server.chat.candidate import ChoiceGeneration
from harmony_conformance.reference_server.defects.stages import ApiFamily, Changes
from harmony_conformance.reference_server.messages.request import MessagesRequest
from harmony_conformance.reference_server.model.output_deltas import OutputDelta, OutputField
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_conformance.reference_server.requests.fields import MODEL
from harmony_conformance.reference_server.responses.encrypted_reasoning import seal

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
_LEAST_SERVER_ERROR = 500


def error_body(problem: ApiError) -> JsonObject:
    """Return an error in the envelope of the API."""
    is_server_error = problem.status >= _LEAST_SERVER_ERROR
    kind = _ERROR_TYPES.get(problem.status, "api_error" if is_server_error else "invalid_request_error")
    identity = "req_" + sha256(problem.message.encode("utf-8", "replace")).hexdigest()[:24]
    return {"type": "error", "error": {"type": kind, "message": problem.message}, "request_id": identity}


@dataclass(kw_only=True)
class MessagesAnswer:
    """An accepted request and its generation; either `complete_response` or `stream` can be called, once."""

    id: str
    request: MessagesRequest
    prompt: tuple[int, ...]
    output: ChoiceGeneration
    changes: Changes
    _calls: int = 0
    _index: int = -1  # of the open or the last block
    _kind: str = ""  # type of the open block
    _thought: str = ""

    def complete_response(self) -> JsonObject:
        """Return the message; raise an ApiError if a defect causes an error."""
        blocks: list[JsonObject] = []
        for event in self._blocks():
            if event["type"] == "content_block_start":
                blocks.append({**members(event["content_block"])})
            elif event["type"] == "content_block_delta":
                _extend(blocks[-1], members(event["delta"]))
        content: list[Json] = [*map(_finished, blocks)]
        ids: JsonObject = {"token_ids": [*self.output.generation.emitted_tokens]} if self._shows_ids else {}
        body: JsonObject = {**self._message(content), **self._ending(), "usage": self._usage(), **ids}
        return self.changes.json(body, ApiFamily.MESSAGES)

    def stream(self) -> Iterator[Json]:
        """Yield the events; after an error no event follows."""
        return self.changes.stream(self._changed_events(), ApiFamily.MESSAGES)

    def _changed_events(self) -> Iterator[Json]:
        sent = 0
        try:
            for event in self._events():
                ids = self.output.generation.emitted_tokens[sent:]
                sent += len(ids)
                shown: JsonObject = {"token_ids": [*ids]} if ids and self._shows_ids else {}
                yield self.changes.json({**event, **shown}, ApiFamily.MESSAGES)
        except ApiError as problem:
            yield error_body(problem)

    @property
    def _shows_ids(self) -> bool:
        return self.request.chat.shows_token_ids

    def _events(self) -> Iterator[JsonObject]:
        no_end: JsonObject = {"stop_reason": None, "stop_sequence": None}
        yield {"type": "message_start", "message": {**self._message([]), **no_end, "usage": self._usage()}}
        yield {"type": "ping"}
        yield from self._blocks()
        yield {"type": "message_delta", "delta": self._ending(), "usage": self._usage()}
        yield {"type": "message_stop"}

    def _blocks(self) -> Iterator[JsonObject]:
        """Yield the events of all blocks."""
        name: str | None = None  # of the call whose input is incomplete
        pieces: list[str] = []
        call = -1
        for delta in self.output.deltas():
            if delta.field is OutputField.ARGUMENTS:
                pieces.append(delta.text)
                continue
            if name is not None:
                yield from self._call(name, pieces, call)
                name = None
            if delta.field is OutputField.NAME:
                name, pieces, call = delta.text, [], delta.call
            else:
                yield from self._text(delta)
        if name is not None and not (
            self.output.generation.hit_token_limit and parse_finite_object("".join(pieces)) is None
        ):
            yield from self._call(name, pieces, call)
        yield from self._close()

    def _text(self, delta: OutputDelta) -> Iterator[JsonObject]:
        if delta.field is OutputField.CONTENT:
            yield from self._open({"type": "text", "text": ""})
            yield self._delta({"type": "text_delta", "text": delta.text})
        elif self.request.has_thinking:
            yield from self._open({"type": "thinking", "thinking": "", "signature": ""})
            self._thought += delta.text
            if self.request.shows_thinking:
                yield self._delta({"type": "thinking_delta", "thinking": delta.text})

    def _call(self, name: str, pieces: list[str], call: int) -> Iterator[JsonObject]:
        """Yield the block of a call. Without any input it has an empty object."""
        written = "".join(pieces)
        if written and parse_finite_object(written) is None:
            yield from self._text(OutputDelta(field=OutputField.CONTENT, text=written))
            return
        yield from self._close()
        self._calls += 1
        identity = "toolu_" + sha256(f"{self.output.id_seed}/{call}".encode()).hexdigest()[:24]
        yield from self._open({"type": "tool_use", "id": identity, "name": name, "input": {}})
        yield from (self._delta({"type": "input_json_delta", "partial_json": piece}) for piece in pieces)

    def _open(self, block: JsonObject) -> Iterator[JsonObject]:
        """Yield the start of a block, after the end of the one before it, unless one of its type is open."""
        if self._kind == block["type"]:
            return
        yield from self._close()
        self._index += 1
        self._kind = text(block["type"])
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _close(self) -> Iterator[JsonObject]:
        """Yield the end of the open block. Thinking is signed before."""
        if self._kind == "thinking":
            yield self._delta({"type": "signature_delta", "signature": seal(self._thought)})
        if self._kind:
            yield {"type": "content_block_stop", "index": self._index}
        self._kind = self._thought = ""

    def _delta(self, delta: JsonObject) -> JsonObject:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _message(self, content: list[Json]) -> JsonObject:
        ids: JsonObject = {"prompt_token_ids": [*self.prompt]} if self._shows_ids else {}
        head: JsonObject = {"id": self.id, "type": "message", "role": "assistant", "model": MODEL}
        return {**head, "content": content, **ids}

    def _ending(self) -> JsonObject:
        """Return why the generation ended; valid after its last token."""
        if self.output.matched_stop:
            return {"stop_reason": "stop_sequence", "stop_sequence": self.output.matched_stop}
        is_cut = self.output.finish_reason == "length"
        return {
            "stop_reason": "max_tokens" if is_cut else "tool_use" if self._calls else "end_turn",
            "stop_sequence": None,
        }

    def _usage(self) -> JsonObject:
        return {
            "input_tokens": len(self.prompt),
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": len(self.output.generation.emitted_tokens),
            "output_tokens_details": {"thinking_tokens": self.output.reasoning_tokens},
        }


_PIECES = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
}
"""The member of a block that each delta extends, and the member of the delta with the piece."""


def _extend(block: JsonObject, delta: JsonObject) -> None:
    """Add a delta to a block, as clients do. The input of a call is a text until it is finished."""
    into, name = _PIECES.get(text(delta["type"]), ("input", "partial_json"))
    block[into] = text(block[into]) + text(delta[name])


def _finished(block: JsonObject) -> Json:
    return {**block, "input": parse_finite_object(text(block["input"])) or {}} if "input" in block else block
