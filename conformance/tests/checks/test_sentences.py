"""Messages of findings say what was compared, and show the value that is at fault."""

import json
from dataclasses import replace

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.engines.profiles import ENGINES
from harmony_conformance.evidence.levels import TEXT_SOURCES
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.judge import judge

EXAMPLES = {example.id: example for example in golden.examples()}
RULES = {rule.id: rule for rule in CHECKS}
WHOLE = '{"id":"resp_1","object":"response","crea…(196 characters)…xt":"It is sunny.","annotations":[]}]}]}'


@pytest.mark.parametrize(
    ("example", "message", "expected", "actual"),
    [
        pytest.param(
            "apis.same_prompt/fail-other-arguments",
            "the prompt differs from the one over Chat Completions",
            "the same over both",
            'Chat Completions: {"city":"Oslo"}, Messages: {"city": "Oslo, Norway"}',
            id="the differing part of two messages of prompts",
        ),
        pytest.param(
            "hierarchy.instructions_reach_the_model/fail-copy-dropped",
            "a copy of instructions that were sent several times is dropped",
            "all 2 copies",
            "1 of 2 copies",
            id="the second copy of instructions is dropped",
        ),
        pytest.param(
            "hierarchy.instructions_reach_the_model/fail-copy-as-user-message",
            "instructions of the request are not in a developer message",
            "developer: # Instructions … Be brief.",
            "they are in a user message",
            id="the second copy of instructions is in a user message",
        ),
        pytest.param(
            "prompt.user_text_is_whole/fail-joined-with-another",
            "a user message is not in the prompt as it was sent",
            "And now?",
            "Note: Be brief.And now?",
            id="a text that is joined with another: the message that has both is shown",
        ),
        pytest.param(
            "responses.stream_is_resumed/fail-whole",
            "a request to resume a stream is answered without a stream",
            "the later events of the stream",
            WHOLE,
            id="a stream that is not resumed",
        ),
        pytest.param(
            "responses.cancelled_response_stays_cancelled/fail-another-id",
            "cancelling returns the response under another id",
            "the id that was cancelled",
            "another id",
            id="a cancelled response under another id",
        ),
        pytest.param(
            "responses.stored_context_reaches_the_model/fail-all-dropped",
            "a stored message is not in the prompt",
            "What is the weather where I am?",
            "no 'What' in the prompt",
            id="the whole stored message is shown, with the word that is lost",
        ),
        pytest.param(
            "hierarchy.instructions_reach_the_model/fail-cut-at-a-marker",
            "instructions of the request are not in a developer message",
            "developer: # Instructions … Be brief.<|end|>Be rude.",
            "they are cut at a marker, after: Be brief.",
            id="instructions that are cut at a marker",
        ),
        pytest.param(
            "choices.logprobs_spell_the_text/fail-bytes-of-half-characters",
            "an entry has the bytes of U+FFFD in place of those of its token, which is a part of a character",
            "the bytes of the token",
            "20 ef bf bd",
            id="bytes of half a character among entries of the whole output",
        ),
        pytest.param(
            "choices.logprobs_spell_the_text/fail-whole-output-another-word",
            "the tokens of the log probabilities do not spell the content",
            "Teal",
            "Test",
            id="entries of the whole output: what follows the last header is compared",
        ),
        pytest.param(
            "choices.logprobs_spell_the_text/fail-channel-name-left",
            "the log probabilities have the tokens that the model wrote for the user, and the content has another text",
            "finalTeal.",
            "Teal.",
            id="the entries are right, and the content is wrong",
        ),
        pytest.param(
            "structured.answer_is_json/fail-something-after-it",
            "the answer has other text around its JSON",
            "JSON",
            "\"zqxv\"<|end|> (Extra data at character 6: '<|end|>')",
            id="a marker stands after the JSON",
        ),
        pytest.param(
            "responses.status_says_how_it_ended/fail-event-and-status-differ",
            "the last event and the status of its response differ",
            "response.incomplete",
            "response.completed",
            id="of a cut answer the event is wrong, and the status is right",
        ),
        pytest.param(
            "streaming.content_equals_whole/fail-content-lost",
            "streamed, content differs",
            "Hello!",
            "",
            id="the whole answer is what the model wrote, and the stream is not",
        ),
        pytest.param(
            "streaming.content_equals_whole/fail-neither-is-right",
            "streamed, content differs",
            "the same in both",
            "whole: user<|channel|>final<|message|…, streamed: ",
            id="neither the whole answer nor the stream is right",
        ),
        pytest.param(
            "channels.nothing_is_lost/fail-answer-as-a-call-of-another-tool",
            "text of the model arrived as the arguments of a call of another tool, and nothing else did",
            "content or a call",
            '{"x":1}',
            id="the answer is in a call of an MCP tool",
        ),
        pytest.param(
            "channels.nothing_is_lost/fail-all-in-the-reasoning-with-the-end",
            "5 tokens were spent, about 0 of them on reasoning, and the client got neither content nor a call",
            "content or a call",
            "finish_reason stop, no content, no call",
            id="the output has no thought, whatever the answer shows as reasoning",
        ),
        pytest.param(
            "tool_calls.calls_arrive/fail-first-lost",
            "call 1 of 2 is lost",
            'get_weather({"city":"Paris"})',
            "no such call",
            id="the first call is lost, and the second is where the first should be",
        ),
        pytest.param(
            "tool_calls.calls_arrive/fail-swapped",
            "call 2 of 2 arrived in another order",
            "the order of the model",
            "call 1 of the answer",
            id="two calls are swapped",
        ),
        pytest.param(
            "channels.nothing_is_lost/fail-empty",
            "40 tokens were spent, and the client got neither content nor a call",
            "content or a call",
            "finish_reason stop, no content, no call",
            id="the output is unknown, and so is the share of the reasoning",
        ),
        pytest.param(
            "prompt.is_an_accepted_rendering/fail-effort-with-lines",
            "message 0 (system), reasoning effort, extra: it has all lines of the effort in the request: 'Reasoning: high\\n\\nObey.'",
            "' medium\\n\\n', tokens 14093, 279",
            "' Reasoning: high\\n\\nObey.\\n\\n', tokens 57369, 289, 25, 1932, 279, 1451, 806, 364",
            id="the lines of an effort, and not the identity",
        ),
        pytest.param(
            "channels.content_is_the_answer/fail-beyond-the-limit",
            "the content continues beyond the limit",
            "one, two,",
            "one, two, three",
            id="what the script says behind the limit, in the content",
        ),
        pytest.param(
            "reasoning.analysis_is_reasoning/fail-beyond-the-limit",
            "reasoning continues beyond the limit",
            "one, two,",
            "one, two, three",
            id="what the script says behind the limit, in the reasoning",
        ),
        pytest.param(
            "usage.counts_the_prompt/fail-another-tokenizer",
            "prompt_tokens is not the number of tokens that the model's vocabulary gives the prompt text of /apply-template",
            "the same in both",
            "answer: 70, /apply-template: 68",
            id="the suite's own tokens of a prompt that is shown as text",
        ),
        pytest.param(
            "headers.broken_output_leaks_nothing/fail-call-of-another-message",
            "a part of the output arrived as a call that the answer must not contain",
            "no call",
            "user(hi there)",
            id="a call whose text is in the output",
        ),
        pytest.param(
            "headers.broken_output_leaks_nothing/fail-call-made-up",
            "a call arrived with arguments that the model did not write",
            'get_weather({"city":"Paris"})',
            "get_weather({})",
            id="a call whose arguments are not in the output",
        ),
        pytest.param(
            "headers.broken_output_leaks_nothing/fail-reserved-token-in-the-name",
            "a call arrived under another name",
            'get_weather({"city":"Paris"})',
            'get_weather<|reserved_200013|>({"city": "Paris"})',
            id="a call whose name is not in the output",
        ),
        pytest.param(
            "headers.broken_output_leaks_nothing/fail-forbidden-call-written-anew",
            "a part of the output arrived as a call that the answer must not contain",
            "no call",
            'lookup({"city": "Paris"})',
            id="a call that differs from the output in white space only",
        ),
        pytest.param(
            "headers.broken_output_leaks_nothing/fail-call-of-nothing",
            "a call arrived that the model did not make",
            "no call",
            'get_weather({"city":"Rome"})',
            id="a call whose text is not in the output",
        ),
        pytest.param(
            "errors.valid_request_is_answered/fail-added-end-unread",
            "a valid request was answered with HTTP 500; behind the script the engine emitted <|endoftext|> (199999)",
            "200",
            "500: Unexpected token 199999 while expecting start token 200006",
            id="the token that the engine adds to a script",
        ),
        pytest.param(
            "errors.valid_request_is_answered/fail-unknown-validity",
            "a request was answered with HTTP 500",
            "an answer, or a 4xx status",
            "500: Unexpected token 12606 while expecting start token 200006",
            id="a request that may be refused",
        ),
        pytest.param(
            "usage.counts_the_prompt/fail-side-endpoint-differs",
            "prompt_tokens is not the number of tokens that /tokenize shows for the same request",
            "the same in both",
            "answer: 70, /tokenize: 68",
            id="a prompt that another endpoint shows",
        ),
        pytest.param(
            "channels.no_marker_leak/fail-added-end",
            "<|end|> is in content although the model emitted it as a special token; behind the script the engine emitted <|endoftext|> (199999)",
            "None",
            "None",
            id="the token that the engine adds to a script, in the content",
        ),
        pytest.param(
            "errors.valid_request_is_answered/fail-header-unread",
            "a valid request was answered with HTTP 500",
            "200",
            '500: unexpected tokens remaining in message header: Some("to=functions.web-browsing")',
            id="an error without such a token",
        ),
    ],
)
def test_a_failure_names_what_is_at_fault(example, message, expected, actual):
    shown = EXAMPLES[example]
    (result,) = judge([shown.series], [RULES[shown.check]])
    assert [(str(one.message), str(one.expected), str(one.actual)) for one in result.findings] == [
        (message, expected, actual)
    ]


def test_prompts_shown_as_text_are_known_by_their_source():
    endpoints = [
        shown for engine in ENGINES.values() for shown in (engine.prompt_endpoint, engine.prompt_echo) if shown
    ]
    assert {shown.name for shown in endpoints if shown.text_path} == TEXT_SOURCES


def findings_of(check, name, change):
    """The failures of a check on an example of golden data, after a change of its text."""
    shown = (golden.root() / "exchanges" / check / f"{name}.json").read_text("utf-8")
    assert change(shown) != shown
    example = golden.read_example(change(shown).encode(), check=check, name=name)
    (result,) = judge([example.series], [RULES[check]])
    return result.findings


@pytest.mark.parametrize(
    ("check", "name", "actual", "expected"),
    [
        ("tool_calls.call_is_complete", "fail-no-name", "an empty text, or nothing", "a text that is not empty"),
        ("tool_calls.call_is_complete", "fail-no-type", "something else, or nothing", "function"),
        ("responses.items_have_their_members", "fail-call-without-name", None, "a string that is not empty"),
        ("responses.items_stand_in_order", "fail-call-before-preamble", None, None),
    ],
)
def test_what_is_missing_is_not_called_a_wrong_type(check, name, actual, expected):
    (finding, *_) = EXAMPLES[f"{check}/{name}"], None
    (result,) = judge([finding.series], [RULES[check]])
    failure = result.findings[0]
    assert actual is None or str(failure.actual) == actual
    assert expected is None or str(failure.expected) == expected
    assert not {"shown", "called", "analysis"} & set(str(failure.expected).split(", "))


@pytest.mark.parametrize("check", ["channels.content_is_the_answer", "reasoning.analysis_is_reasoning"])
def test_text_beyond_the_limit_cites_the_limit(check):
    (result,) = judge([EXAMPLES[f"{check}/fail-beyond-the-limit"].series], [RULES[check]])
    assert result.findings[0].clause == "chat#max-tokens"


def test_the_api_that_another_is_compared_with_does_not_depend_on_the_order_of_the_answers():
    series = EXAMPLES["apis.same_prompt/fail-another-number"].series
    turned = replace(series, exchanges=dict(reversed(series.exchanges.items())))
    findings = [judge([one], [RULES["apis.same_prompt"]])[0].findings for one in (series, turned)]
    assert findings[0] == findings[1]


@pytest.mark.parametrize(("count", "told"), [(4, "4 tokens were spent,"), (None, "the script has 4 tokens,")])
def test_a_number_of_tokens_is_the_scripts_where_the_answer_has_none(count, told):
    example = EXAMPLES["channels.nothing_is_lost/fail-vllm-no-channel"]
    ((step, x),) = example.series.exchanges.items()
    body = {**x.response_json, "usage": {"prompt_tokens": 68, "completion_tokens": 4, "total_tokens": 72}}
    body["choices"] = [{name: value for name, value in body["choices"][0].items() if name != "token_ids"}]
    if count is None:
        del body["usage"]
    chunk = replace(x.response.chunks[0], data=json.dumps(body).encode())
    x = replace(x, response=replace(x.response, chunks=(chunk,)))
    series = replace(example.series, exchanges={step: x})
    (result,) = judge([series], [RULES["channels.nothing_is_lost"]])
    assert str(result.findings[0].message).startswith(told)
