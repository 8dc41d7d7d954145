import asyncio
import json

import pytest

from harmony_conformance.engines.diagnosis import EndpointUnusableError, KeyRefusedError
from harmony_conformance.engines.identification import SIGNATURES, identify
from harmony_conformance.engines.profiles import ENGINES
from harmony_conformance.transport.client import SendResult
from harmony_conformance.transport.messages import Chunk, Response

NOT_FOUND = (404, {}, b'{"detail":"Not Found"}')
MODEL = {"id": "gpt-oss-20b", "object": "model"}


def listing(**model):
    return json.dumps({"object": "list", "data": [{**MODEL, **model}]}).encode()


# what real servers answered: vLLM 0.33.0 and llama.cpp b11549 as seen, the others as their sources write it
SERVERS = {
    "vllm": (
        {
            "/v1/models": (200, {"server": "uvicorn"}, listing(owned_by="vllm")),
            "/version": (200, {}, b'{"version":"0.33.0"}'),
        },
        ("vllm", "0.33.0", "`owned_by` at /v1/models"),
    ),
    "llama.cpp": (
        {
            "/v1/models": (200, {"server": "llama.cpp"}, listing()),
            "/props": (200, {}, b'{"default_generation_settings":{},"build_info":"b11549-abc"}'),
        },
        ("llamacpp", "b11549-abc", "the header `server` at /v1/models"),
    ),
    "llama.cpp behind a proxy that writes its own header": (
        {
            "/v1/models": (200, {"server": "nginx"}, listing()),
            "/props": (200, {}, b'{"default_generation_settings":{},"build_info":"b1"}'),
        },
        ("llamacpp", "b1", "`default_generation_settings` at /props"),
    ),
    "TGI": (
        {
            "/v1/models": (200, {}, listing(owned_by="gpt-oss-20b")),
            "/info": (200, {}, b'{"model_id":"m","router":"text-generation-router","version":"3.3.7"}'),
        },
        ("tgi", "3.3.7", "`router` at /info"),
    ),
    "Ollama": (
        {
            "/v1/models": (200, {}, listing(owned_by="library")),
            "/": (200, {}, b"Ollama is running"),
            "/api/version": (200, {}, b'{"version":"0.33.0"}'),
        },
        ("ollama", "0.33.0", "the greeting at /"),
    ),
    "SGLang, which speaks Ollama's API too": (
        {
            "/v1/models": (200, {}, listing(owned_by="sglang")),
            "/api/version": (200, {}, b'{"version":"0.0.0"}'),
            "/server_info": (200, {}, b'{"tp_size":1,"mem_fraction_static":0.8,"version":"0.5.23"}'),
        },
        ("sglang", "0.5.23", "`owned_by` at /v1/models"),
    ),
    "the reference server": (
        {"/v1/models": (200, {"server": "harmony-conformance"}, listing(owned_by="harmony-conformance"))},
        ("reference", None, "the header `server` at /v1/models"),
    ),
}


class Server:
    def __init__(self, paths):
        self.paths, self.asked = paths, []

    async def send(self, request):
        self.asked.append(request.path)
        status, headers, body = self.paths.get(request.path, NOT_FOUND)
        return SendResult(
            response=Response(status=status, headers=headers, chunks=(Chunk(arrival_time=0.0, data=body),))
        )


def known(paths, *, is_open=True, named=None):
    server = Server(paths)
    return asyncio.run(identify(server.send, named, ENGINES["openai"], is_open=is_open)), server


@pytest.mark.parametrize("name", list(SERVERS))
def test_a_server_is_known_by_what_it_says_of_itself(name):
    paths, (engine, version, sign) = SERVERS[name]
    told, server = known(paths)
    assert (told.engine.name, told.version, told.signatures) == (engine, version, (sign,))
    assert len(server.asked) == len(set(server.asked))


def test_a_server_that_shows_no_sign_stays_unknown_after_each_was_looked_for():
    told, server = known({"/v1/models": (200, {"server": "cloudflare"}, listing(owned_by="openai"))})
    assert (told.engine, told.signatures, told.version) == (None, (), None)
    assert set(server.asked) == {sign.path for sign in SIGNATURES} | {"/version"}


def test_where_the_engine_is_named_nothing_is_looked_for():
    told, server = known(SERVERS["vllm"][0], is_open=False)
    assert (told.engine, told.version, server.asked) == (None, "0.33.0", ["/v1/models", "/version"])


def test_a_page_of_html_at_every_path_is_no_sign():
    page = (200, {"content-type": "text/html"}, b"<html>default_generation_settings router</html>")
    paths = dict.fromkeys(("/", "/info", "/props", "/api/version", "/server_info", "/version"), page)
    told, _ = known({**paths, "/v1/models": (200, {}, listing())})
    assert (told.engine, told.version) == (None, None)


def test_a_refused_key_and_an_empty_list_are_reported():
    with pytest.raises(KeyRefusedError):
        known({"/v1/models": (401, {}, b"{}")})
    with pytest.raises(EndpointUnusableError, match="an empty list"):
        known({"/v1/models": (200, {}, b'{"object":"list","data":[]}')})


@pytest.mark.parametrize("engine", sorted({sign.engine for sign in SIGNATURES}))
def test_every_sign_is_of_an_engine_of_the_table(engine):
    assert engine in ENGINES
