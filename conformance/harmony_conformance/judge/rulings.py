"""Severities where the cited clause is silent, or where the sources differ: each is settled here once, with its source.

A ruling on a difference lowers the severity of the findings that name it. A ruling on a request says that it is neither valid nor invalid.
A server may refuse such a request with a 4xx status, and a 5xx status is a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from harmony_conformance.judge.check import SHOULD, Severity


@dataclass(frozen=True, kw_only=True)
class Ruling:
    """A settled question.

    Attributes:
        subject: The difference, or the request.
        source: What the sources say.
        severity: The severity of the difference. None for a request.
        checks: The ids of the checks whose findings name the ruling, or that have its severity.
        steps: The steps whose requests are neither valid nor invalid: `scenario/step`, or `scenario/step over API`.
            With a severity: the steps whose output is malformed.
    """

    subject: str
    source: str
    severity: Severity | None = None
    checks: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


QUOTED_RESULTS = "quoted-results"
WHITE_SPACE_BETWEEN_MESSAGES = "white-space-between-messages"
CUT_CHARACTERS = "cut-characters"
EFFORTS_OF_THE_API = "efforts-of-the-api"
MALFORMED_OUTPUT = "malformed-output"
COUNTS_OF_ENDPOINTS = "counts-of-endpoints"
MARKUP_IN_ERRORS = "markup-in-errors"
COUNTS_OF_REASONING = "counts-of-reasoning"
ANSWERED_WRONG_REQUESTS = "answered-wrong-requests"
ANSWERS_IN_TIME = "answers-in-time"
EMPTY_TEXT_BLOCKS = "empty-text-blocks"
ITEMS_OF_LISTS = "items-of-lists"
EMPTY_ARGUMENTS = "empty-arguments"
NUMBERS_IN_OBJECTS = "numbers-in-objects"
ORPHAN_RESULTS = "orphan-results"
NEIGHBOURING_MESSAGES = "neighbouring-messages"
SHOWN_STOP_STRINGS = "shown-stop-strings"

RULINGS: Mapping[str, Ruling] = MappingProxyType(
    {
        QUOTED_RESULTS: Ruling(
            subject="a function result is in the prompt as a JSON string",
            source="The guide writes `{output}` raw, as both official libraries do. The published chat template quotes it (`tojson`).",
            severity=SHOULD,
            checks=("prompt.results_are_rendered", "prompt.text_costs_its_tokens"),
        ),
        WHITE_SPACE_BETWEEN_MESSAGES: Ruling(
            subject="the texts of several messages are joined by other white space in a stream than in the whole answer",
            source="No source defines what joins two messages of a channel.",
            severity=SHOULD,
            checks=("streaming.content_equals_whole", "streaming.reasoning_equals_whole"),
        ),
        CUT_CHARACTERS: Ruling(
            subject="a stream lacks the U+FFFD of an incomplete last character, which the whole answer has",
            source="The official library does the same: its parsed message ends in U+FFFD, and its joined deltas do not. No source asks for it.",
            severity=SHOULD,
            checks=(
                "streaming.content_equals_whole",
                "streaming.reasoning_equals_whole",
                "responses.texts_are_told_alike",
                "apis.same_content",
                "apis.same_reasoning",
            ),
        ),
        EFFORTS_OF_THE_API: Ruling(
            subject="the efforts `none`, `minimal` and `xhigh` are not mapped to the nearest level",
            source="The API reference lists them as values of `reasoning_effort`. The guide defines `low`, `medium` and `high`, and no mapping.",
            severity=SHOULD,
            checks=("reasoning.unknown_effort_is_not_swallowed",),
        ),
        MALFORMED_OUTPUT: Ruling(
            subject="output that is malformed, or that no source describes, is read in another way, or a part of it is lost",
            source="The guide describes well-formed messages, and no recovery from others. The official library tolerates some of them.",
            severity=SHOULD,
            checks=(
                "headers.broken_output_loses_nothing",
                "channels.nothing_is_lost",
                "channels.content_is_the_answer",
                "channels.preamble_is_shown",
                "reasoning.analysis_is_reasoning",
                "reasoning.reasoning_holds_no_answer",
                "structured.answer_is_json",
                "tool_calls.calls_arrive",
                "streaming.content_equals_whole",
                "streaming.reasoning_equals_whole",
                "streaming.calls_equal_whole",
                "streaming.finish_equals_whole",
            ),
        ),
        COUNTS_OF_ENDPOINTS: Ruling(
            subject="the prompt tokens of an answer are not what another endpoint shows or counts for the same request",
            source="The reference defines the number for the prompt of the answer. Which of the two prompts the model read is not shown.",
            severity=SHOULD,
            checks=("usage.counts_the_prompt", "native.chat_tokenize_shows_the_prompt"),
        ),
        COUNTS_OF_REASONING: Ruling(
            subject="the number of reasoning tokens is not that of the returned reasoning, or is 0",
            source="The reference defines them as tokens generated for reasoning. It does not define which markers and headers count, nor who counts.",
            severity=SHOULD,
            checks=("reasoning.reasoning_tokens_agree",),
        ),
        MARKUP_IN_ERRORS: Ruling(
            subject="the text of an error contains Harmony markup of the output",
            source="The guide describes what users may see of an answer. No source mentions errors.",
            severity=SHOULD,
            checks=("channels.no_marker_leak",),
        ),
        ANSWERED_WRONG_REQUESTS: Ruling(
            subject="a wrong request is answered",
            source="RFC 9110 says what a 4xx status means, and not when a server has to send one. The API references name types and required members.",
            severity=SHOULD,
            checks=("errors.wrong_request_is_refused",),
        ),
        ANSWERS_IN_TIME: Ruling(
            subject="an odd request is not answered before the client stops waiting",
            source="No source says how soon an answer comes. To a client, a hang and the work of a slow machine look alike.",
            severity=SHOULD,
            checks=("errors.questionable_request_is_handled",),
        ),
        EMPTY_TEXT_BLOCKS: Ruling(
            subject="an answer of the Messages API has a text block with an empty text",
            source="The API reference allows it in an answer (`minLength: 0`). It refuses the block when a client sends it back.",
            severity=SHOULD,
            checks=("messages.blocks_have_their_members",),
        ),
        ITEMS_OF_LISTS: Ruling(
            subject="the type of a list's items is not declared",
            source="The official library declares the items. The published chat template writes `any[]` for objects, and no values of an enumeration.",
            severity=SHOULD,
            checks=("prompt.tools_are_declared", "tools.parameters_are_typed"),
        ),
        EMPTY_ARGUMENTS: Ruling(
            subject="the empty arguments of a call are `{}` over the Responses API",
            source="Its reference defines the arguments as a JSON string. `{}` is such a string, an empty text is not.",
            severity=SHOULD,
            checks=("tool_calls.calls_arrive", "apis.same_calls_are_returned", "streaming.calls_equal_whole"),
        ),
        NUMBERS_IN_OBJECTS: Ruling(
            subject="a number of the arguments has other digits and the same double, over an API that has arguments as an object",
            source="RFC 8259, section 6: this specification allows implementations to set limits on the range and precision of numbers accepted.",
            severity=SHOULD,
            checks=("tool_calls.calls_arrive", "prompt.calls_are_rendered"),
        ),
        NEIGHBOURING_MESSAGES: Ruling(
            subject="messages of the user that follow each other are one message of the prompt",
            source="The guide gives each message a role, and does not mention such messages. Anthropic's API combines them into a single turn.",
            severity=SHOULD,
            checks=("prompt.user_text_is_whole",),
        ),
        SHOWN_STOP_STRINGS: Ruling(
            subject="the text ends with the stop string, over the Messages API and TGI's own APIs",
            source="Their references say that generation stops, and not that the text lacks the string. OpenAI's reference says both.",
            severity=SHOULD,
            checks=("stop_tokens.stop_string_is_cut",),
        ),
        ORPHAN_RESULTS: Ruling(
            subject="a function result names no call",
            source="The API requires `tool_call_id`, and refuses a result without its call. The clause on tool messages does not mention such results.",
            severity=SHOULD,
            checks=("tools.orphan_result_is_not_misnamed", "prompt.results_are_rendered"),
        ),
        "odd-function-names": Ruling(
            subject="the name of a function has dots",
            source="API reference: the name must be a-z, A-Z, 0-9, or contain underscores and dashes, with a maximum length of 64.",
            steps=(
                "odd_function_names/mcp.search",
                "rows_names/declared: mcp.search",
                "rows_names/declared: a.b.c-d_e",
            ),
        ),
        "empty-tool-calls": Ruling(
            subject="an assistant message has an empty list of calls",
            source="OpenAI's API refuses it: `[] is too short`. The API reference states no minimum.",
            steps=("content_forms/empty list of calls",),
        ),
        "null-tool-calls": Ruling(
            subject="the calls of an assistant message are null",
            source="API reference: `tool_calls` is an array, and may be missing. It is not nullable, unlike `content` (openai/openai-openapi issue 348).",
            steps=("content_forms/null list of calls",),
        ),
        "arrays-without-items": Ruling(
            subject="a parameter is an array without `items`",
            source="JSON Schema allows it. OpenAI's API refuses it: `array schema missing items`.",
            steps=("tool_schemas/array without items",),
        ),
        "schemas-left-out": Ruling(
            subject="a response format of the type `json_schema` has no schema",
            source="API reference: of the members of `json_schema`, `name` is required and `schema` is not. Without it nothing binds the answer.",
            steps=("wrong_formats/no schema",),
        ),
        "empty-texts-over-messages": Ruling(
            subject="a message of the Messages API has an empty text, and is not the last one of an assistant",
            source="Anthropic's API refuses it: `all messages must have non-empty content`. The API reference states no minimum.",
            steps=("odd_texts/nothing over messages", "odd_texts/an empty answer over messages"),
        ),
        "half-surrogates": Ruling(
            subject="a text contains half of a surrogate pair",
            source="RFC 8259, section 8.2: the behavior of software that receives JSON texts containing such values is unpredictable.",
            steps=("odd_texts/half of a surrogate pair", "json_beyond_parsers/a lone surrogate in the history"),
        ),
        "numbers-beyond-doubles": Ruling(
            subject="the arguments of a call in the history have a number that no double holds",
            source="RFC 8259, section 6: this specification allows implementations to set limits on the range and precision of numbers accepted.",
            steps=("json_beyond_parsers/a number beyond floats in the history",),
        ),
        "recipients-without-to": Ruling(
            subject="the header of a call has a recipient without `to=`",
            source="The guide has one format, `to={name}`. The official library also reads a recipient without it. Such output is malformed.",
            severity=SHOULD,
            checks=("headers.broken_output_loses_nothing",),
            steps=("rows_broken_call_headers/recipient without to=",),
        ),
    }
)
"""By the name that findings have in `Finding.ruling`."""

REFUSABLE_STEPS = frozenset(step for ruling in RULINGS.values() if ruling.severity is None for step in ruling.steps)
"""The steps, as `scenario/step` or `scenario/step over API`, whose requests are neither valid nor invalid."""
