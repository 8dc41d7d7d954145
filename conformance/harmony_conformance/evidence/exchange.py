"""An `Exchange`: one request, what came back, and everything that is known about what went into the model and came out of it.

All a check sees. Views are computed once, on demand; none of them raises.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from harmony_conformance.apis.api import Framing
from harmony_conformance.apis.chat_completion import Turn, read_completion, read_stream
from harmony_conformance.apis.chat_stream import ChunkChoice, only_choice, streamed_choices
from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS, Api, api_named
from harmony_conformance.apis.text_fields import AnswerTexts, read_answers, read_streamed_answers
from harmony_conformance.evidence.expected_output import (
    ENDINGS,
    Expectation,
    ExpectedOutput,
    FunctionCall,
    cut_at_stop,
    read_ids,
    strip_endoftext,
)
from harmony_conformance.evidence.levels import (
    AnsweredBy,
    OutputEvidence,
    OutputLevel,
    PromptEvidence,
    PromptLevel,
    PromptTokenCount,
    RenderedPrompt,
    Validity,
)
from harmony_conformance.json_value import InvalidJsonError, Json, at, dumps, items, members, number, object_in, text
from harmony_conformance.prompts.prompt_parser import (
    ParsedPrompt,
    PromptMessage,
    PromptPart,
    expected_parts,
    read_prompt,
)
from harmony_conformance.runtime.caching import cached_property
from harmony_conformance.transport.messages import Failure, Request, Response
from harmony_conformance.transport.sse import EventStream, read_events, read_lines, retold
from harmony_ref import decode, tokens

__all__ = [
    "ACROSS",
    "ALL_APIS",
    "AnsweredBy",
    "Exchange",
    "OutputEvidence",
    "OutputLevel",
    "PromptEvidence",
    "PromptLevel",
    "PromptTokenCount",
    "RenderedPrompt",
    "Series",
    "Validity",
]

ALL_APIS = "all"
"""Stands for the API of a series that went over several."""
ACROSS = "@"
"""Between a step and its API, where a series went over several."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request and its outcome. `script` holds the ids the model was made to emit, `expected` the hand-written row that goes with them.

    `choice` is which of the answer's choices it is about (all but the first are shown as exchanges of their own).
    `together`: how many requests were under way at the same time, where a scenario sends them side by side.
    `rebuilt`: put together again from a log; what the log left out, the wire may have had.
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
    """Why the model did not say its script, where it had one."""
    rendered_prompt: RenderedPrompt | None = None
    counted_prompt: PromptTokenCount | None = None
    retry_waits: tuple[float, ...] = ()
    from_log: bool = False
    concurrency: int | None = None
    answered_by: AnsweredBy = AnsweredBy.API
    choice: int = 0

    @cached_property
    def other_choices(self) -> tuple[Exchange, ...]:
        """The further choices of an answer with several, each as the exchange it would be alone: what a check says of one choice it can say of all."""
        if self.choice or self.response is None or not self.response.is_success:
            return ()
        return tuple(
            replace(
                self,
                choice=place,
                response=replace(
                    self.response, chunks=only_choice(self.response_json, self.events, self.response, place)
                ),
            )
            for place in range(1, self.choices)
        )

    @cached_property
    def choices(self) -> int:
        """How many choices the answer has."""
        if self.stream is not None:
            return len({told.number or 0 for told in self.chunk_choices})
        return len(items(at(self.chat_completion, "choices")))

    @cached_property
    def api_adapter(self) -> Api:
        """The API that it speaks."""
        return api_named(self.api)

    @cached_property
    def chat_request(self) -> Json:
        """The request's body as JSON (None where it is none): the chat request that it means."""
        return self.api_adapter.read_request(self.request.json)

    @cached_property
    def chat_request_body(self) -> bytes:
        """The chat request that it means, written as JSON; that of Chat Completions as it was sent."""
        if self.api == CHAT_COMPLETIONS.name:
            return self.request.body
        return dumps(self.chat_request).encode("utf-8", "backslashreplace")

    @cached_property
    def expected_parts(self) -> tuple[PromptPart, ...]:
        """What the messages of the request have to become in the prompt."""
        return expected_parts(self.chat_request)

    @cached_property
    def events(self) -> EventStream | None:
        """The events as they were framed on the wire, where the answer is a stream of events."""
        response = self.response
        if response is None:
            return None
        if self.api_adapter.framing is Framing.LINES and response.is_line_stream:
            return read_lines(response.chunks)
        return read_events(response.chunks) if response.is_event_stream else None

    @cached_property
    def stream(self) -> EventStream | None:
        """The events as the chunks of a chat completion that they mean, each in its place, where the answer is a stream of events."""
        if self.events is None or self.api == CHAT_COMPLETIONS.name:
            return self.events
        return retold(self.events, self.api_adapter.read_events(event.value for event in self.events.events))

    @cached_property
    def response_json(self) -> Json:
        """The answer as one JSON value, in the words of its API; None for a stream, and where it is no JSON."""
        if self.response is None or self.events is not None:
            return None
        try:
            return self.response.json
        except InvalidJsonError:
            return None

    @cached_property
    def chat_completion(self) -> Json:
        """The answer as one JSON value, the chat completion that it means; None for a stream, and where it is no JSON."""
        return self.api_adapter.read_response(self.response_json) if self.response_json is not None else None

    @cached_property
    def chunks(self) -> tuple[Json, ...]:
        """The JSON values of the stream's events, `[DONE]` and events that are no JSON left out."""
        return tuple(event.value for event in self.stream.events if event.value is not None) if self.stream else ()

    @cached_property
    def chunk_choices(self) -> tuple[ChunkChoice, ...]:
        """The choices of the stream's chunks, in the order in which they came."""
        return streamed_choices(self.chunks)

    @cached_property
    def turn(self) -> Turn | None:
        """What the client was told; None where it was given no completion. What was told to the server before is left out."""
        turn = self._turn
        if turn is None or self.answered_by is AnsweredBy.API:
            return turn
        return replace(turn, usage=None, prompt_ids=None, output_ids=None)

    @property
    def _turn(self) -> Turn | None:
        if self.response is None or not self.response.is_success:
            return None
        if self.stream is not None:
            return read_stream(self.chunks) if self.chunk_choices else None
        return read_completion(self.chat_completion) if items(at(self.chat_completion, "choices")) else None

    @cached_property
    def answers(self) -> tuple[AnswerTexts, ...]:
        """Every choice of the answer with each text in it; the first with the best evidence of its tokens."""
        if self.turn is None:
            return ()
        found = read_answers(self.chat_completion) if self.stream is None else read_streamed_answers(self.chunk_choices)
        if not found or found[0].ids == self.output.ids:
            return found
        return (replace(found[0], ids=self.output.ids), *found[1:])

    @cached_property
    def prompt(self) -> PromptEvidence:
        """The best evidence of what the model was fed."""
        turn = self.turn
        count = (turn.usage.prompt_tokens or None) if turn is not None and turn.usage is not None else None
        if turn is not None and (fed := _of_vocabulary(turn.prompt_ids)) is not None:
            return PromptEvidence(level=PromptLevel.IDS, source="prompt_token_ids", ids=fed, count=count)
        shown = _of_vocabulary(self.rendered_prompt.ids) if self.rendered_prompt is not None else None
        if self.rendered_prompt is not None and shown is not None and count in (None, len(shown)):
            return PromptEvidence(
                level=PromptLevel.RENDERED, source=self.rendered_prompt.source, ids=shown, count=count
            )
        if count:
            return PromptEvidence(level=PromptLevel.ACCOUNTING, source="usage.prompt_tokens", count=count)
        if self.counted_prompt is not None:
            return PromptEvidence(
                level=PromptLevel.ACCOUNTING, source=self.counted_prompt.source, count=self.counted_prompt.tokens
            )
        return PromptEvidence(level=PromptLevel.NONE)

    @cached_property
    def parsed_prompt(self) -> ParsedPrompt | None:
        """The prompt read as Harmony messages, where its ids are known."""
        return read_prompt(self.prompt.ids) if self.prompt.ids is not None else None

    @property
    def prompt_messages(self) -> tuple[PromptMessage, ...]:
        """The messages of the prompt; none where its ids are not known."""
        return self.parsed_prompt.messages if self.parsed_prompt is not None else ()

    @property
    def system_message(self) -> PromptMessage | None:
        """The first system message of the prompt, None where there is none or the prompt is not known."""
        return next((message for message in self.prompt_messages if message.role == "system"), None)

    @cached_property
    def output(self) -> OutputEvidence:
        """The best evidence of what the model emitted: the ids returned, else the script up to its first stop."""
        returned = _of_vocabulary(self.turn.output_ids) if self.turn is not None else None
        if self.script is not None:
            return OutputEvidence(level=OutputLevel.SCRIPTED, ids=self._emitted(self.script, returned))
        if returned is None or self._lacks_its_headers(returned):
            return OutputEvidence(level=OutputLevel.API_ONLY, ids=None)
        return OutputEvidence(level=OutputLevel.EXACT, ids=returned)

    def _lacks_its_headers(self, returned: tuple[int, ...]) -> bool:
        """Whether ids begin where a header ends, and are fewer than were counted: vLLM 0.11.0 tells none of what its streams leave out."""
        told = self.turn.usage.completion_tokens if self.turn is not None and self.turn.usage is not None else None
        return returned[:1] == (tokens.MESSAGE,) and told is not None and told > len(returned)

    def _emitted(self, script: tuple[int, ...], returned: tuple[int, ...] | None) -> tuple[int, ...]:
        """The ids returned, unless the script and the count of tokens say that some of them were lost or doubled on the way."""
        cut = (script if self.ignores_eos else cut_at_stop(script))[: self.limit]
        told = self.turn.usage.completion_tokens if self.turn is not None and self.turn.usage is not None else None
        may_go_on = bool(cut) and cut[-1] not in ENDINGS and not self.ignores_eos
        # what an engine ends a script with that does not end itself
        ended = (*cut, tokens.ENDOFTEXT) if may_go_on and told == len(cut) + 1 else cut
        if returned is None or (told == len(cut) and returned != cut):
            return ended
        shorter = min(len(returned), len(script))
        if returned[:shorter] == script[:shorter]:
            return returned
        if ended != cut and returned[-1:] == ended[-1:]:
            return ended  # a stream that says the ids of its events, of which some were left out (vLLM 0.11.0)
        # the server may have stopped before the script did: then the count says where
        return cut[: max(told or 0, 0) or None]

    @cached_property
    def expected_output(self) -> ExpectedOutput | None:
        """What the emitted completion means: the hand-written row where the script was emitted whole, else well-formed ids read by the reference.

        Nothing, where a stop string of the request was met: what is shown of it, and of the rest, is the server's choice. Nothing where the model did not
        say its script, and a grammar made it say anything. Nothing either where the row is one for broken output: see `row`.
        """
        ids = self.output.ids
        if ids is None or self.meets_stop_string or self.script_not_played:
            return None
        if self.expectation is not None:
            return self.expectation.must if self.expectation.is_whole else None
        return read_ids(ids)

    @cached_property
    def expectation(self) -> Expectation | None:
        """The hand-written row, where the script that it goes with was emitted whole."""
        ids = self.output.ids
        return self.expected if ids is not None and self.script in (ids, strip_endoftext(ids)) else None

    def has_place_for(self, call: FunctionCall) -> bool:
        """Whether the API can return a call: one with an object for arguments can not return what is no object."""
        return self.api_adapter.arguments_are_texts or object_in(call.arguments) is not None

    @property
    def reached_stop(self) -> bool | None:
        """Whether the model ended its turn itself, or met a stop string; None where the emitted ids are unknown."""
        ids = self.output.ids
        if ids is None or self.ignores_eos:
            return None
        return (bool(ids) and ids[-1] in ENDINGS) or self.meets_stop_string

    @property
    def ignores_eos(self) -> bool:
        """Whether the request takes the end of the answer out of the model's hands."""
        return at(self.chat_request, "ignore_eos") is True

    @property
    def hit_token_limit(self) -> bool:
        """Whether the emitted ids are known, as many as the request allows, and do not end the turn."""
        ids = self.output.ids
        return ids is not None and self.limit is not None and len(ids) >= self.limit and self.reached_stop is False

    @property
    def meets_stop_string(self) -> bool:
        """Whether a stop string of the request stands in what the model emitted."""
        emitted = decode(self.output.ids or ())
        return any(one in emitted for one in self.stop_strings)

    @cached_property
    def stop_strings(self) -> tuple[str, ...]:
        """The stop strings of the request."""
        stop = at(self.chat_request, "stop")
        return tuple(said for one in (stop if isinstance(stop, list) else [stop]) if (said := text(one)))

    @cached_property
    def limit(self) -> int | None:
        """The number of tokens the request allows, None where it sets none, as with -1 for llama.cpp."""
        named = number(at(self.chat_request, "max_completion_tokens"))
        limit = named if named is not None else number(at(self.chat_request, "max_tokens"))
        return None if limit is None or limit < 0 else limit

    @property
    def wants_stream(self) -> bool:
        """Whether the request asks for a stream."""
        return at(self.chat_request, "stream") is True

    @cached_property
    def messages(self) -> list[Json]:
        """The request's messages."""
        return items(at(self.chat_request, "messages"))

    @cached_property
    def tools(self) -> list[Json]:
        """The request's tools."""
        return items(at(self.chat_request, "tools"))

    @cached_property
    def error(self) -> Json:
        """The error object or text that the body, or an event of the stream, carries; None where there is none."""
        candidates: Iterator[Json] = iter(self.chunks) if self.stream is not None else iter((self.chat_completion,))
        for value in candidates:
            told = members(value)
            found = told.get("error")
            if found is not None:
                return found
            if told.get("object") == "error":
                return value
        return None


def _of_vocabulary(ids: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The ids, None where one of them is no token of Harmony: then they are another model's, and prove nothing."""
    return ids if ids is None or not ids or (tokens.is_known(min(ids)) and tokens.is_known(max(ids))) else None


@dataclass(frozen=True, kw_only=True)
class Series:
    """Exchanges that belong together, by the name of their step, in order: a scenario's, a connection's or a conversation's."""

    name: str
    exchanges: Mapping[str, Exchange]

    @property
    def api(self) -> str:
        """The API they all speak, `all` where they speak several; what only looks at the server speaks none."""
        spoken = {exchange.api for exchange in self.exchanges.values()} & APIS.keys()
        return ALL_APIS if len(spoken) > 1 else next(iter(spoken), CHAT_COMPLETIONS.name)


ODD = frozenset({Validity.INVALID, Validity.QUESTIONABLE})
