"""Requests that cost the server more than the client: each is refused, and web pages cannot send any."""

import subprocess
import sys
from contextlib import contextmanager

import httpx
import ollama
import openai
import pytest

from harmony_conformance.reference_server import MODEL
from harmony_conformance.reference_server.model.schema_instance import InstanceSizeError, instance
from harmony_conformance.reference_server.responses import store
from harmony_conformance.reference_server.responses.store import Store, StoredResponse
from harmony_conformance.runtime.own_hosts import own_hosts

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
PROMPT = {"model": MODEL, "prompt": "x"}


def nested(levels, inner):
    for _ in range(levels):
        inner = {"type": "array", "minItems": 100, "items": inner}
    return inner


LARGE = {
    "minLength": {"type": "string", "minLength": 10**9},
    "minLength beyond any memory": {"type": "string", "minLength": 10**30},
    "minItems": {"type": "array", "minItems": 10**9},
    "minItems of minItems": nested(6, {"type": "null"}),
    "minItems of a long constant": nested(2, {"const": "x" * 10_000}),
    "minItems of a long literal pattern": nested(2, {"type": "string", "pattern": f"^{'x' * 10_000}$"}),
    "minItems of a pattern that is no literal": {
        "type": "array",
        "minItems": 33_000,
        "items": {"type": "string", "pattern": "^" + "a" * 60_000},
    },
    "minItems of large integers": nested(1, {"type": "integer", "minimum": int("9" * 4200)}),
    "minItems of escaped names": nested(2, {"required": ["\0" * 3]}),
    "minItems of booleans": {"type": "array", "minItems": 30_000, "items": {"type": "boolean"}},
    "minItems behind oneOf": {"oneOf": [{"required": ["a"], "properties": {"a": nested(6, {})}}]},
    "required of minItems": {"required": ["a"] * 3 + [f"b{n}" for n in range(20)], "properties": {"b7": nested(3, {})}},
}


@pytest.mark.parametrize("schema", LARGE.values(), ids=LARGE)
def test_no_large_value_is_built_for_a_schema(schema):
    with pytest.raises(InstanceSizeError, match="at most 100000 characters"):
        instance(schema)


def test_a_value_up_to_the_limit_is_built():
    assert instance({"type": "string", "minLength": 90_000}) == "x" * 90_000


SCHEMA = {"type": "string", "minLength": 10**9}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"required": ["a"], "properties": {"a": SCHEMA}}}}
LONG_STOP = "x" * 1001
LIKELY = {"logprobs": True, "top_logprobs": 20, "harmony_script": [1] * 50_000}

LIMITED = {**ASK, "max_tokens": 9}
SCHEMA_OF_TOOL = {"required": ["a"], "properties": {"a": SCHEMA}}

REFUSED = [
    ("/v1/messages", {**LIMITED, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}, 400),
    (
        "/v1/messages",
        {**LIMITED, "tools": [{"name": "f", "input_schema": SCHEMA_OF_TOOL}], "tool_choice": {"type": "any"}},
        400,
    ),
    ("/v1/messages", {**LIMITED, "stop_sequences": ["x"] * 17}, 400),
    ("/v1/messages", {**LIMITED, "stop_sequences": [LONG_STOP]}, 400),
    ("/v1/messages", {**LIMITED, "harmony_script": [1] * 1_000_001}, 400),
    ("/v1/chat/completions", {**ASK, "response_format": FORMAT}, 400),
    ("/v1/chat/completions", {**ASK, "tools": [TOOL], "tool_choice": "required"}, 400),
    (
        "/v1/responses",
        {"model": MODEL, "input": "x", "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}},
        400,
    ),
    ("/api/chat", {**ASK, "format": SCHEMA}, 400),
    ("/api/generate", {**PROMPT, "format": SCHEMA}, 400),
    ("/generate", {"inputs": "x", "parameters": {"grammar": {"type": "json", "value": SCHEMA_OF_TOOL}}}, 422),
    (
        "/v1/chat/completions",
        {**ASK, "response_format": {"type": "json_schema", "json_schema": {"schema": {"title": "x" * 70_000}}}},
        400,
    ),
    ("/v1/chat/completions", {**ASK, "n": 128, "harmony_script": [1] * 10_000}, 400),
    ("/v1/chat/completions", {**ASK, **LIKELY}, 400),
    ("/v1/chat/completions", {**ASK, "harmony_script": [1] * 1_000_001}, 400),
    ("/v1/responses", {"model": MODEL, "input": "x", "include": ["message.output_text.logprobs"], **LIKELY}, 400),
    ("/v1/completions", {"model": MODEL, "prompt": ["x"] * 2049}, 400),
    (
        "/v1/completions",
        {"model": MODEL, "prompt": ["x"] * 2000, "max_tokens": 1000, "harmony_script": [1] * 1000},
        400,
    ),
    (
        "/v1/chat/completions",
        {**ASK, "tools": [{"type": "function", "function": {"name": f"f{n}"}} for n in range(1025)]},
        400,
    ),
    ("/v1/chat/completions", {**ASK, "stop": LONG_STOP}, 400),
    ("/v1/completions", {**PROMPT, "stop": [LONG_STOP]}, 400),
    ("/api/chat", {**ASK, "options": {"stop": [LONG_STOP]}}, 400),
    ("/api/chat", {**ASK, "options": {"stop": ["x"] * 17}}, 400),
    ("/generate", {"inputs": "x", "parameters": {"stop": [LONG_STOP]}}, 422),
    ("/sglang/generate", {"text": "x", "sampling_params": {"stop": ["x"] * 17}}, 400),
]


@pytest.mark.parametrize(
    ("path", "body", "status"), REFUSED, ids=[f"{path} {str(body)[-60:]}" for path, body, _ in REFUSED]
)
def test_a_request_that_costs_too_much_is_refused_in_the_form_of_its_api(http, path, body, status):
    response = http.post(path, json=body)
    assert response.status_code == status, response.text[:200]
    assert "expected" in response.text
    assert http.get("/health").status_code == 200


def test_the_store_drops_the_oldest_response_beyond_its_size(monkeypatch):
    monkeypatch.setattr(store, "LARGEST_STORE", 1000)
    responses = Store()
    for name in ("a", "b", "c"):
        responses.add(StoredResponse(response={"id": name, "output": []}, entries=("x" * 400,)))
    assert responses.get("c").entries == ("x" * 400,)
    with pytest.raises(Exception, match="'a' not found"):
        responses.get("a")


FOREIGN = [
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example:80",
    "192.0.2.1",
    "[2001:db8::1]:8000",
    "",
    "localhost:x",
]


@pytest.mark.parametrize("host", FOREIGN)
@pytest.mark.parametrize(
    ("path", "method"), [("/v1/chat/completions", "POST"), ("/v1/models", "GET"), ("/api/chat", "POST")]
)
def test_another_host_is_refused(http, host, path, method):
    response = http.request(method, path, json=ASK if method == "POST" else None, headers={"host": host})
    assert response.status_code == 403
    assert "expected 127.0.0.1, [::1], localhost" in response.text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8000", "[::1]", "[::1]:8000", "localhost."])
def test_its_own_names_are_answered(http, host):
    assert http.post("/v1/chat/completions", json=ASK, headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/json-x"],
)
@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat", "/generate", "/sglang/generate"]
)
def test_a_body_that_a_web_page_can_send_is_refused(http, kind, path):
    response = http.post(path, content=b"{}", headers={"content-type": kind})
    assert response.status_code == 415
    assert "expected application/json" in response.text


def test_the_default_of_curl_is_answered_with_the_option_that_is_missing(http):
    response = http.post(
        "/v1/chat/completions", content=b"{}", headers={"content-type": "application/x-www-form-urlencoded"}
    )
    assert "add -H 'Content-Type: application/json'" in response.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/vnd.api+json"])
def test_json_is_accepted(http, kind):
    assert (
        http.post(
            "/v1/chat/completions",
            content=httpx.Request("POST", "http://x", json=ASK).content,
            headers={"content-type": kind},
        ).status_code
        == 200
    )


@contextmanager
def serving(*options):
    command = [sys.executable, "-m", "harmony_conformance", "serve", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            yield program.stdout.readline().strip().removesuffix("/v1")
        finally:
            program.kill()


def test_the_command_answers_the_clients_of_openai_and_ollama_and_the_hosts_that_it_is_given():
    with serving("--allow-host", "Reference.test:80") as url:
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="-")
        assert client.chat.completions.create(**ASK).choices[0].message.content
        assert ollama.Client(host=url).chat(**ASK).message.content
        for host, status in (("reference.test", 200), ("reference.test:1", 200), ("evil.example", 403)):
            assert httpx.post(f"{url}/v1/chat/completions", json=ASK, headers={"host": host}).status_code == status
        refused = httpx.post(f"{url}/v1/chat/completions", json={**ASK, "response_format": FORMAT})
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_value")
        assert httpx.get(f"{url}/health").status_code == 200


@pytest.mark.parametrize("address", ["0.0.0.0", "::"])
def test_a_server_on_every_address_answers_every_address_but_no_other_name(address):
    names = own_hosts(address, ["name.test"])
    assert {"localhost", "name.test", "any IP address"} <= names
    assert "any IP address" not in own_hosts("192.0.2.1")


def test_an_address_is_a_name():
    assert "192.0.2.1" in own_hosts("192.0.2.1")
    assert "[2001:db8::1]" in own_hosts("2001:db8::1")
