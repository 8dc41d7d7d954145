"""The official clients at their default of two retries, behind a guard that blocks: how often the model is asked."""

import asyncio

import anthropic
import httpx2
import openai
import pytest

from harmony_conformance.reference_server.server.app import create_app
from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.configuration import load_rules
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings

LEAKS = ["channels.no_marker_leak", "channels.no_channel_words"]
ASK = {"model": "gpt-oss-reference", "messages": [{"role": "user", "content": "Hi"}]}
RETRIES = 2


class Queue(JudgeQueue):
    """Judges nothing: no process is started."""

    def start(self):
        return


class Counting:
    """Counts the requests that reach an application. The first `broken` ones end without an answer."""

    def __init__(self, app, broken=0):
        self.app, self.broken, self.requests = app, broken, 0

    async def __call__(self, scope, receive, send):
        self.requests += 1
        if self.requests <= self.broken:
            raise ConnectionError
        await self.app(scope, receive, send)


def ask(app, call, client=openai.AsyncOpenAI, base="http://test/v1"):
    async def asked():
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with (
            httpx2.AsyncClient(transport=transport) as http,
            client(base_url=base, api_key="k", http_client=http) as one,
        ):
            assert one.max_retries == RETRIES
            answer = await call(one)
            return [event async for event in answer] if hasattr(answer, "__aiter__") else answer

    return asyncio.run(asked())


def guarded(app, **rules):
    return HarmonyGuard(app, policy=load_rules(**rules), queue=Queue(JudgeSettings()))


def message(client, **more):
    return client.messages.create(**ASK, max_tokens=512, **more)


CALLS = {
    "chat": (lambda one: one.chat.completions.create(**ASK), {}),
    "chat, streamed": (lambda one: one.chat.completions.create(**ASK, stream=True), {}),
    "responses": (lambda one: one.responses.create(model=ASK["model"], input="Hi"), {}),
    "messages": (message, {"client": anthropic.AsyncAnthropic, "base": "http://test"}),
    "messages, streamed": (
        lambda one: message(one, stream=True),
        {"client": anthropic.AsyncAnthropic, "base": "http://test"},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_block_is_final_for_the_official_client(name):
    call, options = CALLS[name]
    leaking = Counting(create_app(defects=["output-unparsed"]))
    with pytest.raises((openai.APIError, anthropic.APIError), match="blocked"):
        ask(guarded(leaking, block=LEAKS), call, **options)
    assert leaking.requests == 1


def test_a_blocked_stream_of_responses_ends_with_the_error_event_of_the_api():
    leaking = Counting(create_app(defects=["output-unparsed"]))
    call = lambda one: one.responses.create(model=ASK["model"], input="Hi", stream=True)  # noqa: E731
    events = ask(guarded(leaking, block=LEAKS), call)
    assert (events[-1].type, events[-1].code, leaking.requests) == ("error", "blocked_by_policy", 1)


def test_an_answer_that_could_not_be_examined_is_final():
    async def unreadable(_scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-encoding", b"odd")]})
        await send({"type": "http.response.body", "body": b"{}"})

    app = Counting(unreadable)
    with pytest.raises(openai.InternalServerError, match="could not be examined"):
        ask(guarded(app, block=LEAKS, fail="closed"), CALLS["chat"][0])
    assert app.requests == 1


def test_an_upstream_that_broke_off_is_asked_again():
    app = Counting(create_app(), broken=1)
    answer = ask(guarded(app, block=LEAKS), CALLS["chat"][0])
    assert (answer.choices[0].finish_reason, app.requests) == ("stop", 2)
