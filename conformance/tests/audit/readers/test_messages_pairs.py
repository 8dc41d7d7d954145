"""Logged exchanges of Messages are read by their path or their form, whole and streamed, and judged by the checks of that API."""

import asyncio
import json

import httpx
import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.reference_server import MODEL, create_app
from harmony_ref import encode_with_special_tokens

ANSWER = "<|channel|>analysis<|message|>We need to greet.<|end|><|start|>assistant<|channel|>final<|message|>Hello there!<|return|>"
REQUEST = {"model": MODEL, "max_tokens": 99, "messages": [{"role": "user", "content": "Hi"}]}


def answer(*defects, stream):
    async def sent():
        transport = httpx.ASGITransport(create_app(defects=defects))
        async with httpx.AsyncClient(transport=transport, base_url="http://reference") as client:
            script = list(encode_with_special_tokens(ANSWER))
            return await client.post("/v1/messages", json={**REQUEST, "stream": stream, "harmony_script": script})

    return asyncio.run(sent())


def events(response):
    return [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data: ")]


def line(form, response, *, stream):
    request = {**REQUEST, "stream": stream}
    body = (events(response) if form == "events" else response.text) if stream else response.json()
    if form != "http":
        return {"request": request, "response": body}
    head = {"status": 200, "headers": {"content-type": response.headers["content-type"]}}
    return {"request": {"path": "/v1/messages", "body": request}, "response": {**head, "body": body}}


def audited(tmp_path, *lines):
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines), "utf-8")
    code = main(["audit", str(tmp_path / "log.jsonl"), "--out", str(tmp_path / "out")])
    shown = (tmp_path / "out" / "audit.jsonl").read_text("utf-8")
    return code, shown


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("form", ["http", "pair", "events"])
def test_a_right_exchange_passes_and_a_leak_fails(tmp_path, form, stream):
    code, shown = audited(tmp_path, line(form, answer(stream=stream), stream=stream))
    assert code == 0
    assert "messages.thinking_is_signed" in shown
    leaking = line(form, answer("output-unparsed", stream=stream), stream=stream)
    code, shown = audited(tmp_path, leaking)
    assert code == 1
    assert "channels.no_channel_words" in shown


def test_a_defect_of_the_blocks_is_found_in_a_log(tmp_path):
    code, shown = audited(tmp_path, line("http", answer("messages-thinking-unsigned", stream=True), stream=True))
    assert code == 1
    assert "messages.thinking_is_signed" in shown
