"""The responses that the server remembers, so that a request may build on an earlier one."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus

from harmony_conformance.json_value import Json, JsonObject, items, members, text
from harmony_conformance.reference_server.pipeline.prompt_run import id_of
from harmony_conformance.reference_server.requests.errors import ApiError

_MOST = 4096
"""How many are remembered; the oldest is forgotten first."""


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A response, and the input that it answers, with all that went before."""

    response: JsonObject
    entries: tuple[Json, ...]


class Store:
    """Responses by their id."""

    def __init__(self) -> None:
        self._stored: OrderedDict[str, Stored] = OrderedDict()

    def keep(self, stored: Stored) -> None:
        """Remember one."""
        self._stored[text(stored.response.get("id"))] = stored
        while len(self._stored) > _MOST:
            self._stored.popitem(last=False)

    def found(self, response: str) -> Stored:
        """The one with this id.

        Raises:
            ApiError: a 404; there is none.
        """
        if response not in self._stored:
            raise ApiError(f"Response with id '{response}' not found.", status=HTTPStatus.NOT_FOUND, code="not_found")
        return self._stored[response]

    def forget(self, response: str) -> None:
        """Remove one.

        Raises:
            ApiError: a 404; there is none.
        """
        self.found(response)
        del self._stored[response]

    def before(self, previous: Json) -> tuple[Json, ...]:
        """All items up to the end of an earlier response; none where no earlier one is named.

        Raises:
            ApiError: it is not remembered.
        """
        if previous is None:
            return ()
        if not isinstance(previous, str) or previous not in self._stored:
            raise ApiError(
                f"Previous response with id '{previous}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        stored = self._stored[previous]
        return (*stored.entries, *items(stored.response.get("output")))

    def resolved(self, entries: Sequence[Json]) -> tuple[Json, ...]:
        """The entries with the items that they only refer to.

        Raises:
            ApiError: an item is not remembered.
        """
        return tuple(
            self._item(text(members(entry).get("id"))) if members(entry).get("type") == "item_reference" else entry
            for entry in entries
        )

    def _item(self, item: str) -> Json:
        for stored in self._stored.values():
            for entry in (*stored.entries, *items(stored.response.get("output"))):
                if members(entry).get("id") == item:
                    return entry
        raise ApiError(f"Item with id '{item}' not found.", param="input", code="item_not_found")


def input_items(stored: Stored) -> list[Json]:
    """The input as the API lists it, the last item first, each with an id."""
    response = text(stored.response.get("id"))
    listed: list[Json] = [
        {"id": id_of("item_", response, place), "type": "message", **members(entry)}
        for place, entry in enumerate(stored.entries)
    ]
    return listed[::-1]
