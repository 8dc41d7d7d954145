"""Records with less than a request and its response: an answer, a conversation, or a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from harmony_conformance.apis.api import CHAT_PATH
from harmony_conformance.apis.registry import APIS, COMPLETIONS
from harmony_conformance.apis.text_fields import parse_text
from harmony_conformance.audit.readers.records.api_detection import has_answer
from harmony_conformance.audit.readers.records.http_pair import (
    HttpPair,
    build_exchange,
    find_api_of,
    first_text,
    is_event_text,
)
from harmony_conformance.audit.readers.records.record import LoggedExchange, Shape
from harmony_conformance.audit.scopes import Scope
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import NotAnExchangeError
from harmony_conformance.evidence.levels import RenderedPrompt
from harmony_conformance.json_value import Json, JsonObject, dumps, integers, items, members, text, value_at
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_ref import encode_with_special_tokens

_JSON = {"content-type": "application/json"}
_TEXTS = ("answer", "completion", "output_text", "generated_text", "output", "response")
"""Names of an answer's text. `text` and `content` are too common in other logs."""
_QUESTIONS = ("prompt", "question", "instruction", "query")
"""Names of a text that a user wrote. One with markers is a rendered prompt, which is not read."""
_MARKER = "<|"
_CONVERSATIONS = ("messages", "conversation", "conversations")
_ANSWER_OF_A_CONVERSATION = "assistant"


def conversation_exchange(
    messages: list[Json], answer: Json, *, name: str, model: Json = None, started: str | None = None
) -> LoggedExchange:
    """Return the exchange of messages and the message that answers them. `messages` may be empty if the log has none.

    Raises:
        NotAnExchangeError: The answer has neither text nor calls.
    """
    message = {"content": answer} if isinstance(answer, str) else members(answer)
    message = {**message, "role": "assistant"}
    if not any(message.get(part) for part in ("content", "reasoning", "reasoning_content", "thinking", "tool_calls")):
        raise NotAnExchangeError("no exchange: its answer has neither text nor calls")
    request: JsonObject = {"model": model, "messages": messages}
    choice: JsonObject = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
    }
    body: JsonObject = {"object": "chat.completion", "model": model, "choices": [choice]}
    x = Exchange(
        id=name,
        request=Request(path=CHAT_PATH, body=_encode(request)),
        response=Response(status=200, headers=_JSON, chunks=(Chunk(arrival_time=0.0, data=_encode(body)),)),
        started=started,
        from_log=True,
    )
    return LoggedExchange(exchange=x, scope=Scope.CONVERSATION if messages else Scope.TEXT)


def _encode(value: Json) -> bytes:
    return dumps(value).encode("utf-8", "surrogatepass")


def _is_answer(value: JsonObject) -> bool:
    inner = value.get("response")
    is_plain_text = isinstance(inner, str) and not is_event_text(inner) and "done" not in value  # Ollama's has `done`
    return not is_plain_text and find_api_of(_answer_pair(value)) is not None


def _read_answer(value: Json, name: str) -> LoggedExchange:
    """Return the exchange of a response body, or of a stream: its events or their text. Each may be the member `response`."""
    return LoggedExchange(exchange=build_exchange(_answer_pair(value), name=name), scope=Scope.ANSWER)


def _answer_pair(value: Json) -> HttpPair:
    inner = value_at(value, "response")
    is_stream = isinstance(inner, str) and is_event_text(inner)
    response = inner if is_stream or isinstance(inner, dict | list) else value
    is_whole = isinstance(response, list) and any(has_answer(api, response) for api in APIS.values())
    return HttpPair(request={"stream": is_stream or (isinstance(response, list) and not is_whole)}, response=response)


ANSWER = Shape(name="answers", title="responses without their requests", matches=_is_answer, read=_read_answer)


def _is_conversation(value: JsonObject) -> bool:
    return any(isinstance(parse_text(value.get(name)), list) for name in _CONVERSATIONS)


def _read_conversation(value: Json, name: str) -> LoggedExchange:
    """Return the exchange of the last answer in a list of messages, or of messages and a separate answer."""
    found = members(value)
    messages = next(
        items(parse_text(found[key])) for key in _CONVERSATIONS if isinstance(parse_text(found.get(key)), list)
    )
    messages = [_common_message(message) for message in messages]
    separate = next((found[key] for key in _TEXTS if found.get(key)), None)
    if separate is not None:
        return conversation_exchange(messages, read_message(separate), name=name, model=found.get("model"))
    last = max(
        (place for place, one in enumerate(messages) if value_at(one, "role") == _ANSWER_OF_A_CONVERSATION), default=-1
    )
    if last < 0:
        raise NotAnExchangeError("no exchange: it has messages, but no answer")
    return conversation_exchange(messages[:last], messages[last], name=name, model=found.get("model"))


def _common_message(message: Json) -> Json:
    """Return a message under the names of Chat Completions. Data sets of conversations call them `from` and `value`."""
    roles = {"human": "user", "gpt": "assistant"}
    role = text(value_at(message, "from"))
    return {"role": roles.get(role, role), "content": value_at(message, "value")} if role else message


def read_message(value: Json) -> Json:
    """Return the message of an answer: a message, a list of messages, a response with choices, or a text."""
    parsed = parse_text(value)
    value = parsed if isinstance(parsed, dict | list) else value
    if isinstance(value, list):
        return read_message(value[-1]) if value else None
    choices = items(value_at(value, "choices"))
    if choices:
        return value_at(choices[0], "message")
    nested = next((value_at(value, key) for key in ("message", "messages") if value_at(value, key)), None)
    if nested is not None:
        return read_message(nested)
    if isinstance(value, dict) and not value.get("content") and not value.get("tool_calls"):
        beside: Iterable[Json] = (value[key] for key in _TEXTS if isinstance(value.get(key), str))
        return {**value, "content": next(iter(beside), None)}
    return value


CONVERSATION = Shape(
    name="messages", title="messages that end with an answer", matches=_is_conversation, read=_read_conversation
)


VLLM_REQUEST = "vllm_request"
"""The member with the request id of a record of vLLM's log."""
_RAW_ID = "cmpl-"
_PROMPT_END = "<|start|>assistant"


def _is_vllm_record(value: JsonObject) -> bool:
    return VLLM_REQUEST in value


def _read_vllm_record(value: Json, name: str) -> LoggedExchange:
    """Return the exchange of a generated response in vLLM's log. A prompt that does not end with the assistant's turn may be cut, and is not read."""
    found = members(value)
    prompt, output = (items(found.get(key)) for key in ("prompt_token_ids", "output_token_ids"))
    choice: JsonObject = {
        "index": 0,
        "text": found.get("output"),
        "finish_reason": found.get("finish_reason"),
        "token_ids": output,
    }
    if text(found[VLLM_REQUEST]).startswith(_RAW_ID):
        body: JsonObject = {"object": "text_completion", "choices": [choice]}
        pair = HttpPair(request={"prompt": prompt, "stream": False}, response=body, path=COMPLETIONS.path)
        return LoggedExchange(exchange=build_exchange(pair, name=name), scope=Scope.TOKENS)
    answer: JsonObject = {"content": found.get("output"), "reasoning": found.get("reasoning")}
    asked = found.get("request_body_of_vllm")
    messages, model = items(value_at(asked, "messages")), value_at(asked, "model")
    logged = conversation_exchange(messages, answer, name=name, model=model)
    ids = integers(prompt) or ()
    is_whole = ids[-2:] == tuple(encode_with_special_tokens(_PROMPT_END))
    rendered = RenderedPrompt(source="vLLM's log", ids=ids) if is_whole else None
    return LoggedExchange(exchange=replace(logged.exchange, rendered_prompt=rendered), scope=Scope.TOKENS)


VLLM_RECORD = Shape(
    name="vllm-record", title="a response of vLLM's log", matches=_is_vllm_record, read=_read_vllm_record
)


def _is_text(value: JsonObject) -> bool:
    return any(isinstance(value.get(name), str) and value[name] for name in _TEXTS)


def _read_text(value: Json, name: str) -> LoggedExchange:
    found = members(value)
    answer = value if isinstance(value, str) else first_text(found, _TEXTS)
    asked = first_text(found, _QUESTIONS)
    question: JsonObject = {"role": "user", "content": asked}
    messages: list[Json] = [question] if asked and _MARKER not in asked else []
    return conversation_exchange(messages, answer, name=name, model=found.get("model"))


TEXT = Shape(name="text", title="the text of an answer", matches=_is_text, read=_read_text)
