"""Changes of JSON bodies, put together from small ones."""

from collections.abc import Callable, Sequence

from harmony_conformance.json_value import JsonObject, items, members
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnJson, OnRequest

Body = Callable[[JsonObject], JsonObject]


def in_list(name: str, change: Body) -> Body:
    """Bodies with every entry of one list changed."""

    def changed(body: JsonObject) -> JsonObject:
        if not isinstance(body.get(name), list):
            return body
        return {**body, name: [change(entry) if isinstance(entry, dict) else entry for entry in items(body[name])]}

    return changed


def in_member(name: str, change: Body) -> Body:
    """Bodies with one object changed."""
    return lambda body: {**body, name: change(members(body[name]))} if isinstance(body.get(name), dict) else body


def without(*names: str) -> Body:
    """Bodies without some members."""
    return lambda body: {name: value for name, value in body.items() if name not in names}


def where(kind: str, change: Body) -> Body:
    """Changes only items of one type."""
    return lambda item: change(item) if item.get("type") == kind else item


def on_json(api: ApiFamily, ident: str, catalogue: Sequence[str], summary: str, change: Body) -> Defect:
    """A defect of answers."""
    return Defect(id=ident, catalogue=tuple(catalogue), summary=summary, change=OnJson(change, api))


def on_request(api: ApiFamily, ident: str, catalogue: Sequence[str], summary: str, change: Body) -> Defect:
    """A defect of how requests are read."""
    return Defect(id=ident, catalogue=tuple(catalogue), summary=summary, change=OnRequest(change, api))
