"""Stored responses, which later requests can continue."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from harmony_conformance.json_value import Json, JsonObject, dumps, items, members, text
from harmony_conformance.reference_server.pipeline.prompt_run import derive_id
from harmony_conformance.reference_server.requests.errors import ApiError

_MOST = 4096
"""Maximum number of stored responses; the oldest is removed first."""

LARGEST_STORE = 256 * 1024 * 1024
"""Maximum characters of JSON of all stored responses and their input."""


@dataclass(frozen=True, kw_only=True)
class StoredResponse:
    """A response and its input, including that of earlier responses."""

    response: JsonObject
    entries: tuple[Json, ...]


class Store:
    """Responses by id."""

    def __init__(self) -> None:
        self._stored: OrderedDict[str, StoredResponse] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._size = 0

    def add(self, stored: StoredResponse) -> None:
        """Store a response."""
        name = text(stored.response.get("id"))
        if name in self._stored:
            self.remove(name)
        self._stored[name] = stored
        self._sizes[name] = len(dumps([stored.response, *stored.entries]))
        self._size += self._sizes[name]
        while len(self._stored) > _MOST or self._size > LARGEST_STORE:
            self.remove(next(iter(self._stored)))

    def has(self, response: str) -> bool:
        """Return True if the response is stored."""
        return response in self._stored

    def get(self, response: str) -> StoredResponse:
        """Return the response with this id; raise an ApiError (404) for an unknown id."""
        if response not in self._stored:
            raise ApiError(f"Response with id '{response}' not found.", status=HTTPStatus.NOT_FOUND, code="not_found")
        return self._stored[response]

    def remove(self, response: str) -> None:
        """Remove a response; raise an ApiError (404) for an unknown id."""
        self.get(response)
        del self._stored[response]
        self._size -= self._sizes.pop(response)

    def previous_items(self, previous: Json, last: StoredResponse | None = None) -> tuple[Json, ...]:
        """Return the items up to the end of the previous response, if any; raise an ApiError if it is not stored.

        `last` is the last response of the client's connection, which it may continue without a store.
        """
        if previous is None:
            return ()
        if last is not None and last.response.get("id") == previous:
            return (*last.entries, *items(last.response.get("output")))
        if not isinstance(previous, str) or previous not in self._stored:
            raise ApiError(
                f"Previous response with id '{previous}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        stored = self._stored[previous]
        if stored.response.get("status") in ("queued", "in_progress"):
            raise ApiError(f"Previous response with id '{previous}' is not complete.", param="previous_response_id")
        return (*stored.entries, *items(stored.response.get("output")))

    def resolve_references(self, entries: Sequence[Json]) -> tuple[Json, ...]:
        """Replace each item reference by its item; raise an ApiError if it is not stored."""
        if not any(members(entry).get("type") == "item_reference" for entry in entries):
            return tuple(entries)
        stored_items: dict[str, Json] = {}
        for stored in self._stored.values():
            for entry in (*stored.entries, *items(stored.response.get("output"))):
                stored_items.setdefault(text(members(entry).get("id")), entry)
        return tuple(
            _item(text(members(entry).get("id")), stored_items)
            if members(entry).get("type") == "item_reference"
            else entry
            for entry in entries
        )


def _item(item: str, stored_items: Mapping[str, Json]) -> Json:
    if item in stored_items:
        return stored_items[item]
    raise ApiError(f"Item with id '{item}' not found.", param="input", code="item_not_found")


def input_items(stored: StoredResponse) -> list[Json]:
    """Return the input as the API lists it: the last item first, each with an id."""
    response = text(stored.response.get("id"))
    entries: list[Json] = [
        {"id": derive_id("item_", response, index), "type": "message", **members(entry)}
        for index, entry in enumerate(stored.entries)
    ]
    return entries[::-1]
