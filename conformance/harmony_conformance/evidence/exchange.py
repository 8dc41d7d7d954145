"""The `Exchange`: one request, its response, and the evidence about the prompt and the output. Checks see nothing else.

The properties are views: each is computed on first use and never raises. Without the data that it needs, a view is empty or None.
Every view but `request`, `response`, `response_json` and `events` has the shapes of Chat Completions, whatever API was used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from harmony_conformance.apis.api import Framing
from harmony_conformance.apis.chat_completion import Turn, find_error, read_completion, read_stream
from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS, Api, find_api
from harmony_conformance.apis.stream_choices import (
    ChunkChoice,
    JoinedEvents,
    extract_choices,
    join_events,
    read_chunk_choices,
)
from harmony_conformance.apis.text_fields import AnswerTexts, read_answers, read_streamed_answers
from harmony_conformance.evidence.emitted_ids import (
    GENERATION_END_TOKENS,
    added_end,
    end_early,
    reconcile,
    strip_endoftext,
)
from harmony_conformance.evidence.expected_output import Expectation, ExpectedOutput, FunctionCall, parse_output
from harmony_conformance.evidence.levels import (
    AnsweredBy,
    OutputEvidence,
    OutputLevel,
    PromptEvidence,
    PromptTokenCount,
    RenderedPrompt,
    Validity,
)
from harmony_conformance.evidence.numbers_as_written import body_as_written, values_as_written
from harmony_conformance.evidence.prompt_evidence import best_prompt_evidence, harmony_ids
from harmony_conformance.evidence.token_limit import applied_limit
from harmony_conformance.json_value import InvalidJsonError, Json, dumps, items, parse_object, value_at
from harmony_conformance.prompts.expected_parts import (
    ParsedPrompt,
    PromptMessage,
    PromptPart,
    expected_parts,
    read_prompt,
)
from harmony_conformance.prompts.request_members import (
    max_output_tokens,
    other_tool_names,
    stop_strings,
    without_unread_reasoning,
)
from harmony_conformance.runtime.caching import cached_property
from harmony_conformance.transport.messages import Failure, Request, Response
from harmony_conformance.transport.sse import EventStream, parse_together, read_events, read_lines, replace_values
from harmony_ref import decode, tokens

ALL_APIS = "all"
"""The API name of a series that used several APIs."""
API_SEPARATOR = "@"
"""The separator between step and API in the step names of such a series."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request and its result. `response` and `failure` are both set if the body was truncated.

    Attributes:
        id: `SCENARIO/API/STEP/ATTEMPT` in a run, `FILE@BYTE_OFFSET` in a log.
        request: The request as sent, without secrets.
        response: Status, headers and timed body chunks. None if no response head arrived.
        failure: The transport error. None if the exchange was complete.
        scenario: The scenario's name, or `traffic` for logged requests.
        step: The step's name within the scenario, empty for logged requests.
        api: The name of the API that was used, one of `harmony_conformance.apis.registry.APIS`.
        attempt: The number of the repetition, from 0.
        engine: The serving engine, such as `vllm`; `openai` if unknown.
        started: Start time in ISO 8601, or None if not recorded.
        validity: Validity of the request by the API reference; unknown for logged requests.
        script: The token ids that the model was forced to emit, or None for free generation.
        expected: The hand-written expectation for `script`, or None.
        script_not_played: The reason if the model did not emit its script, else empty.
        may_be_random: True if the weights wrote the answer on a server that plays scripts: they may be random.
        rendered_prompt: Prompt ids from a render endpoint, or None.
        counted_prompt: Prompt token count from a count endpoint, or None.
        retry_waits: The waits before retries that the server requested, in seconds.
        from_log: True if rebuilt from a log, which may lack bytes that crossed the wire.
        concurrency: The number of requests in flight in a parallel step, else None.
        answered_by: The endpoint that produced the response.
        websocket: The number of the WebSocket connection in the run, from 1. None for HTTP and for a failed handshake.
        choice: The index of the choice that this exchange shows. Further choices are `other_choices`.
    """

    id: str
    request: Request
    response: Response | None = None
    failure: Failure | None = None
    scenario: str = "traffic"
    step: str = ""
    api: str = "chat"
    attempt: int = 0
    engine: str = "openai"
    started: str | None = None
    validity: Validity = Validity.UNKNOWN
    script: tuple[int, ...] | None = None
    expected: Expectation | None = None
    script_not_played: str = ""
    may_be_random: bool = False
    rendered_prompt: RenderedPrompt | None = None
    counted_prompt: PromptTokenCount | None = None
    retry_waits: tuple[float, ...] = ()
    from_log: bool = False
    concurrency: int | None = None
    answered_by: AnsweredBy = AnsweredBy.API
    websocket: int | None = None
    choice: int = 0

    @cached_property
    def other_choices(self) -> tuple[Exchange, ...]:
        """Choices 1, 2, … of a successful response, each as a separate exchange. Empty for an exchange of a further choice.

        Choices beyond the limits of `extract_choices` are left out: they are not judged. `choice_count` counts them.
        """
        if self.choice or self.response is None or not self.response.is_success:
            return ()
        copies = extract_choices(self.response_json, self.events, self.response, self.choice_count)
        return tuple(
            replace(self, choice=index, response=replace(self.response, chunks=chunks))
            for index, chunks in enumerate(copies, 1)
        )

    @cached_property
    def choice_count(self) -> int:
        """The number of choices in the response."""
        if self.stream is not None:
            return len({choice.choice_index or 0 for choice in self.joined_choices})
        return len(items(value_at(self.chat_completion, "choices")))

    @cached_property
    def api_adapter(self) -> Api:
        """The adapter of `api`; that of Chat Completions for an unknown name."""
        return find_api(self.api)

    @cached_property
    def chat_request(self) -> Json:
        """The request body translated to a Chat Completions request. None if the body is not JSON."""
        return self.api_adapter.read_request(without_unread_reasoning(self.request.json, self.api, self.engine))

    @cached_property
    def chat_request_body(self) -> bytes:
        """The bytes of `chat_request` as JSON; for Chat Completions the body as sent, which may be malformed."""
        if self.api == CHAT_COMPLETIONS.name:
            return self.request.body
        return dumps(self.chat_request).encode("utf-8", "backslashreplace")

    @cached_property
    def expected_parts(self) -> tuple[PromptPart, ...]:
        """The parts that the prompt must contain for the messages of the request, in their order."""
        return expected_parts(self.chat_request)

    @cached_property
    def events(self) -> EventStream | None:
        """The stream's events in the API's own format, by server-sent events or JSON lines. None if the response is no stream."""
        response = self.response
        if response is None:
            return None
        if self.api_adapter.framing is Framing.LINES and response.is_line_stream:
            return read_lines(response.chunks)
        return read_events(response.chunks) if response.is_event_stream else None

    @cached_property
    def stream(self) -> EventStream | None:
        """The same events with each value translated to a `chat.completion.chunk`. None if the response is no stream."""
        if self.events is None or self.api == CHAT_COMPLETIONS.name:
            return self.events
        parse_together(self.events.events)
        values = values_as_written(self.api_adapter, self.events)
        return replace_values(self.events, self.api_adapter.read_events(values))

    @cached_property
    def response_json(self) -> Json:
        """The response body as JSON in the API's own format. None for a stream or an invalid body."""
        try:
            return self.response.json if self.response is not None and self.events is None else None
        except InvalidJsonError:
            return None

    @cached_property
    def chat_completion(self) -> Json:
        """The response body translated to a `chat.completion`. None for a stream or an invalid body."""
        if self.response is None or self.response_json is None:
            return None
        return self.api_adapter.read_response(body_as_written(self.api_adapter, self.response, self.response_json))

    @cached_property
    def chunks(self) -> tuple[Json, ...]:
        """The stream's `chat.completion.chunk` values, without `[DONE]` and events that are not JSON. Empty if there is no stream."""
        if self.stream is None:
            return ()
        parse_together(self.stream.events)
        return tuple([event.value for event in self.stream.events if event.value is not None])

    @cached_property
    def chunk_choices(self) -> tuple[ChunkChoice, ...]:
        """The choices of all chunks, in order of arrival."""
        return read_chunk_choices(self.chunks)

    @cached_property
    def joined_chunks(self) -> tuple[Json, ...]:
        """The chunks, with those joined that differ in a piece of text alone: as many as a whole answer has parts, not tokens."""
        return self.joined_events.chunks

    @cached_property
    def joined_events(self) -> JoinedEvents:
        """The joined chunks, and the indexes of the events that are no chunks: `[DONE]`, and those that are not JSON."""
        return join_events(self.stream.events if self.stream is not None else ())

    @cached_property
    def joined_choices(self) -> tuple[ChunkChoice, ...]:
        """The choices of all joined chunks. Their chunk indexes are not those of the stream."""
        return read_chunk_choices(self.joined_chunks)

    @cached_property
    def turn(self) -> Turn | None:
        """The first choice as a client reads it, deltas joined. None if the response has no choices or its status is an error.

        Usage and ids are removed from responses that `/render` or `/derender` endpoints gave: they describe no generation.
        """
        if self.response is None or not self.response.is_success:
            return None
        if self.stream is not None:
            turn = read_stream(self.joined_chunks) if self.joined_choices else None
        else:
            turn = read_completion(self.chat_completion) if items(value_at(self.chat_completion, "choices")) else None
        if turn is None or self.answered_by is AnsweredBy.API:
            return turn
        return replace(turn, usage=None, prompt_ids=None, output_ids=None)

    @cached_property
    def answers(self) -> tuple[AnswerTexts, ...]:
        """All texts of every choice, by field. The first choice has the ids of `output`, the others those of the response."""
        if self.turn is None:
            return ()
        texts = (
            read_answers(self.chat_completion) if self.stream is None else read_streamed_answers(self.joined_choices)
        )
        if not texts or texts[0].ids == self.output.ids:
            return texts
        return (replace(texts[0], ids=self.output.ids), *texts[1:])

    @cached_property
    def prompt(self) -> PromptEvidence:
        """The best evidence of the prompt: see `best_prompt_evidence`."""
        return best_prompt_evidence(self.turn, self.rendered_prompt, self.counted_prompt)

    @cached_property
    def parsed_prompt(self) -> ParsedPrompt | None:
        """The prompt parsed as Harmony messages. None if its ids are unknown."""
        return read_prompt(self.prompt.ids) if self.prompt.ids is not None else None

    @property
    def prompt_messages(self) -> tuple[PromptMessage, ...]:
        """The messages of `parsed_prompt`, empty if that is unknown."""
        return self.parsed_prompt.messages if self.parsed_prompt is not None else ()

    @property
    def system_message(self) -> PromptMessage | None:
        """The first system message of the prompt, or None if the prompt has none or is unknown."""
        return next((message for message in self.prompt_messages if message.role == "system"), None)

    @cached_property
    def output(self) -> OutputEvidence:
        """The best evidence of the emitted tokens. Without script and returned ids, `ids` equals None.

        vLLM 0.11.0 omits headers from the ids of its streams: they then begin with `<|message|>` and are fewer than `usage` reports.
        """
        returned = harmony_ids(self.turn.output_ids) if self.turn is not None else None
        count = self.turn.usage.completion_tokens if self.turn is not None and self.turn.usage is not None else None
        if self.script is not None:
            one_call = value_at(self.chat_request, "parallel_tool_calls") is False
            script = self.script if returned is not None else end_early(self.script, count, self.stop_strings, one_call)
            added = None if self.ignores_eos else added_end(self.request.json)
            limit = applied_limit(self.turn, script, self.max_output_tokens)
            ids = reconcile(script, returned, count, limit, added_end=added)
            return OutputEvidence(level=OutputLevel.SCRIPTED, ids=ids)
        lacks_headers = count is not None and returned is not None and count > len(returned)
        if returned is None or (lacks_headers and returned[:1] == (tokens.MESSAGE,)):
            return OutputEvidence(level=OutputLevel.API_ONLY, ids=None)
        return OutputEvidence(level=OutputLevel.EXACT, ids=returned)

    @cached_property
    def expected_output(self) -> ExpectedOutput | None:
        """The texts and calls that the response must contain: the hand-written expectation, else the emitted ids as the reference parses them.

        None if the ids are unknown or malformed, or the script was not played. None after a stop string, where servers differ.
        None if the expectation is for broken output: use `expectation` then.
        None if the model called a tool that is no function: its call is an item of another type.
        """
        ids = self.output.ids
        if ids is None or self.has_stop_string or self.script_not_played:
            return None
        if self.expectation is not None:
            return self.expectation.required_output if self.expectation.is_well_formed else None
        output = parse_output(ids)
        others = other_tool_names(self.chat_request)
        return None if output is not None and any(call.name in others for call in output.calls) else output

    @cached_property
    def expectation(self) -> Expectation | None:
        """The hand-written expectation (`expected`). None if its script was not emitted completely."""
        ids = self.output.ids
        return self.expected if ids is not None and self.script in (ids, strip_endoftext(ids)) else None

    def can_return_call(self, call: FunctionCall) -> bool:
        """Return True if the API can represent the call. APIs with arguments as an object cannot return other JSON values."""
        return self.api_adapter.has_text_arguments or parse_object(call.arguments) is not None

    @property
    def reached_stop(self) -> bool | None:
        """True if the emitted ids end with a stop token or contain a stop string. None if they are unknown or `ignores_eos`."""
        ids = self.output.ids
        if ids is None or self.ignores_eos:
            return None
        return (bool(ids) and ids[-1] in GENERATION_END_TOKENS) or self.has_stop_string

    @property
    def ignores_eos(self) -> bool:
        """True if the request has `ignore_eos`: generation then continues after stop tokens."""
        return value_at(self.chat_request, "ignore_eos") is True

    @property
    def hit_token_limit(self) -> bool:
        """True if the emitted ids are known, end at `max_output_tokens`, and do not end the turn."""
        ids = self.output.ids
        return (
            ids is not None
            and self.max_output_tokens is not None
            and len(ids) == self.max_output_tokens
            and self.reached_stop is False
        )

    @property
    def has_stop_string(self) -> bool:
        """True if the emitted text, special tokens included, contains a stop string of the request."""
        emitted = decode(self.output.ids or ())
        return any(one in emitted for one in self.stop_strings)

    @cached_property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings of the request (`stop`, one or a list)."""
        return stop_strings(self.chat_request)

    @cached_property
    def max_output_tokens(self) -> int | None:
        """The largest number of output tokens that the request allows. None for no limit, also if negative (llama.cpp's -1)."""
        return max_output_tokens(self.chat_request)

    @property
    def wants_stream(self) -> bool:
        """True if the request asks for a stream."""
        return value_at(self.chat_request, "stream") is True

    @cached_property
    def messages(self) -> list[Json]:
        """The `messages` of the chat request, empty if missing."""
        return items(value_at(self.chat_request, "messages"))

    @cached_property
    def tools(self) -> list[Json]:
        """The `tools` of the chat request, empty if missing."""
        return items(value_at(self.chat_request, "tools"))

    @cached_property
    def error(self) -> Json:
        """The first error in the body or in an event: the member `error`, or a value with `object: "error"`. None without an error."""
        return find_error(self.joined_chunks if self.stream is not None else (self.chat_completion,))


@dataclass(frozen=True, kw_only=True)
class Series:
    """The exchanges of one scenario, connection or conversation, in order, by their unique step name."""

    name: str
    exchanges: Mapping[str, Exchange]

    @property
    def api(self) -> str:
        """The API of all exchanges, `all` for several. Requests to auxiliary endpoints, such as metrics, do not count."""
        names = {exchange.api for exchange in self.exchanges.values()} & APIS.keys()
        return ALL_APIS if len(names) > 1 else next(iter(names), CHAT_COMPLETIONS.name)
