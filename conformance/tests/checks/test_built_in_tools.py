"""Built-in tools in the system message: as openai-harmony writes them, and as the published chat template of gpt-oss does, they are never blamed."""

import json

import openai_harmony
import pytest

from harmony_conformance.checks.tools import built_in_tools_are_as_trained
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import judge_one
from harmony_conformance.prompts.conversation import ConversationOptions, conversation_of
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_ref import decode, encode_with_special_tokens, render_conversation_for_completion

DATE = "2025-06-28"


def request(*tools):
    return {"messages": [{"role": "user", "content": "Hi"}], "chat_template_kwargs": {"builtin_tools": list(tools)}}


def outcome(tools, prompt):
    choice = {"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}
    body = {"choices": [choice], "prompt_token_ids": encode_with_special_tokens(prompt)}
    chunks = (Chunk(arrival_time=0.0, data=json.dumps(body).encode()),)
    response = Response(status=200, headers={"content-type": "application/json"}, chunks=chunks)
    x = Exchange(id="x", request=Request(path="/", body=json.dumps(request(*tools)).encode()), response=response)
    return judge_one(built_in_tools_are_as_trained, [Series(name="", exchanges={"": x})], exercised=True).outcome


BUILT_IN = {
    "browser": openai_harmony.ToolNamespaceConfig.browser(),
    "python": openai_harmony.ToolNamespaceConfig.python(),
}


@pytest.mark.parametrize("tools", [("browser",), ("python",), ("browser", "python"), ("python", "browser")])
def test_the_conversation_declares_them_as_the_library_does(tools, render_by_library):
    content = openai_harmony.SystemContent.new().with_conversation_start_date(DATE)
    for tool in tools:
        content = content.with_tools(BUILT_IN[tool])
    system = openai_harmony.Message.from_role_and_content(openai_harmony.Role.SYSTEM, content)
    official = render_by_library([system.to_dict()])
    ours = conversation_of(request(*tools), ConversationOptions(), date=DATE)[:1]
    assert render_conversation_for_completion(ours, auto_drop_analysis=False) == official
    assert outcome(tools, decode(official)) is Outcome.PASS


def test_the_published_template_is_not_blamed():
    vectors = json.loads((golden.root() / "template" / "gpt-oss.json").read_text("utf-8"))["tests"]
    shown = next(test["expected"]["text"] for test in vectors if test["id"] == "template/gpt-oss/built-in-tools")
    assert outcome(("browser", "python"), shown) in (Outcome.PASS, Outcome.VARIANT)
