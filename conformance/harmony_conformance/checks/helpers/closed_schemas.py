"""Schemas of answers that a server closes over the Messages API: each object gets `additionalProperties: false`.

Anthropic's structured outputs list `additionalProperties` as "must be set to `false` for objects", and its official client sets it in every object.
A server that does the same as the client changes nothing that the API allows.
"""

from __future__ import annotations

from harmony_conformance.apis.registry import MESSAGES
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, canonical_json, find_objects, value_at


def answer_schema(x: Exchange) -> Json:
    """Return the schema of the answer in a request."""
    return value_at(x.chat_request, "response_format", "json_schema", "schema")


def is_closed_in_prompt(x: Exchange) -> bool:
    """Return True if the schema in the prompt of a Messages request is that of the request with all its objects closed."""
    if x.api != MESSAGES.name:
        return False
    wanted = canonical_json(_closed(answer_schema(x)))
    contents = (message.content for message in x.prompt_messages if message.role in ("developer", "system"))
    return any(canonical_json(one) == wanted for text in contents for one in find_objects(text))


def _closed(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {name: _closed(value) for name, value in schema.items()}
    return {**inner, "additionalProperties": False} if schema.get("type") == "object" else inner
