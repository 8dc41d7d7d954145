"""`golden/causes/`: which cause of an engine owns a failure, where several could."""

import pytest

from harmony_conformance.causes.known import PARTS, causes_of_version

LOST, LEAKED = "headers.broken_output_loses_nothing", "headers.broken_output_leaks_nothing"
NOTHING, ANSWERED = "channels.nothing_is_lost", "errors.valid_request_is_answered"
ITEMS, TOLD = "responses.last_event_has_the_items", "responses.texts_are_told_alike"
ANSWERS, CALLS, NAMES = "rows_broken_answers", "rows_broken_call_headers", "rows_names"
OUTPUT = "/response/output"


def owner(engine, version, **parts):
    every = {**dict.fromkeys(PARTS, ""), "api": "chat", **parts}
    return next((cause.id for cause in causes_of_version(engine, version) if cause.explains(every)), None)


def failure(check, scenario, step, **parts):
    return {"check": check, "scenario": scenario, "step": step, **parts}


@pytest.mark.parametrize("version", ["0.11.0", "0.32.0", "0.33.0"])
@pytest.mark.parametrize("check", [LEAKED, "channels.no_marker_leak", "tool_calls.name_is_declared"])
def test_a_marker_in_a_name_is_no_recipient_that_became_a_name(version, check):
    assert owner("vllm", version, **failure(check, CALLS, "a reserved token in the header")) == "vllm-marker-in-a-name"


@pytest.mark.parametrize("step", ["text, then an answer", "message missing, with more to come"])
@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.32.0", "vllm-recipients-as-function-names"), ("0.33.0", "vllm-malformed-header-dropped")],
)
def test_text_without_a_message_is_a_call_in_streams_of_one_version(version, expected, step):
    assert owner("vllm", "0.32.0", **failure(LOST, ANSWERS, step)) == "vllm-malformed-header-dropped"
    assert owner("vllm", version, **failure(LOST, ANSWERS, f"{step}+stream")) == expected


@pytest.mark.parametrize("check", [LOST, NOTHING, "channels.answer_is_more_than_reasoning"])
def test_a_call_without_a_channel_is_lost_in_streams_of_an_old_version(check):
    ids = [owner("vllm", version, **failure(check, CALLS, "no channel, 1+stream")) for version in ("0.11.0", "0.32.0")]
    assert ids == ["vllm-call-on-analysis-lost", "vllm-malformed-header-dropped"]


@pytest.mark.parametrize(
    ("version", "scenario", "step", "actual", "expected"),
    [
        ("0.11.0", "cut_in_answer", "answer+stream", "message", "vllm-responses-cut-item-not-ended"),
        ("0.11.0", "call_on_the_analysis_channel", "answer+stream", "reasoning", "vllm-call-on-analysis-lost"),
        ("0.11.0", "rows_built_in_tools", "python, then the answer+stream", "", "vllm-responses-code-item-not-ended"),
        ("0.11.0", "rows_arguments", "empty+stream", "function_call", "vllm-responses-calls-not-streamed"),
        ("0.11.0", "rows_answers", "an answer in JSON, 1+stream", "message", "vllm-responses-calls-not-streamed"),
        ("0.11.0", ANSWERS, "text, then an answer+stream", "message", "vllm-responses-calls-not-streamed"),
        ("0.32.0", "rows_arguments", "empty+stream", "function_call", "vllm-responses-empty-item-not-streamed"),
        ("0.32.0", "rows_answers", "an empty thought+stream", "message", "vllm-responses-empty-item-not-streamed"),
    ],
)
def test_an_item_that_the_stream_lacks_has_the_cause_of_its_kind(version, scenario, step, actual, expected):
    parts = failure(ITEMS, scenario, step, at=OUTPUT, actual=actual, api="responses")
    assert owner("vllm", version, **parts) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("the deltas of a text have another index than the finished text", "vllm-responses-content-index-over-items"),
        ("the text of `response.output_text.done` differs from the joined deltas", None),
    ],
)
def test_deltas_of_another_part_are_no_raised_output_index(message, expected):
    parts = failure(TOLD, "simple_answer", "answer+stream", api="responses", message=message)
    assert owner("vllm", "0.11.0", **parts) == expected


@pytest.mark.parametrize(
    ("version", "parts", "expected"),
    [
        (
            "0.11.0",
            failure("tools.orphan_result_is_not_misnamed", "results_without_a_call", "no id"),
            "results-unnamed",
        ),
        (
            "0.32.0",
            failure("tools.orphan_result_is_not_misnamed", "results_without_a_call", "no id"),
            "orphan-result-unnamed",
        ),
        (
            "0.11.0",
            failure("streaming.reasoning_equals_whole", "rows_other_roles", "as a tool, 10+stream"),
            "joiner",
        ),
        (
            "0.11.0",
            failure("streaming.reasoning_equals_whole", "rows_answers", "two preambles+stream"),
            "preamble-as-reasoning",
        ),
        (
            "0.11.0",
            failure(
                "prompt.is_an_accepted_rendering", "instructions", "developer before system", at="prompt message 1"
            ),
            "developer-without-heading",
        ),
        (
            "0.11.0",
            failure(ANSWERED, CALLS, "a blank within to=, 1+stream", api="responses", actual="cut"),
            "responses-foreign-recipient-400",
        ),
        (
            "0.11.0",
            failure(ANSWERED, CALLS, "a recipient and no namespace or role, 1+stream", api="responses", actual="cut"),
            "endoftext-in-text",
        ),
        (
            "0.32.0",
            failure(
                "responses.items_have_their_members",
                NAMES,
                "the namespace and its dot",
                api="responses",
                at="/output/1/name",
            ),
            "call-without-name",
        ),
        (
            "0.32.0",
            failure(ANSWERED, "messages_blocks", "answer+stream", api="messages", at="event 0"),
            "messages-refused-stream-unreadable",
        ),
        (
            "0.32.0",
            failure(ANSWERED, "messages_blocks", "answer", api="messages", at="status", actual="400: x"),
            "messages-budget-refused",
        ),
    ],
)
def test_a_failure_of_vllm_has_its_cause(version, parts, expected):
    assert owner("vllm", version, **parts) == f"vllm-{expected}"


@pytest.mark.parametrize(
    ("engine", "version", "parts", "expected"),
    [
        (
            "vllm-rs",
            "0.33.0",
            failure(ANSWERED, "rows_cut", "a final header, cut, 7 tokens", actual="500: x"),
            "cut-header-500",
        ),
        ("vllm-rs", "0.33.0", failure(LOST, CALLS, "a blank within to=, 1"), "other-recipients-dropped"),
        ("vllm-rs", "0.33.0", failure(LOST, ANSWERS, "text, then an answer"), "text-without-message-dropped"),
        ("vllm-rs", "0.33.0", failure(LOST, ANSWERS, "no channel, 1"), "no-known-channel-dropped"),
        ("dynamo", "1.6.1", failure(LOST, NAMES, "a name with a blank"), "malformed-header-dropped"),
        ("dynamo", "1.6.1", failure(LOST, NAMES, "a bare name"), "other-recipients-dropped"),
        ("lmdeploy", "0.18.0", failure(LOST, ANSWERS, "message missing"), "text-without-message-dropped"),
        ("lmdeploy", "0.18.0", failure(LOST, ANSWERS, "an odd role, 4"), "other-recipients-dropped"),
        ("lmdeploy", "0.18.0", failure(LOST, CALLS, "a call without a role, 1"), "other-recipients-dropped"),
        ("lmdeploy", "0.18.0", failure(LOST, ANSWERS, "no channel, 1"), "no-known-channel-dropped"),
        (
            "sglang",
            "0.5.23",
            failure(NOTHING, "rows_other_roles", "as user, system or developer, 7"),
            "rest-after-unknown-channel-dropped",
        ),
        ("sglang", "0.5.23", failure(LOST, CALLS, "no channel, 1"), "call-without-channel-as-text"),
        ("sglang", "0.5.23", failure(LOST, CALLS, "no channel, the first message"), "headless-output-dropped"),
        ("sglang", "0.5.23", failure(LOST, CALLS, "constrain doubled"), "calls-need-constrain"),
        ("sglang", "0.5.23", failure(LOST, ANSWERS, "message missing"), "text-without-message-dropped"),
        ("sglang", "0.5.23", failure(LOST, ANSWERS, "an odd role, 4"), "unended-preamble-lost"),
        ("sglang", "0.5.23", failure(LOST, ANSWERS, "an unknown channel, 1"), "headless-output-dropped"),
        ("sglang", "0.5.23", failure(LOST, NAMES, "a name with a blank"), "calls-need-constrain"),
        ("sglang", "0.5.23", failure(LOST, NAMES, "not declared"), "undeclared-call-dropped"),
    ],
)
def test_a_failure_of_a_parser_has_its_cause(engine, version, parts, expected):
    assert owner(engine, version, **parts) == f"{engine}-{expected}"


COUNTS = "accounting.counts_fit_a_form"


@pytest.mark.parametrize(
    ("api", "expected"),
    [
        ("chat", "litellm-reasoning-not-sent-back"),
        ("responses", "litellm-reasoning-not-sent-back"),
        ("messages", "litellm-preamble-becomes-an-answer"),
    ],
)
def test_a_count_of_a_loop_has_the_cause_of_the_api_in_front(api, expected):
    assert owner("litellm", "1.106.12", **failure(COUNTS, "prompt_accounting", "open loop", api=api)) == expected


def test_a_quoted_result_of_several_parts_is_a_quoted_result():
    parts = failure("prompt.results_are_rendered", "results", "parts of a result")
    assert owner("sglang", "0.5.23", **parts, at="/messages/2/content", actual='"sunny,  20') == "sglang-result-quoted"
