"""`golden/causes/`: single failures of real engines belong to the cause that made them, with its severity, versions and clause."""

import pytest

from harmony_conformance.causes.attribution import find_causes
from harmony_conformance.causes.known import PARTS, causes_of_version, engine_causes
from harmony_conformance.judge.check import Finding, Outcome, Severity
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.judge.judge import Result

OLLAMA, OLD_OLLAMA = ("ollama", "0.34.4"), ("ollama", "0.12.11")
LLAMACPP, OLD_LLAMACPP = ("llamacpp", "b11549"), ("llamacpp", "b7551")
GPT_OSS, TGI, TRANSFORMERS = ("gpt-oss", "0.0.9"), ("tgi", "3.3.7"), ("transformers", "5.23.0")
SMG, OLD_SMG = ("smg", "1.13.0"), ("smg", "0.3.2")
THOUGHT = "the content contains text of the analysis channel"
OUT_OF_FORM = "500: The model produced output that does not match the expected peg-native format"
ONE_BEFORE = "an item is announced at the output_index of one that was never announced, only finished"
OTHER_ID = "an event has another item id than the item at its output_index, which was never announced, only finished"
OPEN_TEXT = "deltas of output_text come without the event that ends their text and that ends their part"


def named(target, check, api, scenario, **parts):
    every = {**dict.fromkeys(PARTS, ""), "check": check, "api": api, "scenario": scenario, **parts}
    return next((cause.id for cause in causes_of_version(*target) if cause.explains(every)), None)


@pytest.mark.parametrize(
    ("check", "api", "scenario", "parts", "expected"),
    [
        (
            "channels.no_reasoning_in_content",
            "chat",
            "wrong_requests",
            {"message": THOUGHT},
            "token-of-another-request",
        ),
        (
            "headers.broken_output_leaks_nothing",
            "chat",
            "rows_cut",
            {"at": "content", "message": THOUGHT},
            "token-of-another-request",
        ),
        (
            "structured.answer_is_json",
            "chat",
            "rows_structured_otherwise",
            {"actual": "nothing"},
            "token-of-another-request",
        ),
        ("usage.counts_the_prompt", "chat", "answer_schema", {"step": "a schema"}, "format-generated-twice"),
        (
            "structured.answer_is_json",
            "chat",
            "structured_answer",
            {"step": "type without a marker"},
            "format-only-after-a-thought",
        ),
        ("tools.parameters_are_typed", "chat", "tool_schemas", {"actual": "any[]"}, "elements-and-members-lost"),
        ("tools.parameters_are_typed", "chat", "tool_schemas", {"actual": "string"}, "enum-and-defaults-lost"),
        ("prompt.results_are_rendered", "chat", "results", {"step": "parts of a result"}, "result-parts-unnamed"),
        ("prompt.user_text_is_whole", "chat", "long_requests", {"step": "ten lines"}, "user-texts-joined"),
        (
            "errors.questionable_request_is_handled",
            "chat",
            "questionable_requests",
            {"step": "longer than the model can read", "actual": "timeout"},
            "overlong-request-slow",
        ),
    ],
)
def test_failures_of_ollama_before_its_own_server(check, api, scenario, parts, expected):
    assert named(OLD_OLLAMA, check, api, scenario, **parts) == f"ollama-{expected}"


@pytest.mark.parametrize(
    ("check", "api", "scenario", "parts", "expected"),
    [
        (
            "apis.same_prompt",
            "responses",
            "reasoning_by_name",
            {"step": "no reasoning", "actual": "Ollama's chat: 421, Responses: 420"},
            "responses-result-unnamed",
        ),
        (
            "responses.texts_begin_and_end",
            "responses",
            "preamble_and_call",
            {"step": "answer+stream", "message": OPEN_TEXT},
            "responses-items-mixed",
        ),
        (
            "responses.texts_begin_and_end",
            "responses",
            "rows_names",
            {"step": "to all+stream", "message": OPEN_TEXT},
            "stream-error-lost",
        ),
        (
            "tool_calls.finish_reason_agrees",
            "messages",
            "rows_cut",
            {"actual": "nothing"},
            "messages-stream-error-unended",
        ),
        (
            "tool_calls.calls_arrive",
            "messages",
            "messages_blocks",
            {"step": "two calls+stream", "actual": "no such call"},
            "parallel-calls-joined",
        ),
        (
            "tool_calls.calls_arrive",
            "messages",
            "rows_arguments",
            {"step": "empty+stream", "actual": "no such call"},
            "messages-stream-error-unended",
        ),
        (
            "messages.blocks_have_their_members",
            "messages",
            "rows_arguments",
            {"at": "/content/1/input"},
            "null-arguments-returned",
        ),
        (
            "messages.blocks_have_their_members",
            "messages",
            "rows_names",
            {"at": "/content/1/name"},
            "empty-name-returned",
        ),
        (
            "apis.same_prompt",
            "all",
            "cut_answer_replayed",
            {"step": "go on", "actual": "Responses: 333, Chat Completions: 337"},
            "user-texts-joined",
        ),
    ],
)
def test_failures_of_ollama_over_its_apis(check, api, scenario, parts, expected):
    assert named(OLLAMA, check, api, scenario, **parts) == f"ollama-{expected}"


@pytest.mark.parametrize(
    ("target", "check", "scenario", "parts", "expected"),
    [
        (
            LLAMACPP,
            "errors.questionable_request_is_handled",
            "questionable_requests",
            {"step": "a bias out of range", "actual": OUT_OF_FORM},
            "llamacpp-output-out-of-form-500",
        ),
        (
            LLAMACPP,
            "errors.questionable_request_is_handled",
            "questionable_requests",
            {"step": "an image", "actual": "500: image input"},
            "llamacpp-refusals-as-500",
        ),
        (
            LLAMACPP,
            "errors.valid_request_is_answered",
            "answer_schema",
            {"api": "responses", "actual": OUT_OF_FORM},
            "llamacpp-output-out-of-form-500",
        ),
        (
            LLAMACPP,
            "errors.valid_request_is_answered",
            "rows_texts",
            {"step": "markers as text in a thought", "actual": OUT_OF_FORM},
            "llamacpp-quoted-marker-ends-text",
        ),
        (
            LLAMACPP,
            "structured.answer_is_json",
            "rows_structured_otherwise",
            {"api": "responses"},
            "llamacpp-response-format-ignored",
        ),
        (LLAMACPP, "usage.counts_the_prompt", "rows_texts", {"step": "many scripts"}, "llamacpp-tokenizer-differs"),
        (
            OLD_LLAMACPP,
            "errors.questionable_request_is_handled",
            "questionable_requests",
            {"step": "half of a surrogate pair", "actual": "500: [json.exception.parse_error.101]"},
            "llamacpp-half-surrogate-500",
        ),
        (
            GPT_OSS,
            "responses.events_follow_the_grammar",
            "rows_names",
            {"step": "to all+stream", "message": ONE_BEFORE},
            "gpt-oss-items-one-place-before",
        ),
        (
            GPT_OSS,
            "responses.events_name_their_item",
            "rows_broken_answers",
            {"step": "text, then an answer+stream", "message": OTHER_ID},
            "gpt-oss-recipient-of-final-twice",
        ),
        (
            GPT_OSS,
            "responses.events_name_their_item",
            "rows_answers",
            {"step": "an answer in JSON at once+stream", "message": OTHER_ID},
            "gpt-oss-typed-final-as-call",
        ),
        (
            GPT_OSS,
            "streaming.calls_equal_whole",
            "rows_names",
            {"step": "to the assistant+stream"},
            "gpt-oss-calls-in-streams-only",
        ),
        (
            GPT_OSS,
            "channels.content_is_the_answer",
            "cut_in_answer",
            {"step": "answer+stream"},
            "gpt-oss-stream-beyond-the-limit",
        ),
        (
            GPT_OSS,
            "responses.last_event_has_the_items",
            "cut_in_answer",
            {"step": "answer+stream"},
            "gpt-oss-cut-item-never-finished",
        ),
        (
            GPT_OSS,
            "responses.status_says_how_it_ended",
            "cut_in_answer",
            {"step": "answer"},
            "gpt-oss-limit-is-completed",
        ),
        (
            GPT_OSS,
            "accounting.counts_fit_a_form",
            "prompt_accounting",
            {"step": "open loop"},
            "gpt-oss-open-loop-reasoning-dropped",
        ),
        (
            TGI,
            "errors.valid_request_is_answered",
            "tool_schemas",
            {"actual": "422: Invalid reference path: $defs"},
            "tgi-references-refused",
        ),
        (
            TGI,
            "errors.valid_request_is_answered",
            "tool_schemas",
            {"actual": "422: 'type' must be a string"},
            "tgi-lists-of-types-refused",
        ),
        (
            TRANSFORMERS,
            "errors.questionable_request_is_handled",
            "questionable_requests",
            {"step": "parameters nested deeply", "actual": "500: Internal Server Error"},
            "transformers-function-without-description-500",
        ),
        (
            TRANSFORMERS,
            "errors.questionable_request_is_handled",
            "questionable_requests",
            {"step": "not a number", "actual": "500: Internal Server Error"},
            "transformers-refusals-as-500",
        ),
        (
            TRANSFORMERS,
            "structured.answer_is_json",
            "structured_answer",
            {
                "api": "responses",
                "step": "nonsense",
                "actual": "analysisJSON.assistantfinal jsonFine. (Expecting value)",
            },
            "transformers-response-format-ignored",
        ),
        (
            TRANSFORMERS,
            "structured.answer_is_json",
            "answer_schema",
            {
                "api": "responses",
                "step": "a schema",
                "actual": 'analysisFine.assistantfinal json{"a":1} (Expecting value)',
            },
            "transformers-output-unparsed",
        ),
    ],
)
def test_failures_of_other_servers(target, check, scenario, parts, expected):
    assert named(target, check, **{"api": "chat", **parts}, scenario=scenario) == expected


@pytest.mark.parametrize(
    ("target", "check", "api", "parts", "expected"),
    [
        (
            SMG,
            "headers.broken_output_leaks_nothing",
            "messages",
            {"scenario": "rows_names", "step": "not declared"},
            "messages-not-harmony",
        ),
        (
            SMG,
            "tool_calls.demanded_call_is_made",
            "messages",
            {"scenario": "rows_structured_otherwise", "step": "a demanded call, on the analysis channel"},
            "messages-not-harmony",
        ),
        (
            SMG,
            "accounting.counts_fit_a_form",
            "responses",
            {"scenario": "prompt_accounting", "step": "developer instructions"},
            "responses-roles-changed",
        ),
        (
            OLD_SMG,
            "accounting.counts_fit_a_form",
            "responses",
            {"scenario": "prompt_accounting", "step": "developer instructions"},
            "responses-roles-changed",
        ),
        (
            SMG,
            "accounting.counts_fit_a_form",
            "responses",
            {"scenario": "prompt_accounting", "step": "later instructions"},
            "responses-roles-changed",
        ),
        (
            OLD_SMG,
            "accounting.counts_fit_a_form",
            "responses",
            {"scenario": "prompt_accounting", "step": "later instructions"},
            "responses-instructions-dropped",
        ),
        (
            SMG,
            "accounting.counts_fit_a_form",
            "chat",
            {"scenario": "prompt_accounting", "step": "open loop"},
            "content-with-calls-dropped",
        ),
        (
            OLD_SMG,
            "accounting.counts_fit_a_form",
            "chat",
            {"scenario": "prompt_accounting", "step": "open loop"},
            "chat-reasoning-dropped",
        ),
        (
            OLD_SMG,
            "accounting.counts_fit_a_form",
            "chat",
            {"scenario": "prompt_accounting", "step": "finished turn"},
            "chat-reasoning-in-final",
        ),
        (
            SMG,
            "tool_calls.call_is_complete",
            "chat",
            {"scenario": "rows_names", "step": "the namespace and its dot"},
            "empty-function-name",
        ),
        (
            SMG,
            "tool_calls.call_is_complete",
            "chat",
            {"scenario": "two_calls_in_one_turn", "step": "answer+stream"},
            "repeated-call-has-no-name",
        ),
        (
            SMG,
            "tool_calls.finish_reason_agrees",
            "chat",
            {"scenario": "rows_broken_call_headers", "step": "no channel, 1+stream"},
            "call-without-channel-as-content",
        ),
        (
            SMG,
            "streaming.reasoning_equals_whole",
            "responses",
            {"scenario": "rows_broken_call_headers", "step": "role doubled before a call+stream"},
            "responses-no-reasoning-in-streams",
        ),
        (
            SMG,
            "streaming.reasoning_equals_whole",
            "chat",
            {
                "scenario": "rows_built_in_tools",
                "step": "python on commentary, 1+stream",
                "message": "streamed, reasoning differs",
            },
            "commentary-as-reasoning",
        ),
        (
            SMG,
            "streaming.reasoning_equals_whole",
            "chat",
            {
                "scenario": "rows_built_in_tools",
                "step": "browser.search, 1+stream",
                "message": "streamed, reasoning differs in white space only",
            },
            "built-in-calls-joined",
        ),
        (
            SMG,
            "headers.broken_output_loses_nothing",
            "chat",
            {
                "scenario": "rows_names",
                "step": "a bare name+stream",
                "message": "a text of the broken output is not in any field",
            },
            "commentary-as-reasoning",
        ),
        (
            SMG,
            "errors.valid_request_is_answered",
            "messages",
            {"scenario": "tool_schemas", "actual": "400: Failed to apply chat template: …and undefined (in chat:118)"},
            "messages-function-without-description",
        ),
        (
            SMG,
            "errors.valid_request_is_answered",
            "messages",
            {
                "scenario": "results",
                "actual": "400: Failed to apply chat template: Failed to…(59 characters)…inment check on this value (in chat:339)",
            },
            "messages-history-refused",
        ),
        (
            OLD_SMG,
            "apis.same_prompt",
            "all",
            {"scenario": "answer_about_harmony", "step": "answer", "actual": "Chat Completions: 334, Responses: 330"},
            "chat-instructions-bare",
        ),
        (
            OLD_SMG,
            "apis.same_prompt",
            "all",
            {"scenario": "instructions", "step": "system+stream", "actual": "Chat Completions: 339, Responses: 322"},
            "responses-instructions-dropped",
        ),
        (
            OLD_SMG,
            "apis.same_prompt",
            "all",
            {
                "scenario": "markers_by_count",
                "step": "marked system",
                "actual": "Chat Completions: 356, Responses: 322",
            },
            "responses-instructions-dropped",
        ),
        (
            SMG,
            "apis.same_prompt",
            "all",
            {
                "scenario": "markers_by_count",
                "step": "marked system",
                "actual": "Chat Completions: 356, Responses: 355",
            },
            "chat-instructions-bare",
        ),
        (
            OLD_SMG,
            "apis.same_prompt",
            "all",
            {
                "scenario": "content_forms",
                "step": "empty list of calls",
                "actual": "Chat Completions: 333, Responses: 335",
            },
            "content-with-calls-dropped",
        ),
        (
            SMG,
            "apis.same_prompt",
            "all",
            {
                "scenario": "content_forms",
                "step": "empty list of calls",
                "actual": "Chat Completions: 341, Responses: 335",
            },
            "responses-roles-changed",
        ),
        (
            OLD_SMG,
            "apis.same_prompt",
            "all",
            {"scenario": "markers_by_count", "step": "plain answer", "actual": "Chat Completions: 346, Responses: 340"},
            "responses-roles-changed",
        ),
        (
            SMG,
            "apis.same_prompt",
            "all",
            {
                "scenario": "reasoning_by_count",
                "step": "finished, long",
                "actual": "Chat Completions: 357, Responses: 557",
            },
            "responses-reasoning-kept",
        ),
        (
            SMG,
            "apis.same_prompt",
            "all",
            {
                "scenario": "cut_answer_replayed",
                "step": "go on",
                "actual": "Chat Completions: 345, Responses: 350",
            },
            "chat-cut-reasoning-dropped",
        ),
        (
            SMG,
            "apis.same_prompt",
            "all",
            {
                "scenario": "markers_by_count",
                "step": "marked preamble",
                "actual": "Chat Completions: 432, Responses: 462",
            },
            "content-with-calls-dropped",
        ),
        (
            SMG,
            "apis.same_prompt",
            "all",
            {"scenario": "tool_choice", "step": "named", "actual": "Chat Completions: 381, Responses: 400"},
            "chat-named-choice-hides-functions",
        ),
        (
            SMG,
            "apis.same_prompt",
            "all",
            {"scenario": "tool_choice", "step": "named", "actual": "Chat Completions: 381, Messages: 400"},
            "chat-instructions-bare",
        ),
    ],
)
def test_failures_of_sglang_router_and_smg(target, check, api, parts, expected):
    assert named(target, check, api, **parts) == f"smg-{expected}"


def test_a_race_is_named_until_the_release_that_mends_it():
    of_version = {
        version: {cause.id: cause for cause in causes_of_version("ollama", version)} for version in ("0.15.4", "0.15.5")
    }
    race = of_version["0.15.4"]["ollama-token-of-another-request"]
    assert race.timing
    assert race.threads == ("https://github.com/ollama/ollama/pull/14072",)
    assert race.id not in of_version["0.15.5"]


@pytest.mark.parametrize(
    ("known", "expected"),
    [(causes_of_version(*OLLAMA), Severity.MUST), ((), Severity.SHOULD)],
    ids=["known", "unknown"],
)
def test_a_cause_can_be_graver_than_the_check_that_shows_it(known, expected):
    exchange = "finished_turn/responses/with a tool loop/0"
    finding = Finding(message="another count", exchange=exchange, actual="Ollama's chat: 463, Responses: 449")
    result = Result(
        "apis.same_prompt",
        Severity.SHOULD,
        CLAUSES["harmony#roles"],
        "finished_turn",
        "responses",
        Outcome.FAIL,
        exchanges=(exchange,),
        applied=1,
        findings=(finding,),
    )
    (cause,) = find_causes([result], {}, known)
    assert cause.severity is expected


@pytest.mark.parametrize("engine", ["gpt-oss", "llamacpp", "ollama", "tgi", "transformers"])
def test_a_cause_of_one_api_cites_that_api(engine):
    foreign = []
    for cause in engine_causes()[engine]:
        apis = {pattern.api for pattern in cause.patterns}
        (api,) = apis if len(apis) == 1 else ("*",)
        own = f"{api}#{cause.clause.partition('#')[2]}"
        if api in ("messages", "responses") and cause.clause.startswith("chat#") and own in CLAUSES:
            foreign.append((cause.id, own))
    assert foreign == []
