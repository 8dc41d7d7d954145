import pytest

from harmony_conformance.engines.profiles import ENGINES
from harmony_conformance.engines.target import InvalidTargetError, parse_target

GOOD = {
    "reference": ("reference", None, ()),
    "reference:defect=effort-ignored": ("reference", None, ("effort-ignored",)),
    "reference:defect=a,b": ("reference", None, ("a", "b")),
    "reference:http://127.0.0.1:9000": ("reference", "http://127.0.0.1:9000", ()),
    "vllm:http://host:8000/v1": ("vllm", "http://host:8000", ()),
    "vllm:http://host:8000/v1/": ("vllm", "http://host:8000", ()),
    "vllm:http://host:8000": ("vllm", "http://host:8000", ()),
    "vllm:http://host:8000/v1/chat/completions": ("vllm", "http://host:8000", ()),
    "vllm:http://host:8000/v1/models/": ("vllm", "http://host:8000", ()),
    "https://gate.example.com/team/v1/completions": ("openai", "https://gate.example.com/team", ()),
    "https://api.example.com/v1/responses": ("openai", "https://api.example.com", ()),
    "http://host/models/v1": ("openai", "http://host/models", ()),
    "ollama:http://localhost:11434/": ("ollama", "http://localhost:11434", ()),
    "https://api.example.com/v1": ("openai", "https://api.example.com", ()),
    "http://host": ("openai", "http://host", ()),
    "openai:https://gate.example.com/teams/a%20b/v1": ("openai", "https://gate.example.com/teams/a%20b", ()),
    "openai:https://gate.example.com/v1beta": ("openai", "https://gate.example.com/v1beta", ()),
    "https://openrouter.ai/api/v1": ("openrouter", "https://openrouter.ai/api", ()),
    "https://api.groq.com/openai/v1": ("groq", "https://api.groq.com/openai", ()),
    "https://Bedrock-runtime.us-west-2.amazonaws.com/openai/v1": (
        "bedrock",
        "https://Bedrock-runtime.us-west-2.amazonaws.com/openai",
        (),
    ),
    "https://openrouter.ai.example.com/v1": ("openai", "https://openrouter.ai.example.com", ()),
    "openai:https://api.groq.com/openai/v1": ("openai", "https://api.groq.com/openai", ()),
    "sglang:http://[::1]:30000/v1": ("sglang", "http://[::1]:30000", ()),
    "llamacpp:http://my_host.internal:8080": ("llamacpp", "http://my_host.internal:8080", ()),
    "  tgi:http://10.0.0.5:80  ": ("tgi", "http://10.0.0.5:80", ()),
    "HTTP://Host:8000/v1": ("openai", "http://Host:8000", ()),
    "vLLM:HTTPS://host/v1": ("vllm", "https://host", ()),
    "ws://127.0.0.1:8000/v1": ("openai", "http://127.0.0.1:8000", ()),
    "vllm:wss://host/v1/responses": ("vllm", "https://host", ()),
    "https://M\u00fcnchen.example:8443/v1": ("openai", "https://xn--mnchen-3ya.example:8443", ()),
    "vllm:http://\u4f8b\u3048.\u30c6\u30b9\u30c8/v1": ("vllm", "http://xn--r8jz45g.xn--zckzah", ()),
    "wss://openrouter.ai/api/v1": ("openrouter", "https://openrouter.ai/api", ()),
}


@pytest.mark.parametrize("text", GOOD)
def test_a_connect_string_names_an_engine_and_an_address(text):
    target = parse_target(text)
    assert (target.engine.name, target.base_url, target.defects) == GOOD[text]


BAD = {
    "nonsense": "invalid target",
    "": "invalid target",
    "nonsense:http://host": "invalid target",
    "ftp://host": "invalid target",
    "vllm": "expected a URL",
    "vllm:": "expected a URL",
    "vllm:host:8000": "'vllm:host:8000': expected a URL with its scheme, such as vllm:http://host:8000",
    "localhost:8000": "such as http://localhost:8000",
    "localhost": "such as http://localhost",
    "[::1]:8000/v1": "such as http://[::1]:8000/v1",
    "10.0.0.5:8000": "such as http://10.0.0.5:8000",
    "api.example.com/v1": "such as https://api.example.com/v1",
    "openai:api.example.com": "such as openai:https://api.example.com",
    "host:port": "expected reference, a URL, or ENGINE:URL",
    "vllm:http://": "invalid URL",
    "vllm:http:///v1": "invalid URL",
    "vllm:ftp://host": "invalid URL",
    "vllm:http://host:99999": "invalid URL",
    "vllm:http://host:0": "invalid URL",
    "vllm:http://host:port": "invalid URL",
    "vllm:http://[::1": "invalid URL",
    "vllm:http://\u00fc..example": "invalid URL",
    "vllm:http://\u2603 x.example": "invalid URL",
    "vllm:http://exa mple.com": "invalid URL",
    "vllm:http://host/a b": "invalid URL",
    "vllm:http://host/\x7f": "invalid URL",
    "vllm:http://-host-": "invalid URL",
    "vllm:http://user:word@host": "--api-key-env",
    "vllm:http://user@host": "--api-key-env",
    "https://host/v1?api-version=1": "query",
    "https://host/v1#part": "query",
    "https://host/chat/completions": "expected the URL up to /v1",
    "https://host/v2/models": "expected the URL up to /v1",
    "replay:": "expected a file",
}


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_target_is_refused_in_one_line_that_says_what_would_be_right(text):
    with pytest.raises(InvalidTargetError) as refused:
        parse_target(text)
    assert BAD[text] in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_password_in_a_url_is_not_repeated():
    with pytest.raises(InvalidTargetError) as refused:
        parse_target("vllm:http://user:hunter22@host")
    assert "hunter22" not in str(refused.value)


def test_a_recording_is_a_target():
    target = parse_target("replay:runs/some run/exchanges.jsonl")
    assert str(target.replay) == "runs/some run/exchanges.jsonl"
    assert target.host == "exchanges.jsonl"


LOCAL = ["reference", "vllm:http://localhost:1", "vllm:http://127.0.0.1:1", "vllm:http://[::1]:1"]
ELSEWHERE = ["https://api.example.com", "vllm:http://10.0.0.1:8000", "vllm:http://localhost.example.com"]


@pytest.mark.parametrize("text", [*LOCAL, *ELSEWHERE])
def test_a_target_is_local_when_requests_stay_on_this_machine(text):
    assert parse_target(text).is_local is (text in LOCAL)


@pytest.mark.parametrize("text", ["reference", "reference:defect=a:defect=b", "vllm:http://h:1", "replay:x.jsonl"])
def test_a_target_prints_as_its_connect_string(text):
    assert str(parse_target(text)) == text
    assert parse_target(str(parse_target(text))) == parse_target(text)


def test_every_engine_can_be_named():
    assert {parse_target(f"{name}:http://h:1").engine.name for name in ENGINES} == set(ENGINES)


@pytest.mark.parametrize("text", ["ws://127.0.0.1:8000", "vllm:wss://host"])
def test_a_websocket_url_is_one_of_http_and_is_written_as_it_was(text):
    target = parse_target(f"{text}/v1")
    assert target.is_websocket
    assert str(target) == text
    assert not parse_target("http://127.0.0.1:8000").is_websocket
