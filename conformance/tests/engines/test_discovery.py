import asyncio
import json
from dataclasses import replace

import pytest

from harmony_conformance.apis.registry import APIS, TGI, TGI_GENERATE
from harmony_conformance.engines.diagnosis import EndpointUnusableError, KeyRefusedError
from harmony_conformance.engines.discovery import ProbeOptions, discover
from harmony_conformance.engines.profiles import ENGINES, ScriptMethod
from harmony_conformance.engines.prompt_endpoint import build_prompt_request, read_rendered_prompt
from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.levels import PromptLevel
from harmony_conformance.golden.scenario import SendMode, expand
from harmony_conformance.reference_server import MODEL, running
from harmony_conformance.runner.request_builder import RequestProfile, build_request
from harmony_conformance.runner.run import Options, discover_target
from harmony_conformance.runner.selection import load_scenarios
from harmony_conformance.transport.client import SendResult
from harmony_conformance.transport.messages import Chunk, Failure, FailureKind, Request, Response
from harmony_ref import decode

COMPLETION = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}
MODELS = {"data": [{"id": "first"}, {"id": "second"}]}


def answered(body, status=200, **headers):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = {"content-type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    return SendResult(response=Response(status=status, headers=kind, chunks=(Chunk(arrival_time=0.1, data=data),)))


class Endpoint:
    """Answers by path and keeps what it was asked; `refused` names body members that it answers with 400."""

    def __init__(self, refused=(), **answers):
        self.asked = []
        self.refused = refused
        self.answers = {
            "models": answered(MODELS),
            "version": answered({}, 404),
            "chat": answered(COMPLETION),
            **answers,
        }

    async def send(self, request):
        self.asked.append(request)
        if request.path == "/v1/chat/completions":
            refused = [name for name in self.refused if name in request.json]
            if refused:
                return answered({"error": {"message": f"unknown field {refused[0]}"}}, 400)
            chat = self.answers["chat"]
            return chat(request.json) if callable(chat) else chat
        return self.answers.get(request.path.rpartition("/")[2], answered({}, 404))

    @property
    def chats(self):
        return [request.json for request in self.asked if request.path == "/v1/chat/completions"]


def found(endpoint, engine="openai", model=None, script="auto", extra=None):
    return asyncio.run(
        discover(endpoint.send, ProbeOptions(engine=ENGINES[engine], model=model, script=script, extra=extra or {}))
    )


def test_a_plain_request_goes_first_and_the_first_model_listed_is_asked_for():
    endpoint = Endpoint()
    assert found(endpoint).model == "first"
    assert endpoint.chats[0] == {
        "model": "first",
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 16,
    }


def test_a_model_that_is_named_is_asked_for_with_the_members_given():
    endpoint = Endpoint(models=answered({}, 404))
    assert found(endpoint, model="mine", extra={"top_k": 1}).model == "mine"
    assert {(chat["model"], chat["top_k"]) for chat in endpoint.chats} == {("mine", 1)}


def test_a_field_that_is_refused_is_asked_for_once():
    endpoint = Endpoint(refused=["return_token_ids"])
    capabilities = found(endpoint, "vllm")
    assert capabilities.ids_field is None
    assert capabilities.prompt_level is PromptLevel.ACCOUNTING
    assert sum("return_token_ids" in chat for chat in endpoint.chats) == 1


def test_a_field_that_is_ignored_is_not_offered():
    assert found(Endpoint(), "vllm").ids_field is None


def test_an_engine_without_extra_fields_is_asked_for_none():
    endpoint = Endpoint()
    found(endpoint, "transformers")
    assert {frozenset(chat) for chat in endpoint.chats} == {frozenset({"model", "messages", "max_tokens"})}


def test_token_ids_are_the_best_evidence():
    endpoint = Endpoint(chat=answered({**COMPLETION, "prompt_token_ids": [1, 2, 3]}))
    capabilities = found(endpoint, "vllm")
    assert (capabilities.prompt_level, capabilities.ids_field) == (PromptLevel.IDS, "return_token_ids")


def test_a_side_endpoint_that_shows_ids_comes_next():
    capabilities = found(Endpoint(render=answered({"token_ids": [1, 2, 3]})), "vllm")
    assert (capabilities.prompt_level, capabilities.prompt_endpoint.name) == (
        PromptLevel.RENDERED,
        "/v1/chat/completions/render",
    )


PROMPT = "<|start|>user<|message|>Say hello.<|end|><|start|>assistant"
PROMPT_IDS = [200006, 1428, 200008, 62316, 40617, 13, 200007, 200006, 173781]
SIDES = {
    "vllm": {"render": answered({"token_ids": PROMPT_IDS})},
    "tgi": {"chat_tokenize": answered({"tokenize_response": [{"id": token, "text": "x"} for token in PROMPT_IDS]})},
    "llamacpp": {"apply-template": answered({"prompt": PROMPT})},
    "sglang": {"tokenize": answered({"tokens": PROMPT_IDS, "count": len(PROMPT_IDS), "max_model_len": 4096})},
    "ollama": {
        "chat": lambda body: answered(
            {"message": {"content": ""}, "_debug_info": {"rendered_template": PROMPT}}
            if body.get("_debug_render_only")
            else COMPLETION
        )
    },
}
SHOWN_BY = {
    "vllm": "/v1/chat/completions/render",
    "tgi": "/chat_tokenize",
    "llamacpp": "/apply-template",
    "sglang": "/v1/tokenize",
    "ollama": "_debug_render_only",
}


@pytest.mark.parametrize("engine", SIDES)
def test_each_engine_is_asked_for_its_prompt_in_its_own_way(engine):
    endpoint = Endpoint(**SIDES[engine])
    capabilities = found(endpoint, engine)
    assert (capabilities.prompt_level, capabilities.to_json()["prompt_source"]) == (
        PromptLevel.RENDERED,
        SHOWN_BY[engine],
    )
    side = ENGINES[engine].prompt_endpoint
    asked = build_prompt_request(side, endpoint.asked[-1])
    shown = read_rendered_prompt(side, asyncio.run(endpoint.send(asked)).response.json)
    assert (shown.source, list(shown.ids)) == (SHOWN_BY[engine], PROMPT_IDS)


def test_an_api_at_the_path_of_chat_completions_shares_its_prompt_endpoint():
    options = ProbeOptions(engine=ENGINES["tgi"], apis=(TGI, TGI_GENERATE))
    capabilities = asyncio.run(discover(Endpoint(**SIDES["tgi"]).send, options))
    assert {name: side and side.name for name, side in capabilities.prompt_endpoints.items()} == {
        "chat": "/chat_tokenize",
        "tgi": "/chat_tokenize",
        "tgi-generate": None,
    }


@pytest.mark.parametrize("engine", SIDES)
def test_a_side_that_does_not_answer_as_its_engine_does_is_no_evidence(engine):
    assert found(Endpoint(), engine).prompt_endpoint is None


def verbose(body):
    """An answer of llama.cpp: it tells its prompt with `verbose`, and its tokens only with both members."""
    if not body.get("verbose"):
        return answered(COMPLETION)
    return answered(
        {**COMPLETION, "__verbose": {"prompt": PROMPT, "tokens": [17] if body.get("return_tokens") else []}}
    )


def test_an_answer_that_tells_its_prompt_is_better_than_a_side_endpoint():
    endpoint = Endpoint(chat=verbose, **SIDES["llamacpp"])
    capabilities = found(endpoint, "llamacpp")
    assert (capabilities.prompt_level, capabilities.to_json()["prompt_source"]) == (
        PromptLevel.RENDERED,
        "__verbose.prompt",
    )
    assert capabilities.prompt_endpoint is None
    assert "/apply-template" not in {request.path for request in endpoint.asked}


@pytest.mark.parametrize(
    "chat",
    [answered({**COMPLETION, "__verbose": {"tokens": [17]}}), answered({**COMPLETION, "__verbose": {"prompt": ""}})],
)
def test_an_answer_without_its_prompt_reveals_nothing(chat):
    assert found(Endpoint(chat=chat), "llamacpp").prompt_echo is None


def test_a_count_without_a_generation_is_evidence_where_no_usage_is():
    silent = answered({**COMPLETION, "usage": None})
    endpoint = Endpoint(chat=silent, input_tokens=answered({"object": "response.input_tokens", "input_tokens": 9}))
    capabilities = found(endpoint, "llamacpp")
    assert (capabilities.prompt_level, capabilities.count_endpoint) == (
        PromptLevel.ACCOUNTING,
        "/v1/chat/completions/input_tokens",
    )
    assert capabilities.to_json()["prompt_source"] == "/v1/chat/completions/input_tokens"
    assert found(Endpoint(chat=silent, input_tokens=answered({"count": 9})), "llamacpp").count_endpoint is None
    assert found(Endpoint(chat=silent), "llamacpp").prompt_level is PromptLevel.NONE


def test_ids_that_are_not_told_in_streams_leave_the_streams_to_the_side_endpoint():
    endpoint = Endpoint(chat=answered({**COMPLETION, "prompt_token_ids": PROMPT_IDS}), **SIDES["sglang"])
    capabilities = found(endpoint, "sglang")
    assert (capabilities.prompt_level, capabilities.ids_field) == (PromptLevel.IDS, "return_token_ids")
    assert capabilities.prompt_endpoint.path == "/v1/tokenize"


@pytest.mark.parametrize(("engine", "asked"), [("vllm", True), ("tgi", True), ("llamacpp", False), ("ollama", False)])
def test_a_text_is_not_asked_for_where_the_request_quotes_markers(engine, asked):
    """It could not show whether they were fed as special tokens."""
    body = json.dumps({"messages": [{"role": "user", "content": "<|end|>"}]}).encode()
    request = build_prompt_request(ENGINES[engine].prompt_endpoint, Request(path="/v1/chat/completions", body=body))
    assert (request is not None) is asked


def test_ids_that_are_refused_with_streams_are_only_asked_for_without():
    scenario = next(one for one in load_scenarios() if [step.send_mode for step in one.steps] == [SendMode.BOTH])
    asking = RequestProfile(model="m", ids_field="return_prompt_token_ids", ids_in_streams=False, extra_body={})
    asked = [
        ("return_prompt_token_ids" in build_request(one, asking, {}).json, one.is_streamed) for one in expand(scenario)
    ]
    assert sorted(asked) == [(False, True), (True, False)]


def test_a_prompt_count_that_changes_is_no_evidence():
    counts = iter(range(100))

    def chat(_):
        return answered({**COMPLETION, "usage": {"prompt_tokens": 9 + next(counts), "completion_tokens": 2}})

    capabilities = found(Endpoint(chat=chat))
    assert (capabilities.prompt_level, capabilities.has_steady_prompt_count) == (PromptLevel.NONE, False)


def test_an_endpoint_that_needs_a_larger_limit_is_given_one():
    def chat(body):
        return answered(COMPLETION) if body["max_tokens"] >= 64 else answered({"error": {"message": "too few"}}, 400)

    endpoint = Endpoint(chat=chat)
    assert found(endpoint).has_steady_prompt_count
    assert [body["max_tokens"] for body in endpoint.chats] == [16, 64, 64]


SCRIPTS = {
    ("reference", "auto", "harmony-conformance/1"): ScriptMethod.REFERENCE,
    ("reference", "auto", "nginx"): ScriptMethod.NONE,
    ("openai", "auto", "harmony-conformance/1"): ScriptMethod.REFERENCE,
    ("vllm", "auto", "uvicorn"): ScriptMethod.NONE,
    ("vllm", "vllm", "uvicorn"): ScriptMethod.VLLM,
    ("openai", "reference", "nginx"): ScriptMethod.REFERENCE,
    ("reference", "none", "harmony-conformance/1"): ScriptMethod.NONE,
}


@pytest.mark.parametrize(("engine", "script", "server"), SCRIPTS)
def test_a_script_goes_to_a_server_that_identified_itself_or_was_named(engine, script, server):
    endpoint = Endpoint(models=answered(MODELS, server=server), chat=playing)
    assert found(endpoint, engine, script=script).script_method is SCRIPTS[engine, script, server]


def playing(body):
    """An answer that shows the text of the script, if one was sent."""
    script = body.get("harmony_script") or [
        int(one) for one in body.get("vllm_xargs", {}).get("harmony_script", "").split()
    ]
    return answered({**COMPLETION, "shown": decode(script)} if script else COMPLETION)


def test_a_server_that_ignores_the_script_is_not_tested_as_if_it_had_followed_it():
    with pytest.raises(EndpointUnusableError, match="--script vllm: the server did not play the script"):
        found(Endpoint(), "vllm", script="vllm")


RESPONSE = {
    "object": "response",
    "status": "completed",
    "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}],
    "usage": {"input_tokens": 9, "output_tokens": 2, "total_tokens": 11},
}


def test_an_endpoint_without_chat_requests_is_asked_in_the_other_api():
    endpoint = Endpoint(chat=answered({"detail": "Not Found"}, 404), responses=answered(RESPONSE))
    question = ProbeOptions(engine=ENGINES["openai"], apis=(APIS["responses"],))
    capabilities = asyncio.run(discover(endpoint.send, question))
    assert capabilities.script_methods == {"responses": ScriptMethod.NONE}
    assert (capabilities.model, capabilities.has_steady_prompt_count, capabilities.to_json()["chat"]) == (
        "first",
        True,
        False,
    )
    with pytest.raises(EndpointUnusableError, match="--script reference: the server did not play the script"):
        asyncio.run(discover(endpoint.send, replace(question, script="reference")))
    with pytest.raises(EndpointUnusableError, match="invalid model or path"):
        asyncio.run(discover(endpoint.send, replace(question, apis=())))


LOST = SendResult(failure=Failure(kind=FailureKind.NO_CONNECTION, detail="refused"))
BUSY = Failure(kind=FailureKind.RATE_LIMITED, detail="HTTP 429 after 3 waits")
CUT = Failure(kind=FailureKind.CUT, detail="7 of 9 bytes")
NOTHING = {
    "no connection": ({"models": LOST}, "no HTTP response: refused"),
    "no answer to the first request": ({"chat": LOST}, "no HTTP response to the first request: refused"),
    "the key is refused at the list": (
        {"models": answered({}, 401)},
        r"invalid API key \(HTTP 401\).*--api-key-env",
    ),
    "the key is refused at the request": ({"chat": answered({}, 403)}, r"invalid API key \(HTTP 403\)"),
    "no model": ({"models": answered({"data": []})}, "an empty list.*--model"),
    "models without a name": ({"models": answered({"data": [{"id": ""}, {}]})}, "an empty list.*--model"),
    "models that are none": (
        {"models": answered({"data": {"id": 7}})},
        r'^GET /v1/models returned JSON without a list of models \({"data": {"id": 7}}\): not an OpenAI API$',
    ),
    "models in no JSON": (
        {"models": answered(b"<html>", content_type="text/html; charset=utf-8")},
        "^GET /v1/models returned text/html, expected JSON: not an OpenAI API$",
    ),
    "models in a page that says it is JSON": (
        {"models": answered(b"<html>")},
        r"^GET /v1/models returned no JSON \(HTTP 200, application/json: <html>\): not an OpenAI API$",
    ),
    "models behind a byte order mark": (
        {"models": answered(b'\xef\xbb\xbf{"data":[{"id":"m"}]}')},
        r"^GET /v1/models returned a byte order mark before its text, expected UTF-8 that begins with the JSON \(RFC 8259",
    ),
    "no bytes in place of models": (
        {"models": answered(b"")},
        "^GET /v1/models returned an empty body: not an",
    ),
    "an error in place of models": (
        {"models": answered({"error": {"message": "boom"}}, 500)},
        r"^GET /v1/models returned HTTP 500 \(boom\): name a model with --model to skip the list$",
    ),
    "a page of an error in place of models": (
        {"models": answered(b"<h1>Oh</h1>", 502, content_type="text/html")},
        r"^GET /v1/models returned HTTP 502 \(<h1>Oh</h1>, text/html\): name a model",
    ),
    "an error without a word in place of models": (
        {"models": answered(b"", 500)},
        r"^GET /v1/models returned HTTP 500 \(an empty body\): name a model",
    ),
    "a list of models that breaks off": (
        {"models": replace(answered(b'{"data": ['), failure=CUT)},
        "^the response to GET /v1/models was truncated: 7 of 9 bytes$",
    ),
    "a rate limit that says why": (
        {"models": replace(answered({"error": {"message": "no credits"}}, 429), failure=BUSY)},
        r"^rate limited: HTTP 429 after 3 waits \(no credits\)$",
    ),
    "no path of models": ({"models": answered(b"", 404)}, "^GET /v1/models returned HTTP 404: give the URL up to /v1"),
    "a rate limit at the list": (
        {"models": SendResult(response=answered({}, 429).response, failure=BUSY)},
        "^rate limited: HTTP 429 after 3 waits$",
    ),
    "a rate limit at the request": (
        {"chat": SendResult(response=answered({}, 429).response, failure=BUSY)},
        "^rate limited: HTTP 429 after 3 waits$",
    ),
    "the model is refused": (
        {"chat": answered({"error": {"message": "no such model"}}, 404)},
        "no such model.*available models: first, second",
    ),
    "a list of models with control characters": (
        {"models": answered({"data": [{"id": "m\x1b[2J"}]}), "chat": answered({}, 404)},
        r"HTTP 404: {}\); available models: m \[2J$",
    ),
    "a page": (
        {"chat": answered(b"<h1>Hi</h1>", content_type="text/html")},
        "^POST /v1/chat/completions returned text/html, expected JSON: not an OpenAI API .<h1>Hi</h1>.$",
    ),
    "no bytes": (
        {"chat": answered(b"")},
        "^POST /v1/chat/completions returned an empty body: not an OpenAI API$",
    ),
    "a page of an error": (
        {"chat": answered(b"<h1>Oh</h1>", 502, content_type="text/html")},
        r"POST /v1/chat/completions was rejected \(HTTP 502, text/html: <h1>Oh</h1>\)",
    ),
    "an error without a word": ({"chat": answered(b"", 500)}, r"rejected \(HTTP 500: an empty body\)"),
    "an error with 200": ({"chat": answered({"error": "out of memory"})}, "no chat completion.*out of memory"),
    "a server error": ({"chat": answered({"error": {"message": "boom"}}, 500)}, r"rejected \(HTTP 500: boom\)"),
    "a redirect": (
        {"chat": answered(b"", 307, location="https://other.example/v1")},
        r"redirects to https://other.example/v1 \(HTTP 307\)",
    ),
    "a redirect to nowhere": (
        {"chat": answered(b"", 302)},
        r"redirects without a location \(HTTP 302\): expected the URL of an API$",
    ),
    "a redirect of everything": (
        {"models": answered(b"", 301, location="https://other.example/v1/models")},
        "HTTP 301.*use that URL",
    ),
    "lines and control characters": (
        {"chat": answered({"error": {"message": "a\nb\x1b[31mc" + "d" * 1000}}, 500)},
        r"\(HTTP 500: a b \[31mcd{1,200}\)$",
    ),
    "an empty list of choices": ({"chat": answered({"choices": []})}, "no chat completion"),
}


@pytest.mark.parametrize("what", NOTHING)
def test_an_endpoint_that_can_not_be_used_is_reported_in_one_line(what):
    answers, said = NOTHING[what]
    with pytest.raises(EndpointUnusableError, match=said) as nothing:
        found(Endpoint(**answers))
    assert "\n" not in str(nothing.value)


def test_a_rate_limit_is_waited_for_once():
    endpoint = Endpoint(chat=SendResult(response=answered({}, 429).response, failure=BUSY))
    with pytest.raises(EndpointUnusableError):
        found(endpoint)
    assert len(endpoint.chats) == 1


@pytest.mark.parametrize("path", ["models", "chat"])
def test_a_key_that_was_refused_is_reported_by_the_name_of_its_variable(path):
    with pytest.raises(KeyRefusedError) as refused:
        found(Endpoint(**{path: answered({}, 401)}))
    assert refused.value.message_with_variable("MY_KEY") == "invalid API key in MY_KEY (HTTP 401)"
    assert refused.value.message_with_variable(None) == str(refused.value)


@pytest.mark.parametrize("spelling", ["{base}", "{base}/", "{base}/v1", "{base}/v1/"])
def test_a_server_is_found_at_its_root_and_at_its_v1(spelling):
    with running() as base:
        capabilities = asyncio.run(discover_target(parse_target(f"reference:{spelling.format(base=base)}"), Options()))
    assert (capabilities.model, capabilities.script_method) == (MODEL, ScriptMethod.REFERENCE)
    assert (capabilities.prompt_level, capabilities.engine_version is not None) == (PromptLevel.IDS, True)
