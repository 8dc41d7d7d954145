"""Reasoning that a server signed or encrypted is sent back as it came, and any other reasoning as it is written anew."""

import pytest

from harmony_conformance.apis.registry import MESSAGES, RESPONSES
from harmony_conformance.apis.returned_reasoning import keep_returned_reasoning
from harmony_conformance.reference_server import MODEL

CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
SEALED_ITEM = {"id": "rs_a", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}
PLAIN_ITEM = {"id": "rs_a", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Ask."}]}
WRITTEN_ITEM = {**PLAIN_ITEM, "id": "rs_1"}
TOOL_USE = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}}
REDACTED = {"type": "redacted_thinking", "data": "sealed"}
SIGNED = {"type": "thinking", "thinking": "Ask.", "signature": "signed"}
UNSIGNED = {"type": "thinking", "thinking": "Ask.", "signature": ""}
WRITTEN = {"type": "thinking", "thinking": "Ask.", "signature": "harmony-conformance"}


def next_request(api, response):
    answer = keep_returned_reasoning(api.read_response(response), response)
    messages = [{"role": "user", "content": "Hi"}, answer["choices"][0]["message"]]
    return api.write_request({"model": MODEL, "messages": messages})


@pytest.mark.parametrize(
    ("output", "sent"),
    [
        pytest.param([SEALED_ITEM, CALL], [SEALED_ITEM, CALL], id="encrypted"),
        pytest.param([PLAIN_ITEM, CALL], [WRITTEN_ITEM, CALL], id="with its text alone"),
        pytest.param([SEALED_ITEM], [SEALED_ITEM], id="alone"),
        pytest.param([CALL], [CALL], id="none"),
    ],
)
def test_a_response_is_sent_back_with_its_encrypted_reasoning(output, sent):
    body = {"id": "resp_1", "object": "response", "status": "completed", "output": output}
    assert next_request(RESPONSES, body)["input"][1:] == sent


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        pytest.param([REDACTED, TOOL_USE], [REDACTED, TOOL_USE], id="redacted"),
        pytest.param([SIGNED, TOOL_USE], [SIGNED, TOOL_USE], id="signed"),
        pytest.param([UNSIGNED, TOOL_USE], [WRITTEN, TOOL_USE], id="unsigned"),
        pytest.param([REDACTED], [REDACTED], id="alone"),
    ],
)
def test_a_message_is_sent_back_with_its_sealed_thinking(content, sent):
    body = {"id": "msg_1", "type": "message", "role": "assistant", "content": content, "stop_reason": "end_turn"}
    assert next_request(MESSAGES, body)["messages"][1] == {"role": "assistant", "content": sent}
