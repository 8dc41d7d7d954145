"""The Conversations API: items that responses continue and extend."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from harmony_conformance.json_value import Json, JsonObject, dumps, members, text
from harmony_conformance.reference_server.pipeline.http import json_response, read_json_body
from harmony_conformance.reference_server.pipeline.prompt_run import derive_id
from harmony_conformance.reference_server.requests.errors import ApiError, wrong_value
from harmony_conformance.reference_server.responses.input_items import read_items

_MOST = 1024
_MOST_NEW_ITEMS = 20
_LARGEST = 16 * 1024 * 1024
"""Maximum characters of JSON of the items of one conversation."""

_PAGE, _LARGEST_PAGE = 20, 100


@dataclass(kw_only=True)
class _Conversation:
    created: int
    metadata: Json
    entries: list[JsonObject] = field(default_factory=list[JsonObject])


class Conversations:
    """Conversations by id; the oldest is removed first."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._stored: OrderedDict[str, _Conversation] = OrderedDict()
        self._created = 0

    def routes(self) -> list[Route]:
        """Return the routes."""
        one, entries = "/v1/conversations/{id}", "/v1/conversations/{id}/items"
        return [
            Route("/v1/conversations", self.create, methods=["POST"]),
            Route(one, self.retrieve, methods=["GET"]),
            Route(one, self.update, methods=["POST"]),
            Route(one, self.delete, methods=["DELETE"]),
            Route(entries, self.add_items, methods=["POST"]),
            Route(entries, self.list_items, methods=["GET"]),
            Route(f"{entries}/{{item}}", self.item, methods=["GET"]),
            Route(f"{entries}/{{item}}", self.delete_item, methods=["DELETE"]),
        ]

    def entries(self, name: str | None) -> tuple[Json, ...]:
        """Return the items of a conversation, none without a name; raise an ApiError (404) for an unknown id."""
        return () if name is None else tuple(self._get(name).entries)

    def extend(self, name: str, new: Sequence[Json]) -> list[JsonObject]:
        """Add items, each with an id and its type; raise an ApiError if the conversation gets too large."""
        conversation = self._get(name)
        first = len(conversation.entries)
        added = [_with_id(members(entry), f"{name}/{first + index}") for index, entry in enumerate(new)]
        if len(dumps([*conversation.entries, *added])) > _LARGEST:
            raise wrong_value("items", f"expected at most {_LARGEST} characters in one conversation.")
        conversation.entries += added
        return added

    async def create(self, request: Request) -> Response:
        """POST /v1/conversations."""
        body = await read_json_body(request)
        new = _new_items(body.get("items") or [])
        self._created += 1
        name = derive_id("conv_", self._created)
        self._stored[name] = _Conversation(created=int(self._now()), metadata=_metadata(body))
        self.extend(name, new)
        while len(self._stored) > _MOST:
            self._stored.popitem(last=False)
        return json_response(HTTPStatus.OK, self._object(name))

    async def retrieve(self, request: Request) -> Response:
        """GET /v1/conversations/{id}."""
        return json_response(HTTPStatus.OK, self._object(request.path_params["id"]))

    async def update(self, request: Request) -> Response:
        """POST /v1/conversations/{id}: replace the metadata."""
        conversation = self._get(request.path_params["id"])
        conversation.metadata = _metadata(await read_json_body(request))
        return json_response(HTTPStatus.OK, self._object(request.path_params["id"]))

    async def delete(self, request: Request) -> Response:
        """DELETE /v1/conversations/{id}."""
        name = request.path_params["id"]
        self._get(name)
        del self._stored[name]
        return json_response(HTTPStatus.OK, {"id": name, "object": "conversation.deleted", "deleted": True})

    async def add_items(self, request: Request) -> Response:
        """POST /v1/conversations/{id}/items."""
        name = request.path_params["id"]
        known = self._get(name).entries
        new = _new_items((await read_json_body(request)).get("items"), known)
        return json_response(HTTPStatus.OK, _page(self.extend(name, new), has_more=False))

    async def list_items(self, request: Request) -> Response:
        """GET /v1/conversations/{id}/items, the last one first unless `order` is `asc`."""
        entries = list(self._get(request.path_params["id"]).entries)
        query = request.query_params
        if query.get("order", "desc") not in ("asc", "desc"):
            raise wrong_value("order", f"expected 'asc' or 'desc', got {query['order']!r}.")
        ordered = entries if query.get("order") == "asc" else entries[::-1]
        if (after := query.get("after")) is not None:
            places = [place for place, entry in enumerate(ordered, 1) if entry.get("id") == after]
            ordered = ordered[places[0] :] if places else []
        limit = query.get("limit", str(_PAGE))
        if not limit.isdecimal() or not 1 <= int(limit) <= _LARGEST_PAGE:
            raise wrong_value("limit", f"expected a whole number from 1 to {_LARGEST_PAGE}, got {limit!r}.")
        return json_response(HTTPStatus.OK, _page(ordered[: int(limit)], has_more=len(ordered) > int(limit)))

    async def item(self, request: Request) -> Response:
        """GET /v1/conversations/{id}/items/{item}."""
        return json_response(HTTPStatus.OK, self._item(request))

    async def delete_item(self, request: Request) -> Response:
        """DELETE /v1/conversations/{id}/items/{item}: return the conversation."""
        self._get(request.path_params["id"]).entries.remove(self._item(request))
        return json_response(HTTPStatus.OK, self._object(request.path_params["id"]))

    def _item(self, request: Request) -> JsonObject:
        name, item = request.path_params["id"], request.path_params["item"]
        found = next((entry for entry in self._get(name).entries if entry.get("id") == item), None)
        if found is None:
            raise _not_found(f"Item with id '{item}'")
        return found

    def _get(self, name: str) -> _Conversation:
        if name not in self._stored:
            raise _not_found(f"Conversation with id '{name}'")
        return self._stored[name]

    def _object(self, name: str) -> JsonObject:
        stored = self._get(name)
        return {"id": name, "object": "conversation", "created_at": stored.created, "metadata": stored.metadata}


def _not_found(what: str) -> ApiError:
    return ApiError(f"{what} not found.", status=HTTPStatus.NOT_FOUND, code="not_found")


def _metadata(body: JsonObject) -> Json:
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise wrong_value("metadata", "expected an object.")
    return metadata


def _new_items(value: Json, known: Sequence[JsonObject] = ()) -> list[Json]:
    """Return the items of a request; raise an ApiError if one is invalid after the items that are `known`."""
    if not isinstance(value, list) or len(value) > _MOST_NEW_ITEMS:
        raise wrong_value("items", f"expected a list of at most {_MOST_NEW_ITEMS} items.")
    if value:
        read_items([*known, *value])
    return value


def _with_id(entry: JsonObject, seed: str) -> JsonObject:
    """Return an item as it is listed: with id, type and status, the text of a message as a part."""
    kind = text(entry.get("type")) or "message"
    if kind != "message":
        return {"id": derive_id("item_", seed), **entry}
    content = entry.get("content")
    part = "output_text" if entry.get("role") == "assistant" else "input_text"
    parts: Json = [{"type": part, "text": content}] if isinstance(content, str) else content
    return {"id": derive_id("msg_", seed), "status": "completed", **entry, "type": kind, "content": parts}


def _page(entries: Sequence[JsonObject], *, has_more: bool) -> JsonObject:
    first, last = (entries[0].get("id"), entries[-1].get("id")) if entries else (None, None)
    return {"object": "list", "data": [*entries], "first_id": first, "last_id": last, "has_more": has_more}
