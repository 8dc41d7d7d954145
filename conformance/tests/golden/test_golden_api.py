"""The triples of golden/api: the official library renders them, and the reference server and the checks are held to it.

A triple is a request (to Chat Completions, unless `api` says otherwise), the Harmony messages it means, written by hand, and the sentence that says
so. The tokens of a reading come from openai-harmony 0.0.8, never from this project. `test_golden_api_mutants.py` changes the messages and has every
change caught.
"""

import json
from functools import cache

import jsonschema
import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import is_comparison, judge_one
from harmony_conformance.reference_server import MODEL
from harmony_conformance.transport.messages import Chunk, Request, Response

API = golden.root() / "api"
FILES = sorted(API.glob("*.json"))
ALL = [
    pytest.param(test, id=f"{file.stem}: {test['id']}")
    for file in FILES
    for test in json.loads(file.read_text("utf-8"))["tests"]
]
TRIPLES = [triple for triple in ALL if "api" not in triple.values[0]]
OF_OTHER_APIS = [triple for triple in ALL if "api" in triple.values[0]]
PATHS = {
    "responses": "/v1/responses",
    "messages": "/v1/messages",
    "ollama_chat": "/api/chat",
    "ollama_generate": "/api/generate",
}
FAMILIES = {"prompt", "headers", "hierarchy", "multi_turn"}
ON_PROMPTS = [check for check in CHECKS if check.family in FAMILIES and not is_comparison(check)]
EFFORT = [check for check in CHECKS if check.id == "reasoning.effort_is_rendered"]


def readings(test):
    return [test["messages"], *(other["messages"] for other in test.get("also", []))]


# the files


@cache
def schema():
    return jsonschema.Draft202012Validator(
        json.loads((golden.root() / "schema" / "api.schema.json").read_text("utf-8"))
    )


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_file_is_canonical_and_follows_its_schema(file):
    written = file.read_text("utf-8")
    value = json.loads(written)
    assert written == json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    assert [problem.message for problem in schema().iter_errors(value)] == []
    ids = [test["id"] for test in value["tests"]]
    assert len(set(ids)) == len(ids)
    assert {flag for test in value["tests"] for flag in test["flags"]} == set(value["notes"])


def test_there_are_150_triples_at_least():
    assert len(TRIPLES) >= 150


@pytest.mark.parametrize(("api", "least"), [("responses", 40), ("messages", 25), ("ollama", 20)])
def test_other_apis_have_triples_too(api, least):
    assert len([triple for triple in OF_OTHER_APIS if triple.values[0]["api"].startswith(api)]) >= least


# the reference server and the checks agree with the library


@pytest.mark.parametrize("test", TRIPLES)
def test_reference_server_feeds_what_the_library_renders(test, render_by_library, http):
    asked = {**test["request"], "model": MODEL, "max_tokens": 1, "return_token_ids": True}
    response = http.post("/v1/chat/completions", json=asked)
    assert response.status_code == 200, response.text
    assert response.json()["prompt_token_ids"] in [render_by_library(messages) for messages in readings(test)]


@pytest.mark.parametrize("test", OF_OTHER_APIS)
def test_reference_server_feeds_it_through_other_apis_too(test, render_by_library, http):
    asked = {**test["request"], "model": MODEL, "stream": False, "return_token_ids": True}
    response = http.post(PATHS[test["api"]], json=asked)
    assert response.status_code == 200, response.text
    assert response.json()["prompt_token_ids"] in [render_by_library(messages) for messages in readings(test)]


@pytest.mark.parametrize("test", TRIPLES)
def test_no_check_blames_a_right_prompt(test, render_by_library):
    for messages in readings(test):
        x = exchange(test["request"], render_by_library(messages))
        results = [
            judge_one(rule, [Series(name="", exchanges={"": x})], exercised=False) for rule in ON_PROMPTS + EFFORT
        ]
        blamed = {
            result.check: result.findings for result in results if result.outcome in (Outcome.FAIL, Outcome.ERROR)
        }
        assert blamed == {}
        assert any(result.outcome is Outcome.PASS for result in results)


def exchange(request, ids):
    usage = {"prompt_tokens": len(ids), "completion_tokens": 1, "total_tokens": len(ids) + 1}
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    answer = {"id": "1", "object": "chat.completion", "created": 1, "model": MODEL, "choices": [choice], "usage": usage}
    body = json.dumps({**answer, "prompt_token_ids": list(ids)}).encode()
    return Exchange(
        id="x",
        request=Request(path="/v1/chat/completions", body=json.dumps({"model": MODEL, **request}).encode()),
        response=Response(
            status=200, headers={"content-type": "application/json"}, chunks=(Chunk(arrival_time=0.0, data=body),)
        ),
    )
