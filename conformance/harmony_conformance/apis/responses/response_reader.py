"""An answer of the Responses API, which is a list of items, as the one message of a chat completion.

Texts of one kind are joined with a line break: what stood in two items is not glued together. Every other member of an item that the server wrote is
kept in the member `output` of the message, so that nothing of it goes unseen.
"""

from __future__ import annotations

from typing import Final

from harmony_conformance.apis.responses.request_reader import thought_of
from harmony_conformance.json_value import Json, JsonObject, at, items, members, text

BETWEEN_ITEMS: Final = "\n"
_SHOWN_ELSEWHERE = frozenset({"content", "summary", "arguments", "call_id", "name", "encrypted_content"})
_FUNCTION_CALL = "function_call"


def completion(body: Json) -> Json:
    """The `chat.completion` that a response object means; a body that is none stays as it is."""
    if not isinstance(body, dict) or not (isinstance(body.get("output"), list) or body.get("object") == "response"):
        return body
    output = items(body.get("output"))
    choice: JsonObject = {"index": 0, "message": _message(output), "finish_reason": finish_reason(body)}
    entries = [entry for item in output for entry in logprobs(members(item))]
    if entries:
        choice["logprobs"] = {"content": entries}
    if "token_ids" in body:
        choice["token_ids"] = body["token_ids"]
    told: JsonObject = {**identity(body, "chat.completion"), "choices": [choice]}
    problem = failure(body)
    if problem is not None:
        told = {**told, "error": problem, "choices": [choice] if output else []}
    return {**told, **shared(body)}


def identity(response: JsonObject, kind: str) -> JsonObject:
    """The id, time and model of a response, as chat tells them."""
    return {
        "id": response.get("id"),
        "object": kind,
        "created": response.get("created_at"),
        "model": response.get("model"),
    }


def shared(response: JsonObject) -> JsonObject:
    """What an answer in one piece and the last chunk of a stream have in common: usage, and the ids of the prompt."""
    told: JsonObject = {}
    if isinstance(response.get("usage"), dict):
        told["usage"] = usage(members(response["usage"]))
    if "prompt_token_ids" in response:
        told["prompt_token_ids"] = response["prompt_token_ids"]
    return told


def usage(counts: JsonObject) -> JsonObject:
    """The counts under their names in chat."""
    names = {
        "input_tokens": "prompt_tokens",
        "output_tokens": "completion_tokens",
        "input_tokens_details": "prompt_tokens_details",
        "output_tokens_details": "completion_tokens_details",
    }
    return {names.get(name, name): value for name, value in counts.items()}


def finish_reason(response: JsonObject) -> Json:
    """Why the answer ended, in the words of chat; None where its status says that it has not."""
    match response.get("status"):
        case "completed":
            called = any(at(item, "type") == _FUNCTION_CALL for item in items(response.get("output")))
            return "tool_calls" if called else "stop"
        case "incomplete":
            reason = at(response, "incomplete_details", "reason")
            return "length" if reason == "max_output_tokens" else reason
        case _:
            return None


def failure(response: JsonObject) -> Json:
    """The error that a response tells instead of an answer, or beside the beginning of one."""
    problem = response.get("error")
    if problem is not None:
        return problem
    status = response.get("status")
    return {"message": f"the response has {status}"} if status in ("failed", "cancelled") else None


def _message(output: list[Json]) -> JsonObject:
    thoughts = [thought for item in output if at(item, "type") == "reasoning" if (thought := thought_of(members(item)))]
    parts = [items(at(item, "content")) for item in output if at(item, "type") == "message"]
    texts = ["".join(text(at(part, "text")) for part in held) for held in parts]
    refusals = [said for held in parts for part in held if (said := text(at(part, "refusal")))]
    calls: list[Json] = [
        call(members(item), text(at(item, "arguments"))) for item in output if at(item, "type") == _FUNCTION_CALL
    ]
    message: JsonObject = {"role": "assistant", "content": BETWEEN_ITEMS.join(filter(None, texts)) if parts else None}
    if thoughts:
        message["reasoning"] = BETWEEN_ITEMS.join(thoughts)
    if refusals:
        message["refusal"] = BETWEEN_ITEMS.join(refusals)
    if calls:
        message["tool_calls"] = calls
    message["output"] = [rest_of(members(item), place) for place, item in enumerate(output)]
    return message


def call(item: JsonObject, arguments: str) -> JsonObject:
    """A function call as chat has it; it is known by its `call_id`."""
    function: JsonObject = {"name": item.get("name"), "arguments": arguments}
    return {"id": item.get("call_id"), "type": "function", "function": function}


def logprobs(item: JsonObject) -> list[Json]:
    """The log probabilities of the texts of an item."""
    if item.get("type") != "message":
        return []
    return [entry for part in items(item.get("content")) for entry in items(at(part, "logprobs"))]


def rest_of(item: JsonObject, place: int) -> JsonObject:
    """What an item has beside its text; `index` says which it is. An encrypted content is not for reading."""
    rest: JsonObject = {name: value for name, value in item.items() if name not in _SHOWN_ELSEWHERE}
    if item.get("type") == "message":
        described: list[JsonObject] = [
            {name: value for name, value in members(part).items() if name not in ("text", "refusal", "logprobs")}
            for part in items(item.get("content"))
        ]
        rest["parts"] = [part for part in described if set(part) - {"type"} and part.get("annotations") != []]
    return {"index": place, **rest}
