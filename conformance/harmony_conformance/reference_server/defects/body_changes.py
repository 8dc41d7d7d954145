"""Functions that build a change of a JSON body from changes of its parts."""

from collections.abc import Callable, Sequence

from harmony_conformance.json_value import InvalidJsonError, JsonObject, items, loads, members, number
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnJson, OnRequest

Body = Callable[[JsonObject], JsonObject]


def in_list(name: str, change: Body) -> Body:
    """Apply `change` to each object in the list `name`."""

    def changed(body: JsonObject) -> JsonObject:
        if not isinstance(body.get(name), list):
            return body
        return {**body, name: [change(entry) if isinstance(entry, dict) else entry for entry in items(body[name])]}

    return changed


def in_member(name: str, change: Body) -> Body:
    """Apply `change` to the object `name`."""
    return lambda body: {**body, name: change(members(body[name]))} if isinstance(body.get(name), dict) else body


def in_choices(change: Body) -> Body:
    """Apply `change` to each choice; a body without choices gets an empty list of them."""
    return lambda body: {**body, "choices": [change(members(choice)) for choice in items(body.get("choices"))]}


def without(*names: str) -> Body:
    """Remove members."""
    return lambda body: {name: value for name, value in body.items() if name not in names}


def where(kind: str, change: Body) -> Body:
    """Apply `change` to items of one `type` only."""
    return lambda item: change(item) if item.get("type") == kind else item


def all_zero(usage: JsonObject) -> JsonObject:
    """Set all counts of a `usage` object to 0."""
    return {name: 0 if number(value) is not None else value for name, value in usage.items()}


def is_json(document: str) -> bool:
    """Return True if the text is a JSON document."""
    try:
        loads(document)
    except InvalidJsonError:
        return False
    return True


def on_json(api: ApiFamily, ident: str, catalogue: Sequence[str], summary: str, change: Body) -> Defect:
    """Build a defect of responses and of the chunks of streams."""
    return Defect(id=ident, catalogue=tuple(catalogue), summary=summary, change=OnJson(change, api))


def on_request(api: ApiFamily, ident: str, catalogue: Sequence[str], summary: str, change: Body) -> Defect:
    """Build a defect of the reading of requests."""
    return Defect(id=ident, catalogue=tuple(catalogue), summary=summary, change=OnRequest(change, api))
