"""TGI's Messages API: Chat Completions with TGI's members, errors and chunks.

TGI has no member for reasoning; it is returned as by other servers. Calls end with the finish reason `stop`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

from harmony_conformance.json_value import Json, JsonObject, items, members
from harmony_conformance.reference_server.defects.stages import ApiFamily
from harmony_conformance.reference_server.model.generation import Generation, Sampling, keep_output, output_tokens
from harmony_conformance.reference_server.model.output_deltas import (
    DONE,
    ClientCapabilities,
    DeltaBuilder,
    OutputDelta,
    OutputField,
    call_id,
    message,
)
from harmony_conformance.reference_server.model.output_parser import OutputEvent
from harmony_conformance.reference_server.model.stop_strings_in_messages import until_stop
from harmony_conformance.reference_server.pipeline.http import ServerState
from harmony_conformance.reference_server.pipeline.prompt_run import PromptRun, render_prompt, request_hash
from harmony_conformance.reference_server.requests.chat_request import ChatRequest, read_request
from harmony_conformance.reference_server.requests.conversation import conversation
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_conformance.reference_server.requests.fields import MODEL
from harmony_conformance.reference_server.tgi.request import invalid, require_properties, stop_strings

VERSION = "3.3.6-dev0"
"""The version that TGI 3.3.7 reports."""
TOOL_ERROR = "tool_error"
FINGERPRINT = f"{VERSION}-native"

_IGNORED = ("model", "n", "stop", "logit_bias", "logprobs", "top_logprobs", "response_format", "tool_prompt")
"""Members that TGI ignores, or that this module reads."""


@dataclass(frozen=True, kw_only=True)
class TgiChat:
    """An accepted chat and its generation; either `complete_response` or `stream` can be called, once."""

    request: ChatRequest
    run: PromptRun
    stop_strings: tuple[str, ...]
    created: int

    def complete_response(self) -> JsonObject:
        """Return the complete response body."""
        built = _as_tgi(
            message(DeltaBuilder(self.run.client_capabilities).deltas(self._events()), seed=self.run.id_seed)
        )
        choice: JsonObject = {"index": 0, "message": built, "logprobs": None, "finish_reason": self._finish()}
        body: JsonObject = {**self._envelope("chat.completion"), "choices": [choice], "usage": self._usage()}
        if self.request.shows_token_ids:
            choice["token_ids"] = [*self.run.generation.emitted_tokens]
            body["prompt_token_ids"] = [*self.run.prompt]
        return self.run.changes.json(body, ApiFamily.TGI)

    def stream(self) -> Iterator[Json]:
        """Yield the data of each event: chunks, then `[DONE]`."""
        return self.run.changes.stream(self._events_data(), ApiFamily.TGI)

    def _events_data(self) -> Iterator[Json]:
        try:
            for chunk in self._chunks():
                yield self.run.changes.json(chunk, ApiFamily.TGI)
        except ApiError as problem:
            yield {"error": {"message": problem.message, "http_status_code": int(problem.status)}}
        yield DONE

    def _chunks(self) -> Iterator[JsonObject]:
        sent = 0
        for delta in DeltaBuilder(self.run.client_capabilities).deltas(self._events()):
            yield self._with_ids(self._chunk(self._delta(delta)), sent)
            sent = len(self.run.generation.emitted_tokens)
        yield self._with_ids(self._chunk({"content": ""}, finish=self._finish()), sent)
        if self.request.usage_in_stream:
            yield {**self._envelope("chat.completion.chunk"), "choices": [], "usage": self._usage()}

    def _with_ids(self, chunk: JsonObject, sent: int) -> JsonObject:
        """Add the token ids after the first `sent` if the client requested them; the first chunk has the prompt's."""
        if not self.request.shows_token_ids:
            return chunk
        prompt: JsonObject = {} if sent else {"prompt_token_ids": [*self.run.prompt]}
        ids: list[Json] = [*self.run.generation.emitted_tokens[sent:]]
        choices: list[Json] = [{**members(choice), "token_ids": ids} for choice in items(chunk["choices"])]
        return {**chunk, **prompt, "choices": choices}

    def _chunk(self, output: JsonObject, *, finish: str | None = None) -> JsonObject:
        delta: JsonObject = {"role": "assistant", **output}
        choice: JsonObject = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._envelope("chat.completion.chunk"), "choices": [choice], "usage": None}

    def _delta(self, delta: OutputDelta) -> JsonObject:
        if delta.field not in (OutputField.NAME, OutputField.ARGUMENTS):
            return {delta.field.value: delta.text}
        is_name = delta.field is OutputField.NAME
        function: JsonObject = {"name": delta.text if is_name else None, "arguments": "" if is_name else delta.text}
        call: JsonObject = {"index": delta.call, "id": call_id(self.run.id_seed, delta.call), "type": "function"}
        return {"tool_calls": [{**call, "function": function}]}

    def _events(self) -> Iterator[OutputEvent]:
        return until_stop(self.run.events(), self.stop_strings)

    def _finish(self) -> str:
        emitted = self.run.generation.emitted_tokens
        if self.run.generation.hit_token_limit:
            return "length"
        return "stop" if self.run.generation.is_over or not emitted else "stop_sequence"

    def _usage(self) -> JsonObject:
        prompt, output = len(self.run.prompt), len(self.run.generation.emitted_tokens)
        return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}

    def _envelope(self, kind: str) -> JsonObject:
        return {"object": kind, "id": "", "created": self.created, "model": MODEL, "system_fingerprint": FINGERPRINT}


def accept_request(body: JsonObject, host: ServerState) -> TgiChat:
    """Validate a request body and prepare its answer; raise an ApiError (422) if it is invalid."""
    request = read_chat(body)
    offer = ClientCapabilities(
        declared_functions=frozenset(tool.name for tool in request.tools), accepts_calls=bool(request.declared_tools)
    )
    run = PromptRun(
        id_seed=request_hash(body),
        prompt=render_prompt(conversation(request, date=host.date), host.changes),
        generation=Generation(
            output_tokens(request, keep_output), host.changes.sampling(Sampling(limit=request.limit))
        ),
        client_capabilities=host.changes.client_capabilities(offer),
        changes=host.changes,
    )
    return TgiChat(request=request, run=run, stop_strings=stop_strings(body.get("stop")), created=int(host.now()))


def read_chat(body: JsonObject) -> ChatRequest:
    """Parse the chat in a JSON body; raise an ApiError (422) if it is invalid."""
    if body.get("tools") and body.get("response_format") is not None:
        raise ApiError(
            "Tool error: Grammar and tools are mutually exclusive",
            status=HTTPStatus.UNPROCESSABLE_ENTITY,
            code=TOOL_ERROR,
        )
    rest: JsonObject = {name: value for name, value in body.items() if name not in _IGNORED}
    try:
        return read_request({**rest, "model": MODEL, **_response_format(body.get("response_format"))})
    except ApiError as problem:
        raise invalid(problem.message) from None


def _response_format(value: Json) -> JsonObject:
    """Convert TGI's grammar to a response format of Chat Completions."""
    if value is None:
        return {}
    kind, grammar = members(value).get("type"), members(members(value).get("value"))
    if kind not in ("json", "json_object", "json_schema"):
        raise invalid("`response_format`: only JSON schemas are supported")
    schema: JsonObject = grammar if kind == "json_schema" else {"schema": grammar}
    require_properties(schema.get("schema"))
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", **schema}}}


def _as_tgi(built: JsonObject) -> JsonObject:
    """Convert a message to TGI's form: no member is null."""
    calls: list[Json] = [
        {**members(call), "function": {"description": None, **members(members(call).get("function"))}}
        for call in items(built.get("tool_calls"))
    ]
    rest: JsonObject = {name: value for name, value in built.items() if value is not None and name != "tool_calls"}
    return {**rest, "tool_calls": calls} if calls else {"content": "", **rest}
