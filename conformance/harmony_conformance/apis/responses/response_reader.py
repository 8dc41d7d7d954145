"""Translate a response object, a list of output items, to a chat completion with one message.

Texts of one kind from several items are joined with a line break. All other members of the items are copied to the message's member
`output`, so that checks see them too.
"""

from __future__ import annotations

from typing import Final

from harmony_conformance.apis.responses.request_reader import reasoning_text
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at

ITEM_SEPARATOR: Final = "\n"
_SHOWN_ELSEWHERE = frozenset({"content", "summary", "arguments", "call_id", "name", "encrypted_content"})
_FUNCTION_CALL = "function_call"


def read_response(body: Json) -> Json:
    """Translate a response object to a `chat.completion`. Return any other body unchanged."""
    if not isinstance(body, dict) or not (isinstance(body.get("output"), list) or body.get("object") == "response"):
        return body
    output = items(body.get("output"))
    choice: JsonObject = {"index": 0, "message": _message(output), "finish_reason": finish_reason(body)}
    if entries := [entry for item in output for entry in message_logprobs(members(item))]:
        choice["logprobs"] = {"content": entries}
    if "token_ids" in body:
        choice["token_ids"] = body["token_ids"]
    translated: JsonObject = {**response_identity(body, "chat.completion"), "choices": [choice]}
    if (error := response_error(body)) is not None:
        translated |= {"error": error, "choices": [choice] if output else []}
    return {**translated, **usage_and_prompt_ids(body)}


def response_identity(response: JsonObject, kind: str) -> JsonObject:
    """Return id, time and model of a response under their names in a chat completion; `kind` becomes `object`."""
    return {
        "id": response.get("id"),
        "object": kind,
        "created": response.get("created_at"),
        "model": response.get("model"),
    }


def usage_and_prompt_ids(response: JsonObject) -> JsonObject:
    """Return the usage and the prompt ids of a response, if present. A stream's last chunk has them too."""
    reported: JsonObject = {}
    if isinstance(response.get("usage"), dict):
        reported["usage"] = translate_usage(members(response["usage"]))
    if "prompt_token_ids" in response:
        reported["prompt_token_ids"] = response["prompt_token_ids"]
    return reported


def translate_usage(counts: JsonObject) -> JsonObject:
    """Return the token counts under their names in Chat Completions."""
    names = {
        "input_tokens": "prompt_tokens",
        "output_tokens": "completion_tokens",
        "input_tokens_details": "prompt_tokens_details",
        "output_tokens_details": "completion_tokens_details",
    }
    return {names.get(name, name): value for name, value in counts.items()}


def finish_reason(response: JsonObject) -> Json:
    """Return the finish reason of Chat Completions for a response's status. None if the response is not finished or failed."""
    match response.get("status"):
        case "completed":
            has_calls = any(value_at(item, "type") == _FUNCTION_CALL for item in items(response.get("output")))
            return "tool_calls" if has_calls else "stop"
        case "incomplete":
            reason = value_at(response, "incomplete_details", "reason")
            return "length" if reason == "max_output_tokens" else reason
        case _:
            return None


def response_error(response: JsonObject) -> Json:
    """Return the error of a response, which may also have partial output. None without an error."""
    error = response.get("error")
    if error is not None:
        return error
    status = response.get("status")
    return {"message": f"the response has {status}"} if status in ("failed", "cancelled") else None


def _message(output: list[Json]) -> JsonObject:
    written = (reasoning_text(members(item)) for item in output if value_at(item, "type") == "reasoning")
    thoughts = [thought for thought in written if thought]
    parts = [items(value_at(item, "content")) for item in output if value_at(item, "type") == "message"]
    texts = ["".join(text(value_at(part, "text")) for part in content) for content in parts]
    refusals = [refusal for content in parts for part in content if (refusal := text(value_at(part, "refusal")))]
    made = (members(item) for item in output if value_at(item, "type") == _FUNCTION_CALL)
    calls: list[Json] = [translate_call(item, text(item.get("arguments"))) for item in made]
    message: JsonObject = {"role": "assistant", "content": ITEM_SEPARATOR.join(filter(None, texts)) if parts else None}
    if thoughts:
        message["reasoning"] = ITEM_SEPARATOR.join(thoughts)
    if refusals:
        message["refusal"] = ITEM_SEPARATOR.join(refusals)
    if calls:
        message["tool_calls"] = calls
    message["output"] = [untranslated_members(members(item), place) for place, item in enumerate(output)]
    return message


def translate_call(item: JsonObject, arguments: str) -> JsonObject:
    """Return a function call item as an element of `tool_calls`. Its id is the item's `call_id`."""
    function: JsonObject = {"name": item.get("name"), "arguments": arguments}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def message_logprobs(item: JsonObject) -> list[Json]:
    """Return the log probabilities of a message item's texts, one entry per token."""
    if item.get("type") != "message":
        return []
    return [entry for part in items(item.get("content")) for entry in items(value_at(part, "logprobs"))]


def untranslated_members(item: JsonObject, place: int) -> JsonObject:
    """Return the members of an item that are not translated otherwise, without encrypted content. `index` is the item's place.

    Name and arguments are such members of a call that is no function call, for example of an MCP tool.
    """
    shown = _SHOWN_ELSEWHERE if item.get("type") == _FUNCTION_CALL else _SHOWN_ELSEWHERE - {"name", "arguments"}
    rest: JsonObject = {name: value for name, value in item.items() if name not in shown}
    if item.get("type") == "message":
        described: list[JsonObject] = [
            {name: value for name, value in members(part).items() if name not in ("text", "refusal", "logprobs")}
            for part in items(item.get("content"))
        ]
        rest["parts"] = [part for part in described if set(part) - {"type"} and part.get("annotations") != []]
    return {"index": place, **rest}
