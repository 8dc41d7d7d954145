"""The API of a logged pair is found by the adapters of the registry, whatever the log says about the path."""

import json
from itertools import islice
from pathlib import Path

import pytest

from harmony_conformance.apis.registry import APIS
from harmony_conformance.audit.readers.records.record import LoggedExchange
from harmony_conformance.audit.readers.records.shapes import read_line
from harmony_conformance.evidence.exchange_json import read_exchange
from harmony_conformance.evidence.file_lines import Line, parse_line, read_lines
from harmony_conformance.evidence.levels import AnsweredBy
from harmony_conformance.golden import data as golden

ALIKE = {"tgi": "chat", "ollama-raw": "ollama-generate"}
"""APIs whose exchanges look like those of another one, unless the path or the request says more."""


def examples():
    """Yield up to three answered exchanges of each API and framing, with different requests."""
    counts = {}
    for example in golden.examples():
        for x in example.series.exchanges.values():
            kind = (x.api, x.events is None)
            is_plain = x.api in APIS and x.turn is not None and x.turn.content and x.request.json is not None
            if is_plain and counts.get(kind, 0) < 3:
                counts[kind] = counts.get(kind, 0) + 1
                yield pytest.param(x, id=f"{x.api}-{'whole' if x.events is None else 'stream'}-{counts[kind]}")


EXAMPLES = [*examples()]


def read(value):
    (record,) = read_line(Line(offset=0, number=1, data=json.dumps(value).encode()), "auto", name="log@0")
    assert isinstance(record, LoggedExchange), record
    return record.exchange


def logged(x):
    response = {"status": x.response.status, "body": x.response.body.decode("utf-8", "replace")}
    return {"request": x.request.json, "response": response}


@pytest.mark.parametrize("x", EXAMPLES)
def test_a_pair_of_any_api_is_read_as_it_was_sent(x):
    found = read({**logged(x), "path": x.request.path})
    assert found.request.path == x.request.path
    assert found.api in (x.api, ALIKE.get(x.api))
    assert found.turn == x.turn
    assert found.chat_request == x.chat_request


@pytest.mark.parametrize("x", EXAMPLES)
def test_without_a_path_the_bodies_show_the_api(x):
    found = read(logged(x))
    assert found.api in (x.api, ALIKE.get(x.api))
    assert found.turn.content == x.turn.content


@pytest.mark.parametrize("x", EXAMPLES)
def test_parsed_bodies_are_enough(x):
    body = (
        x.response_json if x.events is None else [event.value for event in x.events.events if event.value is not None]
    )
    found = read({"request": x.request.json, "response": body})
    assert found.api in (x.api, ALIKE.get(x.api))
    assert found.turn.content == x.turn.content


def test_every_api_has_an_example():
    assert {parameter.values[0].api for parameter in EXAMPLES} >= APIS.keys() - {"ollama-raw"}


REPORTS = sorted((Path(__file__).parents[4] / "reports").glob("*/exchanges.jsonl.gz"))


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.parent.name)
def test_the_answers_of_real_servers_are_read_as_they_were_recorded(path):
    count = 0
    for line in islice(read_lines(path), 0, 400, 5):
        recorded = parse_line(line)
        if recorded["kind"] != "exchange" or recorded["scenario"] == "discovery":
            continue
        x = read_exchange(recorded)
        if x.turn is not None and x.answered_by is AnsweredBy.API and isinstance(x.request.json, dict):
            count += 1
            found = read({**logged(x), "path": x.request.path})
            assert found.api in (x.api, ALIKE.get(x.api)), x.id
            assert found.turn == x.turn or found.api != x.api, x.id
    assert count or "parsers" in path.parent.name or "render" in path.parent.name


MESSAGES = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
ERROR = {"error": {"message": "no"}}


@pytest.mark.parametrize(
    ("path", "api"),
    [
        ("/v1/chat/completions", "chat"),
        ("/openai/deployments/d/chat/completions?api-version=1", "chat"),
        ("/tgi/v1/chat/completions", "tgi"),
        ("/v1/responses", "responses"),
        ("/proxy/v1/completions", "completions"),
        ("/api/chat", "ollama"),
        ("/api/generate", "ollama-generate"),
        ("/sglang/generate", "sglang-generate"),
    ],
)
def test_the_path_decides_for_an_error(path, api):
    assert read({"request": MESSAGES, "response": ERROR, "path": path, "status": 400}).api == api


def test_what_a_server_answers_does_not_change_the_api_of_the_path():
    body = {"object": "text_completion", "choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}]}
    assert read({"request": MESSAGES, "response": body, "path": "/v1/chat/completions"}).api == "chat"


@pytest.mark.parametrize(
    ("request_body", "response"),
    [
        ({"model": "m", "input": "Hi"}, {"object": "list", "data": [{"embedding": [0.1]}]}),
        ({"query": "Hi", "documents": []}, {"results": []}),
    ],
    ids=["embeddings", "rerank"],
)
def test_another_api_is_no_exchange(request_body, response):
    (problem,) = read_line(
        Line(
            offset=0,
            number=1,
            data=json.dumps({"request": request_body, "response": response, "path": "/v1/embeddings"}).encode(),
        ),
        "auto",
        name="log@0",
    )
    assert problem.kind.startswith("no exchange: its request is for no API that is known")
