"""Records of loggers, gateways and tracing tools. Files under `logs` were written by that software; other records are documented examples."""

import json
from io import BytesIO
from pathlib import Path

import pytest

from harmony_conformance.audit.readers.files.json_elements import read_elements
from harmony_conformance.audit.readers.records.record import LoggedExchange
from harmony_conformance.audit.readers.records.shapes import find_shape, parse_record, read_line
from harmony_conformance.audit.readers.records.spans import split_otlp
from harmony_conformance.audit.scopes import Scope
from harmony_conformance.evidence.exchange_json import write_exchange
from harmony_conformance.evidence.file_lines import Line, UnreadableLine
from harmony_conformance.json_value import value_at

LOGS = Path(__file__).parent / "logs"
LEAK = "Hello.<|end|><|start|>assistant<|channel|>final<|message|>Hello."
MESSAGES = [{"role": "user", "content": "Hi"}]
ASKED = {"model": "gpt-oss-20b", "messages": MESSAGES}
MESSAGE = {"role": "assistant", "content": LEAK}
ANSWER = {
    "object": "chat.completion",
    "model": "gpt-oss-20b",
    "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
}


def records(value, form="auto", **columns):
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return read_line(Line(offset=0, number=1, data=data), form, name="log@0", columns=columns)


WRITTEN = [
    ("litellm_callback.jsonl", "litellm", Scope.WHOLE, 2),
    ("openinference.otlp.jsonl", "otel", Scope.WHOLE, 2),
    ("otel_spans.otlp.jsonl", "otel", Scope.CONVERSATION, 2),
    ("otel_spans.console.json", "otel", Scope.CONVERSATION, 2),
    ("otel_events.otlp.jsonl", "otel", Scope.TEXT, 1),
    ("langfuse.otlp.jsonl", "otel", Scope.CONVERSATION, 1),
]


def of_file(name):
    text = (LOGS / name).read_bytes()
    lines = text.splitlines() if name.endswith(".jsonl") else [line.data for line in read_elements(BytesIO(text))]
    return [(line, records(line)) for line in lines]


@pytest.mark.parametrize(("name", "shape", "scope", "count"), WRITTEN, ids=[row[0] for row in WRITTEN])
def test_a_log_that_real_software_wrote_is_read(name, shape, scope, count):
    found = of_file(name)
    shapes = {
        find_shape(value, "auto").name
        for data, _ in found
        for value in parse_record(Line(offset=0, number=1, data=data), {})
    }
    assert shapes == {shape}
    exchanges = [one for _, many in found for one in many if isinstance(one, LoggedExchange)]
    assert len([one for one in exchanges if one.scope is scope]) == count
    first = exchanges[0].exchange
    assert first.turn.content == LEAK
    assert scope is Scope.TEXT or first.messages == MESSAGES


def test_calls_and_reasoning_of_spans_are_those_of_the_message():
    answer, call = (one.exchange.turn for _, many in of_file("otel_spans.otlp.jsonl") for one in many)
    assert answer.reasoning == "We greet."
    assert [(one.id, one.name, json.loads(one.arguments)) for one in call.tool_calls] == [
        ("call_1", "get_weather", {"city": "Oslo"})
    ]


@pytest.mark.parametrize(
    ("written", "expected"), [("-5", -5), ("--5", "--5"), ("5" * 5000, "5" * 5000), ("٣", "٣"), (7, 7)]
)
def test_an_integer_of_otlp_that_is_none_stays_a_text(written, expected):
    attributes = [{"key": "a", "value": {"intValue": written}}]
    spans = {"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x", "attributes": attributes}]}]}]}
    (found,) = split_otlp(spans)
    assert found["attributes"] == {"a": expected}


def test_the_tools_of_a_callback_are_known():
    (_, (first,)), (_, (second,)) = of_file("litellm_callback.jsonl")
    assert [tool["function"]["name"] for tool in first.exchange.tools] == ["get_weather"]
    assert (first.exchange.stream, second.exchange.stream, second.exchange.wants_stream) == (None, None, False)


SPEND_LOG = {
    "request_id": "chatcmpl-1",
    "call_type": "acompletion",
    "startTime": "2026-01-01T00:00:00",
    "messages": json.dumps(MESSAGES),
    "response": json.dumps(ANSWER),
    "model": "gpt-oss-20b",
    "proxy_server_request": "{}",
}
DOCUMENTED = [
    pytest.param(SPEND_LOG, "litellm", Scope.WHOLE, id="LiteLLM_SpendLogs, a row"),
    pytest.param(
        {**SPEND_LOG, "messages": "{}", "proxy_server_request": json.dumps(ASKED)},
        "litellm",
        Scope.WHOLE,
        id="its request as the proxy got it",
    ),
    pytest.param(
        {"standard_logging_object": {**SPEND_LOG, "messages": MESSAGES, "response": ANSWER}},
        "litellm",
        Scope.WHOLE,
        id="kwargs",
    ),
    pytest.param(
        {
            "request_id": "1",
            "request_path": "https://api.example.org/v1/chat/completions",
            "request_body": ASKED,
            "response_body": ANSWER,
            "response_status": 200,
            "provider": "OPENAI",
        },
        "openai",
        Scope.WHOLE,
        id="Helicone, export with --include-body",
    ),
    pytest.param(
        {"data": {"input": {"messages": MESSAGES}, "output": {"completion": LEAK, "reasoning": None}}},
        "openrouter",
        Scope.CONVERSATION,
        id="OpenRouter, /generation/content",
    ),
    pytest.param(
        {
            "id": "1",
            "type": "GENERATION",
            "traceId": "t",
            "startTime": "2026-01-01T00:00:00Z",
            "model": "gpt-oss-20b",
            "input": MESSAGES,
            "output": MESSAGE,
        },
        "langfuse",
        Scope.CONVERSATION,
        id="Langfuse, an observation of its API",
    ),
    pytest.param(
        {
            "id": "1",
            "type": "GENERATION",
            "trace_id": "t",
            "provided_model_name": "gpt-oss-20b",
            "input": json.dumps({"messages": MESSAGES}),
            "output": json.dumps(MESSAGE),
        },
        "langfuse",
        Scope.CONVERSATION,
        id="Langfuse, a row of its export",
    ),
    pytest.param(
        {
            "id": "1",
            "type": "GENERATION",
            "traceId": "t",
            "startTime": "2026-01-01T00:00:00Z",
            "providedModelName": "gpt-oss-20b",
            "modelParameters": {"temperature": 1},
            "input": json.dumps(MESSAGES),
            "output": json.dumps(MESSAGE),
        },
        "langfuse",
        Scope.CONVERSATION,
        id="Langfuse, an observation of its API v2",
    ),
    pytest.param({"input": ASKED, "output": ANSWER}, "langfuse", Scope.WHOLE, id="input and output with whole bodies"),
    pytest.param(
        {
            "name": "ChatCompletion",
            "attributes.llm.model_name": "gpt-oss-20b",
            "start_time": "2026-01-01T00:00:00+00:00",
            "attributes.llm.input_messages": [{"message.role": "user", "message.content": "Hi"}],
            "attributes.llm.output_messages": [{"message": MESSAGE}],
        },
        "otel",
        Scope.CONVERSATION,
        id="Phoenix, a row of get_spans_dataframe",
    ),
    pytest.param(
        {
            "name": "chat",
            "attributes": {
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": "Hi",
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.content": LEAK,
            },
        },
        "otel",
        Scope.CONVERSATION,
        id="OpenLLMetry, numbered attributes",
    ),
    pytest.param(ANSWER, "answers", Scope.ANSWER, id="a response alone"),
    pytest.param({"messages": [*MESSAGES, MESSAGE]}, "messages", Scope.CONVERSATION, id="messages alone"),
    pytest.param(
        {"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": LEAK}]},
        "messages",
        Scope.CONVERSATION,
        id="ShareGPT",
    ),
    pytest.param(
        {"messages": MESSAGES, "completion": LEAK}, "messages", Scope.CONVERSATION, id="messages and a separate answer"
    ),
    pytest.param({"completion": LEAK}, "text", Scope.TEXT, id="a text alone"),
    pytest.param({"prompt": "Hi", "response": LEAK}, "text", Scope.CONVERSATION, id="a text and its question"),
    pytest.param({"prompt": "<|start|>user", "response": LEAK}, "text", Scope.TEXT, id="a text and a rendered prompt"),
    pytest.param(LEAK, "text", Scope.TEXT, id="a JSON string"),
]


@pytest.mark.parametrize(("value", "shape", "scope"), DOCUMENTED)
def test_a_documented_record_is_read(value, shape, scope):
    assert find_shape(value, "auto").name == shape
    (found,) = records(value)
    assert isinstance(found, LoggedExchange), found
    assert (found.scope, found.exchange.turn.content) == (scope, LEAK)
    if shape == "langfuse":
        assert value_at(found.exchange.chat_request, "model") == "gpt-oss-20b"
    if scope in (Scope.WHOLE, Scope.CONVERSATION):
        assert [message["content"] for message in found.exchange.messages] == ["Hi"]


HAR_ENTRY = {
    "startedDateTime": "2026-01-01T00:00:00Z",
    "request": {
        "method": "POST",
        "url": "https://api.example.org/v1/chat/completions",
        "headers": [{"name": "Authorization", "value": "Bearer s"}, {"name": "Accept", "value": "a"}],
        "postData": {"mimeType": "application/json", "text": json.dumps(ASKED)},
    },
    "response": {
        "status": 200,
        "headers": [{"name": "Content-Encoding", "value": "gzip"}, {"name": "Set-Cookie", "value": "s"}],
        "content": {"mimeType": "application/json", "text": json.dumps(ANSWER)},
    },
}


def test_an_entry_of_an_http_archive_is_an_exchange_without_credentials():
    (found,) = records(HAR_ENTRY)
    x = found.exchange
    assert (x.request.path, x.turn.content, x.started) == ("/v1/chat/completions", LEAK, "2026-01-01T00:00:00Z")
    assert (dict(x.request.headers), dict(x.response.headers)) == (
        {"accept": "a"},
        {"content-type": "application/json"},
    )


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (
            {"mimeType": "a/b", "text": "///", "encoding": "base64"},
            "no exchange: its response is no base64, although the entry says so",
        ),
        ({"mimeType": "a/b"}, "no exchange: it has no response (save the HAR file with content)"),
    ],
)
def test_an_entry_without_content_says_why(content, told):
    (problem,) = records({**HAR_ENTRY, "response": {"status": 200, "headers": [], "content": content}})
    assert problem.kind == told


OUTCOME_LINE = {"kind": "exchange", "id": "1", "method": "POST", "request_bytes": 3, "judged": True, "outcomes": {}}
TOLD = [
    pytest.param(OUTCOME_LINE, "the line of the proxy has no sample", id="a line of the proxy"),
    pytest.param(
        {**SPEND_LOG, "messages": "{}", "response": "{}"},
        "store_prompts_in_spend_logs: true",
        id="no content in spend logs",
    ),
    pytest.param(
        {"type": "SPAN", "input": "a", "output": "b"}, "the observation is no generation", id="another observation"
    ),
    pytest.param({"attributes": {"http.method": "GET"}}, "the span is no call of a model", id="another span"),
    pytest.param(
        {"attributes": {"gen_ai.operation.name": "chat"}},
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
        id="no content",
    ),
    pytest.param({"resourceSpans": []}, "none of the parts that its format announces", id="no spans"),
    pytest.param(
        {"custom_id": "1", "url": "/v1/chat/completions", "body": ASKED},
        "no output line has its `custom_id`",
        id="a batch without output",
    ),
    pytest.param(
        {"custom_id": "1", "response": None, "error": {"code": "x"}},
        "its request failed",
        id="a failed line of a batch",
    ),
]


@pytest.mark.parametrize(("value", "told"), TOLD)
def test_a_record_that_is_no_exchange_says_why(value, told):
    (problem,) = records(value)
    assert isinstance(problem, UnreadableLine)
    assert told in problem.kind


def test_a_sample_of_the_proxy_is_a_recorded_exchange():
    (found,) = records(HAR_ENTRY)
    (again,) = records({**OUTCOME_LINE, "sample": write_exchange(found.exchange)})
    assert again.exchange == found.exchange


def test_columns_are_read_under_other_names():
    value = {"in": {"body": json.dumps(ASKED)}, "a.b": json.dumps(ANSWER), "request": "noise"}
    (found,) = records(value, request="in.body", response="a.b")
    assert (found.scope, found.exchange.turn.content) == (Scope.WHOLE, LEAK)
    (found,) = records({"in": json.dumps({"body": {"text": LEAK}})}, output="in.body.text")
    assert found.scope is Scope.TEXT


def test_a_format_that_was_asked_for_is_kept_to():
    (found,) = records({"request": "noise", "completion": LEAK}, "text")
    assert found.scope is Scope.TEXT
    assert isinstance(records({"completion": LEAK}, "openai")[0], UnreadableLine)
