"""Differences whose severity or meaning a source settles: each with its example."""

import json
from dataclasses import replace
from functools import partial

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.checks.helpers.added_end import with_added_end
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.expected_output import is_malformed
from harmony_conformance.evidence.levels import Validity
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import MUST, SHOULD, Outcome, clause_of_failure
from harmony_conformance.judge.judge import judge
from harmony_conformance.prompts.request_members import has_instructions_after_answer, without_unread_reasoning
from harmony_conformance.transport.messages import Request, Response
from harmony_ref import encode_with_special_tokens

RULES = {rule.id: rule for rule in CHECKS}


def judged(check, name, change, of=None):
    """The result of a check on a changed example of golden data."""
    shown = json.loads((golden.root() / "exchanges" / (of or check) / f"{name}.json").read_text("utf-8"))
    change(shown)
    example = golden.read_example(json.dumps(shown).encode(), check=check, name=name)
    (result,) = judge([example.series], [RULES[check]])
    return result


def unchanged(shown):
    pass


def test_a_wrong_request_that_is_answered_is_no_must():
    assert judged("errors.wrong_request_is_refused", "fail-answered", unchanged).severity is SHOULD
    assert judged("errors.wrong_request_is_refused", "fail-blamed-on-the-server", unchanged).severity is MUST
    assert judged("errors.wrong_request_is_refused", "fail-reset", unchanged).severity is MUST


def test_an_odd_request_that_is_not_answered_in_time_is_no_must():
    late = judged("errors.questionable_request_is_handled", "fail-no-answer-in-time", unchanged)
    assert (late.severity, late.clause.id) == (SHOULD, "http#status")
    assert str(late.findings[0].message) == "an odd request was not answered in time: no byte arrived for 60 s"
    assert judged("errors.questionable_request_is_handled", "fail-reset", unchanged).severity is MUST


def test_an_empty_text_in_an_answer_is_no_must():
    assert judged("messages.blocks_have_their_members", "fail-empty-text", unchanged).severity is SHOULD
    assert judged("messages.blocks_have_their_members", "fail-two-equal-ids", unchanged).severity is MUST


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        ({"text": "404 page not found", "headers": {"content-type": "text/plain; charset=utf-8"}}, Outcome.VARIANT),
        ({"text": "", "headers": {"content-type": "text/plain"}}, Outcome.FAIL),
        ({"json": {"message": "no such model", "code": 404}}, Outcome.FAIL),
    ],
)
def test_a_plain_text_is_a_reason(body, outcome):
    def change(shown):
        shown["response"] = {"status": 404, **body}

    result = judged("errors.refusal_explains", "fail-html", change)
    assert result.outcome is outcome
    if "json" in body:
        assert clause_of_failure(RULES["errors.refusal_explains"].clause, "chat", result.findings).id == "clients#error"


def test_the_clause_of_a_finding_is_that_of_the_api():
    clause = RULES["stop_tokens.limit_is_kept"].clause
    found = judged("errors.refusal_explains", "fail-html", unchanged).findings
    failing = [replace(finding, clause="") for finding in found]
    assert clause_of_failure(clause, "messages", failing).id == "messages#max-tokens"
    own = [replace(finding, clause="chat#tool-choice") for finding in failing]
    assert clause_of_failure(clause, "messages", own).id == "messages#tool-choice"
    assert clause_of_failure(clause, "chat", own).id == "chat#tool-choice"


CUT_STREAM = {"error": {"message": "list index out of range", "type": "BadRequestError", "code": 400}}


def test_a_stream_that_ends_in_an_error_has_no_finish_reason_to_compare():
    check, name = "streaming.finish_equals_whole", "fail-limit-not-named-in-the-stream"

    def end_in_error(shown):
        for x in shown["exchanges"].values():
            if "events" in x["response"]:
                x["response"]["events"] = [*x["response"]["events"][:-1], CUT_STREAM, "[DONE]"]

    assert judged(check, name, unchanged).outcome is Outcome.FAIL
    assert judged(check, name, end_in_error).outcome is not Outcome.FAIL


def test_missing_reasoning_has_no_field_name_to_compare():
    def drop_reasoning(shown):
        for x in shown["exchanges"].values():
            for event in x["response"].get("events", []):
                for choice in event["choices"] if isinstance(event, dict) else []:
                    for name in ("reasoning", "reasoning_content"):
                        choice["delta"].pop(name, None)

    result = judged("streaming.reasoning_equals_whole", "fail-field-name", drop_reasoning)
    assert [str(one.message) for one in result.findings] == ["streamed, reasoning differs"]


REASONING_ITEM = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Think."}]}


def test_reasoning_under_a_name_that_the_engine_does_not_use_is_not_expected():
    body = {"input": [{"role": "user", "content": "Hi"}, REASONING_ITEM, {"role": "assistant", "content": "Hello."}]}
    assert without_unread_reasoning(body, "responses", "ollama")["input"] == [body["input"][0], body["input"][2]]
    assert without_unread_reasoning(body, "responses", "vllm") is body
    assert without_unread_reasoning(body, "chat", "ollama") is body
    sealed = {"input": [{**REASONING_ITEM, "encrypted_content": "Think."}]}
    assert without_unread_reasoning(sealed, "responses", "ollama") == sealed


def test_instructions_after_an_answer():
    user, answer, system = ({"role": role, "content": "x"} for role in ("user", "assistant", "system"))
    assert has_instructions_after_answer([user, answer, system, user])
    assert not has_instructions_after_answer([system, user, answer, user, system])


@pytest.mark.parametrize(
    ("script", "is_so"),
    [
        ('<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>', False),
        ('<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|return|>', True),
        ('<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|end|>', False),
        ("<|channel|>final<|message|>hi<|return|>", False),
        ("<|channel|>final<|message|>hi<|call|>", True),
        ("<|channel|>commentary to=assistant<|message|>A note.<|end|>", True),
        ("<|channel|>commentary to=user <|constrain|>json<|message|>{}<|end|>", True),
        ("<|channel|>commentary to=assistants<|message|>{}<|call|>", False),
        ("<|channel|>final<|message|>hi", False),
    ],
)
def test_no_source_describes_a_call_that_returns_an_answer_that_calls_or_a_note_to_a_person(script, is_so):
    assert is_malformed(encode_with_special_tokens(script)) is is_so


def test_the_token_behind_a_script_is_named():
    script = tuple(encode_with_special_tokens("<|channel|>final<|message|>hi<|end|>"))
    spelled = Exchange(id="x", request=Request(path="/v1/chat/completions", body=b"{}"), script=script)
    forced = replace(
        spelled, request=Request(path="/v1/chat/completions", body=b'{"vllm_xargs": {"harmony_script": []}}')
    )
    assert "<|return|> (200002)" in str(with_added_end(spelled, "failed"))
    assert "<|endoftext|> (199999)" in str(with_added_end(forced, "failed"))
    ended = replace(spelled, script=tuple(encode_with_special_tokens("<|channel|>final<|message|>hi<|return|>")))
    assert str(with_added_end(ended, "failed")) == "failed"


@pytest.mark.parametrize(("shown", "outcome"), [("7", Outcome.VARIANT), ("8", Outcome.FAIL), ("7, 8", Outcome.FAIL)])
def test_a_stream_may_pass_on_what_the_model_wrote(shown, outcome):
    def change(example):
        text = example["response"]["text"]
        example["response"]["text"] = text.replace('"partial_json":"7"', f'"partial_json":{json.dumps(shown)}')

    assert judged("messages.blocks_have_their_members", "variant-stream-of-a-number", change).outcome is outcome


def test_a_stream_that_was_interrupted_need_not_have_usage():
    def without_usage(shown, *, ended):
        events = [event for event in shown["response"]["events"] if isinstance(event, dict)]
        for event in events:
            event.pop("usage", None)
            for choice in event["choices"]:
                choice["finish_reason"] = choice["finish_reason"] if ended else None
        shown["response"]["events"] = [event for event in events if event["choices"]] + (["[DONE]"] if ended else [])

    check = "streaming.usage_comes_last"
    example = min((golden.root() / "exchanges" / check).glob("pass*.json")).stem
    assert judged(check, example, partial(without_usage, ended=True)).outcome is Outcome.FAIL
    assert judged(check, example, partial(without_usage, ended=False)).outcome is not Outcome.FAIL


def test_the_calls_that_may_arrive_are_alternatives():
    def allow_two(shown):
        shown["expected"]["may"]["calls"] = [{"name": "weather", "arguments": "{}"}]

    (finding, *_) = judged("headers.broken_output_leaks_nothing", "fail-call-made-up", allow_two).findings
    assert str(finding.expected) == 'get_weather({"city":"Paris"}) or weather({})'


@pytest.mark.parametrize(("call", "severity"), [("call_1", MUST), (None, SHOULD)])
def test_a_lost_result_is_no_must_if_it_names_no_call(call, severity):
    def change(shown):
        shown["request"]["json"]["messages"][-1]["tool_call_id"] = call

    result = judged("prompt.results_are_rendered", "fail-dropped", change)
    assert (result.severity, str(result.findings[0].message)) == (severity, "a function result is not in the prompt")


def test_two_endpoints_that_count_differently_are_no_must():
    result = judged("native.chat_tokenize_shows_the_prompt", "fail-fewer", unchanged)
    (finding,) = result.findings
    values = str(finding.expected), str(finding.actual)
    assert (result.severity, *values) == (SHOULD, "the same in both", "answer: 7, /chat_tokenize: 5")


ENVELOPE = "messages.error_is_in_its_envelope"


@pytest.mark.parametrize("step", ["empty list of calls", "null list of calls"])
@pytest.mark.parametrize(("status", "outcome"), [(400, Outcome.NOT_APPLICABLE), (500, Outcome.FAIL)])
def test_calls_that_are_empty_or_null_may_be_refused(step, status, outcome):
    x = Exchange(
        id="x",
        scenario="content_forms",
        step=step,
        validity=Validity.VALID,
        request=Request(path="/v1/chat/completions", body=b'{"model": "m", "messages": []}'),
        response=Response(status=status, chunks=()),
    )
    series = Series(name="content_forms", exchanges={step: x})
    (result,) = judge([series], [RULES["errors.valid_request_is_answered"]])
    assert result.outcome is outcome
    if outcome is Outcome.FAIL:
        (finding,) = result.findings
        assert (str(finding.message), finding.expected) == (
            "a request was answered with HTTP 500",
            "an answer, or a 4xx status",
        )


@pytest.mark.parametrize(("added", "severity"), [("\ufffd", SHOULD), ("\ufffda", MUST)])
@pytest.mark.parametrize(("check", "text"), [("apis.same_content", "Hello!"), ("apis.same_reasoning", "Simple.")])
def test_a_stream_of_one_api_may_lack_the_sign_of_an_incomplete_character(check, text, added, severity):
    def change(shown):
        whole = shown["exchanges"]["first@responses"]
        longer = json.loads(json.dumps(whole).replace(f'"{text}"', json.dumps(text + added)))
        shown["exchanges"] = {
            "first+stream@chat": shown["exchanges"]["first@chat"],
            "first+stream@responses": longer,
        }

    result = judged(check, "pass-same", change)
    assert (result.outcome, result.severity) == (Outcome.FAIL, severity)


@pytest.mark.parametrize(
    ("error", "clause"),
    [
        ({"error": {"type": "server_error", "message": "It failed."}}, "messages#error-shape"),
        ({"error": {"message": "It failed."}}, "messages#errors"),
        ({"message": "It failed."}, "messages#errors"),
    ],
)
def test_an_error_without_the_outer_type_is_reported_with_the_whole_shape(error, clause):
    def change(shown):
        shown["response"]["json"] = error

    result = judged(ENVELOPE, "fail-as-in-chat", change)
    cited = clause_of_failure(RULES[ENVELOPE].clause, "messages", result.findings)
    assert cited.id == clause
    assert ('"type": "error"' in cited.quotation) is (clause == "messages#error-shape")


@pytest.mark.parametrize(
    ("item", "clause", "words"),
    [
        ({"type": "mcp_call", "name": ""}, "responses#mcp-call", "name: The name of the tool that was run."),
        ({"type": "mcp_approval_request"}, "responses#mcp-approval-request", "name: The name of the tool to run."),
        ({"type": "mcp_list_tools"}, "responses#mcp-list-tools", "tools: The tools available on the server."),
        ({"type": "code_interpreter_call"}, "responses#code-interpreter-call", "status: The status of the code"),
        ({"type": "web_search_call"}, "responses#web-search-call", "status: The status of the web search"),
    ],
)
def test_the_clause_of_an_item_names_its_members(item, clause, words):
    def change(shown):
        shown["response"]["json"]["output"][0] = item

    check = "responses.items_have_their_members"
    result = judged(check, "fail-mcp-tools-as-object", change)
    cited = clause_of_failure(RULES[check].clause, "responses", result.findings)
    assert (cited.id, words in cited.quotation) == (clause, True)


@pytest.mark.parametrize(
    ("shown", "is_named"),
    [
        ("a refusal<|endoftext|>", True),
        ("a refusal<|endo…", True),
        ("a refusal<|end…", False),
        ("a refusal<|end|>…", False),
        ("a refusal…", False),
    ],
)
def test_the_token_behind_a_script_is_named_where_an_excerpt_is_cut_within_it(shown, is_named):
    script = tuple(encode_with_special_tokens("<|channel|>analysis a refusal<|end|>"))
    request = Request(path="/v1/chat/completions", body=b'{"vllm_xargs": {"harmony_script": []}}')
    told = with_added_end(Exchange(id="x", request=request, script=script), "failed", shown)
    assert ("<|endoftext|> (199999)" in str(told)) is is_named
