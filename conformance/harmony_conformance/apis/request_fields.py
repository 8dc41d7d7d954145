"""What spelling a request in another API's words has in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from harmony_conformance.apis.api import UnsupportedByApiError
from harmony_conformance.json_value import Json, JsonObject, at, text


def refuse_others(request: JsonObject, neutral: Mapping[str, tuple[Json, ...]]) -> None:
    """Members that the API does not have may only have values that ask for nothing.

    Raises:
        NotSpelled: one has another.
    """
    for name, values in neutral.items():
        given = request.get(name)
        if not any(given == value and isinstance(given, bool) == isinstance(value, bool) for value in values):
            raise UnsupportedByApiError(f"`{name}`")


def without(value: JsonObject, names: Collection[str]) -> JsonObject:
    """The other members."""
    return {name: member for name, member in value.items() if name not in names}


def failure(body: Json) -> Json:
    """What tells a failure in a text, in the words of Chat Completions; anything else as it is."""
    said = at(body, "error")
    if not isinstance(said, str):
        return body
    return {"error": {"message": said, "type": at(body, "error_type"), "param": None, "code": None}}


def said_as_text(content: Json) -> Json:
    """A content of parts as the text that it is; nothing as an empty text, and what is malformed as it is.

    Raises:
        NotSpelled: a part is no text.
    """
    if content is None:
        return ""
    if not isinstance(content, list):
        return content
    for part in content:
        if not isinstance(at(part, "text"), str):
            raise UnsupportedByApiError(f"content parts of the type {text(at(part, 'type'))}")
    return "".join(text(at(part, "text")) for part in content)
