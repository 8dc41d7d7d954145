"""Functions that build a change of a JSON body from changes of its parts."""

from collections.abc import Callable, Iterator

from harmony_conformance.json_value import InvalidJsonError, Json, JsonObject, integer, items, loads, members, value_at
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnJson, OnRequest
from harmony_conformance.reference_server.model.output_deltas import DONE

TOOL_ROLE_REFUSED = (
    "Template error: Message has tool role, but there was no previous assistant message with a tool call!"
)
"""Error of TGI for a history with a tool result."""
BodyChange = Callable[[JsonObject], JsonObject]


def in_list(name: str, change: BodyChange) -> BodyChange:
    """Apply `change` to each object in the list `name`."""

    def changed(body: JsonObject) -> JsonObject:
        if not isinstance(body.get(name), list):
            return body
        return {**body, name: [change(entry) if isinstance(entry, dict) else entry for entry in items(body[name])]}

    return changed


def in_member(name: str, change: BodyChange) -> BodyChange:
    """Apply `change` to the object `name`."""
    return lambda body: {**body, name: change(members(body[name]))} if isinstance(body.get(name), dict) else body


def in_choices(change: BodyChange) -> BodyChange:
    """Apply `change` to each choice; a body without choices gets an empty list of them."""
    return lambda body: {**body, "choices": [change(members(choice)) for choice in items(body.get("choices"))]}


def in_answer(change: BodyChange) -> BodyChange:
    """Apply `change` to the message and to the delta of a choice."""
    return lambda choice: in_member("message", change)(in_member("delta", change)(choice))


def drop_members(*names: str) -> BodyChange:
    """Remove members."""
    return lambda body: {name: value for name, value in body.items() if name not in names}


def drop_done(stream: Iterator[Json]) -> Iterator[Json]:
    """Drop the final `[DONE]` of a stream."""
    return (data for data in stream if data != DONE)


def for_type(kind: str, change: BodyChange) -> BodyChange:
    """Apply `change` to items of one `type` only."""
    return lambda item: change(item) if item.get("type") == kind else item


def all_zero(usage: JsonObject) -> JsonObject:
    """Set all counts of a `usage` object to 0."""
    return {name: 0 if integer(value) is not None else value for name, value in usage.items()}


def is_json(document: str) -> bool:
    """Return True if the text is a JSON document."""
    try:
        loads(document)
    except InvalidJsonError:
        return False
    return True


def on_json(api: ApiFamily, ident: str, summary: str, change: BodyChange, catalogue: tuple[str, ...] = ()) -> Defect:
    """Build a defect of responses and of the chunks of streams."""
    return Defect(ident, summary, OnJson(change, api), catalogue)


def on_request(api: ApiFamily, ident: str, summary: str, change: BodyChange, catalogue: tuple[str, ...] = ()) -> Defect:
    """Build a defect of the reading of requests."""
    return Defect(ident, summary, OnRequest(change, api), catalogue)


def as_ping(event: Json) -> Json:
    """Return a ping with the token ids of an event: a server that loses an event still generated its tokens."""
    return {"type": "ping", **{name: ids for name, ids in members(event).items() if name == "token_ids"}}


def without_events(stream: Iterator[Json], is_dropped: Callable[[Json], bool]) -> Iterator[JsonObject]:
    """Drop events and close the gaps in the numbers of the others. A wrong numbering stays wrong."""
    dropped = 0
    for event in stream:
        if is_dropped(event):
            dropped += 1
        else:
            number = (integer(value_at(event, "sequence_number")) or 0) - dropped
            yield {**members(event), "sequence_number": number}
